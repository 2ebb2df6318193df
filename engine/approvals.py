"""approvals: requests that wait for a person, and the answers. An answer is a row before anything is driven."""

import json
import sqlite3
import time

from interlock.services.redaction import SHAPES, Redactor
from interlock.services.sqlite import transaction
from interlock.state.calls import Answer, ApprovalRequest, CallKey, SessionRule
from interlock.state.errors import UserError


class SqlApprovals:
    """Implements `Approvals` for the driver of a run."""

    def __init__(self, conn: sqlite3.Connection, run: str, redact: Redactor = SHAPES) -> None:
        self._conn = conn
        self._redact = redact
        self._run = run

    def ask(self, request: ApprovalRequest) -> str:
        with transaction(self._conn) as conn:
            found = conn.execute(
                "select id from approvals where run = ? and key = ?", (self._run, request.key)
            ).fetchone()
            if found:
                return found[0]
            name = self._name(request.key)
            conn.execute(
                "insert into approvals (id, run, key, request, asked_at) values (?, ?, ?, ?, ?)",
                (name, self._run, request.key, self._redact.request(request).model_dump_json(), time.time()),
            )
        return name

    def _name(self, key: str) -> str:
        """RUN-BATCH.CALL, both from 1; the same whichever call of a batch comes to ask first. Hooks: RUN-hN."""
        if key.startswith("hook:"):
            (before,) = self._conn.execute(
                "select count(*) from approvals where run = ? and key like 'hook:%'", (self._run,)
            ).fetchone()
            return f"{self._run}-h{before + 1}"
        place, kind, asked = key.rsplit(":", 2)
        call = CallKey.parse(place)
        batches = self._conn.execute(
            "select substr(key, 1, instr(key, '.') - 1) as batch from approvals where run = ? "
            "and key not like 'hook:%' "
            "group by batch order by min(rowid)",
            (self._run,),
        ).fetchall()
        # Batches of agents side by side ask in turn: each keeps the number that it got first.
        earlier = next((i for i, (m,) in enumerate(batches) if m == call.message), len(batches))
        again = (
            ""
            if kind in ("approval", "review") and (asked, call.attempt) == ("1", 1)
            else f".{kind[0]}{call.attempt}{asked}"
        )
        return f"{self._run}-{earlier + 1}.{call.index + 1}{again}"

    def get(self, key: str) -> ApprovalRequest | None:
        row = self._conn.execute(
            "select request from approvals where run = ? and key = ?", (self._run, key)
        ).fetchone()
        return ApprovalRequest.model_validate_json(row[0]) if row else None

    def answer(self, key: str) -> Answer | None:
        row = self._conn.execute(
            "select answer from approvals where run = ? and key = ?", (self._run, key)
        ).fetchone()
        return Answer.model_validate_json(row[0]) if row and row[0] else None

    def open_requests(self) -> list[ApprovalRequest]:
        rows = self._conn.execute(
            "select request from approvals where run = ? and answer is null and not superseded order by rowid",
            (self._run,),
        )
        return [ApprovalRequest.model_validate_json(request) for (request,) in rows]

    def session_rules(self) -> list[SessionRule]:
        rows = self._conn.execute(
            "select rule from approvals where run = ? and rule is not null order by rowid", (self._run,)
        )
        return [SessionRule.model_validate_json(rule) for (rule,) in rows]

    def add_session_rule(self, key: str, rule: SessionRule) -> None:
        with transaction(self._conn) as conn:
            conn.execute(
                "update approvals set rule = ? where run = ? and key = ?",
                (rule.model_dump_json(), self._run, key),
            )


def decide(conn: sqlite3.Connection, run: str, approval: str, answer: Answer) -> None:
    """Write a person's answer, power-safe, before anything moves. An answered request is never answered again."""
    with transaction(conn):
        written = conn.execute(
            "update approvals set answer = ?, answered_at = ?, answered_by = ? "
            "where run = ? and id = ? and answer is null",
            (answer.model_dump_json(), answer.at, answer.by, run, approval),
        )
        if written.rowcount != 1:
            raise not_waiting(conn, run, approval)


def not_waiting(conn: sqlite3.Connection, run: str, approval: str) -> UserError:
    """Why a request can't be answered: there is none, or somebody was first."""
    row = conn.execute("select answer from approvals where run = ? and id = ?", (run, approval)).fetchone()
    if row is None or row[0] is None:
        return UserError(f"No request {approval!r} waits in run {run!r}. See: interlock approvals {run}")
    past = json.loads(row[0])
    return UserError(
        f"Request {approval!r} was already answered ({past['choice']} by {past['by'] or 'somebody'}). "
        f"See: interlock show {run}"
    )


def ready_answers(conn: sqlite3.Connection, run: str) -> dict[str, str]:
    """Interrupt id → request key, for answers that wait to be taken up."""
    rows = conn.execute(
        "select interrupt, key from approvals where run = ? and interrupt is not null and answer is not null",
        (run,),
    )
    return dict(rows.fetchall())
