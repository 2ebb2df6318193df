"""checkouts: whether the files of a run on a git repository are on this host, and what may be done with them here.

Where no clone of it is, commands get one, as the last snapshot has it.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.engine.optional_rooms import load_fleet_entry
from interlock.engine.read import RunRow
from interlock.engine.run_files import RunFiles, snapshot_folder
from interlock.engine.store import Store, open_reader
from interlock.engine.store.blobs import store_snapshot
from interlock.engine.store.runs import read_repository_option
from interlock.engine.store.workspaces import note_changed_files
from interlock.services.snapshots.snapshots import ShadowRepository as Snapshots
from interlock.services.snapshots.snapshots import repository_name
from interlock.state.errors import UserError


def run_repository(home: Path, run: str) -> dict[str, str]:
    """What a run's options say of its repository; empty: it works in a folder."""
    with open_reader(home) as conn:
        return read_repository_option(conn, run) if conn else {}


def is_on_other_host(home: Path, run: RunRow) -> bool:
    """Whether a run works in a clone that isn't on this host."""
    repository = run_repository(home, run.run)
    at_host = repository.get("at", "").startswith(f"{os.uname().nodename}:")
    return bool(repository) and not (at_host and Path(run.workspace).is_dir())


@contextmanager
def files_on_this_host(home: Path, run: RunRow, *, files: bool = True) -> Generator[RunRow]:
    """Yield the run with its files on this host: a clone for the block, where the run's own is on another host.

    `files`: false if its snapshots will do. Raises `RunError` if the repository can't be cloned.
    """
    known = not files and Snapshots(home / "snapshots" / repository_name(Path(run.workspace))).is_borrowing
    if known or not is_on_other_host(home, run):
        yield run
        return
    made = load_fleet_entry("interlock.repositories", "git", "Files of a run on another host need").check_out(
        home, run.run, home / "clones"
    )
    try:
        yield run._replace(workspace=str(made.folder))
    finally:
        shutil.rmtree(made.folder, ignore_errors=True)


def check_not_delivered(home: Path, run: RunRow) -> None:
    """Raises `UserError` for a run on a repository whose changes have left its clone."""
    if run.status == "done" and run_repository(home, run.run):
        raise UserError(
            f"Run {run.run!r} is done, and what it changed was delivered: it can't be undone here. Go on from one of "
            f"its steps: interlock fork {run.run} --at STEP"
        )


def record_changed_files(home: Path, run: RunRow, here: RunRow) -> None:
    """After a person changed a run's files: whoever drives a run on a repository next has them, too."""
    if not run_repository(home, run.run):
        return
    commit = snapshot_folder(home, Path(here.workspace), run.run)
    with Store(home).writing() as conn:
        store_snapshot(conn, RunFiles(home, here).repository, commit)
        note_changed_files(conn, run.run, commit, elsewhere=here != run)
