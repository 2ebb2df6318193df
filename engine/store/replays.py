"""replays: what a replay may know of a run, copied into a store of its own, and read there."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import Store, queries, reading, select
from interlock.engine.store.blobs import blobs_of
from interlock.engine.store.connection import Connection
from interlock.engine.store.rows import NOT_NULL
from interlock.engine.store.run_copies import copy_table
from interlock.engine.store.runs import related
from interlock.engine.store.seals import seal_row


def seed(home: Path, store: Store, run: str, subtasks: list[str], script: Path) -> None:
    """Copy the run's start, records, call results and replies of hooks and servers into a replay's store.

    `script`: the replies of its models. `subtasks`: copied if finished, as each is replayed by itself.
    """
    with reading(home) as old, closing(store.connect()) as conn:
        assert old is not None
        conn.drop_audit()  # nobody proves anything by a store that is thrown away
        with conn.transaction():
            copy_table(old, conn, "runs", "run = $1", run)
            copy_table(old, conn, "journal", "run = $1 and state = 'done'", run)
            for table, source in _RECORDED.items():
                conn.stored(f"create table {table} as select * from {source} where false")
                copy_table(old, conn, source, "run = $1", run, into=table)
            conn.stored("create table taken_updates as select *, 0 as number from node_updates where false")
            # The run's own first: of two records that follow one, its own counts.
            copy_table(old, conn, "chain", "run = $1", run)
            for other in related(old, run):
                copy_table(old, conn, "chain", "run = $1", other)
            row = conn.execute("select options, input from runs where run = $1", (run,)).fetchone()
            options, first = map(json.loads, row)
            mode = first.get("chosen_mode") or options.get("approval_mode")  # as it began
            options |= {"record_to": None, "fake": str(script), "approval_mode": mode, "next_asked": {}}
            begun = {"options": json.dumps(options), "status": "open", "step": 0}
            conn.update("runs", begun, {"run": run})
            seal_row(conn, run)
            for subtask in subtasks:
                copy_table(old, conn, "runs", "run = $1 and status in ('done', 'cancelled')", subtask)
                copy_table(old, conn, "checkpoints", "thread_id = $1 and checkpoint_ns = ''", subtask)
            conn.update("runs", {"queue": None}, {"queue": NOT_NULL})  # no worker drives a replay
        files = conn.execute(
            "select file from chain where file is not null union select result_file from journal "
            "where result_file is not null union select reply_file from recorded_hooks "
            "where reply_file is not null"
        )
        for (name,) in files.fetchall():
            if (body := blobs_of(old, home / "outputs").load(name)) is not None:
                blobs_of(conn, store.outputs).store(name, body)


_RECORDED = {
    "recorded_hooks": "hook_calls",
    "recorded_servers": "server_replies",
    "recorded_calls": "model_calls",
    "recorded_effects": "effects",
    "recorded_updates": "node_updates",
}
"""Tables of a replay's store → those that they are copied from, which the replay writes itself."""


class RecordedReply(NamedTuple):
    """A model's reply: whose, which, and what it cost in tokens."""

    agent: str
    role: str
    ordinal: int
    record: str
    finish_reason: str | None
    problem: str | None
    input: int
    output: int
    cached: int
    thoughts: int


def recorded_replies(conn: Connection, run: str) -> list[RecordedReply]:
    """A run's replies, in the order in which they came."""
    rows = conn.execute(
        "select agent, role, ordinal, record, finish_reason, problem, input_tokens, output_tokens, cached_tokens, "
        "thought_tokens from recorded_calls where run = $1 order by at, agent, role, ordinal",
        (run,),
    )
    return [RecordedReply(*row) for row in rows]


def request_hashes(home: Path, run: str) -> dict[tuple[str, str, int], str]:
    """(agent, role, ordinal) → hash of the request, in the order in which they were made."""
    sql = "select agent, role, ordinal, request_hash from model_calls where run = $1 order by at"
    return {(agent, role, ordinal): digest for agent, role, ordinal, digest in select(home, sql, run)}


def parent_of(home: Path, run: str) -> str | None:
    found = select(home, "select parent from runs where run = $1", run)
    return found[0]["parent"] if found else None


def first_state_of(home: Path, run: str) -> dict[str, Any]:
    """The first input of the run's graph."""
    (row,) = select(home, "select input from runs where run = $1", run)
    return json.loads(row[0])


def answered_requests(home: Path, run: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """(id, request, answer) of each request that was answered, in the order asked."""
    for row in queries.answered(home, run):
        yield row["id"], json.loads(row["request"]), json.loads(row["answer"])


class RecordedHook(NamedTuple):
    event: str
    subject: str
    key: str
    name: str
    source: str
    reply: str | None
    reply_file: str | None


def recorded_hooks(conn: Connection) -> list[RecordedHook]:
    """What hooks said, in firing order."""
    rows = conn.execute(
        "select event, subject, key, name, source, reply, reply_file from recorded_hooks "
        "where hook <> '' and state = 'done' order by intent_at, place"
    )
    return [RecordedHook(*row) for row in rows]


def recorded_servers(conn: Connection) -> dict[str, str]:
    """What MCP servers were asked → what they replied, both JSON."""
    return dict(conn.execute("select asked, reply from recorded_servers").fetchall())


def never_begun(conn: Connection, run: str) -> list[tuple[str, int, int]]:
    """(message, index, attempt) of calls that ended without an intent."""
    return conn.execute(
        "select message, idx, attempt from journal where run = $1 and state = 'done' and intent_at is null",
        (run,),
    ).fetchall()
