"""A run on a git repository is killed while it is cloned, moved and delivered: what arrives is as if nothing had been.

Each kill is before or after a command of git's, the naming of a clone or the keeping of a patch. Then the run goes on,
every other time on another host.
"""

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from commands import Run, run
from patience import sweep_part
from test_fleet import fleet
from test_fleet_git import Begin, begin, git, origin, settings

from interlock.engine.store import resolve_state_directory
from interlock.fleet import checkout, delivery, drive_process, mirrors

__all__ = ["begin", "fleet", "origin", "run", "settings"]

_PLACES: tuple[tuple[Any, str], ...] = (
    *((mirrors, "run_git"), (delivery, "run_git"), (delivery, "store_blob"), (checkout, "_restore_snapshot")),
    *(
        (checkout, "apply_restore"),
        (checkout, "change_folder_of_runs_in_same_clone"),
        (checkout.Path, "rename"),
        (shutil, "rmtree"),
    ),
)


class _Moments:
    """Notes the moments of this process in a file, or ends it at one of them."""

    def __init__(self, file: Path, at: int) -> None:
        self._file, self._at, self._numbers = file, at, count(1)

    def watch(self) -> None:
        for owner, name in _PLACES:
            setattr(owner, name, self._around(getattr(owner, name), name))

    def _around(self, act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            self._here(f"before {name} {args[:1]}")
            found = act(*args, **more)
            self._here(f"after {name} {args[:1]}")
            return found

        return wrapped

    def _here(self, where: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{where}\n")
        if next(self._numbers) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def _driven(name: str, host: Path, file: Path, at: int = 0) -> int:
    """Drive a run in a process of its own, as a worker of this host does; returns how it ended."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        os.environ["INTERLOCK_WORKSPACES"] = str(host)
        os.environ["XDG_STATE_HOME"] = str(host / "state")
        held, _ = os.pipe()
        os.dup2(held, 0)
        _Moments(file, at).watch()
        os._exit(drive_process.main(name, str(resolve_state_directory())))
    except BaseException:
        traceback.print_exc()
        os._exit(9)


class _Stage:
    """One run and the run that pushes, on two hosts."""

    def __init__(self, fleet: Run, begin: Begin, folder: Path, origin: Path) -> None:
        self._fleet, self._begin, self._folder, self._origin = fleet, begin, folder, origin
        self.moments = folder / "moments"

    def played(self, at: int = 0) -> tuple[bool, dict[str, object]]:
        """Begin a run, and drive it and its push to their ends; whether it was killed, and what it left."""
        for host in ("one", "two"):
            shutil.rmtree(self._folder / host, ignore_errors=True)
            (self._folder / host).mkdir()
        self.moments.unlink(missing_ok=True)
        self._before = {row["run"] for row in self._rows()}
        (self._folder / "count.txt").unlink(missing_ok=True)
        name, was_killed = self._begin("--deliver", "branch"), False
        hosts = [self._folder / "one", self._folder / ("two" if at % 2 else "one")]
        for _ in range(12):
            due = [
                row["run"]
                for row in self._fleet("runs", "--json").json
                if row["status"] in ("queued", "interrupted")
            ]
            if not due:
                break
            for one in due:
                was = len(self.moments.read_text().splitlines()) if self.moments.exists() else 0
                ended = _driven(one, hosts[was_killed], self.moments, 0 if was_killed else max(0, at - was))
                if os.WIFSIGNALED(ended):
                    was_killed = True
                    _driven(one, hosts[1], self.moments, 0)  # its job is put back, also after its run's end
                assert was_killed or ended == 0, ended
            self._tell()
        for host in hosts:
            checkout.remove_unfinished_clones(host)  # as its next clone does
        return was_killed, self._left(name)

    def _rows(self) -> list[dict[str, Any]]:
        return self._fleet("runs", "--all", "--json").json

    def _tell(self) -> None:
        """Look what a kill hid, as a person would; a push is repeated without asking."""
        for request in self._fleet("approvals", "--json").json:
            told = "skip" if (self._folder / "count.txt").exists() else "redo"
            self._fleet("resume", request["run"], "--answer", f"{request['number']}={told}")

    def _left(self, name: str) -> dict[str, object]:
        branch, clones = f"interlock/{name}", [self._folder / "one", self._folder / "two"]
        return {
            "statuses": [row["status"] for row in self._rows() if row["run"] not in self._before],
            "tree": git("rev-parse", f"{branch}^{{tree}}", at=self._origin),
            "commits": git("rev-list", "--count", f"main..{branch}", at=self._origin),
            "patch": self._patch(name),
            "effects": (self._folder / "count.txt").read_text(),
            "leftovers": [
                path.name for host in clones for path in host.glob(".*.*") if path.name != ".mirrors"
            ],
        }

    def _patch(self, name: str) -> str:
        """The patch; what is left behind is named, or the host where it is: nobody looked there before the kill."""
        patch = self._fleet("export", name, "--format", "patch").out
        unknown = f"files that git ignores, in {os.uname().nodename}:{self._folder / 'one'}"
        there, named = (f"Not in this patch: {what!r}\n" for what in (unknown, "x.o"))
        return patch.replace(there, "" if named in patch else named)


@pytest.mark.sweep(divides=True)
def test_a_kill_while_a_run_is_cloned_moved_or_delivered_changes_nothing(
    fleet: Run, begin: Begin, tmp_path: Path, origin: Path
) -> None:
    stage = _Stage(fleet, begin, tmp_path, origin)
    _, expected = stage.played()
    moments = stage.moments.read_text().splitlines()
    assert expected["effects"] == "once\n"
    part, of = sweep_part()
    for at in range(1 + part, len(moments) + 1, of):
        was_killed, found = stage.played(at)
        assert was_killed
        assert found == expected, f"moment {at}, {moments[at - 1]}"
