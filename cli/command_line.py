"""command_line: finds the command of a command line, and turns every error into one line and an exit code."""

import errno
import io
import os
import re
import shlex
import sys
from pathlib import Path

from interlock.cli.catalog import COMMANDS, execute_command, root_help_text, split_command_and_arguments
from interlock.cli.version import VERSION
from interlock.state.errors import InterlockError, RunError, StoppedError, UserError
from interlock.state.text import make_visible

_DRIVING = frozenset({"run", "resume", "init"})
"""Commands whose output can be for programs; without one, `prompt`."""
_OUTPUT_FLAG = re.compile(r"\0(?:-o[\0=]?|--output-format[\0=])(json|stream-json)\0")
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_STARTING = frozenset({"run", "resume", "hooks", "policy", "mcp", "acp", "diagram", "doctor", "worker"})
"""Commands that start processes on behalf of models and settings, or import what runs do: these, and those that
aren't listed: `prompt`, and what other packages add."""


def run_command_line(argv: list[str], own_process: bool) -> int:
    """Run it; returns the exit code. `own_process`: the process is there for it alone."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch_command(argv, own_process)
        if own_process:
            sys.stdout.flush()
        return code
    except InterlockError as error:
        return _report_error(argv, error, _diagnose_unwritable_stdout(argv, error) or error)
    except BrokenPipeError:
        from interlock.cli.render.output import redirect_stdout_to_null

        redirect_stdout_to_null()
        return 141  # as shells report a program killed by SIGPIPE
    except KeyboardInterrupt:
        _write_json_failure_if_requested(argv, stopped := StoppedError("Stopped by Ctrl-C."))
        return stopped.exit_code
    except Exception as error:
        from interlock.state.errors import as_bug_error

        return _report_error(
            argv,
            error,
            _diagnose_unwritable_stdout(argv, error)
            or _diagnose_deleted_folder(error)
            or _diagnose_store_error(error)
            or as_bug_error(error),
        )


def _diagnose_unwritable_stdout(argv: list[str], error: Exception) -> InterlockError | None:
    """Diagnose the error as one of stdout, and give stdout up; None: it can still be written."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.filename or cause.errno not in _UNWRITABLE:
        return None
    try:
        print(flush=True)  # flushing alone wouldn't tell: an unbuffered stream has forgotten the text
    except OSError as lost:
        from interlock.cli.render.output import redirect_stdout_to_null

        redirect_stdout_to_null()
        kept = " What the run did is kept: interlock show latest" if _is_run_driving_command(argv) else ""
        return RunError(f"Can't write the output: {lost.strerror}. Free some space, or redirect it.{kept}")
    return None


def _diagnose_deleted_folder(error: Exception) -> InterlockError | None:
    """Diagnose the error as one of a start in a folder that was deleted; None: it is there."""
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        Path.cwd()
    except FileNotFoundError:
        known = os.environ.get("PWD", "")  # as the shell remembers it
        named = f" {known!r}" if known else ""
        if known and Path(known).is_dir():
            return UserError(
                f"The folder{named} was deleted and made anew. Enter it again: cd {shlex.quote(known)}"
            )
        return UserError(f"The current folder{named} was deleted. Enter one that exists, or name it: -C DIR")
    return None


def _diagnose_store_error(error: Exception) -> InterlockError | None:
    """Diagnose an exception that isn't ours as a full or damaged store or disk; None: a bug."""
    from interlock.engine.client import Client

    try:
        with Client.for_this_user().explain_store_errors():
            raise error
    except InterlockError as found:
        return found
    except Exception:
        return None


def _report_error(argv: list[str], error: Exception, shown_error: InterlockError) -> int:
    _write_json_failure_if_requested(argv, shown_error)
    text = f"interlock: {shown_error}"
    if {"-d", "--debug"} & set(argv):
        import traceback

        text = "".join(traceback.format_exception(error)) + text
    from interlock.cli.render.output import redact_secrets

    print(make_visible(redact_secrets(text)), file=sys.stderr)
    return shown_error.exit_code


def _write_json_failure_if_requested(argv: list[str], error: InterlockError) -> None:
    """Programs' output ends with a result also if no run was begun, even for flags that can't be read."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    found = _OUTPUT_FLAG.search("\0".join(["", *words, ""]))
    if error.shown or found is None or not _is_run_driving_command(argv):
        return
    from interlock.cli.driving import show_failure
    from interlock.cli.render.views import JsonView, StreamJsonView

    show_failure(JsonView() if found[1] == "json" else StreamJsonView(), error)


def _is_run_driving_command(argv: list[str]) -> bool:
    return bool(argv) and (argv[0] not in COMMANDS or argv[0] in _DRIVING)


def _dispatch_command(argv: list[str], own_process: bool) -> int:
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    if argv[:1] in (["-h"], ["--help"]):
        print(root_help_text(), end="")
        return 0
    if argv[:1] == ["__complete"]:
        from interlock.cli.commands.completion import print_completions

        return print_completions(argv[1:])
    if argv[:1] in (["-v"], ["--version"]):
        print(f"interlock {VERSION}")
        return 0
    try:
        Path.home()
    except RuntimeError as error:
        raise UserError("No home directory is known for this user. Set HOME.") from error
    name, rest = split_command_and_arguments(argv)
    if own_process and (name in _STARTING or name not in COMMANDS):
        from interlock.cli.startup import pause_garbage_collection
        from interlock.services.secrets.environment import hide_process_environment

        hide_process_environment()
        pause_garbage_collection()
    return execute_command(name, rest)
