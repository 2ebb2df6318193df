"""calls: the calls of a run: what each was, who decided what of it, what came of it; sqlite3 alone."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store.database import reading


def answered(home: Path, run: str) -> Iterator[dict[str, Any]]:
    """Requests that were answered: id, tool, what was chosen, by whom, when."""
    with reading(home) as conn:
        rows = (
            []
            if conn is None
            else conn.execute(
                "select id, request, answer, answered_at, answered_by from approvals where run = ? "
                "and answer is not null order by rowid",
                (run,),
            ).fetchall()
        )
    for row in rows:
        request, answer = json.loads(row["request"]), json.loads(row["answer"])
        yield {
            "id": row["id"],
            "tool_name": request["call"]["name"],
            "choice": answer["choice"],
            "feedback": answer.get("feedback"),
            "text": answer.get("text"),
            "by": row["answered_by"] or "",
            "at": row["answered_at"],
        }


class Reason(NamedTuple):
    """What a node said of its decision."""

    step: int
    """The root step that it led to."""
    workflow: str
    node: str
    reason: str


def reasons(home: Path, run: str) -> list[Reason]:
    """In the order in which the nodes ended."""
    with reading(home) as conn:
        if conn is None:
            return []
        rows = conn.execute(
            "select root_step + 1, workflow, node, reason from steps where run = ? and reason is not null "
            "order by seq",
            (run,),
        ).fetchall()
    return [Reason(*row) for row in rows]


class Call(NamedTuple):
    """One tool call, as the journal has it."""

    tool: str
    state: str
    """scheduled | intent | done"""
    status: str | None
    """success | error | cancelled, once it is done."""
    failed: bool
    """An error, or a command that ended with another code than 0, or by a signal."""
    attempt: int
    args: dict[str, Any]
    summary: str
    """The error's first line, else the tool's own word for what came of it."""
    ms: float | None
    started: float | None
    """Unix time, seconds; null: it never ran."""
    ended: float | None
    key: str
    """Names the attempt, as `CallKey` does."""
    decided: list[dict[str, Any]]
    """Who decided what, oldest first: the fields of `state/decided.py`, `attempt`, `at`, and where somebody changed the
    arguments `before` and `after`."""


def calls(home: Path, run: str) -> list[Call]:
    """Tool calls in the order in which they were done; those without a result last."""
    with reading(home) as conn:
        if conn is None:
            return []
        rows = conn.execute(
            "select j.*, c.body as asked, c.file as asked_file, a.body as answer, a.file as answer_file "
            "from journal j left join chain c on c.id = j.message left join chain a on a.id = j.record "
            "where j.run = ? "
            "order by coalesce(done_at, 9e99), coalesce(intent_at, 9e99), message, idx, attempt",
            (run,),
        ).fetchall()
        decided = _decisions(conn, run)
    arguments = {(r["message"], r["idx"], r["attempt"]): _args(home, r) for r in rows}
    last = {(r["message"], r["idx"]): r["attempt"] for r in sorted(rows, key=lambda r: r["attempt"])}
    made: list[Call] = []
    for row in rows:
        place = (row["message"], row["idx"])
        if row["state"] == "scheduled" and row["attempt"] < last[place]:
            continue  # arguments that were changed once more before anything ran
        found = [_with_args(home, d, row, arguments) for d in decided.get(place, ())]
        made.append(_call(home, row, [d for d in found if d["attempt"] <= row["attempt"]]))
    return made


def _call(home: Path, row: sqlite3.Row, decided: list[dict[str, Any]]) -> Call:
    result = as_json(home, row["result"], row["result_file"])
    # Once the answer is in the conversation, its text is there and not in the journal.
    result = {**result, **as_json(home, row["answer"], row["answer_file"])}
    meta: dict[str, Any] = result.get("meta") or {}
    error: dict[str, Any] = result.get("error") or {}
    summary = str(error.get("message") or meta.get("summary") or result.get("content", ""))
    ms = meta.get("duration_ms")
    ended = row["done_at"]
    started = row["intent_at"] or (ended - ms / 1000 if ended and ms is not None else None)
    return Call(
        tool=row["tool"],
        state=row["state"],
        status=result.get("status"),
        failed=result.get("status") == "error" or bool(meta.get("exit_code") or meta.get("signal")),
        attempt=row["attempt"],
        args=_args(home, row),
        summary=next(iter(summary.splitlines()), ""),
        ms=ms,
        started=started,
        ended=ended,
        key=f"{row['message']}.{row['idx']}.{row['attempt']}",
        decided=decided,
    )


def _args(home: Path, row: sqlite3.Row) -> dict[str, Any]:
    return as_json(home, row["args"], None) if row["args"] is not None else _given(home, row)


def _given(home: Path, row: sqlite3.Row) -> dict[str, Any]:
    """The arguments as the model gave them."""
    asked = stored_calls(home, row["asked"], row["asked_file"])
    index: int = row["idx"]
    return asked[index]["args"] if index < len(asked) else {}


def stored_calls(home: Path, body: bytes | None, file: str | None) -> list[dict[str, Any]]:
    """{id, name, args} of the calls of a chain record, which leaves out what is empty."""
    asked: list[dict[str, Any]] = as_json(home, body, file).get("tool_calls", [])
    return [{"args": {}, **call} for call in asked]


def has_decisions(conn: sqlite3.Connection) -> bool:
    """False for a store that no newer Interlock has opened for writing yet."""
    return bool(conn.execute("select 1 from sqlite_master where name = 'decisions'").fetchone())


def _decisions(conn: sqlite3.Connection, run: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(record, index) of a call → what was decided of it, oldest first."""
    if not has_decisions(conn):
        return {}
    givers = dict(_givers(conn, run))
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in conn.execute("select * from decisions where run = ? order by at", (run,)):
        told: dict[str, Any] = {"attempt": row["attempt"], "at": row["at"], **json.loads(row["body"])}
        if "session" in told:
            told["who"] = givers.get(json.dumps(told["session"], sort_keys=True), "")
        found.setdefault((row["message"], row["idx"]), []).append(told)
    return found


def _givers(conn: sqlite3.Connection, run: str) -> Iterator[tuple[str, str]]:
    """Always-choice → who made it."""
    rows = conn.execute("select rule, answered_by from approvals where run = ? and rule is not null", (run,))
    for row in rows:
        rule = {
            key: value for key, value in json.loads(row["rule"]).items() if value not in ("", None, False, [])
        }
        yield json.dumps(rule, sort_keys=True), row["answered_by"] or ""


def _with_args(
    home: Path, told: dict[str, Any], row: sqlite3.Row, arguments: dict[tuple[str, int, int], dict[str, Any]]
) -> dict[str, Any]:
    if not told.get("becomes"):
        return told

    def of(attempt: int) -> dict[str, Any]:
        """An attempt without a row of its own has the arguments of the one before it, the first one the model's."""
        known = (arguments.get((row["message"], row["idx"], n)) for n in range(attempt, 0, -1))
        return next((args for args in known if args is not None), _given(home, row))

    return {**told, "before": of(told["attempt"]), "after": of(told["becomes"])}


def as_json(home: Path, text: str | bytes | None, file: str | None) -> dict[str, Any]:
    """What a row holds, or the file in `outputs/` that it names."""
    if file:
        path = home / "outputs" / file
        text = path.read_bytes() if path.exists() else None
    return json.loads(text) if text else {}
