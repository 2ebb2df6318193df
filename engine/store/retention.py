"""retention: how large the state directory is and what of, and which ended runs to delete because of age or size."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from interlock.engine.store import (
    STATE_DIRECTORY_PARTS,
    Store,
    explain_store_errors,
    open_reader,
    select_rows,
)
from interlock.engine.store.api_rows import delete_separate_api_rows_of_run
from interlock.engine.store.blobs import (
    delete_blobs_of_owner,
    delete_outputs_stored_before,
    filter_files_named_by_any_run,
    list_files_named_by_run,
    record_files_named_by_run,
)
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import refuse_driven_run
from interlock.engine.store.runs import delete_seal
from interlock.engine.store.tables import TABLES
from interlock.services.files.disk import (
    require_path_below,
)
from interlock.services.files.filesystem import remove_file_if_older_than
from interlock.state.errors import BusyError, RunError

_DAY_S = 86_400
GB = 1_000_000_000
_WEIGHED = {
    "chain": "length(body)",
    "checkpoints": "length(checkpoint) + length(metadata)",
    "writes": "length(value)",
    "journal": "coalesce(length(result), 0) + coalesce(length(args), 0)",
    "step_rows": "60 + length(nodes)",
    "model_calls": "250",
}
"""Table → about how many bytes a row takes."""


class DueRun(NamedTuple):
    run: str
    title: str
    updated: float
    size: int
    """About how many bytes it takes in the database."""
    why: str


class RetentionPlan(NamedTuple):
    due: list[DueRun]
    size: int
    """Bytes of the state directory now."""
    waiting: list[str]
    """Runs that would be due, but can be resumed: they wait for a person, or were interrupted."""


def state_directory_sizes(home: Path) -> dict[str, int]:
    """Part of the state directory → bytes, the largest first; the database without the pages that are free."""
    found = {part: _disk_size(home / part) for part in STATE_DIRECTORY_PARTS}
    with open_reader(home) as conn:
        if conn is not None:
            found["interlock.db (free)"] = free = Store(home).database.count_free_bytes(conn)
            found["interlock.db"] -= free
    return {part: size for part, size in sorted(found.items(), key=lambda item: -item[1]) if size > 0}


def _disk_size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def plan_retention(home: Path, now: float, keep_days: int | None, max_gb: float | None) -> RetentionPlan:
    """What to delete: ended runs unchanged for `keep_days`, then the oldest until the rest takes at most `max_gb`.

    A run that an unfinished one was started from, or belongs to, stays.
    """
    rows = select_rows(home, CANDIDATES)
    size, old = sum(state_directory_sizes(home).values()), now - (keep_days or 0) * _DAY_S
    weights = _stored_bytes_by_run(home) if rows and (keep_days or max_gb) else {}
    due: list[DueRun] = []
    waiting: list[str] = []
    left = size
    for run, title, updated, ended, needed in rows:
        aged = keep_days is not None and updated < old
        large = max_gb is not None and left > max_gb * GB
        if not (aged or large):
            continue
        if not ended:
            waiting.append(run)
        elif not needed:
            why = f"older than {keep_days} days" if aged else f"over {max_gb:g} GB"
            due.append(DueRun(run, title, updated, weights.get(run, 0), why))
            left -= weights.get(run, 0)
    return RetentionPlan(due, size, waiting)


CANDIDATES = """
with unfinished as (select run, parent, subtask_of from runs where status not in ('done', 'failed', 'cancelled'))
select r.run, r.title, r.updated, r.status in ('done', 'failed', 'cancelled') as ended,
       r.run in (select parent from unfinished where parent is not null
                 union select subtask_of from unfinished where subtask_of is not null)
       or (r.subtask_of is not null and r.subtask_of in (select run from unfinished)) as needed
from runs r order by r.updated
"""


def _stored_bytes_by_run(home: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for table, size in _WEIGHED.items():
        owner = "thread_id" if table in ("checkpoints", "writes") else "run"
        for run, bytes_ in select_rows(home, f"select {owner}, sum({size}) from {table} group by {owner}"):
            found[run] = found.get(run, 0) + (bytes_ or 0)
    return found


def delete_due_runs(home: Path, planned: RetentionPlan) -> Iterator[DueRun]:
    """Delete the runs, each as it is yielded, then give their pages back. One that somebody drives now stays."""
    for one in planned.due:
        try:
            remove_run_and_report_refused_paths(home, one.run)
        except BusyError:
            continue
        yield one
    if planned.due:
        store = Store(home)
        with closing(store.connect("FULL")) as conn:
            store.database.shrink_file(conn)


def remove_run_and_report_refused_paths(home: Path, run: str) -> list[str]:
    """Delete a run's rows, and the files only they named. Raises `BusyError` while it is driven.

    Returns a line for each name in its rows that leads out of the state directory: what is there stays.
    """
    store, refused = Store(home), list[str]()

    def placed(folder: Path, names: Iterable[str]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for name in names:
            try:
                found[name] = require_path_below(folder, name)
            except RunError as error:
                refused.append(str(error))
        return found

    with explain_store_errors(store.path), closing(store.connect("FULL")) as conn:
        with conn.transaction():
            refuse_driven_run(conn, run)
            last = _last_write_time(conn, run)
            files = list_files_named_by_run(conn, store.outputs, run)
            lonely = _unshared_snapshot_repositories(conn, run)
            plans, snapshots = placed(home / "plans", [run]), placed(home / "snapshots", lonely)
            paths = placed(store.outputs, files)
            if _delete_unshared_rows(conn, run):
                record_files_named_by_run(conn, store.outputs, run)
        # After the commit, because a kill in between must leave no row without its file; and looked up again,
        # holding the write lock, because another run may have named one of them since.
        with conn.transaction():
            unnamed = {*paths} - filter_files_named_by_any_run(conn, store.outputs, paths)
            for name in unnamed:
                remove_file_if_older_than(paths[name], last)
            for kind in ("plans", "patches", "commits"):
                delete_blobs_of_owner(conn, kind, run)
            if conn.blobs:
                delete_outputs_stored_before(conn, unnamed, last)
                for name in lonely:
                    delete_blobs_of_owner(conn, "snapshots", name)
    delete_separate_api_rows_of_run(home, run)
    delete_seal(home, run)
    for folder in (*plans.values(), *snapshots.values()):
        shutil.rmtree(folder, ignore_errors=True)
    return refused


def _unshared_snapshot_repositories(conn: Connection, run: str) -> list[str]:
    """Repositories in `snapshots/` that only this run uses; none if another run works in its workspace."""
    rows = conn.execute(
        "select distinct repository from snapshots where run = $1 and not exists "
        "(select 1 from runs o join runs r on r.workspace = o.workspace where r.run = $1 and o.run <> $1) "
        "and not exists (select 1 from snapshots s where s.repository = snapshots.repository and s.run <> $1)",
        (run,),
    )
    return [name for (name,) in rows]


def _delete_unshared_rows(conn: Connection, run: str) -> bool:
    """Returns whether rows are left, which others read."""
    forked = conn.execute(
        "select 1 from runs where parent = $1 union all "
        "select 1 from chain c join chain p on c.parent = p.id where p.run = $1 and c.run <> $1 limit 1",
        (run,),
    ).fetchone()
    for table in TABLES:
        # A fork reads its history from its parent's records (docs/internals.md#chains).
        if not (table.kept and forked):
            conn.delete(table.name, {table.owner: run})
    return forked is not None


def _last_write_time(conn: Connection, run: str) -> float:
    """When the run last named a file; files touched later belong to another run."""
    (last,) = conn.execute(
        "select max(t) from (select max(cast(updated as real)) as t from runs where run = $1 union all "
        "select max(cast(done_at as real)) from journal where run = $1 union all "
        "select max(cast(done_at as real)) from hook_calls where run = $1 union all "
        "select max(cast(at as real)) from model_calls where run = $1) as times",
        (run,),
    ).fetchone()
    return last or 0.0
