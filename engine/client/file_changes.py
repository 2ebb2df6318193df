"""file_changes: plans and makes the changes of files when a run goes back to a step or takes back a call."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from interlock.engine.client.requests import summarize_arguments
from interlock.engine.options import Options
from interlock.engine.read import RunRow
from interlock.engine.read.calls import Call, find_call, list_calls
from interlock.engine.run_files import (
    FileChange,
    RunFiles,
    check_calls_wrote_inside_workspace,
    check_run_not_delivered,
    is_run_on_other_host,
    list_planned_file_changes,
    provide_run_with_local_files,
    read_repository_option_of_run,
    require_call_snapshots,
    store_person_changes_of_repository_run,
)
from interlock.engine.store import Store, explain_store_errors
from interlock.engine.store.checkpoints import get_checkpoint_at_step
from interlock.engine.store.runs import is_sealed, read_definition
from interlock.engine.store.snapshots import list_snapshots
from interlock.engine.store.workspaces import record_undo_note
from interlock.engine.travel.fork import Forked, fork_run
from interlock.services.snapshots.restore import RestorePlan
from interlock.state.errors import UserError
from interlock.state.file_names import format_file_name
from interlock.state.text import join_up_to, to_one_line

_NAMED = 20
"""Files named to the model."""
_MEANT = {"A": "brought back", "M": "as before", "D": "removed"}


def check_run_folder_trusted(row: RunRow, options: Options) -> None:
    """Raise `DefinedElsewhereError` if others ask to change files of a folder that only a row of others names."""
    from interlock.engine.driver.run_definition import (  # deferred: it imports LangGraph
        ELSEWHERE,
        DefinedElsewhereError,
    )

    store = Store(options.home)
    if not options.serves_others or not store.blobs or options.trusts(Path(row.workspace)):
        return
    with explain_store_errors(store.path), closing(store.connect()) as conn:
        defined = read_definition(conn, row.run)
    named_as_read = defined.workspace == row.workspace
    if is_run_on_other_host(store.home, row) or (named_as_read and is_sealed(store.home, row.run, defined)):
        return
    raise DefinedElsewhereError(
        f"{ELSEWHERE.format(run=row.run)}, and its folder {row.workspace!r} isn't trusted here, so its files aren't "
        "changed from here: type the command in a terminal, or trust the folder (interlock trust)."
    )


@dataclass(frozen=True)
class Rewind:
    """Going back to a root step, not done yet."""

    changes: list[FileChange]
    _run: RunRow
    _step: int | None
    _files: RunFiles
    _restore_plan: RestorePlan

    def restore_files_and_fork(self) -> Forked | None:
        """Change the files, and fork there; None: they are as before the run, which nothing goes on from."""
        if self._step is not None:
            return self.restore_and_fork_at_step()
        self._files.run_restore_plan(self._restore_plan)
        record_undo_note(
            self._files.home, self._run.run, f"The user went back to before this run{self._changes_text}"
        )
        return None

    def restore_and_fork_at_step(self) -> Forked:
        """Change the files, and go on from there in a new run, of which both know. Raises `UserError`."""
        home, run, step = self._files.home, self._run.run, -1 if self._step is None else self._step
        made = fork_run(home, run, step, in_place=True)
        record_undo_note(
            home,
            made.run,
            f"The user went back from a later step of run {run} to step {step}{self._changes_text}",
        )
        record_undo_note(
            home, run, f"The user went back to step {step}, in run {made.run}{self._changes_text}"
        )
        return made

    @property
    def _changes_text(self) -> str:
        return _describe_changes(self.changes)


def plan_rewind(home: Path, run: RunRow, step: int | None) -> Rewind:
    """What it takes to go back to a step; None: to before the run began. Raises `UserError`."""
    check_run_not_delivered(home, run)
    if is_run_on_other_host(home, run):
        raise UserError(
            f"The files of run {run.run!r} aren't on this host, so they can't go back in place. Go on from a step in a "
            f"folder of this host: interlock fork {run.run} --at STEP"
        )
    if step is not None:
        get_checkpoint_at_step(home, run.run, step)  # raises if there is no such step
    files = RunFiles(home, run)
    files.check_workspace_not_driven()
    work, now = files.plan_restore(-1 if step is None else step)
    generated = files.find_paths_generated_by_calls(list_snapshots(home, run.run))
    changes = [
        _to_printable(change)
        for change in list_planned_file_changes(work, now)
        if change.path not in generated
    ]
    return Rewind(changes, run, step, files, work)


def undo_changes(home: Path, run: RunRow, call: str | None = None) -> list[FileChange]:
    """Take back what a run, or one call, did to the files. Raises `UserError` if somebody changed them since."""
    RunFiles(home, run).check_workspace_not_driven()
    check_run_not_delivered(home, run)
    with provide_run_with_local_files(home, run) as here:
        changed = _undo_calls(RunFiles(home, here), call)
        store_person_changes_of_repository_run(home, run, here)
    return changed


def _undo_calls(files: RunFiles, call: str | None) -> list[FileChange]:
    home, run = files.home, files.run
    chosen = require_call_snapshots(home, run, call)
    if not read_repository_option_of_run(home, run.run):
        check_calls_wrote_inside_workspace(home, run, chosen)
    work = files.plan_undo(chosen)
    marked = [
        *list_planned_file_changes(
            work, files.read_snapshot_contents(files.finish_restore_and_take_snapshot())
        )
    ]
    generated = files.find_paths_generated_by_calls(chosen)
    changed = [*map(_to_printable, [one for one in marked if one.path not in generated] or marked)]
    files.run_restore_plan(work)
    if changed:
        what = "the changes of this run"
        if call is not None:
            undone = find_call(list_calls(home, run.run), call, run.run)
            what = to_one_line(f"{undone.tool} {summarize_arguments(undone.args)}", 100)
        record_undo_note(home, run.run, f"The user undid {what}{_describe_changes(changed)}")
    return changed


def _to_printable(change: FileChange) -> FileChange:
    return change._replace(path=format_file_name(change.path))


def _describe_changes(changes: Sequence[FileChange]) -> str:
    """`: D new.py, M old.py`, and what the marks mean."""
    if not changes:
        return "; no file changed"
    named = join_up_to([f"{change.mark} {change.path}" for change in changes], _NAMED)
    meant = ", ".join(f"{mark}: {_MEANT[mark]}" for mark in sorted({change.mark for change in changes}))
    return f": {named} ({meant})"


def find_last_undoable_call_with_number(home: Path, run: RunRow) -> tuple[str, Call]:
    """The newest call whose change is still in place, with its number. Raises `UserError`.

    A call that changed nothing but generated files doesn't count.
    """
    files = RunFiles(home, run)
    by_key = {call.key: (str(number), call) for number, call in enumerate(list_calls(home, run.run), 1)}
    for snapshot in reversed(require_call_snapshots(home, run, None)):
        if snapshot.before == snapshot.after or snapshot.call_key not in by_key:
            continue
        changed = files.find_paths_touched_by_calls(
            [snapshot]
        ).first.keys() - files.find_paths_generated_by_calls([snapshot])
        if changed and files.plan_undo([snapshot]):
            return by_key[snapshot.call_key]
    raise UserError("Nothing to undo: the changes of this run are already undone.")
