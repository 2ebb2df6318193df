"""approvals: requests pending a person's answer, and the answers, checked and persisted before the run resumes."""

import json
import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from interlock.engine.options import Decision, Pending
from interlock.engine.read import Request, check_edit, is_foreign, place_of, waiting_requests
from interlock.engine.store import Store, explained, keep_option, note_error, put, read_options
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import RELATED, ask_to_stop, first_task, with_subtasks
from interlock.engine.store.seals import resealed
from interlock.services.policy.rule import USER
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import Answer, ApprovalRequest, SavedRules, SessionRule
from interlock.state.clock import unix_time
from interlock.state.errors import UserError
from interlock.state.text import clean, clean_json, first_fault
from interlock.tools.table import TOOLS


@dataclass
class SqlApprovals:
    """Implements `Approvals` for a run's driver."""

    conn: Connection
    run: str
    redact: Redactor = SHAPES
    store: Store | None = None
    """None if no choice can be saved."""

    def ask(self, request: ApprovalRequest) -> str:
        with self.conn.transaction() as conn:
            if found := self._value("id", request.key):
                again = "update approvals set superseded = 0 where run = ? and key = ? and superseded = 1"
                conn.execute(again, (self.run, request.key))
                return found
            name, text = self._name(request), self.as_kept(request).model_dump_json()
            order = "select coalesce(max(seq), 0) + 1 from approvals where run = ?"
            (seq,) = conn.execute(order, (self.run,)).fetchone()
            row = {"id": name, "run": self.run, "seq": seq, "key": request.key, "request": text}
            row["asked_at"] = unix_time()
            put(conn, "approvals", row)
        return name

    def _ends_run(self, key: str, answer: Answer) -> bool:
        """Whether somebody ended the run in place of an answer."""
        return answer.choice == "cancel" and (request := self.get(key)) is not None and ends_run(request)

    def _value(self, column: str, key: str) -> str | None:
        found = self.conn.execute(
            f"select {column} from approvals where run = ? and key = ?", (self.run, key)
        ).fetchone()
        return found[0] if found else None

    def _name(self, request: ApprovalRequest) -> str:
        """RUN-BATCH.CALL, both from 1, whichever call of a batch asks first. Hooks: RUN-hN; foreign nodes: RUN-qN."""
        if (call := request.attempt) is None:
            who = request.key.partition(":")[0]
            (before,) = self.conn.execute(
                "select count(*) from approvals where run = ? and key like ? || ':%'", (self.run, who)
            ).fetchone()
            return f"{self.run}-{'h' if who == 'hook' else 'q'}{before + 1}"
        keys = self.conn.execute(
            "select key from approvals where run = ? and key not like 'hook:%' order by seq", (self.run,)
        ).fetchall()
        # Batches of parallel agents ask in turn: each keeps the number it got first.
        batches = [*dict.fromkeys(key.partition(".")[0] for (key,) in keys)]
        earlier = batches.index(call.message) if call.message in batches else len(batches)
        first = request.what in ("approval", "review") and (request.asked, call.attempt) == (1, 1)
        again = "" if first else f".{request.what[0]}{call.attempt}{request.asked}"
        return f"{self.run}-{earlier + 1}.{call.index + 1}{again}"

    def as_kept(self, request: ApprovalRequest) -> ApprovalRequest:
        return self.redact.request(request)

    def get(self, key: str) -> ApprovalRequest | None:
        text = self._value("request", key)
        return ApprovalRequest.model_validate_json(text) if text else None

    def answer(self, key: str) -> Answer | None:
        text = self._value("answer", key)
        answer = Answer.model_validate_json(text) if text else None
        return None if answer and self._ends_run(key, answer) else answer

    def withdraw(self, keys: str, but: str = "") -> None:
        with self.conn.transaction() as conn:
            conn.execute(
                "update approvals set superseded = 1, interrupt = null "
                "where run = ? and key like ? || '%' and answer is null and superseded = 0 "
                "and (? = '' or key not like '%:' || ? || ':%')",
                (self.run, keys, but, but),
            )

    def stand_for(self, key: str, alike: int) -> None:
        if (request := self.get(key)) is not None and alike > request.alike:
            text = request.model_copy(update={"alike": alike}).model_dump_json()
            with self.conn.transaction() as conn:
                conn.execute(
                    "update approvals set request = ? where run = ? and key = ?", (text, self.run, key)
                )

    def open_requests(self) -> list[ApprovalRequest]:
        rows = self.conn.execute(
            "select request from approvals where run = ? and answer is null and superseded = 0 order by seq",
            (self.run,),
        )
        return [ApprovalRequest.model_validate_json(request) for (request,) in rows]

    def session_rules(self) -> list[SessionRule]:
        """The rules of this run's always-choices; those made while planning end with the plan."""
        rows = self.conn.execute(
            "select request, answer, rule from approvals where run = ? and answer is not null order by seq",
            (self.run,),
        )
        rules: list[SessionRule] = []
        for request, answer, rule in rows:
            if rule is not None:
                rules.append(SessionRule.model_validate_json(rule))
            if '"exit_plan_mode"' in request and _ends_planning(json.loads(request), json.loads(answer)):
                rules = [rule for rule in rules if rule.modes != ("plan",)]
        return rules

    def add_session_rule(self, key: str, rule: SessionRule) -> None:
        with self.conn.transaction() as conn:
            conn.execute(
                "update approvals set rule = ? where run = ? and key = ?",
                (rule.model_dump_json(), self.run, key),
            )

    def confirm(self, saved: SavedRules) -> None:
        # A separate connection: the driver's may write only its own run's rows, and the parents wait for this run.
        assert self.store is not None
        with self.store.writing() as conn:
            for (run,) in conn.execute(_RUN_AND_THOSE_ABOVE, (self.run,)).fetchall():
                with resealed(conn, run):
                    rights: dict[str, Any] = read_options(conn, run).get("rights") or {}
                    if files := _confirmed(rights.get("files", []), saved, self.redact):
                        keep_option(conn, run, "rights", {**rights, "files": files})


def ends_run(request: ApprovalRequest | Pending) -> bool:
    """Whether *cancel* at this request ends the run itself: there is nothing in it that would take the choice."""
    return "cancel" not in (request.choices if isinstance(request, ApprovalRequest) else request["choices"])


def answered_requests(conn: Connection, run: str, tool: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the answered requests of a run about this tool, each with its answer, oldest first."""
    sql = "select request, answer from approvals where run = ? and answer is not null order by seq"
    found = [(json.loads(request), json.loads(answer)) for request, answer in conn.execute(sql, (run,))]
    return [(request, answer) for request, answer in found if request["call"]["name"] == tool]


def _ends_planning(request: dict[str, Any], answer: dict[str, Any]) -> bool:
    return request["call"]["name"] == "exit_plan_mode" and answer["choice"] != "reject"


_RUN_AND_THOSE_ABOVE = """
with recursive line (run, parent) as (
    select run, parent from runs where run = ?
    union select r.run, r.parent from runs r join line on r.run = line.parent
) select run from line
"""


def _confirmed(
    files: Sequence[tuple[str, int, str | None, str]], saved: SavedRules, redact: Redactor
) -> list[tuple[str, int, str | None, str]]:
    """The run's rule files with the saved change; empty if the file had other changes too."""
    there = next((file for file in files if file[0] == saved.path), None)
    if (there[2] if there else "") != redact(saved.before):
        return []
    now = (saved.path, USER, redact(saved.after), "")
    return [*(now if f is there else f for f in files), *([] if there else [now])]


def decide(conn: Connection, run: str, approval: str, answer: Answer) -> None:
    """Persist a person's answer, power-safe, before the run resumes. An answered request can't be answered again."""
    with conn.transaction():
        written = conn.execute(
            "update approvals set answer = ?, answered_at = ?, answered_by = ? "
            "where run = ? and id = ? and answer is null",
            (answer.model_dump_json(), answer.at, answer.by, run, approval),
        )
        if written.rowcount != 1:
            raise not_waiting(conn, run, approval)


def supersede(conn: Connection, run: str) -> None:
    """Withdraw the run's open requests: nothing asks for them any more."""
    with conn.transaction():
        conn.execute("update approvals set superseded = 1 where run = ? and answer is null", (run,))


def not_waiting(conn: Connection, run: str, approval: str) -> UserError:
    """Why a request can't be answered: it doesn't exist, or was answered already."""
    row = conn.execute("select answer from approvals where run = ? and id = ?", (run, approval)).fetchone()
    if row is None or row[0] is None:
        return UserError(f"No request {approval!r} waits in run {run!r}. See: interlock approvals {run}")
    past = json.loads(row[0])
    return UserError(
        f"Request {approval!r} was already answered ({past['choice']} by {past['by'] or 'somebody'}). "
        f"See: interlock show {run}"
    )


def number_requests(conn: Connection, run: str) -> None:
    """Number a parked run's new requests, in the order of their calls. No number is used for a second request."""
    rows = conn.execute(
        "select id from approvals where run = ? and number is null and answer is null and superseded = 0 "
        "and interrupt is not null",
        (run,),
    ).fetchall()
    if not rows:
        return
    with conn.transaction():
        query = (
            RELATED + "select coalesce(max(number), 0) from approvals where run in (select run from related)"
        )
        (last,) = conn.execute(query, (run,)).fetchone()
        for number, name in enumerate(sorted((name for (name,) in rows), key=place_of), last + 1):
            conn.execute("update approvals set number = ? where id = ?", (number, name))


def ready_answers(conn: Connection, run: str) -> dict[str, str]:
    """Interrupt id → request key, for answered requests the run was interrupted for."""
    rows = conn.execute(
        "select interrupt, key from approvals where run = ? and interrupt is not null and answer is not null",
        (run,),
    )
    return dict(rows.fetchall())


def record_decisions(
    store: Store, run: str, decisions: Sequence[Decision], by: str = "", door: str = "program"
) -> None:
    """Persist each answer, power-safe. Every decision is checked before the first is written.

    `by`: who decided; empty: this user. `door`: where, unless the decision says.

    Raises `UserError` for a request that isn't pending, a choice it doesn't offer, or invalid arguments.
    """
    if not decisions:
        return
    waiting = {request.id: request for request in waiting_requests(store.home, run)}
    with explained(store.path), closing(store.connect("FULL")) as conn:
        for decision in decisions:
            if decision.approval != "all" and decision.approval not in waiting:
                raise not_waiting(conn, run, decision.approval)
        named = [(name, d) for d in decisions for name in _named(waiting, d)]
        chosen = [
            (name, _answer(waiting, name, d, by, door)) for name, d in [*named, *_cancelled(waiting, named)]
        ]
        with conn.transaction():
            for name, answer in chosen:
                decide(conn, run, name, answer)
            if any(d.choice == "cancel" and ends_run(waiting[name].fields) for name, d in named):
                return cancel_run(conn, run)
            (queue,) = conn.execute("select queue from runs where run = ?", (run,)).fetchone()
            if queue:
                from interlock.engine.store.queue import put_job  # its packages come with an extra

                note_error(conn, run, None)
                put_job(conn, run, queue)


def cancels_run(store: Store, run: str, decisions: Sequence[Decision]) -> bool:
    """Whether one of these decisions ends the run itself."""
    if all(decision.choice != "cancel" for decision in decisions):
        return False
    waiting = {request.id: request for request in waiting_requests(store.home, run)}
    named = [name for d in decisions if d.choice == "cancel" for name in _named(waiting, d)]
    return any(ends_run(waiting[name].fields) for name in named if name in waiting)


def cancel_run(conn: Connection, run: str) -> None:
    """Inside a transaction: end a run that waits, with the tasks above it. Its driver, if it has one, stops."""
    for one in with_subtasks(conn, first_task(conn, run)):
        ask_to_stop(conn, one, "cancel")
        conn.execute("update approvals set superseded = 1 where run = ? and answer is null", (one,))
        conn.execute(
            'update approvals set interrupt = null where run = ? and answer like \'%"choice":"cancel"%\'',
            (one,),
        )
        _note_cancelled(conn, one)


def _note_cancelled(conn: Connection, run: str) -> None:
    """By whoever answered one of its requests so."""
    query = (
        'select answered_by from approvals where run = ? and answer like \'%"choice":"cancel"%\' '
        "order by answered_at desc limit 1"
    )
    found = conn.execute(query, (run,)).fetchone()
    error = {"type": "cancelled", "message": f"Cancelled by {found[0]}." if found else "Cancelled."}
    conn.execute(
        "update runs set status = 'cancelled', outcome = 'cancelled', error = ?, updated = ? "
        "where run = ? and status in ('open', 'cancelled')",
        (json.dumps(error), unix_time(), run),
    )
    if conn.execute("select queue from runs where run = ?", (run,)).fetchone()[0]:
        from interlock.engine.store.queue import take_back  # its packages come with an extra

        take_back(conn, run)


def _named(waiting: dict[str, Request], decision: Decision) -> list[str]:
    """Request ids; `all` means every pending permission, but no question or unknown outcome unless that is all."""
    if decision.approval != "all":
        return [decision.approval]
    found = [name for name, request in waiting.items() if request.fields["kind"] == "approval"]
    return found or ([*waiting] if decision.choice == "cancel" else [])


def _cancelled(
    waiting: dict[str, Request], named: Sequence[tuple[str, Decision]]
) -> list[tuple[str, Decision]]:
    """A cancelled call takes the rest of its batch along: nobody has to be asked about it again."""
    batches = {place_of(name)[0]: decision for name, decision in named if decision.choice == "cancel"}
    batches.pop(0, None)  # requests of hooks: in no batch
    decided = {name for name, _ in named}
    return [
        (name, batches[batch])
        for name, request in waiting.items()
        if (batch := place_of(name)[0]) in batches
        and name not in decided
        and "cancel" in request.fields["choices"]
    ]


OUTCOMES = {"redo": "proceed_once", "skip": "reject"}
"""What is said of an unknown outcome, and the choice that acts on it: a call that was to be left must not run again."""


def _answer(waiting: dict[str, Request], name: str, decision: Decision, by: str, door: str) -> Answer:
    request = waiting[name].fields
    if decision.choice not in (*request["choices"], "cancel"):
        raise UserError(f"Request {name!r} takes {', '.join(request['choices'])}; got {decision.choice!r}.")
    means = OUTCOMES.get(decision.text or "") if request["kind"] == "outcome" else None
    if means not in (None, decision.choice):
        raise UserError(
            f"Request {name!r} takes {decision.text!r} with the choice {means!r}; got {decision.choice!r}."
        )
    args = None
    if is_foreign(name) and (schema := (request["questions"] or [{}])[0].get("schema")):
        from interlock.graphs._asking import check_answer

        check_answer(name, decision.text or "", schema)
    if decision.choice == "modify":
        args = json.loads(json.dumps(clean_json(dict(decision.args or {}))))
        check_edit(request, args)
        if not is_foreign(name):  # its tools may have the names of ours
            _check_arguments(name, request["tool_name"], args)
    return Answer(
        choice=decision.choice,
        feedback=clean(decision.feedback) if decision.feedback else None,
        args=args,
        text=clean(decision.text) if decision.text else None,
        by=clean(by) or f"{this_user()}@{socket.gethostname()}",
        door=decision.door or door,
        at=unix_time(),
    )


def this_user() -> str:
    """The account that this process was started by, whatever the environment says: limits go by it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have a number only
        return f"uid {os.getuid()}"


def _check_arguments(name: str, tool: str, args: object) -> None:
    """Report a person's mistake to the person, not to the model."""
    found = TOOLS.get(tool)
    if found is None:
        return
    try:
        found.args.model_validate(args)
    except ValidationError as error:
        place, what = first_fault(error)
        place = place or "arguments"
        raise UserError(f"The arguments for {name!r} don't fit {tool!r}: {place}: {what}.") from error


def stored_interrupts(conn: Connection, run: str) -> list[tuple[str, str | None, str | None]]:
    """Key, LangGraph's id of the interrupt, and answer of each of the run's requests."""
    return conn.execute("select key, interrupt, answer from approvals where run = ?", (run,)).fetchall()


def set_interrupts(conn: Connection, run: str, waits: Mapping[str, str]) -> None:
    """Make the run wait for exactly these requests: key → LangGraph's id."""
    conn.execute("update approvals set interrupt = null where run = ? and answer is null", (run,))
    for key, name in waits.items():
        conn.execute("update approvals set interrupt = ? where run = ? and key = ?", (name, run, key))
