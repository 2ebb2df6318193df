"""fork: a new run that shares a run's history and files up to a root step; the parent never changes."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.engine.read import RunRow, find_run
from interlock.engine.run_files import (
    RunFiles,
    find_repository_and_commit_at_step,
    is_run_on_other_host,
    provide_run_with_local_files,
    read_repository_option_of_run,
)
from interlock.engine.store import Store
from interlock.engine.store.blobs import copy_plans_to_fork, open_repository_with_snapshots
from interlock.engine.store.checkpoints import RootCheckpoint, get_checkpoint_at_step
from interlock.engine.store.run_copies import copy_rows_to_fork, is_run_open, list_undriven_forks
from interlock.engine.store.runs import new_run_id, read_run_options
from interlock.graphs import is_pipeline, load_pipeline
from interlock.graphs.stored_channels import has_due_work
from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import lock_folder
from interlock.services.snapshots.restore import apply_restore, plan_restore
from interlock.services.snapshots.snapshots import SnapshotContents
from interlock.state.clock import unix_time
from interlock.state.errors import UserError


@dataclass(frozen=True)
class Forked:
    run: str
    parent: str
    step: int
    workspace: str


@dataclass(frozen=True)
class _ForkPoint:
    at: RootCheckpoint
    newest: bool
    parked: bool
    """Whether it is the newest and waits for a person."""


def fork_run(
    home: Path, name: str, step: int | None, *, workspace: Path | None = None, in_place: bool = False
) -> Forked:
    """Fork a run at a root step: into a new folder beside its own, into `workspace`, or in place.

    `step` None: the newest; in place, the files stay as they are, with what was undone or changed by hand since.
    Raises `UserError`. A kill leaves the folder either untouched or complete; repeating the command finishes the fork.
    """
    run = find_run(home, name)
    Store(home).create_or_migrate()  # adds tables missing from an older store
    point = find_fork_point(home, run, step)
    _refuse_open_subtask(home, run, point)
    files = RunFiles(home, run)
    if in_place:
        files.check_workspace_not_driven()
        if step is not None and not point.parked:
            files.run_restore_plan(files.plan_restore(step)[0])
        return _copy_rows_and_plans(home, run, point, Path(run.workspace))
    snapshots = home / "snapshots"
    make_private_directory(snapshots)
    with lock_folder(snapshots):
        beside = Path.cwd() / run.run if is_run_on_other_host(home, run) else Path(run.workspace)
        fork, folder = _find_unfinished_fork(
            home, run, point, beside, workspace
        ) or _choose_fork_id_and_folder(beside, workspace)
        with provide_run_with_local_files(home, run) as here:
            staged = _stage_files(home, here, point, folder)
        made = _copy_rows_and_plans(home, run, point, folder, fork)
        try:
            staged.rename(folder)
        except OSError as error:
            raise _folder_error(folder, error) from error
    return made


def _refuse_open_subtask(home: Path, run: RunRow, point: _ForkPoint) -> None:
    child = point.at.values.get("child") if run.workflow == "task" else ""
    if child and is_run_open(home, child):
        raise UserError(
            f"At step {point.at.step} run {run.run!r} waits for its subtask {child!r}, which can't serve two tasks. "
            f"Fork at step {point.at.step - 1}, before it begins; or when it has ended: interlock resume {run.run}"
        )


def _choose_fork_id_and_folder(base_folder: Path, workspace: Path | None) -> tuple[str, Path]:
    fork = new_run_id()
    folder = (workspace or base_folder.with_name(f"{base_folder.name}-{fork}")).expanduser().absolute()
    return fork, folder.parent.resolve() / folder.name


def _find_unfinished_fork(
    home: Path, run: RunRow, point: _ForkPoint, base_folder: Path, workspace: Path | None
) -> tuple[str, Path] | None:
    """A fork that a kill cut off between persisting its rows and creating its folder."""
    for fork, folder in list_undriven_forks(home, run.run, point.at.step):
        wanted = workspace is None or folder == _choose_fork_id_and_folder(base_folder, workspace)[1]
        if wanted and not folder.exists():
            return fork, folder
    return None


def find_fork_point(home: Path, run: RunRow, step: int | None) -> _ForkPoint:
    """The root checkpoint of a step. Raises `UserError` naming the existing steps."""
    at, newest = get_checkpoint_at_step(home, run.run, step)
    return _ForkPoint(at, newest, newest and run.status == "waiting")


def _stage_files(home: Path, run: RunRow, point: _ForkPoint, folder: Path) -> Path:
    """Write the files of that step to a temporary folder beside the target, replacing leftovers of a kill."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{str(folder)!r} exists and isn't empty. Give a new folder: --workspace DIR")
    if not folder.parent.is_dir():
        raise UserError(f"No folder {str(folder.parent)!r} to make {folder.name!r} in.")
    found = None if point.parked else find_repository_and_commit_at_step(home, run.run, point.at.step)
    if found is None:  # the run changed no files, or is parked here: use the current ones
        files = RunFiles(home, run)
        found = (files.repository_folder.name, files.finish_restore_and_take_snapshot())
    # Other hosts know a repository by their own folders.
    repository = (
        RunFiles(home, run).repository_folder
        if read_repository_option_of_run(home, run.run)
        else home / "snapshots" / found[0]
    )
    staged = folder.with_name(f".interlock-fork-{run.run}")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir()
        nothing = SnapshotContents({}, {})
        apply_restore(
            plan_restore(
                nothing,
                open_repository_with_snapshots(home, repository, [found[1]]).read_contents(found[1]),
                staged,
                repository,
            ),
            durable=False,
        )
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise _folder_error(folder, error) from error
    return staged


def _folder_error(folder: Path, error: OSError) -> UserError:
    return UserError(f"Can't make {str(folder)!r}: {error.strerror}. Give another folder: --workspace DIR")


def _copy_rows_and_plans(home: Path, run: RunRow, point: _ForkPoint, folder: Path, fork: str = "") -> Forked:
    """Copy the run's rows and plans; idempotent."""
    fork = fork or new_run_id()
    row = {"workspace": str(folder), **_run_columns_at_step(point, run)}
    options = read_run_options(home, run.run)
    if options.get("repository"):  # the fork is this host's, in a folder
        options["repository"] = None
    if str(folder) != run.workspace:
        options["worktree"] = None  # a folder of its own is no worktree
    if not point.newest:  # what a person chose later, the fork hasn't heard
        mode = point.at.values.get("chosen_mode") or options.get("approval_mode")
        options |= {"approval_mode": mode, "next_asked": {}}
    row["options"] = json.dumps(options)
    moved = str(folder) != run.workspace
    copy_rows_to_fork(home, run.run, fork, point.at, row, include_waiting=point.parked, moved=moved)
    copy_plans_to_fork(home, run.run, fork)
    return Forked(fork, run.run, point.at.step, str(folder))


def _run_columns_at_step(point: _ForkPoint, run: RunRow) -> dict[str, Any]:
    """The run's columns as of this step: `open` if something is due."""
    made = unix_time()
    now = {"created": made, "updated": made, "step": point.at.step}
    if has_due_work(point.at.values):
        return {**now, "status": "open", "outcome": "", "error": None}
    if point.newest:
        return now
    from interlock.engine.store.saver import compute_status_and_outcome

    # A user's workflow isn't loaded here: assume the usual key.
    key = load_pipeline(run.workflow).outcome if is_pipeline(run.workflow) else "status"
    status, outcome = compute_status_and_outcome(point.at.values, key)
    return {**now, "status": status, "outcome": outcome, "error": None}
