"""changes: what going back to a step, or taking back a call, does to the workspace's files; shown before it is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from interlock.engine.read import RunRow
from interlock.engine.read.calls import Call, calls
from interlock.engine.travel.files import RunFiles, chosen_of, marks, refuse_unkept
from interlock.engine.travel.fork import fork_run
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.travel.fork import Forked
    from interlock.services.snapshots.restore import Work


class Change(NamedTuple):
    """One file."""

    mark: str
    """`A`: added again, `M`: as before, `D`: gone again."""
    path: str


@dataclass(frozen=True)
class Rewind:
    """Going back to a root step, not done yet."""

    changes: list[Change]
    _run: RunRow
    _step: int | None
    _files: RunFiles
    _work: "Work"

    def carry_out(self) -> "Forked | None":
        """Change the files, and fork there; None: they are as before the run, which nothing goes on from."""
        if self._step is not None:
            return self.forked()
        self._files.put(self._work)
        return None

    def forked(self) -> "Forked":
        """Change the files, and go on from there in a new run. Raises `UserError`."""
        return fork_run(
            self._files.home, self._run.run, -1 if self._step is None else self._step, in_place=True
        )


def rewind(home: Path, run: RunRow, step: int | None) -> Rewind:
    """What it takes to go back to a step; None: to before the run began. Raises `UserError`."""
    files = RunFiles(home, run)
    files.refuse_driven()
    work, now = files.to_step(-1 if step is None else step)
    return Rewind([Change(*mark) for mark in marks(work, now)], run, step, files, work)


def undo(home: Path, run: RunRow, call: str | None) -> list[Change]:
    """Take back what a run, or one call, did to the files. Raises `UserError` if somebody changed them since."""
    files = RunFiles(home, run)
    files.refuse_driven()
    chosen = chosen_of(home, run, call)
    refuse_unkept(home, run, chosen)
    work = files.undo(chosen)
    changed = [Change(*mark) for mark in marks(work, files.contents(files.now()))]
    files.put(work)
    return changed


def last_change(home: Path, run: RunRow) -> tuple[str, Call]:
    """The newest call whose change is still in place, with its number. Raises `UserError`."""
    files = RunFiles(home, run)
    by_key = {call.key: (str(number), call) for number, call in enumerate(calls(home, run.run), 1)}
    for snapshot in reversed(chosen_of(home, run, None)):
        changed = snapshot.before != snapshot.after and snapshot.key in by_key
        if changed and files.undo([snapshot]):
            return by_key[snapshot.key]
    raise UserError("Nothing to undo: the changes of this run are undone already.")
