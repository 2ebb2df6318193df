"""snapshots: commits of the workspace's files before and after each call that changes something."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.engine.store import (
    encode_json_keys_parameter,
    json_keys_subquery_sql,
    open_reader,
    select_rows,
)
from interlock.engine.store.blobs import (
    fetch_snapshot_if_missing,
    find_first_stored_commit,
    store_blob,
    store_snapshot_pack,
)
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import (
    IGNORED,
    KeptIgnoredTests,
    find_ignored_tests_in_options,
    list_ancestor_runs,
    list_related_runs,
    read_options,
    set_run_option,
)
from interlock.engine.store.steps import StepLog
from interlock.engine.store.tables import TABLE
from interlock.state.calls import CallKey
from interlock.state.clock import unix_time
from interlock.state.deps import await_despite_cancel, await_with_notices
from interlock.state.errors import RunError
from interlock.state.events import SAVING, Emit, ErrorEvent, Progress
from interlock.state.file_names import parse_file_name

if TYPE_CHECKING:
    from interlock.services.snapshots.snapshots import ShadowRepository, WorkspaceSnapshots

UNSAVED = "unsaved"
"""The run's option that names calls whose changes no snapshot has, and why."""


_MOST_UNSAVED = 100


_WHY = "Tests that git ignores can't be compared"


class ChangesSinceStart(NamedTuple):
    """A workspace when the run began, and now."""

    repository: "ShadowRepository"
    before: str
    """Snapshot."""
    now: str
    """Snapshot."""
    ignored: str
    """Commit of the tests that the first doesn't hold."""


@dataclass
class SqlSnapshots:
    """Implements `Snapshots`. On a failure, warns once and takes no more snapshots in this drive; the run goes on."""

    conn: Connection
    run: str
    steps: StepLog
    emit: Emit
    make: "Callable[[], WorkspaceSnapshots] | None"
    """None: disabled in settings."""
    keep_ignored: "Callable[[ShadowRepository, str, str], str] | None" = None
    """Keeps tests that a snapshot doesn't hold, under a ref, and returns the commit; raises `RunError`. None: the run
    has no check that must pass with them."""
    needed: bool = False
    """A failure ends the drive: other hosts know the run's files from its snapshots."""
    commits: Callable[[], tuple[str, bytes] | None] | None = None
    """As `Options.commits`."""
    patience_s: float = 1.0
    """Seconds between two events about a snapshot under way."""
    _why: str = ""
    """Why none is taken any more."""
    _made: "WorkspaceSnapshots | None" = None
    _message: str = ""
    """The last whose calls began."""
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the first of parallel calls keeps what all of them may change."""

    async def snapshot_before_call(self, key: CallKey, changes: str = "") -> None:
        place = self._row_key(key)
        if place in self._snapshotted_calls:  # repeated after a kill: the first snapshot counts
            return
        # Others may have changed files since the call before: of the same batch, look beside what this one changes.
        commit = await self._take_snapshot_or_disable(changes if key.message == self._message else "")
        self._message = key.message
        if self._why:
            self._record_call_without_snapshot(key)
        if commit and self._made:
            if self.keep_ignored is not None:
                await self._commit_ignored_tests_once(self._made.repository, commit)
            where = dict(zip(TABLE["snapshots"].key, place, strict=True))
            order = {
                "seq": len(self._snapshotted_calls),
                "root_step": self.steps.root_step,
                "at": unix_time(),
            }
            row = {**where, **order, "repository": self._made.repository.name, "before": commit}
            self.conn.insert("snapshots", row)
            self._snapshotted_calls[place] = False

    async def _commit_ignored_tests_once(self, repository: "ShadowRepository", commit: str) -> None:
        """Before the first change, keep tests that the snapshot doesn't hold."""
        async with self._beginning:
            keep = self.keep_ignored
            if keep is None:
                return
            if not self._find_first_snapshot(repository) and not find_ignored_tests_in_options(
                read_options(self.conn, self.run)
            ):
                try:
                    kept = await await_despite_cancel(
                        asyncio.to_thread(keep, repository, f"refs/ignored/{self.run}", commit)
                    )
                    if self.conn.blobs:
                        await self._store_snapshot_if_missing(repository, kept)
                    found = KeptIgnoredTests(repository.name, kept)
                except (RunError, OSError) as error:
                    found = KeptIgnoredTests(repository.name, "", f"{_WHY}: {str(error).rstrip('.')}.")
                    self.emit(ErrorEvent(severity="warning", message=f"{found.why} So the check will ask."))
                set_run_option(self.conn, self.run, IGNORED, found._asdict())
            self.keep_ignored = None

    def _find_first_snapshot(self, repository: "ShadowRepository") -> tuple[str, str, str] | None:
        """Return run, repository and commit of the first snapshot of the files that the run began with.

        What it came from may have worked in another folder; what else shares records with it began there later.
        """
        runs = json_keys_subquery_sql()
        query = f"select run, repository, before from snapshots where run in {runs} order by at, seq"
        rows = self.conn.execute(query, (self._related_runs_parameter(),), tables=("snapshots",)).fetchall()
        own = {self.run, *list_ancestor_runs(self.conn, self.run)}
        return next((row for row in rows if row[0] in own or row[1] == repository.name), None)

    def _related_runs_parameter(self) -> str:
        """List this run and those that share records with it."""
        return encode_json_keys_parameter([self.run, *list_related_runs(self.conn, self.run)])

    def _record_call_without_snapshot(self, key: CallKey) -> None:
        """Keep which call changes files that nothing can take back."""
        kept = find_calls_without_snapshots_in_options(
            read_options(self.conn, self.run)
        ) or CallsWithoutSnapshots(self._why, [], 0)
        name = f"{key.message}.{key.index}.{key.attempt}"
        if name in kept.calls:
            return
        if len(kept.calls) < _MOST_UNSAVED:
            kept = CallsWithoutSnapshots(self._why, [*kept.calls, name], 0)
        else:
            kept = kept._replace(more=kept.more + 1)
        set_run_option(self.conn, self.run, UNSAVED, kept._asdict())

    async def snapshot_after_call(self, key: CallKey, changed: str = "") -> None:
        place = self._row_key(key)
        if self._snapshotted_calls.get(place) is False and (
            commit := await self._take_snapshot_or_disable(changed)
        ):
            self._snapshotted_calls[place] = True
            where = dict(zip(TABLE["snapshots"].key, place, strict=True))
            self.conn.update("snapshots", {"after": commit}, where)

    @cached_property
    def _snapshotted_calls(self) -> dict[tuple[str, str, int, int], bool]:
        """Whether the state after each call is recorded."""
        rows = self.conn.execute(
            "select message, idx, attempt, after from snapshots where run = $1",
            (self.run,),
            tables=("snapshots",),
        )
        return {(self.run, *row[:3]): row[3] is not None for row in rows}

    def save_and_close(self) -> None:
        if self._made is None:
            return
        try:
            self._made.save_and_close()
        except (RunError, OSError) as error:  # snapshots taken so far stay
            self.emit(ErrorEvent(severity="warning", message=f"Snapshots couldn't be tidied up: {error}"))

    async def snapshot_changes_since_start(self) -> ChangesSinceStart | None:
        """Return the workspace when the run began, or a run that it belongs to, and now.

        None: nothing has been changed since. Raises `RunError` if that can't be told.
        """
        related = (self._related_runs_parameter(),)
        unseen = (
            f"select count(*) from journal j where run in {json_keys_subquery_sql()} "
            "and planned is not null and state = 'done' and not exists "
            "(select 1 from snapshots s where (s.run, s.message, s.idx, s.attempt) = "
            "(j.run, j.message, j.idx, j.attempt))"
        )
        if self.conn.execute(unseen, related, tables=("journal", "snapshots")).fetchone()[0]:
            raise RunError("Files were changed before there was a snapshot of them.")
        begun = self.conn.execute(
            f"select 1 from snapshots where run in {json_keys_subquery_sql()} limit 1",
            related,
            tables=("snapshots",),
        )
        if not begun.fetchone() and self.make is not None:
            return None
        commit = await self._take_snapshot_or_disable()
        first = self._find_first_snapshot(self._made.repository) if commit and self._made else None
        if first is None or self._made is None:
            raise RunError("There is no snapshot of the files that it began with.")
        repository, (run, name, before) = self._made.repository, first
        if not self._fetch_commit_if_missing(repository, name, before):
            raise RunError("The snapshot of the files that it began with is gone.")
        ignored = find_ignored_tests_in_options(read_options(self.conn, run))
        if ignored is None or not ignored.commit:
            raise RunError(ignored.why if ignored else f"{_WHY}: none were kept when the run began.")
        if not self._fetch_commit_if_missing(repository, ignored.repository, ignored.commit):
            raise RunError(f"{_WHY}: those that it began with are gone.")
        return ChangesSinceStart(repository, before, commit, ignored.commit)

    def _fetch_commit_if_missing(self, repository: "ShadowRepository", name: str, commit: str) -> bool:
        """Whether a commit that this repository lacks could be brought from the store, or from another repository."""
        if self.conn.blobs:
            fetch_snapshot_if_missing(self.conn, repository, commit)
        elif name != repository.name:
            repository.copy_missing_snapshots_from(
                type(repository)(repository.folder.with_name(name)), [commit]
            )
        return not repository.find_missing_snapshots([commit])

    async def _take_snapshot_or_disable(self, changed: str = "") -> str:
        """The commit; empty: none was taken."""
        if self.make is None:
            return ""
        try:
            self._made = made = self._made or self.make()
            commit = await await_despite_cancel(self._take_snapshot_with_progress(made, changed))
            if self.conn.blobs:
                await self._store_snapshot_if_missing(made.repository, commit)
                await self._store_clone_commits()
            return commit
        except (RunError, OSError) as error:
            if self.needed:
                raise RunError(
                    f"No snapshots of files: {str(error).rstrip('.')}. Nothing was run."
                ) from error
            self.make, self._why = None, str(error).rstrip(".")
            why = f"{self._why}. What this run changes from here on can't be taken back by rewind or undo."
            self.emit(ErrorEvent(severity="warning", message=f"No snapshots of files: {why}"))
            return ""

    async def _take_snapshot_with_progress(self, made: "WorkspaceSnapshots", changed: str) -> str:
        told = False

        def tell() -> None:
            nonlocal told
            told = True
            done, total = made.progress
            self.emit(Progress(what=SAVING, done=done, total=total, unit="files"))

        taken = asyncio.to_thread(made.take_snapshot, f"refs/runs/{self.run}", changed)
        commit = await await_with_notices(taken, tell, self.patience_s)
        if told:
            self.emit(Progress(what=SAVING, done=1, total=1, unit="files"))
        return commit

    async def _store_snapshot_if_missing(self, repository: "ShadowRepository", commit: str) -> None:
        """As `keep_commit`, with git in another thread: parallel tasks use the connection in this one."""
        if find_first_stored_commit(self.conn, [commit]):
            return
        earlier = await await_despite_cancel(asyncio.to_thread(repository.ancestors, commit))
        base = find_first_stored_commit(self.conn, earlier)
        pack = await await_despite_cancel(asyncio.to_thread(repository.pack_snapshot, commit, base))
        store_snapshot_pack(self.conn, repository, commit, base, pack)

    async def _store_clone_commits(self) -> None:
        if self.commits is None:
            return
        try:
            changed = await await_despite_cancel(asyncio.to_thread(self.commits))
        except RunError as error:
            self.commits = None
            self.emit(ErrorEvent(severity="warning", message=f"{error}"))
            return
        if changed is not None:
            clone, body = changed
            store_blob(self.conn, f"commits/{clone}", body, owner=clone)

    def _row_key(self, key: CallKey) -> tuple[str, str, int, int]:
        return (self.run, key.message, key.index, key.attempt)


class Snapshot(NamedTuple):
    message: str
    idx: int
    attempt: int
    root_step: int
    repository: str
    before: str
    after: str
    """Empty: cut off by a kill."""
    inherited: bool

    @property
    def call_key(self) -> str:
        """Same as `Call.key`."""
        return f"{self.message}.{self.idx}.{self.attempt}"


def list_snapshots(home: Path, run: str) -> list[Snapshot]:
    """Snapshots in call order. If a kill cut off the one after a call, the one before the next call replaces it."""
    rows = select_rows(
        home,
        "select message, idx, attempt, root_step, repository, before, coalesce(after, '') as after, inherited "
        "from snapshots where run = $1 order by inherited desc, seq",
        run,
    )
    found = [Snapshot(*row) for row in rows]
    nexts = [*(later.before for later in found), ""][1:]
    return [s if s.after else s._replace(after=then) for s, then in zip(found, nexts, strict=True)]


class CallsWithoutSnapshots(NamedTuple):
    """Calls that may have changed files while no snapshots were taken."""

    why: str
    calls: Sequence[str]
    """Keys of the first of them."""
    more: int
    """Further ones."""


def read_calls_without_snapshots(home: Path, run: str) -> CallsWithoutSnapshots | None:
    """The run's calls whose changes can't be taken back; None: there are none."""
    with open_reader(home) as conn:
        return find_calls_without_snapshots_in_options(read_options(conn, run)) if conn else None


def find_calls_without_snapshots_in_options(options: Mapping[str, Any]) -> CallsWithoutSnapshots | None:
    """As `unsaved`, of a run's options."""
    found: Mapping[str, Any] | None = options.get(UNSAVED)
    return CallsWithoutSnapshots(found["why"], found["calls"], found["more"]) if found else None


def list_call_keys_and_planned_paths(home: Path, run: str) -> list[tuple[str, str]]:
    """Key and path, as on disk, of each call that planned to write a file."""
    sql = "select message, idx, attempt, planned from journal where run = $1 and planned is not null"
    return [
        (f"{message}.{idx}.{attempt}", parse_file_name(json.loads(planned)["path"]))
        for message, idx, attempt, planned in select_rows(home, sql, run)
    ]
