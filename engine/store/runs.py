"""runs: a run's row, its past states and messages, and its removal."""

import json
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import Store, explained, put, reading, select
from interlock.engine.store.blobs import blobs_of, forget_outputs, forget_owned
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.checkpoints import state_at
from interlock.engine.store.connection import Connection
from interlock.engine.store.tables import TABLES
from interlock.services.files.filesystem import remove_untouched
from interlock.services.transcript import ChainTranscript
from interlock.state.clock import unix_time
from interlock.state.errors import BusyError
from interlock.state.messages import Message

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: no letter looks like another."""
_ID_LENGTH = 8
"""40 bits: among 10,000 runs in a store, the chance of a collision is 1 in 20,000; `insert_run` would refuse."""


@dataclass(frozen=True)
class NewRun:
    """What is stored of a run before its first step."""

    run: str
    workflow: str
    workspace: str
    title: str
    options: Mapping[str, Any]
    input: Mapping[str, Any]
    """The graph's first input; small, because texts are in the chain."""
    queue: str | None = None
    """Whose workers drive it; None: whoever starts or resumes it."""


def new_run_id() -> str:
    """A random id, short enough to type."""
    return "".join(secrets.choice(ALPHABET) for _ in range(_ID_LENGTH))


def insert_run(conn: Connection, run: NewRun) -> None:
    """Insert the row. Fails if the id is taken: a run is never overwritten."""
    now = unix_time()
    with conn.transaction():
        texts = {"options": json.dumps(run.options), "input": json.dumps(run.input)}
        times = {"created": now, "updated": now}
        kind = {"status": "open", "subtask_of": run.options.get("subtask_of")}
        put(conn, "runs", {**vars(run), **texts, **times, **kind})


def insert_child(conn: Connection, parent: str, run: NewRun) -> None:
    """Insert a run that another one started; if it is there already, nothing."""
    with conn.transaction():
        if conn.execute("select 1 from runs where run = ?", (run.run,)).fetchone() is None:
            insert_run(conn, run)
            child = "update runs set parent = ?, queue = (select queue from runs where run = ?) where run = ?"
            conn.execute(child, (parent, parent, run.run))


def stands(conn: Connection, run: str, status: str, outcome: str, step: int) -> None:
    """Write where a run stands that wasn't driven here."""
    place = "update runs set status = ?, outcome = ?, step = ?, updated = ? where run = ?"
    conn.execute(place, (status, outcome, step, unix_time(), run))


_KEPT = re.compile(r"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""Names given by `services/files/filesystem.py`."""
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
"""Checked because a damaged row may name anything."""


def remove_run(home: Path, run: str) -> None:
    """Delete a run's rows, and the files only they named. Raises `BusyError` while it is driven."""
    store = Store(home)
    with explained(store.path), closing(store.connect("FULL")) as conn:
        with conn.transaction():
            refuse_driven(conn, run)
            last = _last_write(conn, run)
            files = files_of(conn, store.outputs, run)
            lonely = _lonely_snapshots(conn, run)
            _delete(conn, run)
        # After the commit, because a kill in between must leave no row without its file; and looked up again,
        # holding the write lock, because another run may have named one of them since.
        with conn.transaction():
            unnamed = files - files_of(conn, store.outputs, None) if files else set[str]()
            for name in unnamed:
                remove_untouched(store.outputs / name, last)
            if conn.blobs:
                forget_outputs(conn, unnamed, last)
                forget_owned(conn, "plans", run)
                forget_owned(conn, "patches", run)
                for name in lonely:
                    forget_owned(conn, "snapshots", name)
    shutil.rmtree(home / "plans" / run, ignore_errors=True)
    for name in lonely:
        shutil.rmtree(home / "snapshots" / name, ignore_errors=True)


def _lonely_snapshots(conn: Connection, run: str) -> list[str]:
    """Repositories in `snapshots/` that only this run uses; none if another run works in its workspace."""
    rows = conn.execute(
        "select distinct repository from snapshots where run = :run and not exists "
        "(select 1 from runs o join runs r on r.workspace = o.workspace where r.run = :run and o.run <> :run) "
        "and not exists (select 1 from snapshots s where s.repository = snapshots.repository and s.run <> :run)",
        {"run": run},
    )
    return [name for (name,) in rows]


def refuse_driven(conn: Connection, run: str) -> None:
    from interlock.services.process.identity import Owner, is_alive

    row = conn.execute(
        "select host, boot, pid, started from lease where run = ? and held = 1", (run,)
    ).fetchone()
    if row and is_alive(Owner(*row)) is not False:
        raise BusyError(f"Run {run!r} is driven by process {row[2]} on {row[0]}. Stop it there first.")


def _delete(conn: Connection, run: str) -> None:
    forked = conn.execute(
        "select 1 from runs where parent = :run union all "
        "select 1 from chain c join chain p on c.parent = p.id where p.run = :run and c.run <> :run limit 1",
        {"run": run},
    ).fetchone()
    for table in TABLES:
        if not (table.kept and forked):  # a fork reads its history from its parent's records (`engine.md` 9)
            conn.execute(f"delete from {table.name} where {table.owner} = ?", (run,))


def _last_write(conn: Connection, run: str) -> float:
    """When the run last named a file; files touched later belong to another run."""
    (last,) = conn.execute(
        "select max(t) from (select max(cast(updated as real)) as t from runs where run = :run union all "
        "select max(cast(done_at as real)) from journal where run = :run union all "
        "select max(cast(done_at as real)) from hook_calls where run = :run union all "
        "select max(cast(at as real)) from model_calls where run = :run) as times",
        {"run": run},
    ).fetchone()
    return last or 0.0


def files_of(conn: Connection, outputs: Path, run: str | None) -> set[str]:
    """Names in `outputs/` held by the records of a run (None: of all runs), in columns or in texts for the model."""
    of, values = (" where run = :run", {"run": run}) if run else ("", {})
    rows = [
        *conn.execute(f"select body, file from chain{of}", values),
        *conn.execute(f"select result, result_file from journal{of}", values),
        *conn.execute(f"select '', reply_file from hook_calls{of}", values),
    ]
    found, blobs = set[str](), blobs_of(conn, outputs)
    for text, file in rows:
        named = file if isinstance(file, str) and _RECORD.fullmatch(file) else None
        found |= {named} if named else set()
        body = blobs.read(text, named) or text
        found.update(
            _KEPT.findall(body.decode(errors="replace") if isinstance(body, bytes) else str(body or ""))
        )
    return found


def first_prompt(home: Path, run: str) -> str:
    """The prompt a run started with, available before its first checkpoint; empty: it takes none."""
    rows = select(home, "select input from runs where run = ?", run)
    record = str(json.loads(rows[0]["input"]).get("prompt") or "") if rows else ""
    messages = messages_at(home, run, record)
    return messages[-1].text if messages else ""


def messages_at(home: Path, run: str, head: str) -> list[Message]:
    """The conversation up to a record of the chain."""
    with reading(home) as conn:
        if conn is None or not head:
            return []
        return ChainTranscript(SqlChain(conn), home / "outputs", run).read(head)


def dropped(home: Path, run: str, head: str | None = None) -> list[list[Message]]:
    """The messages each compression or masking removed from the conversation, verbatim, oldest first.

    `head`: the conversation's last record, by default the newest.
    """
    head = str(state_at(home, run).get("head") or "") if head is None else head
    found: list[list[Message]] = []
    with reading(home) as conn:
        if conn is None:
            return []
        chain = ChainTranscript(SqlChain(conn), home / "outputs", run)
        while head and (old := chain.continued(head)):
            kept = Counter(m.model_dump_json() for m in chain.read(head))
            gone: list[Message] = []
            for message in chain.read(old):
                text = message.model_dump_json()
                kept[text] -= 1
                if kept[text] < 0:
                    gone.append(message)
            found.append(gone)
            head = old
    return found[::-1]


def stored_statuses(conn: Connection) -> list[tuple[str, str, str, str, int]]:
    """Run, workflow, status, outcome and step of every run, oldest first."""
    return conn.execute("select run, workflow, status, outcome, step from runs order by created").fetchall()


def set_status(conn: Connection, run: str, status: str, outcome: str, step: int) -> None:
    conn.execute(
        "update runs set status = ?, outcome = ?, step = ? where run = ?", (status, outcome, step, run)
    )


def end_run(conn: Connection, run: str) -> None:
    """Note that a run is done, where its checkpoints alone don't say so."""
    with conn.transaction():
        conn.execute("update runs set status = 'done', outcome = 'done' where run = ?", (run,))


class Shown(NamedTuple):
    """What a session shows."""

    run: str
    """It may not have begun."""
    workspace: str
    chosen: Mapping[str, str]
    """Options that count from the next prompt on, by name."""


def open_session(home: Path, workspace: Path, run: str = "") -> str:
    """A new session, which shows `run`, by default one to be started under the session's id."""
    name = run or new_run_id()
    point_session(home, name, name, workspace, {})
    return name


def point_session(home: Path, session: str, run: str, workspace: Path, chosen: Mapping[str, str]) -> None:
    """Let a session show another run, or keep what was chosen for its next prompt."""
    store = Store(home)
    store.open()
    row = {"session": session, "run": run, "workspace": str(workspace), "at": unix_time()}
    with closing(store.connect("FULL")) as conn, conn.transaction():
        put(conn, "sessions", row | {"chosen": json.dumps({**chosen})}, "replace")


def sessions(home: Path) -> dict[str, Shown]:
    """Each session by its id, the newest first."""
    rows = select(home, "select session, run, workspace, chosen from sessions order by at desc")
    return {session: Shown(run, place, json.loads(chosen)) for session, run, place, chosen in rows}
