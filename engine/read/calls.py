"""calls: a run's calls and sub-agents: what each did, who decided on it, and the result."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.read import effect_display_name, find_run
from interlock.engine.store import queries
from interlock.engine.store.queries import Row, load_body
from interlock.state.errors import UserError

_Place = tuple[str, int]
"""The record that made the call, and the call's index in it."""


def list_answered_requests(home: Path, run: str) -> Iterator[dict[str, Any]]:
    """Answered requests: id, kind, tool, choice, by whom, when."""
    for row in queries.list_answered_requests(home, run):
        request, answer = json.loads(row["request"]), json.loads(row["answer"])
        yield {
            "id": row["id"],
            "kind": request["kind"],
            "tool_name": request["call"]["name"],
            "choice": answer["choice"],
            "feedback": answer.get("feedback"),
            "text": answer.get("text"),
            "by": row["answered_by"] or "",
            "at": row["answered_at"],
        }


class Reason(NamedTuple):
    step: int
    """The root step it led to."""
    workflow: str
    node: str
    reason: str


def list_node_reasons(home: Path, run: str) -> list[Reason]:
    """Reasons in the order the nodes ended."""
    rows = [row for row in queries.list_steps(home, run) if row["reason"] is not None]
    return [Reason(row["root_step"] + 1, row["workflow"], row["node"], row["reason"]) for row in rows]


class Effect(NamedTuple):
    """What a node did outside of its graph, by `effect` or a guarded tool."""

    name: str
    node: str
    """With the nodes around it: `review.publish`."""
    state: str
    """done, failed, or unknown: it began, and no result is known."""
    attempt: int
    """How often it was begun."""
    started: float
    ended: float | None


def list_effects(home: Path, run: str) -> list[Effect]:
    """The effects of the run's nodes, in the order in which they began."""
    return [
        Effect(
            effect_display_name(row["key"]),
            row["place"].replace("|", "."),
            "unknown" if row["state"] == "intent" else row["state"],
            row["attempt"],
            row["intent_at"],
            row["done_at"],
        )
        for row in queries.list_effects(home, run)
    ]


class Call(NamedTuple):
    """One tool call from the journal."""

    tool: str
    state: str
    """scheduled | intent | done"""
    status: str | None
    """success | error | cancelled, once done."""
    failed: bool
    """An error, or a command that exited non-zero or by a signal."""
    attempt: int
    args: dict[str, Any]
    summary: str
    """The error's first line, else the tool's own summary of its result."""
    ms: float | None
    started: float | None
    """Unix time, seconds; null: it never ran."""
    ended: float | None
    under_way: bool
    """It is running now."""
    id: str
    """The conversation's id for it; empty: its record is gone."""
    key: str
    """Identifies the attempt, as `CallKey` does."""
    decided: list[dict[str, Any]]
    """Decisions on the call, oldest first: the fields of `DecisionRecord`, `attempt`, `at`, and, if the arguments were
    changed, `before` and `after`.
    """


def list_calls(home: Path, run: str) -> list[Call]:
    """Tool calls in the order they finished; those without a result last."""
    rows = queries.list_calls(home, run)
    decided = _decisions_by_call(home, run)
    arguments = {(r["message"], r["idx"], r["attempt"]): _attempt_arguments(home, r) for r in rows}
    last = {(r["message"], r["idx"]): r["attempt"] for r in sorted(rows, key=lambda r: r["attempt"])}
    is_open = any(r["state"] == "intent" for r in rows)
    drive = (
        queries.find_drive_epoch(home, run) if is_open and find_run(home, run).status == "running" else None
    )
    made: list[Call] = []
    for row in rows:
        place = (row["message"], row["idx"])
        if row["state"] == "scheduled" and row["attempt"] < last[place]:
            continue  # its arguments were changed again before anything ran
        found = [_add_arguments_if_changed(home, d, row, arguments) for d in decided.get(place, ())]
        found = [d for d in found if d["attempt"] <= row["attempt"]]
        made.append(_to_call(home, row, found, row["state"] == "intent" and row["epoch"] == drive))
    return made


class CallUnderWay(NamedTuple):
    """A tool call that a run's drive executes now."""

    run: str
    tool: str
    args: dict[str, Any]
    started: float
    """Unix time, seconds."""


def list_calls_under_way(home: Path, runs: Sequence[str]) -> list[CallUnderWay]:
    """The calls that the drives of these runs execute now, the oldest first."""
    return [
        CallUnderWay(row["run"], row["tool"], _attempt_arguments(home, row), row["intent_at"])
        for row in queries.list_calls_under_way(home, runs)
    ]


def list_decisions_on_call(home: Path, run: str, message: str, index: int) -> list[dict[str, Any]]:
    """Decisions on a call, oldest first, by the record that made it and its index there."""
    return _decisions_by_call(home, run).get((message, index), [])


def find_call(calls: list[Call], number_or_id: str, run: str) -> Call:
    """Find a call by its number in `show --calls`, or by its id. Raises `UserError`."""
    if number_or_id.isdecimal() and 0 < int(number_or_id) <= len(calls):
        return calls[int(number_or_id) - 1]
    if found := [call for call in calls if call.id == number_or_id]:
        return found[-1]
    raise UserError(
        f"Run {run!r} has no call {number_or_id!r}. List its calls with: interlock show {run} --calls"
    )


def read_results_by_call_id(home: Path, run: str) -> dict[str, dict[str, Any]]:
    """Call id → the complete result of each finished call: `status`, `content`, `error`, `meta`."""
    done = [row for row in queries.list_calls(home, run) if row["state"] == "done"]
    return {_original_call(home, row).get("id", ""): _merge_result_with_answer(home, row) for row in done}


def _merge_result_with_answer(home: Path, row: Row) -> dict[str, Any]:
    """Merge the journal's result with the conversation's answer, which holds the text once it is recorded there."""
    return {
        **_load_json(home, row["result"], row["result_file"]),
        **_load_json(home, row["answer"], row["answer_file"]),
    }


def _to_call(home: Path, row: Row, decided: list[dict[str, Any]], under_way: bool) -> Call:
    result = _merge_result_with_answer(home, row)
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
        args=_attempt_arguments(home, row),
        summary=next(iter(summary.splitlines()), ""),
        ms=ms,
        started=started,
        ended=ended,
        under_way=under_way,
        id=_original_call(home, row).get("id", ""),
        key=f"{row['message']}.{row['idx']}.{row['attempt']}",
        decided=decided,
    )


def _attempt_arguments(home: Path, row: Row) -> dict[str, Any]:
    return json.loads(row["args"]) if row["args"] is not None else _model_arguments(home, row)


def _model_arguments(home: Path, row: Row) -> dict[str, Any]:
    """The model's arguments; chain records omit empty ones."""
    return _original_call(home, row).get("args", {})


def _original_call(home: Path, row: Row) -> dict[str, Any]:
    """The call as the model made it."""
    calls: list[dict[str, Any]] = _load_json(home, row["asked"], row["asked_file"]).get("tool_calls", [])
    index: int = row["idx"]
    return calls[index] if index < len(calls) else {}


def _decisions_by_call(home: Path, run: str) -> dict[_Place, list[dict[str, Any]]]:
    """Decisions on each call, oldest first."""
    givers = dict(_people_by_session_rule(home, run))
    found: dict[_Place, list[dict[str, Any]]] = {}
    for row in queries.list_decisions(home, run):
        decision: dict[str, Any] = {"attempt": row["attempt"], "at": row["at"], **json.loads(row["body"])}
        if "session" in decision:
            decision["who"] = givers.get(json.dumps(decision["session"], sort_keys=True), "")
        found.setdefault((row["message"], row["idx"]), []).append(decision)
    return found


def _people_by_session_rule(home: Path, run: str) -> Iterator[tuple[str, str]]:
    """Always-choice → who made it."""
    for row in (row for row in queries.list_answered_requests(home, run) if row["rule"] is not None):
        rule = {k: v for k, v in json.loads(row["rule"]).items() if v not in ("", None, False, [])}
        yield json.dumps(rule, sort_keys=True), row["answered_by"] or ""


def _add_arguments_if_changed(
    home: Path, decision: dict[str, Any], row: Row, arguments: dict[tuple[str, int, int], dict[str, Any]]
) -> dict[str, Any]:
    if not decision.get("becomes"):
        return decision

    def find_attempt_args(attempt: int) -> dict[str, Any]:
        """Arguments of an attempt; one without a row has the previous attempt's, the first one the model's."""
        known = (arguments.get((row["message"], row["idx"], n)) for n in range(attempt, 0, -1))
        return next((args for args in known if args is not None), _model_arguments(home, row))

    return {
        **decision,
        "before": find_attempt_args(decision["attempt"]),
        "after": find_attempt_args(decision["becomes"]),
    }


def _load_json(home: Path, text: str | bytes | None, file: str | None) -> dict[str, Any]:
    """Parse the row's text, or the file in `outputs/` that it names."""
    body = load_body(home, text, file)
    return json.loads(body) if body else {}


class Agent(NamedTuple):
    """One sub-agent of a run."""

    path: str
    """`NAME:CALL`, prefixed with its parent's path and a slash."""
    depth: int
    """0: started by the run itself."""
    state: str
    """open | waiting | done"""
    turns: int
    tokens: int
    reason: str
    """Why it ended: goal, max_turns, timeout, no_complete_task, aborted, error; empty: it hasn't ended."""
    seconds: float | None


def list_agents(home: Path, run: str) -> list[Agent]:
    """Every sub-agent started, each below its parent, in call order."""
    used = {row["agent"]: row for row in queries.sum_usage_by_agent(home, run)}
    waits = {json.loads(row["request"]).get("agent") for row in queries.list_waiting_requests(home, run)}
    ended = _result_meta_by_agent(home, run)
    paths = sorted(
        queries.list_agent_paths(home, run),
        key=lambda path: [_agent_sort_key(part) for part in path.split("/")],
    )
    return [_to_agent(path, used.get(path), ended.get(path), path in waits) for path in paths]


def _result_meta_by_agent(home: Path, run: str) -> dict[str, dict[str, Any]]:
    """Agent → the meta of its parent's call in the journal, which says how it ended."""
    metas: list[dict[str, Any]] = [
        _load_json(home, row["result"], row["result_file"]).get("meta") or {}
        for row in queries.list_agent_results(home, run)
    ]
    return {meta["agent"]: meta for meta in metas if "agent" in meta}


def _to_agent(path: str, usage: Row | None, meta: dict[str, Any] | None, is_waiting: bool) -> Agent:
    return Agent(
        path,
        path.count("/"),
        "done" if meta else "waiting" if is_waiting else "open",
        usage["turns"] if usage else 0,
        usage["tokens"] if usage else 0,
        meta["reason"] if meta else "",
        meta["duration_ms"] / 1000 if meta else None,
    )


def _agent_sort_key(part: str) -> tuple[list[int], str]:
    """Sort key of a level, by its call's numbers: call 10 comes after call 9."""
    call = part.rpartition(":")[2].partition("~")[0]
    return [int(n) for n in call.split(".") if n.isdecimal()], part
