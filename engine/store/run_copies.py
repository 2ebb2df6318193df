"""run_copies: the rows of a fork, from its parent's (`docs/internals.md#forks`); and a run, with its subtasks, its
records and its files, in another store: a laptop's, or a server's."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from interlock.engine.store import Store, explain_store_errors, open_reader, queries, select_rows
from interlock.engine.store.blobs import (
    fetch_snapshot_if_missing,
    list_files_named_by_run,
    open_blob_storage,
    read_plans,
    store_plan,
    store_snapshot_if_missing,
)
from interlock.engine.store.checkpoints import RootCheckpoint
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import refuse_driven_run
from interlock.engine.store.runs import (
    is_row_sealed,
    is_sealed,
    keep_sealed,
    list_related_runs,
    list_run_and_subtasks,
    read_definition,
    read_options,
    seal_row,
)
from interlock.engine.store.steps import StepRow, write_step_rows
from interlock.engine.store.tables import NOT_NULL, TABLES, Table
from interlock.engine.store.workspaces import list_snapshots_by_repository, rebase_open_request_paths
from interlock.services.snapshots.snapshots import ShadowRepository
from interlock.state.errors import UserError


def is_run_open(home: Path, run: str) -> bool:
    """Whether the run exists and has work left."""
    return bool(
        select_rows(home, "select 1 from runs where run = $1 and status not in ('done', 'cancelled')", run)
    )


def list_undriven_forks(home: Path, parent: str, step: int) -> list[tuple[str, Path]]:
    """Forks at this step that were never driven, with their folders: a kill may have cut one off before its folder."""
    query = "select run, workspace from runs where parent = $1 and step = $2 and updated = created"
    return [(run, Path(folder)) for run, folder in select_rows(home, query, parent, step)]


def copy_rows_to_fork(
    home: Path,
    parent: str,
    fork: str,
    checkpoint: RootCheckpoint,
    row: Mapping[str, Any],
    *,
    include_waiting: bool,
    moved: bool,
) -> None:
    """Copy the parent's rows up to a step in one transaction; a second call changes nothing.

    `row`: changed columns of the run's own row. `include_waiting`: the parent is parked there, so what waits is
    copied, too. `moved`: the fork works in another folder, which the requests that wait then name.
    """
    if select_rows(home, "select 1 from runs where run = $1", fork):
        return
    until = {"step": checkpoint.step, "made": checkpoint.created_at, "id": checkpoint.id}
    changes = {"runs": {**row, "parent": parent, "queue": None}, "snapshots": {"inherited": 1}}
    with Store(home).write_transaction("FULL") as conn:
        sealed = is_row_sealed(conn, parent)
        for table in TABLES:
            if table.forked is not None:
                limit = until[table.until] if table.until and not include_waiting else None
                _copy_rows_until(
                    conn, table, parent, limit, {table.owner: fork, **changes.get(table.name, {})}
                )
        if sealed:
            seal_row(conn, fork)
        if moved:
            (old,) = conn.execute("select workspace from runs where run = $1", (parent,)).fetchone()
            rebase_open_request_paths(conn, fork, old, row["workspace"])


def _copy_rows_until(
    conn: Connection, table: Table, run: str, until: object, changes: Mapping[str, object]
) -> None:
    """`until`: up to where; None: all of the run's rows."""
    which, values = f"{table.owner} = $1", [run]
    if until is not None:
        which, values = f"{which} and ({table.forked})", [run, until]
    rows = _read_rows(conn, table.name, which, *values)
    for row in rows if table.name == "approvals" else ():  # their ids contain the run's
        row["id"] = f"{changes['run']}{row['id'].removeprefix(run)}"
    conn.insert_all(table.name, [{**row, **changes} for row in rows])


def _read_rows(conn: Connection, table: str, where: str, *values: object) -> list[dict[str, Any]]:
    names = [column.name for column in conn.list_columns(table)]
    found = conn.execute(f"select {', '.join(names)} from {table} where {where}", values)
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def change_options_and_newest_checkpoint(
    home: Path, run: str, options: Mapping[str, Any], change: Callable[[dict[str, Any]], None]
) -> None:
    """Change some of the run's options, and the values of its newest root checkpoint, in one transaction."""
    from interlock.engine.store.saver import Serde
    from interlock.graphs.langgraph_internals import always_storable_types
    from interlock.graphs.stored_values import StorableTypes

    serde = Serde(StorableTypes(always_storable_types()))
    newest = "where thread_id = $1 and checkpoint_ns = '' order by checkpoint_id desc limit 1"
    with Store(home).write_transaction() as conn:
        with keep_sealed(conn, run):
            kept = {**read_options(conn, run), **options}
            conn.update("runs", {"options": json.dumps(kept)}, {"run": run})
        select_newest = f"select checkpoint_id, type, checkpoint from checkpoints {newest}"
        name, *saved = conn.execute(select_newest, (run,)).fetchone()
        checkpoint = serde.loads_typed((saved[0], saved[1]))
        change(checkpoint["channel_values"])
        kind, data = serde.dumps_typed(checkpoint)
        where = {"thread_id": run, "checkpoint_ns": "", "checkpoint_id": name}
        conn.update("checkpoints", {"type": kind, "checkpoint": data}, where)


def copy_runs_with_subtasks(home: Path, to: Path, runs: Sequence[str]) -> Iterator[str]:
    """Copy runs with what they stand on; returns the names of all that were copied, subtasks among them.

    Each is copied in one transaction: a kill leaves it whole in the other store, or not there. A driver there isn't
    known here, so a copied run is nobody's until it is resumed. Raises `UserError` for one that is there or driven.
    """
    there = Store(to).create_or_migrate()
    for run in runs:
        with ExitStack() as stack:
            stack.enter_context(explain_store_errors(there.path))
            old = stack.enter_context(open_reader(home))
            if old is None or old.execute("select 1 from runs where run = $1", (run,)).fetchone() is None:
                raise UserError(f"No run {run!r} in this store. List runs with: interlock runs --all")
            refuse_driven_run(old, run)
            family = list_run_and_subtasks(old, run)
            new = stack.enter_context(closing(there.connect("FULL")))
            for one in family:
                _copy_snapshots_between_repositories(old, home, to, one)
            with new.transaction(synced=True):
                for one in family:
                    _copy_run_rows(old, new, one)
                    _copy_outputs_plans_and_snapshots(old, new, home, to, one)
        yield from family


def _copy_run_rows(old: Connection, new: Connection, run: str) -> None:
    if new.execute("select 1 from runs where run = $1", (run,)).fetchone():
        raise UserError(
            f"Run {run!r} is in the other store already. Remove it there first: interlock runs rm {run}"
        )
    for table in reversed(TABLES):  # the run's own row first
        if table.name not in ("lease", "sessions", "reservations", "step_rows"):
            where = _OWN_CHAIN if table.name == "chain" else f"{table.owner} = $1"
            copy_table_rows(old, new, table.name, where, run)
    query = f"select {', '.join(StepRow._fields)} from steps where run = $1 order by seq"
    write_step_rows(new, (StepRow(*step) for step in old.execute(query, (run,)).fetchall()), set())
    new.update("runs", {"queue": None}, {"run": run})
    if old.shared_home is None or is_sealed(old.shared_home, run, read_definition(new, run)):
        seal_row(new, run)


_OWN_CHAIN = """
id in (with recursive reached (id, parent) as (
    select id, parent from chain where run = $1
    union select c.id, c.parent from chain c join reached r on c.id = r.parent
) select id from reached)
"""
"""The run's records, and those of others that they follow."""


def copy_table_rows(
    old: Connection, new: Connection, table: str, where: str, run: str, into: str = ""
) -> None:
    """Copy a run's rows to another store, or to a table there that has the same columns.

    Records of the chain that are there already stay: runs share them.
    """
    again = "keep" if table == "chain" else "refuse"
    new.insert_all(into or table, _read_rows(old, table, where, run), again)


def _copy_outputs_plans_and_snapshots(
    old: Connection, new: Connection, home: Path, to: Path, run: str
) -> None:
    """Long records and outputs, plans, and the snapshots that undo, rewind and fork bring back."""
    theirs, ours = open_blob_storage(new, to / "outputs"), open_blob_storage(old, home / "outputs")
    for name in list_files_named_by_run(old, home / "outputs", run):
        if (body := ours.load_named_body(name)) is not None:
            theirs.store_named_body(name, body)
            new.insert("named_files", {"name": name, "run": run}, "keep")
    for name, body in read_plans(old, home, run):
        store_plan(new, to, run, name, body)
    for repository, commits in list_snapshots_by_repository(old, run).items():
        for commit in commits:
            store_snapshot_if_missing(new, ShadowRepository(to / "snapshots" / repository), commit)


def _copy_snapshots_between_repositories(old: Connection, home: Path, to: Path, run: str) -> None:
    """From repository to repository."""
    for name, commits in list_snapshots_by_repository(old, run).items():
        source = ShadowRepository(home / "snapshots" / name)
        for commit in commits:
            fetch_snapshot_if_missing(old, source, commit)
        ShadowRepository(to / "snapshots" / name).copy_missing_snapshots_from(source, commits)


def seed_replay_store(home: Path, store: Store, run: str, script: Path) -> None:
    """Copy the run's start, records, call results and replies of hooks and servers into a replay's store.

    `script`: the replies of its models. Finished subtasks are copied: each is replayed by itself.
    """
    with open_reader(home) as old, closing(store.connect()) as conn:
        assert old is not None
        conn.drop_audit_table()  # nobody proves anything by a store that is thrown away
        with conn.transaction():
            copy_table_rows(old, conn, "runs", "run = $1", run)
            copy_table_rows(old, conn, "journal", "run = $1 and state = 'done'", run)
            for table, source in _RECORDED.items():
                conn.execute_raw(f"create table {table} as select * from {source} where false")
                copy_table_rows(old, conn, source, "run = $1", run, into=table)
            conn.execute_raw(
                "create table taken_updates as select *, 0 as number from node_updates where false"
            )
            # The run's own first: of two records that follow one, its own counts.
            copy_table_rows(old, conn, "chain", "run = $1", run)
            for other in list_related_runs(old, run):
                copy_table_rows(old, conn, "chain", "run = $1", other)
            row = conn.execute("select options, input from runs where run = $1", (run,)).fetchone()
            options, first = map(json.loads, row)
            mode = first.get("chosen_mode") or options.get("approval_mode")  # as it began
            options |= {"record_to": None, "fake": str(script), "approval_mode": mode, "next_asked": {}}
            begun = {"options": json.dumps(options), "status": "open", "step": 0}
            conn.update("runs", begun, {"run": run})
            seal_row(conn, run)
            for subtask in list_run_and_subtasks(old, run)[1:]:
                copy_table_rows(old, conn, "runs", "run = $1 and status in ('done', 'cancelled')", subtask)
                copy_table_rows(old, conn, "checkpoints", "thread_id = $1 and checkpoint_ns = ''", subtask)
            conn.update("runs", {"queue": None}, {"queue": NOT_NULL})  # no worker drives a replay
        files = conn.execute(
            "select file from chain where file is not null union select result_file from journal "
            "where result_file is not null union select reply_file from recorded_hooks "
            "where reply_file is not null"
        )
        for (name,) in files.fetchall():
            if (body := open_blob_storage(old, home / "outputs").load_named_body(name)) is not None:
                open_blob_storage(conn, store.outputs).store_named_body(name, body)


_RECORDED = {
    "recorded_hooks": "hook_calls",
    "recorded_servers": "server_replies",
    "recorded_calls": "model_calls",
    "recorded_effects": "effects",
    "recorded_updates": "node_updates",
}
"""Tables of a replay's store → those that they are copied from, which the replay writes itself."""


def read_recorded_replies(conn: Connection, run: str) -> list[Any]:
    """Return agent, role, ordinal and record of each reply of a run, how it ended, and its tokens."""
    rows = conn.execute(
        "select agent, role, ordinal, record, finish_reason, problem, input_tokens, output_tokens, cached_tokens, "
        "thought_tokens from recorded_calls where run = $1 order by ordinal, at, agent, role",
        (run,),
    )
    return rows.fetchall()


def read_request_hashes(home: Path, run: str) -> dict[tuple[str, str, int], str]:
    """(agent, role, ordinal) → hash of the request, in the order in which they were made."""
    sql = "select agent, role, ordinal, request_hash from model_calls where run = $1 order by at"
    return {(agent, role, ordinal): digest for agent, role, ordinal, digest in select_rows(home, sql, run)}


def find_parent_run(home: Path, run: str) -> str | None:
    found = select_rows(home, "select parent from runs where run = $1", run)
    return found[0]["parent"] if found else None


def read_first_input(home: Path, run: str) -> dict[str, Any]:
    """The first input of the run's graph."""
    (row,) = select_rows(home, "select input from runs where run = $1", run)
    return json.loads(row[0])


def read_answered_requests(
    home: Path, run: str
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """(id, request, answer) of each request that was answered, in the order asked."""
    for row in queries.list_answered_requests(home, run):
        yield row["id"], json.loads(row["request"]), json.loads(row["answer"])


def read_recorded_hook_replies(conn: Connection) -> list[Any]:
    """Return event, subject, key, name, source, reply and reply's file of what hooks said, in firing order."""
    rows = conn.execute(
        "select event, subject, key, name, source, reply, reply_file from recorded_hooks "
        "where hook <> '' and state = 'done' order by intent_at, place"
    )
    return rows.fetchall()


def read_recorded_server_replies(conn: Connection) -> dict[str, str]:
    """What MCP servers were asked → what they replied, both JSON."""
    return dict(conn.execute("select asked, reply from recorded_servers").fetchall())


def list_calls_without_intent(conn: Connection, run: str) -> list[tuple[str, int, int]]:
    """(message, index, attempt) of calls that ended without an intent."""
    return conn.execute(
        "select message, idx, attempt from journal where run = $1 and state = 'done' and intent_at is null",
        (run,),
    ).fetchall()
