"""modules: how many of our modules and functions one approved shell call passes through, from the approval to its
result.

Counts functions that run, in any thread, from `resume` with the decision until the call's result event: in the process
that began the run, as the first and the second `y` in a session's terminal, and in one of its own, as `interlock
resume`. What importing a module calls doesn't count; a comprehension counts as a function. `--list` prints each module
with its lines and the functions that ran, `--json` the same for programs (`tests/test_approved_call.py` holds the
figures).
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from interlock.engine import Decision, Options, resume_sync, run_sync
from interlock.engine.driver.event_bus import EventBus

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("state", "prompts", "tools", "nodes", "graphs", "services", "engine", "cli")
AIM = (55, 650)
"""Modules and functions."""
_EMIT = EventBus.__call__.__code__


class Entered:
    """Records which of our functions are called until the call's result is emitted."""

    def __init__(self) -> None:
        self._on = True
        self._codes: set[CodeType] = set()
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not self._on or event != "call" or code in self._codes or _is_imported(frame):
            return
        # Bodies of modules and classes aren't optimised.
        if code is _EMIT:
            self._on = frame.f_locals["event"].type != "tool_result"
        elif code.co_flags & CO_OPTIMIZED:
            self._codes.add(code)

    def modules(self) -> dict[str, list[str]]:
        """Each module with those of its functions that ran."""
        if self._on:
            raise SystemExit("no result of the call was told")
        entered: dict[str, list[str]] = {}
        for code in self._codes | {_EMIT}:
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS:
                entered.setdefault(path.relative_to(ROOT).as_posix(), []).append(code.co_qualname)
        return {name: sorted(entered[name]) for name in sorted(entered)}


def _is_imported(frame: FrameType | None) -> bool:
    """Whether the frame runs while a module is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename != __file__:
            return True
        frame = frame.f_back
    return False


def options(folder: Path) -> Options:
    return Options(
        home=folder / "home",
        user_home=folder,
        workspace=folder / "work",
        model=f"script:{folder / 'replies.yaml'}",
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )


def park(folder: Path) -> str:
    """Make a run that waits before the first of two shell calls; returns its id."""
    (folder / "work").mkdir()
    calls = "".join(
        f"- tool_calls: [{{name: run_shell_command, args: {{command: touch made{n}}}}}]\n" for n in (1, 2)
    )
    (folder / "replies.yaml").write_text(f"{calls}- text: done\n")
    parked = run_sync("main", {"prompt": "go"}, options=options(folder))
    if parked.status != "waiting":
        raise SystemExit(f"expected a run that waits for an approval; it is {parked.status}: {parked.error}")
    return parked.run


def approve(folder: Path, run: str) -> dict[str, list[str]]:
    """Approve the call that waits, and return what was entered meanwhile, as `Entered.modules`."""
    entered = Entered()
    ended = resume_sync(run, decisions=[Decision("all", "proceed_once")], options=options(folder))
    if ended.status not in ("waiting", "done"):
        raise SystemExit(f"the approved run ended as {ended.status}: {ended.error}")
    return entered.modules()


def approve_alone(folder: Path, run: str) -> dict[str, list[str]]:
    """`approve`, in a process that starts with it."""
    command = [sys.executable, __file__, str(folder), run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout)


def measure() -> dict[str, dict[str, list[str]]]:
    """Return the modules with their functions that an approved call enters, in each kind of process."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        run, folder = park(Path(one)), Path(one)
        first, second = approve(folder, run), approve(folder, run)
        alone = approve_alone(Path(other), park(Path(other)))
    return {"first y of a session": first, "later y of a session": second, "interlock resume": alone}


def main(listed: bool = False) -> int:
    """Always returns 0: a test holds the figures."""
    for where, modules in measure().items():
        rooms = Counter[str]()
        for name, functions in modules.items():
            rooms[name.rpartition("/")[0]] += len(functions)
        print(
            f"{where}: an approved shell call enters {len(modules)} modules, {rooms.total()} functions "
            f"(aim: {AIM[0]}, {AIM[1]})"
        )
        print("  " + ", ".join(f"{room} {count}" for room, count in rooms.most_common()))
        for name, functions in modules.items() if listed else ():
            print(f"{len((ROOT / name).read_text().splitlines()):5} {name}: {', '.join(functions)}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(approve(Path(sys.argv[1]), sys.argv[2])))
    elif "--json" in sys.argv:
        print(json.dumps(measure()))
    else:
        sys.exit(main("--list" in sys.argv))
