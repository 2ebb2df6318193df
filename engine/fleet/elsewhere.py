"""elsewhere: the files of a run on a repository, for commands on a host where no clone of it is."""

import json
import os
import shutil
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from interlock.engine.fleet.checkout import check_out
from interlock.engine.read import RunRow
from interlock.engine.store import Store, explained, read_options, reading
from interlock.engine.store.blobs import keep_commit
from interlock.engine.store.places import change_files
from interlock.engine.travel.files import RunFiles, taken
from interlock.services.snapshots.snapshots import Repository, repository_name
from interlock.state.errors import UserError


def repository_of(home: Path, run: str) -> dict[str, str]:
    """What a run's options say of its repository; empty: it works in a folder."""
    with reading(home) as conn:
        return (read_options(conn, run).get("repository") if conn else None) or {}


def folder_options(home: Path, run: str) -> str:
    """A run's options, as its row holds them, for a run in a folder."""
    with reading(home) as conn:
        assert conn is not None
        return json.dumps({**read_options(conn, run), "repository": None})


def is_elsewhere(home: Path, run: RunRow) -> bool:
    """Whether a run works in a clone that isn't on this host."""
    repository = repository_of(home, run.run)
    at_host = repository.get("at", "").startswith(f"{os.uname().nodename}:")
    return bool(repository) and not (at_host and Path(run.workspace).is_dir())


@contextmanager
def at_hand(home: Path, run: RunRow, *, files: bool = True) -> Generator[RunRow]:
    """Yield the run with its files on this host: a clone for the block, where the run's own is on another host.

    `files`: false if its snapshots will do. Raises `RunError` if the repository can't be cloned.
    """
    known = not files and Repository(home / "snapshots" / repository_name(Path(run.workspace))).borrows
    if known or not is_elsewhere(home, run):
        yield run
        return
    made = check_out(home, run.run, home / "clones")
    assert made is not None
    try:
        yield run._replace(workspace=str(made.folder))
    finally:
        shutil.rmtree(made.folder, ignore_errors=True)


def refuse_delivered(home: Path, run: RunRow) -> None:
    """Raises `UserError` for a run on a repository whose changes have left its clone."""
    if run.status == "done" and repository_of(home, run.run):
        raise UserError(
            f"Run {run.run!r} is done, and what it changed was delivered: it can't be undone here. Go on from one of "
            f"its steps: interlock fork {run.run} --at STEP"
        )


def keep_changed(home: Path, run: RunRow, here: RunRow) -> None:
    """After a person changed a run's files: whoever drives a run on a repository next has them, too."""
    if not repository_of(home, run.run):
        return
    commit, store = taken(home, Path(here.workspace), run.run), Store(home)
    with explained(store.path), closing(store.connect()) as conn, conn.transaction():
        keep_commit(conn, RunFiles(home, here).repository, commit)
        change_files(conn, run.run, commit, elsewhere=here != run)
