"""main: the entry point: runs the process's command line in a fork of the warm process, if there is one, else here.

It imports next to nothing: a warm start waits for what stands here and in `warm`.
"""

import os
import sys
from collections.abc import Sequence

_NEVER_WARM = frozenset({"warm", "help", "-h", "--help", "-v", "--version", "completion", "__complete"})
"""Command lines that are quicker at home, or that are about the warm process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default this process's own; returns the exit code (`docs/internals.md#exit-codes`)."""
    if sys.platform == "win32":
        print("interlock: Windows isn't supported. Install and run Interlock in WSL.", file=sys.stderr)
        return 1
    _open_missing_streams()
    if arguments is None and not _is_traced() and not _NEVER_WARM & {*sys.argv[1:2]}:
        from interlock.cli.warm import run_in_warm_fork

        if (code := run_in_warm_fork()) is not None:
            os._exit(code)
    code = run_command_line(sys.argv[1:] if arguments is None else arguments, own_process=arguments is None)
    if arguments is None and not _is_traced():
        # Lease, store and streams are closed; this skips Python's own cleanup, which takes half a second.
        sys.stderr.flush()
        os._exit(code)
    return code


def run_command_line(arguments: Sequence[str], own_process: bool) -> int:
    """Run a command line in this process, and send what telemetry is left; returns the exit code."""
    from interlock.cli import command_line
    from interlock.state.frames import reserve_stack_space

    code = reserve_stack_space(command_line.run_command_line)(list(arguments), own_process)
    if "interlock.engine.client" in sys.modules:
        from interlock.engine.client import flush_telemetry_and_list_problems
        from interlock.state.text import make_visible

        for line in flush_telemetry_and_list_problems():
            print(f"interlock: {make_visible(line)}", file=sys.stderr)
    return code


def _open_missing_streams() -> None:
    """Open the null device for streams that were closed (`>&-`, some daemons), before a file gets their numbers."""
    sys.stdin = sys.stdin or os.fdopen(_open_null_device(), "r")
    sys.stdout = sys.stdout or os.fdopen(_open_null_device(), "w")
    sys.stderr = sys.stderr or os.fdopen(_open_null_device(), "w")


def _open_null_device() -> int:
    number = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(number, True)  # a command that gets no stream would take another file for it
    return number


def _is_traced() -> bool:
    """Whether a debugger, profiler or coverage runs, which writes its results at Python's own exit."""
    return sys.gettrace() is not None or sys.getprofile() is not None or "coverage" in sys.modules
