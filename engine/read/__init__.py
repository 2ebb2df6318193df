"""read: runs, pending requests, and one run in detail, shaped from the store's rows alone."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.options import Pending
from interlock.engine.store import queries
from interlock.engine.store.queries import Row, parse_request_id
from interlock.engine.store.runs import find_innermost_waiting_subtask
from interlock.services.process.identity import ProcessIdentity, is_alive
from interlock.state.errors import PASSING, STOPPED, UserError
from interlock.state.names import RAISED, is_hidden_node, node_display_name
from interlock.state.text import did_you_mean

STATUSES = ("running", "queued", "waiting", "interrupted", "done", "failed", "cancelled")
ENDED = ("done", "failed", "cancelled")


class RunRow(NamedTuple):
    """One run, as lists show it."""

    run: str
    workflow: str
    parent: str | None
    workspace: str
    title: str
    created: float
    """Unix time, seconds."""
    updated: float
    status: str
    """One of `STATUSES`. `running` follows from the lease; a run neither ended, waiting nor driven is `interrupted`,
    or `queued` if workers drive it."""
    outcome: str
    step: int
    error: dict[str, str] | None
    owner: str | None
    """`host:pid` of the process driving it now."""
    waiting: int
    """Requests pending a person's answer."""
    tokens: int
    subtask: bool
    """Whether `parent` is the task that asked for it, not the run that it was forked from."""
    queue: str | None
    """Whose workers drive it; None: whoever starts or resumes it."""
    usd: float | None
    """What its calls cost, as far as their prices are known; null: none is."""

    @property
    def end_reason(self) -> str:
        """The kind of error of a run that failed or was interrupted, else its outcome; empty: neither says more."""
        if self.status not in ("failed", "interrupted"):
            return ""
        outcome = self.outcome if self.status == "failed" else ""
        return (self.error or {}).get("type") or outcome.removeprefix("failed")

    @property
    def status_text(self) -> str:
        """Its status and why, in a few words."""
        if self.status == "waiting" and self.waiting:
            return f"waiting ({self.waiting})"
        if self.status == "queued" and self.error and self.error["type"] == "limit":
            return f"queued: limit of {self.error['of']}"
        return f"{self.status}: {self.end_reason}" if self.end_reason else self.status


class Request(NamedTuple):
    """One request pending a person's answer; `fields` are those of `pending_approvals`."""

    id: str
    run: str
    asked_at: float
    fields: Pending


def list_runs(
    home: Path, status: str | None = None, limit: int | None = None, offset: int = 0, **filters: str
) -> list[RunRow]:
    """Runs, most recently changed first; empty if there is no store. Raises `StoreError`.

    `limit`: of all, only so many of the newest, but for the first `offset`.
    `filters`: values of `workspace`, `parent` or another stored field.
    """
    stored = "open" if status in ("queued", "interrupted") else status
    if status is None:
        return [
            _to_run_row_with_live_status(row)
            for row in queries.list_runs(home, None, limit, offset, **filters)
        ]
    newest = None if limit is None else offset + limit
    while True:
        rows = [
            _to_run_row_with_live_status(row) for row in queries.list_runs(home, stored, newest, 0, **filters)
        ]
        found = [row for row in rows if row.status == status]
        if newest is None or len(rows) < newest or len(found) >= offset + (limit or 0):
            return found[offset:][:limit]
        newest *= 10  # the rest may be driven, or anything else that isn't stored


def list_runs_by_id(home: Path, names: Sequence[str]) -> list[RunRow]:
    """The runs with exactly these ids, as far as they exist; most recently changed first."""
    return [_to_run_row_with_live_status(row) for row in queries.list_runs_by_id(home, names)]


def find_run(home: Path, name: str, workspace: Path | None = None) -> RunRow:
    """Find a run by id, unique prefix or `latest`: the most recently changed in a workspace, by default this folder.

    Raises `UserError` with the nearest ids.
    """
    if exact := find_exact_run(home, name):
        return exact
    is_prefix = name not in ("", "latest")
    found = (
        [_to_run_row_with_live_status(row) for row in queries.list_runs_by_prefix(home, name, _FITS + 1)]
        if is_prefix
        else []
    )
    if len(found) == 1:
        return found[0]
    newest = list_runs(home, limit=1 if name == "latest" else _NEAR)
    if not newest:
        raise UserError(f"No run {name!r}: nothing has run yet. Start one with: interlock -p 'what to do'")
    if name == "latest":
        return _require_newest_run_of_folder(
            home, newest[0], (workspace or Path.cwd()).expanduser().resolve()
        )
    if found:
        ids = ", ".join(r.run for r in found[:5])
        number = f"more than {_FITS}" if len(found) > _FITS else str(len(found))
        raise UserError(
            f"Run {name!r} fits {number} runs: {ids}. Give more of the id; see: interlock runs --all"
        )
    near = did_you_mean(name, [*(r.run for r in newest), "latest"], 3)
    raise UserError(f"No run {name!r}.{near} List runs with: interlock runs --all")


_NEAR = 1_000
"""Newest runs among which the nearest ids are looked for."""
_FITS = 100
"""Runs that a short name is compared with."""


def find_exact_run(home: Path, name: str) -> RunRow | None:
    return next(iter(list_runs_by_id(home, [name])), None)


TALKING = ("main", "task")
"""Workflows that take another prompt once they have answered."""
_RECENT = 100


def find_run_to_continue(home: Path, workspace: Path | None, has_prompt: bool) -> RunRow:
    """The newest conversation of a folder, or, without a prompt, the newest run that isn't over; else the newest.

    Raises `UserError` as `find_run` does.
    """
    newest = find_run(home, "latest", workspace)
    recent = list_runs(home, limit=_RECENT, workspace=newest.workspace)
    fits = (r for r in recent if r.workflow in TALKING or (not has_prompt and r.status not in ENDED))
    return next(fits, newest)


def _require_newest_run_of_folder(home: Path, newest_anywhere: RunRow, workspace: Path) -> RunRow:
    """Never another folder's run: resuming it would let it act there."""
    here = list_runs(home, limit=1, workspace=str(workspace))
    if not here:
        raise UserError(
            f"No run in {str(workspace)!r}. The newest is {newest_anywhere.run!r}, in {newest_anywhere.workspace!r}: "
            "name it, or list all with: interlock runs"
        )
    return here[0]


def list_waiting_requests(
    home: Path, run: str | None = None, limit: int | None = None, offset: int = 0
) -> list[Request]:
    """Requests pending a person's answer, of one run or all: the longest wait first, a run's in the order asked.

    For a task that waits for a subtask, these are the subtask's requests. `limit`: of so many runs, but for the first
    `offset`.
    """
    run = run and find_innermost_waiting_subtask(home, run)
    found = [
        Request(name, of, asked_at, _to_pending_request(name, number or 0, json.loads(request)))
        for name, of, asked_at, request, number in queries.list_waiting_requests(home, run, limit, offset)
    ]
    first = {r.run: r.asked_at for r in sorted(found, key=lambda r: -r.asked_at)}
    return sorted(found, key=lambda r: (first[r.run], r.run, *parse_request_id(r.id)))


_ANSWERED = {"reject": "rejected", "cancel": "cancelled", "modify": "approved with changes"}


def describe_past_requests(home: Path, run: str) -> dict[str, str]:
    """What became of the requests of this run, and of related ones, that no longer wait: by id and by number."""
    past = [(row, _describe_past_request(row)) for row in queries.list_past_requests(home, run)]
    return {name: text for row, text in past for name in (row["id"], str(row["number"]))}


def _describe_past_request(row: Row) -> str:
    request = json.loads(row["request"])
    what = f"Request {row['number'] or row['id']} ({request['call']['name']})"
    if row["answer"] is None:
        return f"{what} was withdrawn"
    choice = json.loads(row["answer"])["choice"]
    permission = request["kind"] == "approval" or choice == "cancel"
    done = _ANSWERED.get(choice, "approved") if permission else "answered"
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["answered_at"]))
    return f"{what} was {done} at {at}" + (f" by {row['answered_by']}" if row["answered_by"] else "")


def explain_why_no_request_waits(home: Path, run: str) -> str:
    """Why no request of a run waits, and what to do."""
    row = find_run(home, find_innermost_waiting_subtask(home, run))
    if row.status in ENDED:
        return f"Run {run!r} is {row.status}, so no request of it waits. See: interlock show {run}"
    if row.status == "running":
        return f"Run {run!r} is running, and no request of it waits. See: interlock approvals {run}"
    if row.status == "queued":
        return f"Run {run!r} waits for a worker, and no request of it waits. Follow it with: interlock logs {run} -f"
    return f"Run {run!r} was interrupted, and no request of it waits. Resume it with: interlock resume {run}"


def _to_pending_request(name: str, number: int, request: dict[str, Any]) -> Pending:
    call = request["call"]
    return {
        "id": name,
        "number": number,
        "kind": request["kind"],
        "agent": request.get("agent", ""),
        "call": call["id"],
        "tool_name": call["name"],
        "args": call["args"],
        "reason": request["reason"],
        "preview": request["preview"],
        "parts": request.get("parts", []),
        "choices": request["choices"],
        "always": request.get("always", {}),
        "note": request.get("note"),
        "questions": request.get("questions", []),
        "parameters": request.get("parameters", []),
    }


def check_edited_arguments(request: Mapping[str, Any], args: Mapping[str, Any]) -> None:
    """Refuse edited arguments that would run the original call: a name the call doesn't take, or no text.

    Raises `UserError` that lists the names.
    """
    tool: str = request["tool_name"]
    known: list[str] = request.get("parameters") or [*(request["args"] if tool == "approve" else ())]
    for name in args:
        if known and name not in known:
            raise UserError(
                f"{tool} takes no argument {name!r}.{did_you_mean(name, known)} It takes {', '.join(known)}."
            )
    plan = ["plan"] if tool == "exit_plan_mode" and not str(args.get("plan") or "").strip() else []
    for name in plan or [n for n in known if tool == "approve" and args.get(n) is None]:
        raise UserError(f"The edit of {tool} lacks {name!r}, the text that was shown.")


def _to_run_row_with_live_status(found: Row) -> RunRow:
    row: dict[str, Any] = dict(zip(found.keys(), found, strict=True))
    error = json.loads(row["error"]) if row["error"] else None
    alive: bool | None = False
    if row["held"]:
        alive = is_alive(ProcessIdentity(row["host"], row["boot"], row["pid"], row["started"]))
    # An owner on another host can't be checked from here: it counts as alive while it holds the lease of a run that
    # isn't over.
    if driven := alive or (alive is None and row["status"] not in ENDED):
        status = "running"
    elif row["status"] in ENDED:
        status = row["status"]
    else:
        idle = "queued" if row["queue"] and (error is None or error["type"] in PASSING) else "interrupted"
        status = "waiting" if row["waiting"] or row["below"] else idle
        if status == "interrupted" and row["held"] and not error:
            error = {"type": "died", "message": f"Its process {row['pid']} was killed or crashed."}
            if row["stop"]:  # its code didn't heed that, so the process ended
                kind = "timeout" if row["stop"] == "timeout" else "cancelled"
                error = {"type": kind, "message": f"{STOPPED[kind]} Its code went on, so its process ended."}
                status = "cancelled" if row["stop"] == "cancel" else status
    computed: dict[str, Any] = {
        "status": status,
        "error": error,
        "owner": f"{row['host']}:{row['pid']}" if driven else None,
        "subtask": bool(row["subtask"]),
    }
    return RunRow(**{name: row[name] for name in RunRow._fields if name not in computed}, **computed)


class Step(NamedTuple):
    """One executed node."""

    step: int
    """The root step it led to: `--at` and `diff` show the state after it under this number."""
    depth: int
    """0 for a node of the root graph."""
    workflow: str
    node: str
    started: float
    """Unix time, seconds."""
    ms: float
    keys: tuple[str, ...]
    """State keys it changed."""
    route: str | None
    saved: bool
    """A checkpoint of the root came next. Nodes without ran between two, in the step of the next one that has."""
    reason: str
    """Why the node decided as it did, or what it waited for; empty: it gave none."""
    effects: tuple[str, ...] = ()
    """Names of its effects."""

    @property
    def failed(self) -> bool:
        """Whether the node raised; `reason` says what."""
        return self.route == RAISED


def list_steps(home: Path, run: str) -> list[Step]:
    """Every executed node, in the order they ended."""
    return steps_from_rows(home, run, queries.list_steps(home, run))


def list_root_step_rows(home: Path, run: str) -> list[Row]:
    """Rows of the root graph's nodes: of a long run, a small part of all."""
    return queries.list_steps_since(home, run, 0, include_nested=False)


def steps_from_rows(home: Path, run: str, rows: Sequence[Row]) -> list[Step]:
    """Return the steps that a run's rows hold."""
    last = {row["root_step"]: row["seq"] for row in rows if not row["namespace"]}
    found: dict[str, list[str]] = {}
    for row in queries.list_effects(home, run):
        found.setdefault(row["task"].partition("-")[0], []).append(effect_display_name(row["key"]))
    return [_to_step(row, row["seq"] == last.get(row["root_step"]), found) for row in rows]


class ExecutedNode(NamedTuple):
    """One executed node, as a map needs it."""

    seq: int
    """In the order in which nodes ended."""
    step: int
    place: str
    """The nodes around it and its own name, with dots between: `tools.decide`, as diagrams have it."""
    started: float
    ms: float
    keys: str
    route: str
    reason: str


def list_executed_nodes(
    home: Path, run: str, since: int = 0, include_nested: bool = False
) -> list[ExecutedNode]:
    """Executed nodes from the one with the number `since` on; unless `include_nested`, those of the root graph."""
    return [
        ExecutedNode(
            r["seq"], r["root_step"] + 1, place, *times, r["keys"], r["route"] or "", r["reason"] or ""
        )
        for r in queries.list_steps_since(home, run, since, include_nested)
        if not is_hidden_node(r["node"])
        for place, times in [
            (".".join([*_enclosing_nodes(r), node_display_name(r["node"])]), (r["started"], r["ms"]))
        ]
    ]


def find_last_node_or_graph_path(home: Path, run: str) -> str:
    """Where a run is or stopped: the node that ended last, or the graph that it was in the middle of."""
    found = queries.select_last_step(home, run)
    return ".".join(_enclosing_nodes(found[0]) or [node_display_name(found[0]["node"])]) if found else ""


def _enclosing_nodes(row: Row) -> list[str]:
    return [part.partition(":")[0] for part in row["namespace"].split("|") if part]


list_step_rows = queries.list_steps
list_waiting_tasks = queries.list_waiting_tasks
"""As `diagrams.run_path` reads them."""


def effect_display_name(key: str) -> str:
    """An effect's key for people: without the digest of arguments that names calls of guarded tools and `@durable`."""
    return _DIGEST.sub("", key)


_DIGEST = re.compile(r"#[0-9a-f]{12,16}(\.\d+)?$")


def _to_step(row: Row, has_checkpoint: bool, effects: Mapping[str, Sequence[str]]) -> Step:
    keys = tuple(k for k in row["keys"].split(",") if k)
    depth = row["namespace"].count("|") + 1 if row["namespace"] else 0
    node, times = (row["workflow"], node_display_name(row["node"])), (row["started"], row["ms"])
    of_task = (*effects.get(row["task"].partition("-")[0].partition(".")[0], ()),)
    number, reason = row["root_step"] + 1, row["reason"] or ""
    return Step(number, depth, *node, *times, keys, row["route"], has_checkpoint, reason, of_task)


def count_consecutive_root_nodes(steps: list[Step]) -> list[tuple[str, int]]:
    """Nodes of the root graph in execution order, with consecutive repetitions counted."""
    nodes = groupby(step.node for step in steps if step.depth == 0)
    return [(node, len(list(times))) for node, times in nodes]


def read_usage_by_model(home: Path, run: str) -> dict[str, dict[str, Any]]:
    """Model → requests, tokens and cost."""
    return {
        row["model"]: {k: row[k] for k in row.keys()[1:]} for row in queries.sum_usage_by_model(home, run)
    }
