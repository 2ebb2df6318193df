"""approvals: requests pending a person's answer, and the answers, persisted before the run resumes."""

import json
import os
import pwd
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interlock.engine.store import Store
from interlock.engine.store.connection import Connection
from interlock.engine.store.leases import request_stop
from interlock.engine.store.queries import parse_request_id
from interlock.engine.store.runs import (
    RELATED,
    find_root_task,
    keep_sealed,
    list_ancestor_runs,
    list_run_and_subtasks,
    read_options,
    set_run_error,
    set_run_option,
)
from interlock.engine.store.tables import Condition
from interlock.services.policy.rule import USER
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.calls import Answer, ApprovalRequest, SavedRules, SessionRule
from interlock.state.clock import unix_time
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.errors import UserError


@dataclass
class SqlApprovals:
    """Implements `Approvals` for a run's driver."""

    conn: Connection
    run: str
    redact: Redactor = SHAPES
    store: Store | None = None
    """None if no choice can be saved."""

    def write_request(self, request: ApprovalRequest) -> str:
        with self.conn.transaction() as conn:
            if found := self._read_request_column("id", request.key):
                asked = {"run": self.run, "key": request.key, "superseded": 1}
                conn.update("approvals", {"superseded": 0}, asked)
                return found
            name, text = self._make_request_id(request), self.redact_request(request).model_dump_json()
            order = "select coalesce(max(seq), 0) + 1 from approvals where run = $1"
            (seq,) = conn.execute(order, (self.run,)).fetchone()
            row = {"id": name, "run": self.run, "seq": seq, "key": request.key, "request": text}
            row["asked_at"] = unix_time()
            conn.insert("approvals", row)
        return name

    def _is_run_cancelled_by_answer(self, key: str, answer: Answer) -> bool:
        """Whether somebody ended the run in place of an answer."""
        return (
            answer.choice == "cancel"
            and (request := self.find_request(key)) is not None
            and is_run_ended_by_cancel(request.choices)
        )

    def _read_request_column(self, column: str, key: str) -> str | None:
        found = self.conn.execute(
            f"select {column} from approvals where run = $1 and key = $2",
            (self.run, key),
            tables=("approvals",),
        ).fetchone()
        return found[0] if found else None

    def _make_request_id(self, request: ApprovalRequest) -> str:
        """RUN-BATCH.CALL, both from 1, whichever call of a batch asks first. Hooks: RUN-hN; foreign nodes: RUN-qN."""
        if (call := request.attempt) is None:
            who = request.key.partition(":")[0]
            (before,) = self.conn.execute(
                "select count(*) from approvals where run = $1 and key like $2 || ':%'",
                (self.run, who),
                tables=("approvals",),
            ).fetchone()
            return f"{self.run}-{'h' if who == 'hook' else 'q'}{before + 1}"
        keys = self.conn.execute(
            "select key from approvals where run = $1 and key not like 'hook:%' order by seq",
            (self.run,),
            tables=("approvals",),
        ).fetchall()
        # Batches of parallel agents ask in turn: each keeps the number it got first.
        batches = [*dict.fromkeys(key.partition(".")[0] for (key,) in keys)]
        earlier = batches.index(call.message) if call.message in batches else len(batches)
        first = request.what in ("approval", "review") and (request.asked, call.attempt) == (1, 1)
        again = "" if first else f".{request.what[0]}{call.attempt}{request.asked}"
        return f"{self.run}-{earlier + 1}.{call.index + 1}{again}"

    def redact_request(self, request: ApprovalRequest) -> ApprovalRequest:
        return self.redact.redact_request(request)

    def find_request(self, key: str) -> ApprovalRequest | None:
        text = self._read_request_column("request", key)
        return ApprovalRequest.model_validate_json(text) if text else None

    def find_answer(self, key: str) -> Answer | None:
        text = self._read_request_column("answer", key)
        answer = Answer.model_validate_json(text) if text else None
        return None if answer and self._is_run_cancelled_by_answer(key, answer) else answer

    def withdraw_requests(self, key_prefix: str, except_containing: str = "") -> None:
        with self.conn.transaction() as conn:
            sql = (
                "select key from approvals where run = $1 and key like $2 || '%' and answer is null "
                "and superseded = 0 and ($3 = '' or key not like '%:' || $4 || ':%')"
            )
            for (key,) in conn.execute(
                sql, (self.run, key_prefix, except_containing, except_containing)
            ).fetchall():
                unanswered = {"run": self.run, "key": key, "answer": None}
                conn.update("approvals", {"superseded": 1, "interrupt": None}, unanswered)

    def record_parallel_count(self, key: str, count: int) -> None:
        if (request := self.find_request(key)) is not None and count > request.alike:
            text = request.model_copy(update={"alike": count}).model_dump_json()
            with self.conn.transaction() as conn:
                conn.update("approvals", {"request": text}, {"run": self.run, "key": key})

    def list_open_requests(self) -> list[ApprovalRequest]:
        rows = self.conn.execute(
            "select request from approvals where run = $1 and answer is null and superseded = 0 order by seq",
            (self.run,),
            tables=("approvals",),
        )
        return [ApprovalRequest.model_validate_json(request) for (request,) in rows]

    def list_session_rules(self) -> list[SessionRule]:
        """The rules of this run's always-choices; those made while planning end with the plan."""
        rows = self.conn.execute(
            "select request, answer, rule from approvals where run = $1 and answer is not null order by seq",
            (self.run,),
            tables=("approvals",),
        )
        rules: list[SessionRule] = []
        for request, answer, rule in rows:
            if rule is not None:
                rules.append(SessionRule.model_validate_json(rule))
            if '"exit_plan_mode"' in request and _does_end_planning(json.loads(request), json.loads(answer)):
                rules = [rule for rule in rules if rule.modes != ("plan",)]
        return rules

    def add_session_rule(self, key: str, rule: SessionRule) -> None:
        with self.conn.transaction() as conn:
            conn.update("approvals", {"rule": rule.model_dump_json()}, {"run": self.run, "key": key})

    def accept_saved_rules(self, saved: SavedRules) -> None:
        # A separate connection: the driver's may write only its own run's rows, and the parents wait for this run.
        assert self.store is not None
        with self.store.write_transaction() as conn:
            for run in (self.run, *list_ancestor_runs(conn, self.run)):
                with keep_sealed(conn, run):
                    rights: dict[str, Any] = read_options(conn, run).get("rights") or {}
                    if files := _updated_rule_files_if_unchanged(rights.get("files", []), saved, self.redact):
                        set_run_option(conn, run, "rights", {**rights, "files": files})


def list_encoding_requests(conn: Connection, run: str) -> list[tuple[ApprovalRequest, Answer | None]]:
    """Return a run's requests whose approval confirms an encoding, oldest first, with their answers."""
    rows = conn.execute(
        "select request, answer from approvals where run = $1 order by seq", (run,), tables=("approvals",)
    )
    return [
        (ApprovalRequest.model_validate_json(request), Answer.model_validate_json(answer) if answer else None)
        for request, answer in rows
        if '"confirms":{' in request
    ]


def list_confirmed_encodings(conn: Connection, run: str) -> list[ConfirmedEncoding]:
    """Return the encodings that people confirmed by approving a call of a run, oldest first."""
    return [
        request.confirms
        for request, answer in list_encoding_requests(conn, run)
        if request.confirms and answer and answer.choice not in ("reject", "cancel")
    ]


def is_run_ended_by_cancel(choices: Collection[str]) -> bool:
    """Whether *cancel* at a request with these choices ends the run itself: nothing in it would take the choice."""
    return "cancel" not in choices


def list_requests_and_answers_of_tool(
    conn: Connection, run: str, tool: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the answered requests of a run about this tool, each with its answer, oldest first."""
    sql = "select request, answer from approvals where run = $1 and answer is not null order by seq"
    found = [
        (json.loads(request), json.loads(answer))
        for request, answer in conn.execute(sql, (run,), tables=("approvals",))
    ]
    return [(request, answer) for request, answer in found if request["call"]["name"] == tool]


def _does_end_planning(request: dict[str, Any], answer: dict[str, Any]) -> bool:
    return request["call"]["name"] == "exit_plan_mode" and answer["choice"] != "reject"


def _updated_rule_files_if_unchanged(
    files: Sequence[tuple[str, int, str | None, str]], saved: SavedRules, redact: Redactor
) -> list[tuple[str, int, str | None, str]]:
    """The run's rule files with the saved change; empty if the file had other changes too."""
    there = next((file for file in files if file[0] == saved.path), None)
    if (there[2] if there else "") != redact(saved.before):
        return []
    now = (saved.path, USER, redact(saved.after), "")
    return [*(now if f is there else f for f in files), *([] if there else [now])]


def record_decision(conn: Connection, run: str, request_id: str, answer: Answer) -> None:
    """Persist a person's answer, power-safe, before the run resumes. An answered request can't be answered again."""
    with conn.transaction():
        row = {"answer": answer.model_dump_json(), "answered_at": answer.at, "answered_by": answer.by}
        written = conn.update("approvals", row, {"run": run, "id": request_id, "answer": None})
        if written.rowcount != 1:
            raise request_not_waiting_error(conn, run, request_id)


def withdraw_open_requests(conn: Connection, run: str) -> None:
    """Withdraw the run's open requests: nothing asks for them any more."""
    with conn.transaction():
        conn.update("approvals", {"superseded": 1}, {"run": run, "answer": None})


def request_not_waiting_error(conn: Connection, run: str, request_id: str) -> UserError:
    """Why a request can't be answered: it doesn't exist, or was answered already."""
    row = conn.execute(
        "select answer from approvals where run = $1 and id = $2", (run, request_id), tables=("approvals",)
    ).fetchone()
    if row is None or row[0] is None:
        return UserError(f"No request {request_id!r} waits in run {run!r}. See: interlock approvals {run}")
    past = json.loads(row[0])
    return UserError(
        f"Request {request_id!r} was already answered ({past['choice']} by {past['by'] or 'somebody'}). "
        f"See: interlock show {run}"
    )


def assign_request_numbers(conn: Connection, run: str) -> None:
    """Number a parked run's new requests, in the order of their calls. No number is used for a second request."""
    rows = conn.execute(
        "select id from approvals where run = $1 and number is null and answer is null and superseded = 0 "
        "and interrupt is not null",
        (run,),
        tables=("approvals",),
    ).fetchall()
    if not rows:
        return
    with conn.transaction():
        query = (
            RELATED + "select coalesce(max(number), 0) from approvals where run in (select run from related)"
        )
        (last,) = conn.execute(query, (run,)).fetchone()
        for number, name in enumerate(sorted((name for (name,) in rows), key=parse_request_id), last + 1):
            conn.update("approvals", {"number": number}, {"id": name})


def read_request_keys_by_answered_interrupt(conn: Connection, run: str) -> dict[str, str]:
    """Interrupt id → request key, for answered requests the run was interrupted for."""
    rows = conn.execute(
        "select interrupt, key from approvals where run = $1 and interrupt is not null and answer is not null",
        (run,),
        tables=("approvals",),
    )
    return dict(rows.fetchall())


def cancel_run_family(conn: Connection, run: str) -> None:
    """Inside a transaction: end a run that waits, with the tasks above it. Its driver, if it has one, stops."""
    for one in list_run_and_subtasks(conn, find_root_task(conn, run)):
        request_stop(conn, one, "cancel")
        conn.update("approvals", {"superseded": 1}, {"run": one, "answer": None})
        conn.update(
            "approvals", {"interrupt": None}, {"run": one, "answer": Condition("like", '%"choice":"cancel"%')}
        )
        _mark_run_cancelled_and_withdraw(conn, one)


def enqueue_decided_run(conn: Connection, run: str) -> None:
    """Inside a transaction: let a worker drive a run that has a queue, now that somebody decided."""
    (queue,) = conn.execute("select queue from runs where run = $1", (run,), tables=("runs",)).fetchone()
    if queue:
        from interlock.engine.store.queue import enqueue_run  # its packages come with an extra

        set_run_error(conn, run, None)
        enqueue_run(conn, run, queue, why="decision")


def _mark_run_cancelled_and_withdraw(conn: Connection, run: str) -> None:
    """By whoever answered one of its requests so."""
    query = (
        'select answered_by from approvals where run = $1 and answer like \'%"choice":"cancel"%\' '
        "order by answered_at desc limit 1"
    )
    found = conn.execute(query, (run,), tables=("approvals",)).fetchone()
    error = {"type": "cancelled", "message": f"Cancelled by {found[0]}." if found else "Cancelled."}
    row = {"status": "cancelled", "outcome": "cancelled", "error": json.dumps(error), "updated": unix_time()}
    for status in ("open", "cancelled"):
        conn.update("runs", row, {"run": run, "status": status})
    if conn.execute("select queue from runs where run = $1", (run,), tables=("runs",)).fetchone()[0]:
        from interlock.engine.store.queue import withdraw_run_from_workers  # its packages come with an extra

        withdraw_run_from_workers(conn, run)


def current_account_name() -> str:
    """The account that this process was started by, whatever the environment says: limits go by it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have a number only
        return f"uid {os.getuid()}"


def list_keys_interrupts_and_answers(conn: Connection, run: str) -> list[tuple[str, str | None, str | None]]:
    """Key, LangGraph's id of the interrupt, and answer of each of the run's requests."""
    return conn.execute(
        "select key, interrupt, answer from approvals where run = $1", (run,), tables=("approvals",)
    ).fetchall()


def set_awaited_interrupts(conn: Connection, run: str, waits: Mapping[str, str]) -> None:
    """Make the run wait for exactly these requests: key → LangGraph's id."""
    conn.update("approvals", {"interrupt": None}, {"run": run, "answer": None})
    for key, name in waits.items():
        conn.update("approvals", {"interrupt": name}, {"run": run, "key": key})
