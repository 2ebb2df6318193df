"""queries: the rows that lists and pages are made of, without a model or a graph: they must be fast to import."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from interlock.engine.store import (
    encode_json_keys_parameter,
    json_keys_subquery_sql,
    open_reader,
    select_rows,
)
from interlock.engine.store.blobs import open_blob_storage
from interlock.engine.store.runs import IS_SUBTASK, RELATED
from interlock.services.files.blobs import inflate_if_deflated

Row = Any
"""Its columns are read by name, `row["run"]`."""


_WAITS = "a.answer is null and a.superseded = 0 and a.interrupt is not null"
"""For a request `a`: it waits for a person."""


_RUNS = f"""
with chosen as (select * from runs {{}})
select c.run, c.workflow, c.queue, c.parent, c.workspace, c.title, c.created, c.updated, c.status, c.outcome, c.step,
       c.error, l.host, l.boot, l.pid, l.started, coalesce(l.held, 0) as held, l.stop,
       (select count(*) from approvals a where a.run = c.run and {_WAITS}) as waiting,
       coalesce(s.number, 0) as below,
       coalesce({IS_SUBTASK}, false) as subtask,
       (select coalesce(sum(input_tokens + output_tokens), 0) from model_calls m
        where m.run = c.run) as tokens,
       (select sum(usd) from model_calls m where m.run = c.run) as usd
from chosen c left join lease l on l.run = c.run
left join (select parent, count(*) as number from runs
           where parent in (select run from chosen) and subtask_of = parent
           and status not in ('done', 'cancelled') group by parent) s on s.parent = c.run
order by c.updated desc
"""


_MAY_WAIT = f"""
runs.run in (select a.run from approvals a where {_WAITS} union all
             select s.parent from runs s where s.parent is not null and s.subtask_of = s.parent
             and s.status not in ('done', 'cancelled'))
"""


_WAITING = (
    "select a.id, a.run, a.asked_at, a.request, a.number from approvals a join runs r on r.run = a.run "
    f"where {_WAITS} and r.status not in ('done', 'failed', 'cancelled') {{}}"
)


_WAITED_LONGEST = (
    "and a.run in (select a.run from approvals a "
    f"where {_WAITS} group by a.run order by min(a.asked_at), a.run limit $1 offset $2) "
)


def list_runs(
    home: Path, status: str | None = None, limit: int | None = None, offset: int = 0, **filters: str
) -> list[Row]:
    """Runs with their lease, number of waiting requests and subtasks, tokens and cost: newest first.

    `status`: as it is stored, or `running`: those whose lease somebody holds, or `waiting`: those that have a request
    or a subtask, whether they are driven or not. `limit`: only so many of the newest, but for the first `offset`.
    `filters`: columns and their values.
    """
    held, waits = status == "running", status == "waiting"
    wanted = {**filters, **({"status": "open" if waits else status} if status and not held else {})}
    parts = [
        *(f"{column} = ${place}" for place, column in enumerate(wanted, 1)),
        *["run in (select run from lease where held = 1)"] * held,
        *[_MAY_WAIT] * waits,
    ]
    which = f"where {' and '.join(parts)} " if parts else ""
    newest, most, place = "", list[object](), len(wanted) + 1
    if limit is not None:
        newest, most = f"order by updated desc limit ${place} offset ${place + 1}", [limit, offset]
    return select_rows(home, _RUNS.format(which + newest), *wanted.values(), *most)


@dataclass(frozen=True)
class RunFilter:
    """Which runs that aren't subtasks; each field None or empty: any."""

    workflow: str | None = None
    title: str | None = None
    rest_status: str | None = None
    """As `AT_REST`."""
    also_ids: Sequence[str] = ()
    """With `rest_status`: these, too."""
    only_ids: Sequence[str] | None = None
    """Of these only."""
    except_ids: Sequence[str] | None = ()
    """None: without those that a thread in this store names."""


_FREE = "r.run not in (select run from lease where held = 1)"


AT_REST = {
    "idle": f"(r.status in ('done', 'cancelled') and {_FREE})",
    "error": f"(r.status = 'failed' and {_FREE})",
    "interrupted": "(r.status not in ('done', 'failed', 'cancelled') and "
    f"not (r.status = 'open' and r.queue is not null) and {_FREE})",
    "busy": "1 = 0",
}
"""What programs call the status of a run that nobody drives and no worker will; of others, see `restless`."""


def _filter_sql(wanted: RunFilter) -> tuple[str, list[object]]:
    parts, values = ["not coalesce(r.subtask_of = r.parent, false)"], list[object]()
    for column, value in (("workflow", wanted.workflow), ("title", wanted.title)):
        if value is not None:
            values.append(value)
            parts.append(f"r.{column} = ${len(values)}")
    if wanted.rest_status is not None:
        values.append(encode_json_keys_parameter(wanted.also_ids))
        parts.append(f"({AT_REST[wanted.rest_status]} or r.run in {json_keys_subquery_sql(len(values))})")
    if wanted.only_ids is not None:
        values.append(encode_json_keys_parameter(wanted.only_ids))
        parts.append(f"r.run in {json_keys_subquery_sql(len(values))}")
    if wanted.except_ids is None:
        parts.append("r.run not in (select run from served where kind = 'thread')")
    elif wanted.except_ids:
        values.append(encode_json_keys_parameter(wanted.except_ids))
        parts.append(f"r.run not in {json_keys_subquery_sql(len(values))}")
    return " and ".join(parts), values


def count_root_runs(home: Path, wanted: RunFilter) -> int:
    """The number of runs that are wanted."""
    which, values = _filter_sql(wanted)
    found = select_rows(home, f"select count(*) from runs r where {which}", *values)
    return found[0][0] if found else 0


def list_root_run_ids_by_time(
    home: Path, wanted: RunFilter, by: Literal["created", "updated"], *, newest: bool, limit: int, offset: int
) -> list[Row]:
    """Run and time (`by`) of those that are wanted, in the order of that time."""
    which, values = _filter_sql(wanted)
    order = f"r.{by} desc, r.run desc" if newest else f"r.{by}, r.run"
    place = len(values) + 1
    sql = (
        f"select r.run, r.{by} from runs r where {which} order by {order} limit ${place} offset ${place + 1}"
    )
    return select_rows(home, sql, *values, limit, offset)


def list_driven_or_queued_runs(home: Path) -> list[str]:
    """Runs that somebody drives, or that wait for a worker: their rows alone don't say how they are."""
    held = "select run from lease where held = 1"
    loose = "select run from runs where queue is not null and status = 'open'"
    return [row[0] for row in select_rows(home, f"{held} union {loose}")]


def list_run_ids(home: Path) -> list[str]:
    """The ids of all runs."""
    return [row[0] for row in select_rows(home, "select run from runs")]


def list_workflow_names(home: Path) -> list[str]:
    """The workflows that there are runs of."""
    return [row[0] for row in select_rows(home, "select distinct workflow from runs")]


def list_runs_by_id(home: Path, names: Sequence[str]) -> list[Row]:
    """The runs with these ids, as `runs` has them."""
    return (
        select_rows(
            home, _RUNS.format(f"where run in {json_keys_subquery_sql()}"), encode_json_keys_parameter(names)
        )
        if names
        else []
    )


def list_batch_runs(home: Path, workflow: str) -> list[Row]:
    """Run and options of the runs of a workflow that are lines of batches, newest first."""
    query = "select run, options from runs where workflow = $1 and options like $2 order by created desc"
    return select_rows(home, query, workflow, '%"batch": {"id"%')


def list_runs_by_prefix(home: Path, name: str, limit: int) -> list[Row]:
    """Runs whose ids begin so, as `runs` has them."""
    which = "where run >= $1 and run < $2 order by run limit $3"
    return select_rows(home, _RUNS.format(which), name, f"{name}\x7f", limit)


def list_waiting_requests(
    home: Path, run: str | None, limit: int | None = None, offset: int = 0
) -> list[Row]:
    """Requests of a run, or of all, that wait for a person: id, run, asked_at, request, number.

    `limit`: only those of so many runs that have waited longest, but for the first `offset`.
    """
    if run is not None:
        return select_rows(home, _WAITING.format("and a.run = $1 "), run)
    if limit is not None:
        return select_rows(home, _WAITING.format(_WAITED_LONGEST), limit, offset)
    return select_rows(home, _WAITING.format(""))


def list_past_requests(home: Path, run: str) -> list[Row]:
    """Requests of this run, which come last, and of related ones, that were answered, or that no longer wait."""
    sql = (
        RELATED + "select a.id, a.number, a.request, a.answer, a.answered_at, a.answered_by from approvals a "
        "join runs r on r.run = a.run where a.run in (select run from related) "
        "and (a.interrupt is not null or a.answer is not null) "
        f"and not ({_WAITS} and r.status not in ('done', 'failed', 'cancelled')) "
        "order by a.run = $1, a.asked_at, a.seq"
    )
    return select_rows(home, sql, run)


def list_steps_since(home: Path, run: str, seq: int, include_nested: bool) -> list[Row]:
    """Nodes from the one with this number on, in the order they ended; unless `include_nested`, those of the root
    graph."""
    root = "" if include_nested else "and namespace = '' "
    near = "(select coalesce(max(seq), 0) from step_rows where run = $1 and seq <= $2)"
    of_run = f"select * from steps where run = $1 and first >= {near} and seq >= $2 {root}order by seq"
    return select_rows(home, of_run, run, seq)


def select_last_step(home: Path, run: str) -> list[Row]:
    """The node that ended last."""
    newest = "(select max(seq) from step_rows where run = $1)"
    query = f"select * from steps where run = $1 and first = {newest} order by seq desc limit 1"
    return select_rows(home, query, run)


def load_body(home: Path, inline: str | bytes | None, file: str | None) -> str | bytes | None:
    """The body of a row: its own, or that of the file it names; None: the file is gone."""
    if file is None:
        return inflate_if_deflated(inline) if isinstance(inline, bytes) else inline
    with open_reader(home) as conn:
        return open_blob_storage(conn, home / "outputs").load_named_body(file) if conn else None


def _make_run_query(sql: str) -> Callable[[Path, str], list[Row]]:
    """What a query finds of a run: home, run → rows."""
    return lambda home, run: select_rows(home, sql, run)


list_answered_requests = _make_run_query(
    "select id, request, answer, answered_at, answered_by, rule from approvals "
    "where run = $1 and answer is not null order by seq"
)
"""Answered requests in the order asked."""


list_waiting_interrupts = _make_run_query(
    f"select a.id, a.interrupt, a.request from approvals a where a.run = $1 and {_WAITS} order by a.seq"
)
"""Requests that wait, with LangGraph's ids, in the order asked."""


list_answered_interrupts = _make_run_query(
    "select distinct interrupt from approvals where run = $1 and interrupt is not null and answer is not null"
)
"""LangGraph's ids of requests that were answered."""


select_extent = _make_run_query(
    "select (select max(checkpoint_id) from checkpoints where thread_id = r.run and checkpoint_ns = ''), "
    "(select count(*) from journal where run = r.run and state = 'done') from runs r where r.run = $1"
)
"""One row that changes whenever the run's conversation may have grown, and costs little."""


list_steps = _make_run_query("select * from steps where run = $1 order by seq")
"""Every executed node, in the order they ended."""


list_waiting_tasks = _make_run_query(
    "select w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path from writes w "
    "where w.thread_id = $1 and w.channel = '__interrupt__' and w.checkpoint_id = (select max(checkpoint_id) "
    "from checkpoints c where c.thread_id = w.thread_id and c.checkpoint_ns = w.checkpoint_ns)"
)
"""Tasks that have asked a person, where their graph stands now; some may be done."""


sum_usage_by_model = _make_run_query(
    "select model, count(*) as requests, sum(input_tokens) as input_tokens, "
    "sum(output_tokens) as output_tokens, sum(cached_tokens) as cached, "
    "sum(thought_tokens) as thoughts, sum(duration_ms) as duration_ms, "
    "case when count(usd) = count(*) then sum(usd) end as usd "
    "from model_calls where run = $1 group by model order by model"
)
"""Model, requests, tokens, time and cost, by model; the cost is null if that of any call is unknown."""


list_calls = _make_run_query(
    "select j.*, c.body as asked, c.file as asked_file, a.body as answer, a.file as answer_file "
    "from journal j left join chain c on c.id = j.message left join chain a on a.id = j.record "
    "where j.run = $1 "
    "order by coalesce(done_at, 9e99), coalesce(intent_at, 9e99), message, idx, attempt"
)
"""The journal in the order calls finished, those without a result last; with the records of call and answer."""


list_effects = _make_run_query(
    "select task, key, place, state, attempt, intent_at, done_at from effects where run = $1 order by intent_at"
)
"""The effects of its nodes, in the order in which they began."""


list_decisions = _make_run_query("select * from decisions where run = $1 order by at")
"""Decisions on calls, oldest first."""


sum_usage_by_agent = _make_run_query(
    "select agent, sum(case when role = 'main' then 1 else 0 end) as turns, "
    "sum(input_tokens + output_tokens) as tokens from model_calls where run = $1 group by agent"
)
"""Agent, turns and tokens."""


list_agent_results = _make_run_query(
    "select result, result_file from journal where run = $1 and state = 'done' "
    "and tool in ('invoke_agent', 'codebase_investigator')"
)
"""What calls of agents came to."""


def select_request(home: Path, run: str, key: str) -> list[Row]:
    """Id and request of what was asked under this key; empty: nothing."""
    return select_rows(home, "select id, request from approvals where run = $1 and key = $2", run, key)


def find_drive_epoch(home: Path, run: str) -> int | None:
    """The number of the drive that holds the run's lease; None: nobody does."""
    found = select_rows(home, "select epoch from lease where run = $1 and held = 1", run)
    return found[0]["epoch"] if found else None


_UNDER_WAY = "join lease l on l.run = w.run and l.held = 1 and l.epoch = w.epoch"
"""For a row `w` of work: the drive that began it goes on."""


def list_calls_under_way(home: Path, runs: Sequence[str]) -> list[Row]:
    """Tool calls that the drives of these runs execute now, with the record that made each; the oldest first."""
    sql = (
        "select w.run, w.tool, w.idx, w.args, w.intent_at, c.body as asked, c.file as asked_file "
        f"from journal w {_UNDER_WAY} left join chain c on c.id = w.message "
        f"where w.state = 'intent' and w.run in {json_keys_subquery_sql()} order by w.intent_at"
    )
    return select_rows(home, sql, encode_json_keys_parameter(runs))


def list_model_requests_under_way(home: Path, runs: Sequence[str]) -> list[Row]:
    """Requests to models that the drives of these runs wait for: run, agent, model, at; the oldest first."""
    sql = (
        f"select w.run, w.agent, w.model, w.at from reservations w {_UNDER_WAY} "
        f"where w.under_way = 1 and w.run in {json_keys_subquery_sql()} order by w.at"
    )
    return select_rows(home, sql, encode_json_keys_parameter(runs))


def list_agent_paths(home: Path, run: str) -> list[str]:
    """The path of every agent that began a conversation."""
    sql = "select body from chain where run = $1 and parent = '' and file is null"
    roots = [
        json.loads(inflate_if_deflated(row["body"])).get("root", {}) for row in select_rows(home, sql, run)
    ]
    return [*dict.fromkeys(root["agent"] for root in roots if root.get("agent"))]


def parse_request_id(name: str) -> tuple[int, int]:
    """Batch and call from an id like `k3m9x2pa-2.1`, for sorting in call order instead of the order of asking.

    Requests from hooks, like `k3m9x2pa-h1`, come first; those that nodes ask themselves are like `k3m9x2pa-q1`.
    """
    place = name.rpartition("-")[2]
    if place.startswith(("h", "q")):
        return 0, int(place[1:])
    batch, call = place.split(".")[:2]
    return int(batch), int(call)


def is_call_request_id(name: str) -> bool:
    """Return whether the request with this id is about one of the model's calls, not asked by a node."""
    return not name.rpartition("-")[2].startswith("q")
