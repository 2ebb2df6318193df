"""recorded: what the audit records of a row: a function of the row, so that a check compares both."""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from interlock.engine.store.rows import Row, Write
from interlock.engine.store.tables import TABLE


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class JsonForm(NamedTuple):
    """How a database's own functions once wrote what is recorded: each record stands on the bytes of the one before."""

    separators: tuple[str, str]
    short_numbers: bool
    """Whether a time without a fraction is written as an integer."""

    def text(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=self.separators)

    def hash_numbers(self, row: Row, *names: str) -> str:
        """Return the hash of some of a row's numbers."""
        values = [row[name] for name in names]
        if self.short_numbers:
            values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        return sha(json.dumps(values).encode())


class Audited(NamedTuple):
    """What is recorded of a table's rows. What isn't says nothing of who did what: a run's progress, and the engine's
    wiring."""

    columns: tuple[str, ...]
    """Those that a record is made of."""
    kind: Callable[[Row], str]
    """The record's kind."""
    body: Callable[[Row, JsonForm], Mapping[str, object]]
    """What is recorded of a row; long or private values as hashes."""


def _hash(value: Any) -> str | None:
    if value is None:
        return None
    return sha(value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass"))


def _part(text: Any, *names: str) -> str | None:
    """A value inside JSON; null where there is none, and in a damaged row."""
    with suppress(ValueError, TypeError, KeyError):
        value = _parsed(text)
        for name in names:
            value = value[name]
        return value if value is None or isinstance(value, str) else json.dumps(value)
    return None


@lru_cache(maxsize=1)  # several parts of one text are asked for in turn
def _parsed(text: Any) -> Any:
    return json.loads(text)


def _state_of(row: Row) -> str:
    return "effect" if row["state"] == "done" else str(row["state"])


def _rules_kind(_row: Row) -> str:
    return "rules"


def _run_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    return {
        "workflow": row["workflow"],
        "parent": row["parent"],
        "workspace": row["workspace"],
        "subtask": row["subtask_of"],
        "input": _hash(row["input"]),
        "created": form.hash_numbers(row, "created"),
        "rights": _hash(_part(row["options"], "rights")),
    }


def _call_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    return {
        "tool": row["tool"],
        "state": row["state"],
        "arguments": row["args_hash"],
        "changed": _hash(row["args"]),
        "planned": _hash(row["planned"]),
        "result": _hash(row["result"]),
        "file": row["result_file"],
        "record": row["record"],
        "times": form.hash_numbers(row, "epoch", "intent_at", "done_at"),
    }


def _effect_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    return {
        "tool": row["place"],
        "state": row["state"],
        "attempt": row["attempt"],
        "type": row["type"],
        "result": _hash(row["value"]),
        "times": form.hash_numbers(row, "epoch", "intent_at", "done_at"),
    }


def _hook_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    return {
        "tool": row["name"],
        "event": row["event"],
        "source": row["source"],
        "state": row["state"],
        "attempt": row["attempt"],
        "command": _hash(row["command"]),
        "result": _hash(row["reply"]),
        "file": row["reply_file"],
        "place": row["place"],
        "subject": _hash(row["subject"]),
        "idempotent": row["idempotent"],
        "times": form.hash_numbers(row, "epoch", "intent_at", "done_at"),
    }


def _decision_kind(_row: Row) -> str:
    return "decision"


def _decision_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    said = {"by": "by", "who": "who", "choice": "decision", "rule": "rule", "mode": "mode"}
    return {
        **{name: _part(row["body"], there) for name, there in said.items()},
        "whole": _hash(row["body"]),
        "times": form.hash_numbers(row, "attempt", "at"),
    }


def _request_kind(row: Row) -> str:
    return "withdrawn" if row["superseded"] == 1 else "request" if row["answer"] is None else "answer"


def _request_body(row: Row, form: JsonForm) -> Mapping[str, object]:
    return {
        "tool": _part(row["request"], "call", "name"),
        "shown": _hash(row["request"]),
        "who": row["answered_by"],
        "door": _part(row["answer"], "door"),
        "choice": _part(row["answer"], "choice"),
        "whole": _hash(row["answer"]),
        "rule": _hash(row["rule"]),
        "withdrawn": row["superseded"],
        "call": row["key"],
        "order": row["seq"],
        "times": form.hash_numbers(row, "asked_at", "answered_at"),
    }


_TIMES = ("epoch", "intent_at", "done_at")
AUDITED = {
    "runs": Audited(
        ("workflow", "parent", "workspace", "subtask_of", "input", "created", "options"),
        _rules_kind,
        _run_body,
    ),
    "journal": Audited(
        ("tool", "state", "args_hash", "args", "planned", "result", "result_file", "record", *_TIMES),
        _state_of,
        _call_body,
    ),
    "effects": Audited(("place", "state", "attempt", "type", "value", *_TIMES), _state_of, _effect_body),
    "hook_calls": Audited(
        (
            *("name", "source", "state", "attempt", "command", "reply", "reply_file", "place", "subject"),
            *("idempotent", *_TIMES),
        ),
        _state_of,
        _hook_body,
    ),
    "decisions": Audited(("body", "attempt", "at"), _decision_kind, _decision_body),
    "approvals": Audited(
        (
            *("request", "answered_by", "answer", "rule", "superseded", "key", "seq", "asked_at"),
            "answered_at",
        ),
        _request_kind,
        _request_body,
    ),
}


UNSET: Mapping[str, Row] = {
    table: {**dict.fromkeys(about.columns), **({"superseded": 0, "seq": 0} if table == "approvals" else {})}
    for table, about in AUDITED.items()
}
"""Table → what a new row has in columns that aren't given."""


def columns_of(table: str) -> tuple[str, ...]:
    """The columns that a record about a row is made of, its key and its owner among them."""
    return tuple(dict.fromkeys((*TABLE[table].key, TABLE[table].owner, *AUDITED[table].columns)))


def key_text(table: str, row: Row, form: JsonForm) -> str:
    """Return the key of a row, as records have it."""
    return form.text([row[name] for name in TABLE[table].key])


def body_text(table: str, row: Row, form: JsonForm) -> str:
    """Return what is recorded of a row."""
    return form.text(AUDITED[table].body(row, form))


def is_audited(write: Write) -> bool:
    """Whether a write may change what is recorded of a row."""
    about = AUDITED.get(write.tables[0])
    return about is not None and (write.kind != "update" or not write.row.keys().isdisjoint(about.columns))
