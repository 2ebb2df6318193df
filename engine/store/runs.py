"""runs: a run's row, its options and seal; which run belongs to which: tasks and subtasks, a plan and what carries it
out, forks; which run a session shows, and the trace that a run belongs to."""

import hashlib
import json
import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import Store, open_reader, select_rows
from interlock.engine.store.connection import Connection
from interlock.services.files.disk import (
    make_private_directory,
    replace_private_file,
    require_path_below,
)
from interlock.state.clock import unix_time
from interlock.state.errors import STOPPED, RunError, StoreError, UserError

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


def check_run_id(run_id: str) -> str:
    """Return the id that a caller gives a run. Raises `UserError` for one that commands or files would take wrongly."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", run_id) or run_id in ("latest", "all"):
        raise UserError(
            f"{run_id[:80]!r} can't be a run_id: expected 1 to 128 letters, digits, _, ., : and -, beginning with a "
            "letter, a digit or _, "
            "and neither 'latest' nor 'all'."
        )
    return run_id


def insert_run(conn: Connection, run: NewRun, *, sealed: bool = True) -> None:
    """Insert the row. Raises `UserError` if the id is taken: a run is never overwritten.

    `sealed`: a person at this host defined it, or a run that they did.
    """
    now = unix_time()
    with conn.transaction():
        if conn.execute("select 1 from runs where run = $1", (run.run,)).fetchone():
            raise UserError(f"There is a run {run.run!r} already. Give another run_id, or none.")
        texts = {"options": json.dumps(run.options), "input": json.dumps(run.input)}
        times = {"created": now, "updated": now}
        kind = {"status": "open", "subtask_of": run.options.get("subtask_of")}
        conn.insert("runs", {**vars(run), **texts, **times, **kind})
        if sealed:
            seal_row(conn, run.run)


def insert_child_run_if_missing(conn: Connection, parent: str, run: NewRun, *, sealed: bool) -> None:
    """Insert a run that another one started; if it is there already, nothing. `sealed`: as of `insert_run`."""
    with conn.transaction():
        if conn.execute("select 1 from runs where run = $1", (run.run,)).fetchone() is None:
            insert_run(conn, run, sealed=sealed)
            (queue,) = conn.execute("select queue from runs where run = $1", (parent,)).fetchone() or (None,)
            conn.update("runs", {"parent": parent, "queue": queue}, {"run": run.run})


def list_run_statuses(conn: Connection) -> list[tuple[str, str, str, str, int]]:
    """Run, workflow, status, outcome and step of every run, oldest first."""
    return conn.execute(
        "select run, workflow, status, outcome, step from runs order by created", tables=("runs",)
    ).fetchall()


def set_run_status(conn: Connection, run: str, status: str, outcome: str, step: int) -> None:
    conn.update("runs", {"status": status, "outcome": outcome, "step": step}, {"run": run})


def mark_run_done(conn: Connection, run: str) -> None:
    """Note that a run is done, where its checkpoints alone don't say so."""
    with conn.transaction():
        conn.update("runs", {"status": "done", "outcome": "done"}, {"run": run})


IS_SUBTASK = "c.subtask_of = c.parent"
"""For a run `c`. A fork has a parent too, and is `subtask_of` what the run was that it was forked from."""


TURN = "case when role = 'main' and finish_reason is not null and problem is null then 1 else 0 end"
"""An answer that counts as a turn; retries don't."""


_ABOVE_IT = """
with recursive above (run, parent) as (
    select run, parent from runs where run = $1
    union select r.run, r.parent from runs r join above on r.run = above.parent
"""


RELATED = f"""{_ABOVE_IT}), related (run) as (
    select run from above union select r.run from runs r join related on r.parent = related.run
) """
"""Runs among which no number names two requests: a task and its subtasks, a plan and what carries it out, forks."""


_BELOW = f"""
select c.run from runs c join runs p on p.run = c.parent
where c.parent = $1 and {IS_SUBTASK} and p.status = 'open'
and c.status not in ('done', 'cancelled') order by c.created desc limit 1
"""


_ABOVE = f"""
select p.run from runs c join runs p on p.run = c.parent
where c.run = $1 and {IS_SUBTASK} and p.status = 'open'
"""


_OVER = ("done", "cancelled")
"""Statuses of a subtask after which its parent goes on. A failed one is retried first."""


def find_innermost_waiting_subtask(home: Path, run: str) -> str:
    """The innermost subtask a task is waiting for; the run itself if there is none."""
    while rows := select_rows(home, _BELOW, run):
        run = rows[0]["run"]
    return run


def find_waiting_parent_task(home: Path, run: str) -> str | None:
    """The task waiting for this one."""
    rows = select_rows(home, _ABOVE, run)
    return rows[0]["run"] if rows else None


def find_outermost_waiting_task(home: Path, run: str) -> str:
    """The outermost task waiting for this run; the run itself if there is none."""
    while parent := find_waiting_parent_task(home, run):
        run = parent
    return run


def list_run_and_subtasks(conn: Connection, run: str) -> list[str]:
    """The run and its subtasks, recursively."""
    found = [run]
    for one in found:
        rows = conn.execute(
            f"select c.run from runs c where c.parent = $1 and {IS_SUBTASK}", (one,), tables=("runs",)
        )
        found += [row[0] for row in rows]
    return found


_REACHED = """
with recursive reached (id, parent, run) as (
    select id, parent, run from chain where run = $1
    union select c.id, c.parent, c.run from chain c join model_calls m on c.id = m.record where m.run = $1
    union select c.id, c.parent, c.run from chain c join reached r on c.id = r.parent
) select distinct run from reached
"""


def list_related_runs(conn: Connection, run: str) -> list[str]:
    """The other runs that share records with this one: those it came from, removed ones too, and their offspring."""
    rows = conn.execute(f"{RELATED} select run from related", (run,), tables=("runs",)).fetchall()
    rows += conn.execute(_REACHED, (run,), tables=("chain", "model_calls")).fetchall()
    return [one for one in dict.fromkeys(one for (one,) in rows) if one != run]


def list_ancestor_runs(conn: Connection, run: str) -> list[str]:
    """The runs that this one came from: the task or plan that it is part of, what it was forked from, and theirs."""
    rows = conn.execute(
        f"{_ABOVE_IT}) select run from above where run <> $1", (run,), tables=("runs",)
    ).fetchall()
    return [one for (one,) in rows]


def find_root_task(conn: Connection, run: str) -> str:
    """The user-started run this one is a subtask of, at any depth; else the run itself."""
    higher = f"select p.run from runs c join runs p on p.run = c.parent where c.run = $1 and {IS_SUBTASK}"
    while row := conn.execute(higher, (run,), tables=("runs",)).fetchone():
        run = row[0]
    return run


def read_ended_subtask_status(conn: Connection, run: str) -> str | None:
    """A subtask's status if its parent can go on: `done`, `cancelled`, or `removed`; else None."""
    row = conn.execute("select status from runs where run = $1", (run,), tables=("runs",)).fetchone()
    return "removed" if row is None else row[0] if row[0] in _OVER else None


class SessionState(NamedTuple):
    """What a session shows."""

    run: str
    """It may not have begun."""
    workspace: str
    chosen: Mapping[str, str]
    """Options that count from the next prompt on, by name."""


def create_session(home: Path, workspace: Path) -> str:
    """A new session, which shows a run to be started under the session's id."""
    name = new_run_id()
    save_session(home, name, name, workspace, {})
    return name


def save_session(home: Path, session: str, run: str, workspace: Path, chosen: Mapping[str, str]) -> None:
    """Let a session show another run, or keep what was chosen for its next prompt."""
    row = {"session": session, "run": run, "workspace": str(workspace), "at": unix_time()}
    with Store(home).create_or_migrate().write_transaction("FULL") as conn:
        conn.insert("sessions", row | {"chosen": json.dumps({**chosen})}, "replace")


def list_sessions(home: Path) -> dict[str, SessionState]:
    """Each session by its id, the newest first."""
    rows = select_rows(home, "select session, run, workspace, chosen from sessions order by at desc")
    return {session: SessionState(run, place, json.loads(chosen)) for session, run, place, chosen in rows}


PROGRESS_OPTIONS = ("ignored_tests", "unsaved", "node_sources", "calls_before")
"""Options that say what a run did, which workers of other hosts write, too; they choose nothing that is executed."""


class RunDefinition(NamedTuple):
    """What decides what a run executes."""

    workflow: str
    workspace: str
    options: dict[str, Any]
    input: str
    """JSON."""

    @property
    def digest(self) -> str:
        options = {name: value for name, value in self.options.items() if name not in PROGRESS_OPTIONS}
        parts = json.dumps([self.workflow, self.workspace, options, self.input], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()


def read_definition(conn: Connection, run: str, *, locked: bool = False) -> RunDefinition:
    """Raises `UserError` if the run was removed. `locked`: inside a transaction: nobody changes it before its end."""
    lock = conn.change_lock if locked else ""
    sql = f"select workflow, workspace, options, input from runs where run = $1{lock}"
    row = conn.execute(sql, (run,), tables=("runs",)).fetchone()
    if row is None:
        raise UserError(f"Run {run!r} was removed meanwhile. List runs with: interlock runs --all")
    return RunDefinition(row[0], row[1], json.loads(row[2]), row[3])


def write_seal(home: Path, run: str, definition: RunDefinition) -> None:
    """Note that a run's definition is as this host, or a person at it, wants it."""
    file = _seal_path(home, run)
    try:
        make_private_directory(file.parent)
        replace_private_file(file, definition.digest)
    except OSError as error:
        raise StoreError(f"Can't write {str(file)!r}: {error.strerror}.") from error


def seal_row(conn: Connection, run: str) -> None:
    """Inside the transaction that wrote a run's row: seal it as it is."""
    if conn.shared_home:
        write_seal(conn.shared_home, run, read_definition(conn, run))


def is_sealed(home: Path, run: str, definition: RunDefinition) -> bool:
    try:
        return _seal_path(home, run).read_text(encoding="utf-8") == definition.digest
    except OSError:
        return False


def is_row_sealed(conn: Connection, run: str) -> bool:
    """Inside a transaction: return whether a run is as this host wrote it; nobody changes it before the end."""
    if conn.shared_home is None:
        return True
    return is_sealed(conn.shared_home, run, read_definition(conn, run, locked=True))


@contextmanager
def keep_sealed(conn: Connection, run: str) -> Generator[None]:
    """Inside a transaction: keep a run sealed whose row this process changes, if it was sealed before."""
    was_sealed = conn.shared_home is not None and is_row_sealed(conn, run)
    yield
    if was_sealed:
        seal_row(conn, run)


def delete_seal(home: Path, run: str) -> None:
    with suppress(OSError, RunError):  # a forged name
        _seal_path(home, run).unlink()


def _seal_path(home: Path, run: str) -> Path:
    return require_path_below(home / "seals", run)


def read_options(conn: Connection, run: str) -> dict[str, Any]:
    return read_definition(conn, run).options


def read_run_options(home: Path, run: str) -> dict[str, Any]:
    """`read_options` of a store that is there. Raises `StoreError` in one line."""
    with open_reader(home) as conn:
        assert conn is not None
        return read_options(conn, run)


def read_repository_option(conn: Connection, run: str) -> dict[str, str]:
    """What a run's options say of its git repository; empty: it works in a folder."""
    return read_options(conn, run).get("repository") or {}


def set_run_option(conn: Connection, run: str, name: str, value: Mapping[str, Any] | str | bool) -> None:
    """Update one of the run's persisted options, such as `rights`, its rules, or `limits`."""
    if read_options(conn, run).get(name) != value:
        with conn.transaction(), nullcontext() if name in PROGRESS_OPTIONS else keep_sealed(conn, run):
            text = json.dumps({**read_options(conn, run), name: value})
            conn.update("runs", {"options": text}, {"run": run})


def update_known_input_fields(
    conn: Connection, run: str, stored_input: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The input of a run that has no checkpoint yet, with what is asked now; kept, because a replay reads it."""
    first: dict[str, Any] = json.loads(stored_input)
    changed = {**first, **{name: value for name, value in changes.items() if name in first}}
    if changed != first:
        with conn.transaction(), keep_sealed(conn, run):
            conn.update("runs", {"input": json.dumps(changed)}, {"run": run})
    return changed


def stopped_run_error(kind: str, run: str) -> dict[str, str]:
    """The error of a run that was stopped."""
    return {"type": kind, "message": f"{STOPPED[kind]} Go on with: interlock resume {run}"}


def clear_run_error(conn: Connection, run: str) -> None:
    """How the run ended before says nothing of a drive that goes on with it."""
    if conn.execute(
        "select 1 from runs where run = $1 and error is not null", (run,), tables=("runs",)
    ).fetchone():
        set_run_error(conn, run, None)


def set_run_error(conn: Connection, run: str, error: Mapping[str, str] | None) -> None:
    """Set the run's latest error; None clears it."""
    with conn.transaction():
        row = {"error": json.dumps(error) if error else None, "updated": unix_time()}
        conn.update("runs", row, {"run": run})


class Trace(NamedTuple):
    run: str
    trace: str
    """32 hex digits."""
    parent: str
    """Span that the run's first drive is a part of: 16 hex digits; empty: none."""
    root: str
    """Span of the run's first drive, of which the later ones are parts."""
    until: float
    """Unix time up to which a collector has the run's spans; 0: none yet."""


class RowsToExport(NamedTuple):
    """Rows of a run that ended after a time."""

    steps: list[Any]
    models: list[Any]
    answered: list[Any]


def find_or_create_trace(store: Store, run: str, parent_span: tuple[str, str] | None) -> Trace:
    """The run's trace; made if it has none, as a part of `parent_span` (trace and span), or of its parent's trace."""
    if found := _find_trace(store.home, run):
        return found
    rows = select_rows(store.home, "select coalesce(subtask_of, parent) from runs where run = $1", run)
    if rows and rows[0][0] and (over := _find_trace(store.home, rows[0][0])):
        parent_span = over.trace, over.root
    trace, parent = parent_span or (secrets.token_hex(16), "")
    made = Trace(run, trace, parent, secrets.token_hex(8), 0.0)
    with store.write_transaction() as conn:
        conn.insert("traces", made._asdict(), "keep")
    return _find_trace(store.home, run) or made


def _find_trace(home: Path, run: str) -> Trace | None:
    rows = select_rows(home, "select run, trace, parent, root, until from traces where run = $1", run)
    return Trace(*rows[0]) if rows else None


def mark_trace_exported(store: Store, run: str, until: float) -> None:
    with store.write_transaction() as conn:
        conn.update("traces", {"until": until}, {"run": run})


def list_rows_to_export(home: Path, run: str, since: float) -> RowsToExport:
    return RowsToExport(
        select_rows(
            home, "select * from steps where run = $1 and started + ms / 1000 > $2 order by seq", run, since
        ),
        select_rows(home, "select * from model_calls where run = $1 and at > $2 order by at", run, since),
        select_rows(
            home, "select * from approvals where run = $1 and answered_at > $2 order by seq", run, since
        ),
    )


def count_waiting_requests(home: Path) -> int:
    """How many requests wait for a person, over all runs."""
    sql = "select count(*) from approvals where answer is null and superseded = 0 and interrupt is not null"
    rows = select_rows(home, sql)
    return rows[0][0] if rows else 0


IGNORED = "ignored_tests"
"""The run's option that names the commit with tests that its first snapshot doesn't hold."""


class KeptIgnoredTests(NamedTuple):
    """Tests that no snapshot holds, as they were when the run began."""

    repository: str
    commit: str
    why: str = ""
    """Why there is no commit."""


def find_ignored_tests_in_options(options: Mapping[str, Any]) -> KeptIgnoredTests | None:
    """Return what a run's options say of tests that its first snapshot doesn't hold; None: nobody looked."""
    found: Mapping[str, Any] | None = options.get(IGNORED)
    return KeptIgnoredTests(**found) if found else None
