"""runs: a run's row; which run belongs to which: tasks and subtasks, a plan and what carries it out, forks; who drives
it, and the fence that keeps everybody else from writing its rows; its removal; which run a session shows."""

import json
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from interlock.engine.store import Store, explained, select
from interlock.engine.store.connection import Connection
from interlock.engine.store.named_files import files_of, list_again, named_by_others
from interlock.engine.store.rows import Plus, Row
from interlock.engine.store.seals import forget_seal, seal_row
from interlock.engine.store.served import forget
from interlock.engine.store.tables import TABLES
from interlock.services.files.disk import path_below
from interlock.services.files.filesystem import remove_untouched
from interlock.services.process.identity import ProcessIdentity, is_alive
from interlock.state.clock import unix_time
from interlock.state.errors import BusyError, RunError, StoreError, UserError

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


def check_run_id(given: str) -> str:
    """Return the id that a caller gives a run. Raises `UserError` for one that commands or files would take wrongly."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", given) or given in ("latest", "all"):
        raise UserError(
            f"{given[:80]!r} can't be a run_id: expected 1 to 128 letters, digits, _, ., : and -, beginning with a "
            "letter, a digit or _, "
            "and neither 'latest' nor 'all'."
        )
    return given


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


def insert_child(conn: Connection, parent: str, run: NewRun, *, sealed: bool) -> None:
    """Insert a run that another one started; if it is there already, nothing. `sealed`: as of `insert_run`."""
    with conn.transaction():
        if conn.execute("select 1 from runs where run = $1", (run.run,)).fetchone() is None:
            insert_run(conn, run, sealed=sealed)
            (queue,) = conn.execute("select queue from runs where run = $1", (parent,)).fetchone() or (None,)
            conn.update("runs", {"parent": parent, "queue": queue}, {"run": run.run})


def stored_statuses(conn: Connection) -> list[tuple[str, str, str, str, int]]:
    """Run, workflow, status, outcome and step of every run, oldest first."""
    return conn.execute(
        "select run, workflow, status, outcome, step from runs order by created", tables=("runs",)
    ).fetchall()


def set_status(conn: Connection, run: str, status: str, outcome: str, step: int) -> None:
    conn.update("runs", {"status": status, "outcome": outcome, "step": step}, {"run": run})


def end_run(conn: Connection, run: str) -> None:
    """Note that a run is done, where its checkpoints alone don't say so."""
    with conn.transaction():
        conn.update("runs", {"status": "done", "outcome": "done"}, {"run": run})


IS_SUBTASK = "c.subtask_of = c.parent"
"""For a run `c`. A fork has a parent too, and is `subtask_of` what the run was that it was forked from."""
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


def deepest(home: Path, run: str) -> str:
    """The innermost subtask a task is waiting for; the run itself if there is none."""
    while rows := select(home, _BELOW, run):
        run = rows[0]["run"]
    return run


def above(home: Path, run: str) -> str | None:
    """The task waiting for this one."""
    rows = select(home, _ABOVE, run)
    return rows[0]["run"] if rows else None


def topmost(home: Path, run: str) -> str:
    """The outermost task waiting for this run; the run itself if there is none."""
    while parent := above(home, run):
        run = parent
    return run


def with_subtasks(conn: Connection, run: str) -> list[str]:
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


def related(conn: Connection, run: str) -> list[str]:
    """The other runs that share records with this one: those it came from, removed ones too, and their offspring."""
    rows = conn.execute(f"{RELATED} select run from related", (run,), tables=("runs",)).fetchall()
    rows += conn.execute(_REACHED, (run,), tables=("chain", "model_calls")).fetchall()
    return [one for one in dict.fromkeys(one for (one,) in rows) if one != run]


def origins(conn: Connection, run: str) -> list[str]:
    """The runs that this one came from: the task or plan that it is part of, what it was forked from, and theirs."""
    rows = conn.execute(
        f"{_ABOVE_IT}) select run from above where run <> $1", (run,), tables=("runs",)
    ).fetchall()
    return [one for (one,) in rows]


def first_task(conn: Connection, run: str) -> str:
    """The user-started run this one is a subtask of, at any depth; else the run itself."""
    higher = f"select p.run from runs c join runs p on p.run = c.parent where c.run = $1 and {IS_SUBTASK}"
    while row := conn.execute(higher, (run,), tables=("runs",)).fetchone():
        run = row[0]
    return run


def how_it_ended(conn: Connection, run: str) -> str | None:
    """A subtask's status if its parent can go on: `done`, `cancelled`, or `removed`; else None."""
    row = conn.execute("select status from runs where run = $1", (run,), tables=("runs",)).fetchone()
    return "removed" if row is None else row[0] if row[0] in _OVER else None


StopAsked = Literal["stop", "cancel", "timeout"]
"""`stop`, `timeout`: the run can be resumed; `cancel`: it ends."""
_COLUMNS = "host, boot, pid, started, epoch, beat, held"


class LeaseRow(NamedTuple):
    owner: ProcessIdentity
    epoch: int
    beat: int
    held: bool


def read_lease(conn: Connection, run: str) -> LeaseRow | None:
    row = conn.execute(f"select {_COLUMNS} from lease where run = $1", (run,), tables=("lease",)).fetchone()
    return row and LeaseRow(ProcessIdentity(*row[:4]), row[4], row[5], bool(row[6]))


def take(conn: Connection, run: str, owner: ProcessIdentity, seen: LeaseRow | None) -> int | LeaseRow:
    """Give the run to this owner, and return the new epoch; if its lease isn't as `seen`, return that instead."""
    with conn.transaction():
        row = read_lease(conn, run)
        if row is not None and row.held and row != seen:
            return row
        epoch, beats = (row.epoch + 1, row.beat + 1) if row else (1, 1)
        kept = {"run": run, **owner._asdict(), "epoch": epoch, "beat": beats, "held": 1, "stop": None}
        conn.insert("lease", kept, "replace")
    return epoch


def beat(conn: Connection, run: str, epoch: int) -> bool | None:
    """Send a heartbeat. False: the row is no longer of this epoch, or the store is gone from its path.

    None: the store didn't take it.
    """
    return _update(conn, {"beat": Plus(1)}, run, epoch)


def give_back(conn: Connection, run: str, epoch: int) -> bool | None:
    """Returns as `beat` does."""
    return _update(conn, {"held": 0}, run, epoch)


def _update(conn: Connection, change: Row, run: str, epoch: int) -> bool | None:
    try:
        with conn.transaction():
            return conn.update("lease", change, {"run": run, "epoch": epoch}).rowcount == 1
    except StoreError:
        return False
    except conn.errors:
        # A busy store costs a beat, not the run; a lasting error (a full disk) hits the driver at its next
        # write. If `held` stays set, this process's end or silence frees the run as well.
        return None


def ask_to_stop(conn: Connection, run: str, how: "StopAsked") -> ProcessIdentity | None:
    """Inside a transaction: ask the run's driver to stop; its next heartbeat reads it. None: nobody drives the run."""
    row = read_lease(conn, run)
    if row is None or not row.held or is_alive(row.owner) is False:
        return None
    conn.update("lease", {"stop": how}, {"run": run, "epoch": row.epoch})
    return row.owner


def note_stop(conn: Connection, run: str, epoch: int, how: StopAsked) -> None:
    """Note why the process of the drive with this epoch ends."""
    with conn.transaction():
        conn.update("lease", {"stop": how}, {"run": run, "epoch": epoch, "stop": None})


def asked_to_stop(conn: Connection, run: str, epoch: int) -> "StopAsked | None":
    """What somebody asks of the driver with this epoch; None also where the store doesn't answer."""
    try:
        row = conn.execute(
            "select stop from lease where run = $1 and epoch = $2", (run, epoch), tables=("lease",)
        ).fetchone()
    except (StoreError, *conn.errors):
        return None  # the next heartbeat asks again
    return row and row[0]


def end_lease(conn: Connection, run: str) -> None:
    """Inside a transaction: free a lease whose owner doesn't count any more; if it wakes up, it can't write."""
    conn.update("lease", {"held": 0, "epoch": Plus(1)}, {"run": run, "held": 1})


def end_leases_of(conn: Connection, run: str, owner: ProcessIdentity) -> None:
    """Inside a transaction: free the leases of a process that has ended: those of the run and of its family."""
    for one in with_subtasks(conn, first_task(conn, run)):
        row = read_lease(conn, one)
        if row and row.held and row.owner[:3] == owner[:3]:
            end_lease(conn, one)


def refuse_driven(conn: Connection, run: str) -> None:
    lease = read_lease(conn, run)
    if lease and lease.held and is_alive(lease.owner) is not False:
        owner = lease.owner
        raise BusyError(f"Run {run!r} is driven by process {owner.pid} on {owner.host}. Stop it there first.")


class HeldLease(Protocol):
    """A driver's right to write the rows of its run."""

    run: str
    epoch: int
    held: bool


def fence(conn: Connection, lease: HeldLease) -> None:
    """Let `conn` commit only while the lease is held: whoever lost the run gets a `BusyError` in place of a commit."""

    def check() -> None:
        query = f"select epoch from lease where run = $1{conn.row_lock}"
        row = conn.execute(query, (lease.run,), tables=("lease",)).fetchone()
        if row is None or row[0] != lease.epoch or not lease.held:
            raise lost(conn, lease)

    conn.guard(check)


def lost(conn: Connection, lease: HeldLease) -> BusyError:
    """The error for a run that was taken over, removed or released."""
    row = conn.execute(
        "select pid, host, epoch from lease where run = $1", (lease.run,), tables=("lease",)
    ).fetchone()
    if row is None:
        return BusyError(
            f"This process lost the run {lease.run!r}: it was removed. List runs with: interlock runs"
        )
    if row[2] == lease.epoch:
        return BusyError(
            f"This process no longer drives the run {lease.run!r}: it released it before this write."
        )
    return BusyError(
        f"This process lost the run {lease.run!r} to pid {row[0]} on {row[1]}, after giving no sign of life "
        f"for too long. What it did is kept; look with: interlock show {lease.run}"
    )


def remove_run(home: Path, run: str) -> list[str]:
    """Delete a run's rows, and the files only they named. Raises `BusyError` while it is driven.

    Returns a line for each name in its rows that leads out of the state directory: what is there stays.
    """
    store, refused = Store(home), list[str]()

    def placed(folder: Path, names: Iterable[str]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for name in names:
            try:
                found[name] = path_below(folder, name)
            except RunError as error:
                refused.append(str(error))
        return found

    with explained(store.path), closing(store.connect("FULL")) as conn:
        with conn.transaction():
            refuse_driven(conn, run)
            last = _last_write(conn, run)
            files = files_of(conn, store.outputs, run)
            lonely = _lonely_snapshots(conn, run)
            plans, snapshots = placed(home / "plans", [run]), placed(home / "snapshots", lonely)
            paths = placed(store.outputs, files)
            if _delete(conn, run):
                list_again(conn, store.outputs, run)
        # After the commit, because a kill in between must leave no row without its file; and looked up again,
        # holding the write lock, because another run may have named one of them since.
        with conn.transaction():
            unnamed = {*paths} - named_by_others(conn, store.outputs, paths)
            for name in unnamed:
                remove_untouched(paths[name], last)
            if conn.blobs:
                from interlock.engine.store.blobs import forget_outputs, forget_owned

                forget_outputs(conn, unnamed, last)
                forget_owned(conn, "plans", run)
                forget_owned(conn, "patches", run)
                forget_owned(conn, "commits", run)
                for name in lonely:
                    forget_owned(conn, "snapshots", name)
    forget(home, run)
    forget_seal(home, run)
    for folder in (*plans.values(), *snapshots.values()):
        shutil.rmtree(folder, ignore_errors=True)
    return refused


def _lonely_snapshots(conn: Connection, run: str) -> list[str]:
    """Repositories in `snapshots/` that only this run uses; none if another run works in its workspace."""
    rows = conn.execute(
        "select distinct repository from snapshots where run = $1 and not exists "
        "(select 1 from runs o join runs r on r.workspace = o.workspace where r.run = $1 and o.run <> $1) "
        "and not exists (select 1 from snapshots s where s.repository = snapshots.repository and s.run <> $1)",
        (run,),
    )
    return [name for (name,) in rows]


def _delete(conn: Connection, run: str) -> bool:
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


def _last_write(conn: Connection, run: str) -> float:
    """When the run last named a file; files touched later belong to another run."""
    (last,) = conn.execute(
        "select max(t) from (select max(cast(updated as real)) as t from runs where run = $1 union all "
        "select max(cast(done_at as real)) from journal where run = $1 union all "
        "select max(cast(done_at as real)) from hook_calls where run = $1 union all "
        "select max(cast(at as real)) from model_calls where run = $1) as times",
        (run,),
    ).fetchone()
    return last or 0.0


class Shown(NamedTuple):
    """What a session shows."""

    run: str
    """It may not have begun."""
    workspace: str
    chosen: Mapping[str, str]
    """Options that count from the next prompt on, by name."""


def open_session(home: Path, workspace: Path) -> str:
    """A new session, which shows a run to be started under the session's id."""
    name = new_run_id()
    point_session(home, name, name, workspace, {})
    return name


def point_session(home: Path, session: str, run: str, workspace: Path, chosen: Mapping[str, str]) -> None:
    """Let a session show another run, or keep what was chosen for its next prompt."""
    row = {"session": session, "run": run, "workspace": str(workspace), "at": unix_time()}
    with Store(home).open().writing("FULL") as conn:
        conn.insert("sessions", row | {"chosen": json.dumps({**chosen})}, "replace")


def sessions(home: Path) -> dict[str, Shown]:
    """Each session by its id, the newest first."""
    rows = select(home, "select session, run, workspace, chosen from sessions order by at desc")
    return {session: Shown(run, place, json.loads(chosen)) for session, run, place, chosen in rows}
