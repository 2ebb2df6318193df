"""checkout: the files of a run on a git repository, on the host that needs them: a clone, as the last snapshot has it.

Whatever host drove the run before, its snapshots are in the store; what git ignores isn't in them.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interlock.engine.run_files import load_folder_settings
from interlock.engine.store import open_reader
from interlock.engine.store.blobs import fetch_snapshot_if_missing, load_blob
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import check_run_id, read_repository_option
from interlock.engine.store.workspaces import (
    NOWHERE,
    RunLocation,
    change_folder_of_runs_in_same_clone,
    find_newest_snapshot,
    moved_from_option_with_location,
    read_run_location,
)
from interlock.fleet.commits import Commits, restore_commits
from interlock.fleet.mirrors import Mirror, require_repository
from interlock.services.configuration import ConfigurationSources, load_or_reuse_configuration
from interlock.services.files.disk import make_private_directory
from interlock.services.files.workspace import open_workspace
from interlock.services.process.identity import process_start_time
from interlock.services.snapshots.restore import apply_restore, plan_restore
from interlock.services.snapshots.snapshots import (
    ShadowRepository,
    WorkspaceSnapshots,
    set_parent_snapshot,
    shadow_repository_name,
)
from interlock.state.errors import BusyError, RunError
from interlock.state.repository import Repository, RepositoryError, hide_credentials, parse_repository
from interlock.state.settings import FleetSettings

__all__ = [
    "UNKEPT",
    "Checkout",
    "check_out",
    "configured_clone_folder",
    "load_worker_fleet_settings",
    "read_stored_commits",
    "require_repository",
]

UNKEPT = "unkept"
"""The option with the places where the run's own commits couldn't be kept, a line each."""
_MOVED = (
    "The run moved to another host. Its folder is now {new!r}, before it was {old!r}: use the new path. Files that git "
    "ignores, such as build output and installed packages, were left behind: make them again if you need them."
)


@dataclass(frozen=True)
class Checkout:
    """Where a run's files are on this host, for a drive."""

    folder: Path
    trusted: bool
    isolated: bool
    """Its commands must run in the sandbox."""
    options: Mapping[str, str]
    """`Options.repository`."""
    mirror: Mirror
    previous_place: RunLocation
    snapshot: str
    """The snapshot that the files are as; empty: they are as the run left them, or as the repository has them."""

    def record_run_location(self, run: str, conn: Connection) -> None:
        """Inside a transaction of the run's driver: the files are here. Raises `BusyError` if they changed since."""
        now = read_run_location(conn, run)
        if now == RunLocation(str(self.folder), self.options["at"]):
            return
        if now != self.previous_place or (self.snapshot and find_newest_snapshot(conn, run) != self.snapshot):
            raise BusyError(f"Run {run!r} went on elsewhere meanwhile.")
        note = _MOVED.format(new=str(self.folder), old=now.folder) if now.at else ""
        change_folder_of_runs_in_same_clone(conn, run, now, str(self.folder), self.options, note)


def load_worker_fleet_settings(env: Mapping[str, str]) -> FleetSettings:
    """Return the settings of the worker's user: no project's count."""
    home = Path.home()
    return load_or_reuse_configuration(
        ConfigurationSources(home, home, env, trusted=False)
    ).loaded_settings.settings.fleet


def check_out(home: Path, run: str, workspaces: Path | None) -> Checkout | None:
    """Bring a run's files to this host, in a folder of their own; None: they aren't of a repository.

    Raises `RunError` if that fails.
    """
    with open_reader(home) as conn:
        assert conn is not None
        options = read_repository_option(conn, run)
        if not options:
            return None
        before, snapshot = read_run_location(conn, run), find_newest_snapshot(conn, run)
    if workspaces is None:
        raise RunError(
            "This worker has no folder for clones. Start it with: interlock worker --workspaces DIR"
        )
    try:
        return _prepare_checkout(home, run, options, before, snapshot, workspaces)
    except OSError as error:
        why = f"{error.strerror}: {error.filename!r}" if error.filename else str(error)
        raise RunError(f"The worker's folder {str(workspaces)!r} can't be used: {why}.") from error


def _prepare_checkout(
    home: Path,
    run: str,
    options: dict[str, str],
    previous_place: RunLocation,
    snapshot: str,
    workspaces: Path,
) -> Checkout:
    make_private_directory(workspaces)
    workspaces = workspaces.resolve()
    remove_unfinished_clones(workspaces)
    repository, settings = _parse_repository(options), load_worker_fleet_settings(os.environ)
    mirror, folder = Mirror.for_repository(repository, workspaces, settings), workspaces / check_run_id(run)
    at = f"{os.uname().nodename}:{workspaces}"
    # Whoever submits runs may write any folder of this host into the row. A run that pushes is in the other's clone.
    own = (folder, workspaces / check_run_id(options.get("pushes", run)))
    if (
        previous_place.at == at
        and Path(previous_place.folder) in own
        and Path(previous_place.folder).is_dir()
    ):
        folder, commit, snapshot = Path(previous_place.folder), options["commit"], ""
    else:
        commit = mirror.fetch_commit(options.get("commit", ""))
        _recreate_clone(home, mirror, commit, folder, snapshot)
    now = {**options, "commit": commit, "at": at}
    if previous_place.at not in ("", at, NOWHERE):
        now["moved_from"] = moved_from_option_with_location(options, previous_place.at)
    trusted, isolated = (
        settings.is_trusted_repository(repository.url),
        settings.should_isolate_repository(repository.url),
    )
    return Checkout(folder, trusted, isolated, now, mirror, previous_place, snapshot)


def _parse_repository(options: Mapping[str, str]) -> Repository:
    """Return the run's repository. Raises `RunError` for one that no command line takes: others may write the row."""
    found = Repository(options["url"], options["ref"])
    try:
        if parse_repository(str(found)) != found:
            raise RepositoryError(f"{hide_credentials(str(found))!r} isn't a repository address.")
    except RepositoryError as error:
        raise RunError(f"The run names a repository that can't be used: {error}") from error
    return found


def _recreate_clone(home: Path, mirror: Mirror, commit: str, folder: Path, snapshot: str) -> None:
    """Make the folder anew: a kill on the way leaves none with this name."""
    made = folder.with_name(f".{folder.name}@{os.uname().nodename}.{os.getpid()}")
    for old in (folder, made):
        shutil.rmtree(old, ignore_errors=True)
    make_private_directory(made)
    try:
        mirror.clone_commit_into(commit, made)
        kept = home / "snapshots" / shadow_repository_name(folder)
        shutil.rmtree(kept, ignore_errors=True)
        ShadowRepository(kept).borrow_objects(mirror.objects_folder, mirror.resolve_tree_id(commit))
        if commits := read_stored_commits(home, folder.name):
            restore_commits(commits, made)
        if snapshot:
            _restore_snapshot(home, made, kept, snapshot)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def remove_unfinished_clones(workspaces: Path) -> None:
    """Remove what a killed drive of this host had half made, whichever run's: it may have gone on elsewhere."""
    for made in workspaces.glob(f".*@{os.uname().nodename}.*"):
        pid = made.suffix[1:]
        if pid.isdecimal() and not process_start_time(int(pid)):
            shutil.rmtree(made, ignore_errors=True)


def read_stored_commits(home: Path, run: str) -> Commits | None:
    """Return what a run did in its clone's own repository; None: nothing."""
    with open_reader(home) as conn:
        body = load_blob(conn, f"commits/{run}") if conn is not None else None
    return Commits.from_bytes(body) if body else None


def _restore_snapshot(home: Path, folder: Path, snapshot_repository: Path, snapshot: str) -> None:
    """Give a fresh clone the files of a snapshot."""
    repository, settings = ShadowRepository(snapshot_repository), load_folder_settings(folder)
    with open_reader(home) as conn:
        assert conn is not None
        fetch_snapshot_if_missing(conn, repository, snapshot)
    taken = WorkspaceSnapshots(home, open_workspace(folder, settings), settings.snapshots, repository)
    now = repository.read_contents(taken.take_snapshot("refs/clone"))
    apply_restore(
        plan_restore(now, repository.read_contents(snapshot), folder, snapshot_repository), durable=True
    )
    set_parent_snapshot(snapshot_repository, snapshot)


def configured_clone_folder(env: Mapping[str, str]) -> Path | None:
    """Return the folder that this worker clones to."""
    return Path(env["INTERLOCK_WORKSPACES"]) if env.get("INTERLOCK_WORKSPACES") else None
