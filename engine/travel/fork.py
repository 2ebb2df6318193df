"""fork: a new run that shares a run's history and files up to a root step; the parent never changes."""

import json
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from interlock.engine.read import RunRow, find_run
from interlock.engine.store import Store, checkpoint_of, select
from interlock.engine.store.runs import new_run_id
from interlock.engine.travel.files import RunFiles, commit_at
from interlock.graphs._langgraph import is_due
from interlock.services.files.filesystem import locked
from interlock.services.snapshots.restore import apply, between
from interlock.services.snapshots.snapshots import Contents, Repository
from interlock.services.sqlite import explained, transaction
from interlock.state.errors import UserError


@dataclass(frozen=True)
class Forked:
    run: str
    parent: str
    step: int
    workspace: str


@dataclass(frozen=True)
class _Point:
    """A root checkpoint of the parent."""

    id: str
    made: float
    """Unix time, seconds."""
    values: Mapping[str, Any]
    step: int
    newest: bool
    """Whether it is the run's newest checkpoint."""
    parked: bool
    """Whether it is the newest and waits for a person."""


def fork_run(
    home: Path, name: str, step: int, *, workspace: Path | None = None, in_place: bool = False
) -> Forked:
    """Fork a run at a root step: into a new folder beside its own, into `workspace`, or in place.

    Raises `UserError`. A kill leaves the folder either untouched or complete; repeating the command finishes the fork.
    """
    run = find_run(home, name)
    Store(home).open()  # adds tables missing from an older store
    point = point_of(home, run, step)
    _refuse_open_subtask(home, run, point)
    files = RunFiles(home, run)
    if in_place:
        files.refuse_driven()
        if not point.parked:
            files.put(files.to_step(step)[0])
        return _recorded(home, run, point, Path(run.workspace))
    snapshots = home / "snapshots"
    snapshots.mkdir(exist_ok=True, mode=0o700)
    with locked(snapshots):
        fork, folder = _begun(home, run, point, workspace) or _new(run, workspace)
        staged = _staged(home, run, point, folder)
        made = _recorded(home, run, point, folder, fork)
        try:
            staged.rename(folder)
        except OSError as error:
            raise _unmakeable(folder, error) from error
    return made


def _refuse_open_subtask(home: Path, run: RunRow, point: _Point) -> None:
    child = point.values.get("child") if run.workflow == "task" else ""
    over = "select 1 from runs where run = ? and status not in ('done', 'cancelled')"
    if child and select(home, over, child):
        raise UserError(
            f"At step {point.step} run {run.run!r} waits for its subtask {child!r}, which can't serve two tasks. Fork "
            f"at step {point.step - 1}, where it isn't begun yet; or when it has ended: interlock resume {run.run}"
        )


def _new(run: RunRow, workspace: Path | None) -> tuple[str, Path]:
    fork, root = new_run_id(), Path(run.workspace)
    folder = (workspace or root.with_name(f"{root.name}-{fork}")).expanduser().absolute()
    return fork, folder.parent.resolve() / folder.name


def _begun(home: Path, run: RunRow, point: _Point, workspace: Path | None) -> tuple[str, Path] | None:
    """A fork that a kill cut off between persisting its rows and creating its folder."""
    rows = select(
        home,
        "select run, workspace from runs where parent = ? and step = ? and updated = created",
        run.run,
        point.step,
    )
    for fork, folder in rows:
        wanted = workspace is None or Path(folder) == _new(run, workspace)[1]
        if wanted and not Path(folder).exists():
            return fork, Path(folder)
    return None


def point_of(home: Path, run: RunRow, step: int) -> _Point:
    """The root checkpoint of a step. Raises `UserError` naming the existing steps."""
    with closing(Store(home).connect()) as conn:
        rows = conn.execute(
            "select checkpoint_id, json_extract(cast(metadata as text), '$.step'), type, checkpoint from checkpoints "
            "where thread_id = ? and checkpoint_ns = '' order by checkpoint_id",
            (run.run,),
        ).fetchall()
    there = [row for row in rows if row[1] == step]
    if not there:
        which = f"it has {rows[0][1]} to {rows[-1][1]}" if rows else "it has none yet"
        raise UserError(f"Run {run.run!r} has no step {step}: {which}. See: interlock history {run.run}")
    # A root step repeated after a crash has two checkpoints: the newer one counts.
    name, _, kind, saved = there[-1]
    read = checkpoint_of(kind, saved)
    newest = name == rows[-1][0]
    return _Point(
        name,
        datetime.fromisoformat(read["ts"]).timestamp(),
        read["channel_values"],
        step,
        newest,
        newest and run.status == "waiting",
    )


def _staged(home: Path, run: RunRow, point: _Point, folder: Path) -> Path:
    """Write the files of that step to a temporary folder beside the target, replacing leftovers of a kill."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{str(folder)!r} is there and isn't empty. Give a folder that isn't there: --workspace DIR"
        )
    if not folder.parent.is_dir():
        raise UserError(f"No folder {str(folder.parent)!r} to make {folder.name!r} in.")
    found = None if point.parked else commit_at(home, run.run, point.step)
    if found is None:  # the run changed no files, or is parked here: use the current ones
        files = RunFiles(home, run)
        found = (files.folder.name, files.now())
    repository = home / "snapshots" / found[0]
    staged = folder.with_name(f".interlock-fork-{run.run}")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir()
        nothing = Contents({}, {})
        apply(between(nothing, Repository(repository).contents(found[1]), staged, repository), durable=False)
    except OSError as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise _unmakeable(folder, error) from error
    return staged


def _unmakeable(folder: Path, error: OSError) -> UserError:
    return UserError(f"Can't make {str(folder)!r}: {error.strerror}. Give another folder: --workspace DIR")


_UNTIL = {
    "model_calls": "at <= :made",
    "decisions": "at <= :made",
    "hook_calls": "done_at <= :made",
    "server_replies": "at <= :made",
    "steps": "root_step < :step",
    "snapshots": "root_step < :step",
}
"""Table → condition for the parent's rows that belong to the shared history."""
_CALLS = "(state = 'done' and done_at <= :made)"


def _recorded(home: Path, run: RunRow, point: _Point, folder: Path, fork: str = "") -> Forked:
    """Copy the rows in one transaction; idempotent."""
    store, fork = Store(home), fork or new_run_id()
    made = Forked(fork, run.run, point.step, str(folder))
    if select(home, "select 1 from runs where run = ?", fork):
        return made
    parked = point.parked
    names = {"fork": fork, "run": run.run, "step": point.step, "made": point.made, "id": point.id}
    with explained(store.path), closing(store.connect("FULL")) as conn, transaction(conn):
        _copy(
            conn,
            "runs",
            names,
            "run = :run",
            {"parent": run.run, "workspace": str(folder), **_ended(point, run)},
        )
        above = "checkpoint_id <= :id" if parked else "checkpoint_ns = '' and checkpoint_id <= :id"
        for table in ("checkpoints", "writes"):
            whole = "1" if parked else above.replace("<=", "<" if table == "writes" else "<=")
            _copy(conn, table, names, f"thread_id = :run and {whole}", column="thread_id")
        for table, until in _UNTIL.items():
            more = {"inherited": 1} if table == "snapshots" else {}
            _copy(conn, table, names, f"run = :run and ({'1' if parked else until})", more)
        calls = f"run = :run and ({_CALLS} or (state = 'scheduled' and (message, idx) in (select message, idx from "
        calls += f"journal where run = :run and {_CALLS})))"
        _copy(conn, "journal", names, "run = :run" if parked else calls)
        _copy_approvals(conn, names, "1" if parked else "answered_at <= :made")
        if str(folder) != run.workspace:
            _move(conn, fork, run.workspace, str(folder))
    plans = home / "plans" / run.run
    if plans.is_dir():
        shutil.copytree(plans, home / "plans" / fork, dirs_exist_ok=True)
    return made


def _ended(point: _Point, run: RunRow) -> dict[str, Any]:
    """The run's columns as of this step: `open` if something is due."""
    at = time.time()
    now = {"created": at, "updated": at, "step": point.step}
    if is_due(point.values):
        return {**now, "status": "open", "outcome": "", "error": None}
    if point.newest:
        return now
    from interlock.engine.store.saver import status_of
    from interlock.graphs import is_known, pipeline

    # A user's workflow isn't loaded here: assume the usual key.
    key = pipeline(run.workflow).outcome if is_known(run.workflow) else "status"
    status, outcome = status_of(dict(point.values), key)
    return {**now, "status": status, "outcome": outcome, "error": None}


def _copy(
    conn: sqlite3.Connection,
    table: str,
    names: Mapping[str, Any],
    which: str,
    changes: Mapping[str, Any] | None = None,
    column: str = "run",
) -> None:
    """Copy the parent's rows to the fork, with some columns changed."""
    columns = [row[1] for row in conn.execute(f"pragma table_info({table})")]
    replaced = {column: names["fork"], **(changes or {})}
    chosen = ", ".join(f":new_{name}" if name in replaced else name for name in columns)
    values = {**names, **{f"new_{name}": value for name, value in replaced.items()}}
    conn.execute(
        f"insert into {table} ({', '.join(columns)}) select {chosen} from {table} where {which}", values
    )


def _copy_approvals(conn: sqlite3.Connection, names: Mapping[str, Any], which: str) -> None:
    """Copy the requests, renaming their ids, which contain the run's."""
    columns = [row[1] for row in conn.execute("pragma table_info(approvals)") if row[1] not in ("id", "run")]
    listed = ", ".join(columns)
    conn.execute(
        f"insert into approvals (id, run, {listed}) select :fork || substr(id, length(run) + 1), :fork, {listed} "
        f"from approvals where run = :run and ({which}) order by rowid",
        names,
    )


def _move(conn: sqlite3.Connection, fork: str, old: str, new: str) -> None:
    """Move the file paths in pending requests to the fork's folder."""
    rows = conn.execute(
        "select id, request from approvals where run = ? and answer is null", (fork,)
    ).fetchall()
    for name, text in rows:
        request = json.loads(text)
        for file in request.get("files", ()):
            if Path(file["path"]).is_relative_to(old):
                file["path"] = str(Path(new, Path(file["path"]).relative_to(old)))
        conn.execute("update approvals set request = ? where id = ?", (json.dumps(request), name))
