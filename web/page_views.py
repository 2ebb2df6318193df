"""page_views: what the page shows of runs, requests, workflows and statistics, as JSON."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from interlock.cli.parsing import parse_since_time
from interlock.cli.render.output import format_compact_number, format_dollars
from interlock.engine.client import ENDED, TALKING, Client, Options, RunRow
from interlock.engine.client.decision_lines import call_status_text, format_call_decisions
from interlock.engine.client.requests import RequestView, describe_request
from interlock.services.files.filesystem import UnreadableError
from interlock.state.errors import UserError
from interlock.state.file_names import quote_name
from interlock.state.text import format_duration, mark_invisible_characters, to_json_text, to_one_line
from interlock.state.workspace import PathRefused
from interlock.web.endpoints import (
    RefusedError,
    check_role,
    read_json_body,
    read_query_number,
    read_query_step,
    run_from_path,
)
from interlock.web.isolated_process import IsolatedRunner, IsolatedTask
from interlock.web.roles import required_role
from interlock.web.run_resumer import RunResumer

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums

_PAGE = 100
"""Runs in one answer."""
_PREVIEW = 101_000
"""Characters of a preview; the command line shows the rest. A diff is cut before that, and ends with how much."""
_FILE = 1_000_000
"""Bytes of a file that are shown."""
_LINE = 160


class PageContext(NamedTuple):
    """What answers are made of. `options` are those of each run that is started here."""

    options: Options
    client: Client
    isolated: IsolatedRunner
    resumer: RunResumer


async def get_current_person(_: PageContext, request: Request) -> dict[str, str]:
    person = request.state.person
    return {"name": person.name, "role": person.role, "why": person.why}


def list_runs(page: PageContext, request: Request) -> Any:
    query = request.query_params
    words, status = query.get("q", "").lower().split(), query.get("status") or None
    first = read_query_number(request, "start", 0)
    rows = page.client.runs(status)
    about = ((row, f"{row.run} {row.workflow} {row.title} {row.workspace}".lower()) for row in rows)
    found = [
        page.resumer.show_as_running_if_starting(row)
        for row, text in about
        if all(word in text for word in words)
    ]
    shown = found[first : first + _PAGE]
    waits = page.client.missing_worker_line(shown)
    shared = page.client.shared_folder_lines(shown)
    return {
        "runs": [row._asdict() for row in shown],
        "total": len(found),
        "no_worker": waits,
        "shared_folders": shared,
    }


def list_requests(page: PageContext, request: Request) -> Any:
    run = request.query_params.get("run")
    if run and page.client.find_exact_run(run) is None:
        raise RefusedError(404, f"There is no run {run!r}. It may have been deleted.")
    waiting = page.client.waiting_requests(run)
    rows = {name: page.client.find_exact_run(name) for name in {one.run for one in waiting}}
    return [_request_json(one._asdict(), rows[one.run]) for one in waiting]


def _request_json(shown_request: Mapping[str, Any], row: RunRow | None) -> dict[str, Any]:
    words = request_view_json(describe_request(shown_request["fields"]))
    fields = {**shown_request["fields"], "preview": ""}  # it stands in the words
    title = {"title": row.title, "workspace": row.workspace, "workflow": row.workflow} if row else {}
    return {**shown_request, "fields": fields, "asked": words, **title}


def request_view_json(view: RequestView) -> dict[str, Any]:
    """Return a request's words as JSON has them, with the names of their parts."""
    questions = [{"text": q.text, "options": [o._asdict() for o in q.options]} for q in view.questions]
    named = {name: [one._asdict() for one in getattr(view, name)] for name in ("ways", "parts")}
    preview = mark_invisible_characters(view.preview)  # somebody decides on what stands there
    length = len(preview)
    shown = {"preview": preview[:_PREVIEW], "cut": length if length > _PREVIEW else 0}
    return {**asdict(view), **named, **shown, "questions": questions}


def get_request(page: PageContext, request: Request) -> Any:
    """One request with what led to it; or what became of it."""
    client, name = page.client, request.path_params["id"]
    run = name.rpartition("-")[0]
    row = client.find_exact_run(run)
    if row is None:
        raise RefusedError(404, f"There is no request {name!r}. Its run may have been deleted.")
    one = next((one for one in client.waiting_requests(run) if one.id == name), None)
    if one is None:
        became = client.describe_past_requests(run).get(name, "This request no longer waits.")
        return {
            "gone": became,
            "run": run,
            "title": row.title,
            "status": page.resumer.show_as_running_if_starting(row).status,
        }
    told = client.read_conversation_events(run)
    return {
        **_request_json(one._asdict(), row),
        "prompt": _last_prompt(told) or row.title,
        "so_far": _progress_lines(row, told),
    }


def _last_prompt(events: Sequence[Any]) -> str:
    said = (event.content for event in reversed(events) if event.type == "message" and event.role == "user")
    return next(said, "")


def _progress_lines(row: RunRow, events: Sequence[Any]) -> list[str]:
    """Return what a run did, in three lines."""
    results = [event for event in events if event.type == "tool_result"]
    failed = sum(event.status != "success" or bool(event.exit) for event in results)
    calls = f"{len(results)} call{'' if len(results) == 1 else 's'}" + (
        f" ({failed} failed)" if failed else ""
    )
    done = f"{calls} in {format_duration(row.updated - row.created)}" if results else "No call so far"
    last = next(
        (
            f"Last call: {to_one_line(r.summary or r.tool_name, _LINE)}: {r.exit or r.status}"
            for r in results[::-1]
        ),
        "",
    )
    said = next((e.content for e in events[::-1] if e.type == "message" and e.role == "assistant"), "")
    first = to_one_line(said.strip().partition("\n\n")[0], _LINE)
    return [line for line in (done, last, said and f"It said: {first}") if line]


def get_request_file(page: PageContext, request: Request) -> Any:
    """Return the whole file that a request would change, as it is now, if the run's own tools may read it."""
    client, name = page.client, request.path_params["id"]
    one = next(
        (one for one in client.waiting_requests(name.rpartition("-")[0] or None) if one.id == name), None
    )
    row = one and client.find_exact_run(one.run)
    path = one and one.fields["args"].get("file_path")
    if row is None or not isinstance(path, str):
        raise RefusedError(404, f"Request {name!r} no longer waits, or changes no file.")
    if not _is_workspace_trustworthy(client, row):
        why = f"others may write the database, which names the folder {row.workspace!r}. Trust that: interlock trust"
        raise RefusedError(422, f"It isn't shown: {why}")
    try:
        return PlainTextResponse(client.read_file_text(row.run, path, _FILE))
    except PathRefused as error:
        raise RefusedError(422, f"It isn't shown: {error}") from error
    except (UnreadableError, OSError) as error:
        raise RefusedError(404, f"{quote_name(path)} can't be read: {error}.") from error


def _is_workspace_trustworthy(client: Client, row: RunRow) -> bool:
    """Whether a row's folder is what it says: in a database others may write rows, and name any folder of this host."""
    return client.options.submitted is None or client.options.trusts(Path(row.workspace))


async def list_workflows(page: PageContext, _: Request) -> Any:
    found = await page.isolated.run_task_cached(IsolatedTask("workflows", page.options))
    return {**found, "queue": page.options.queue}


async def get_workflow_form(page: PageContext, request: Request) -> Any:
    return await page.isolated.run_task_cached(
        IsolatedTask("form", page.options, request.path_params["name"])
    )


async def get_workflow_diagram(page: PageContext, request: Request) -> Any:
    folder = page.options.workspace or Path.cwd()
    drawn = await _draw_graph(page, folder, request.path_params["name"], request)
    return Response(drawn["svg"], media_type="image/svg+xml")


async def get_run_diagram(page: PageContext, request: Request) -> Any:
    row = await _require_run_with_trusted_code(page, request)
    path = await asyncio.to_thread(page.client.read_graph_path, row.run)
    drawn = await _draw_graph(page, Path(row.workspace), row.workflow, request, path.has_session_hooks)
    return Response(drawn["svg"], media_type="image/svg+xml")


async def get_run_diagram_marks(page: PageContext, request: Request) -> Any:
    """Return what the drawing of a run's graph marks: as `interlock diagram --run`, by the same path."""
    row = await _require_run_with_trusted_code(page, request)
    step = read_query_step(request, row.run)
    whole = await asyncio.to_thread(page.client.read_graph_path, row.run)
    drawn = await _draw_graph(page, Path(row.workspace), row.workflow, request, whole.has_session_hooks)
    marks = await asyncio.to_thread(page.client.compute_diagram_marks, row.run, drawn["edges"], step)
    return marks._asdict()


async def _require_run_with_trusted_code(page: PageContext, request: Request) -> RunRow:
    """Return the run, whose graph may be loaded here. Raises `CodeForbiddenError`."""
    row = run_from_path(page.client, request)
    await asyncio.to_thread(page.client.check_run_code_trusted, row)
    return row


async def _draw_graph(
    page: PageContext, folder: Path, workflow: str, request: Request, with_session_hooks: bool = False
) -> Mapping[str, Any]:
    depth = min(read_query_number(request, "depth", 1) or 1, 4)
    show = request.query_params.get("show", "").split(",")
    given = {"depth": depth, "show": show, "session": with_session_hooks}
    return await page.isolated.run_task_cached(
        IsolatedTask("diagram", replace(page.options, workspace=folder), workflow, given)
    )


def get_run(page: PageContext, request: Request) -> Any:
    row = page.resumer.show_as_running_if_starting(run_from_path(page.client, request))
    return {
        **row._asdict(),
        "ended": row.status in ENDED,
        "trouble": page.client.describe_failure(row),
        "costs": page.client.model_costs(row.run),
        "resume": f"interlock resume {row.run}",
        "no_worker": page.client.missing_worker_line([row]),
    }


async def get_follow_up_prompt_availability(page: PageContext, request: Request) -> Any:
    """Return whether a run goes on with another prompt."""
    row = run_from_path(page.client, request)
    if row.workflow in TALKING:
        return {"takes": True}
    if not request.state.person.has_at_least_role("drive"):
        return {"takes": False}
    await _require_run_with_trusted_code(page, request)
    options = replace(page.options, workspace=Path(row.workspace))
    return {
        "takes": (await page.isolated.run_task_cached(IsolatedTask("form", options, row.workflow)))["talks"]
    }


def list_steps(page: PageContext, request: Request) -> Any:
    """Nodes that ran, of the root graph or of all, from the first that the reader lacks."""
    row, deep = run_from_path(page.client, request), bool(read_query_number(request, "deep", 0))
    found = page.client.executed_nodes(row.run, read_query_number(request, "since", 0), deep)
    return [place._asdict() for place in found]


def list_calls(page: PageContext, request: Request) -> Any:
    made = page.client.calls(run_from_path(page.client, request).run)
    keys = ("tool", "state", "failed", "ms", "started", "ended", "id", "key")
    return [
        {
            **{key: getattr(call, key) for key in keys},
            "who": format_call_decisions(call),
            "came_to": call_status_text(call),
        }
        for call in made
    ]


def get_call_output(page: PageContext, request: Request) -> Any:
    """Return all that a call returned, as a file."""
    row, call = run_from_path(page.client, request), request.path_params["call"]
    found = page.client.results_by_call_id(row.run).get(call)
    if found is None:
        raise RefusedError(404, f"Call {call!r} of run {row.run!r} has no result.")
    error: Mapping[str, str] = found.get("error") or {}
    content: object = found.get("content") or error.get("message", "")
    text = content if isinstance(content, str) else json.dumps(content)
    return PlainTextResponse(text, headers={"content-disposition": "attachment; filename=output.txt"})


def get_state_with_changes(page: PageContext, request: Request) -> Any:
    """Return the state after a step, and what the keys that it changed held before."""
    client, run = page.client, run_from_path(page.client, request).run
    step = read_query_step(request, run)
    values = client.masked_state(run, step)
    there = [one.step for one in client.checkpoints(run)]
    at = there[-1] if step is None else step
    earlier = [number for number in there if number < at]
    before = client.masked_state(run, earlier[-1]) if earlier else {}
    changed = {
        key: before.get(key) for key in {**before, **values} if before.get(key, ...) != values.get(key, ...)
    }
    return Response(
        to_json_text({"step": at, "values": values, "changed": changed}), media_type="application/json"
    )


def get_conversation_extent(page: PageContext, request: Request) -> Any:
    """Return how much of the conversation there was at a step."""
    row = run_from_path(page.client, request)
    step = read_query_step(request, row.run)
    if step is None:
        raise RefusedError(422, "Which step? Give ?step=N.")
    return page.client.read_record_extent_at_step(row.run, step)._asdict()


def get_diff(page: PageContext, request: Request) -> Any:
    """Return the files changed, by the end or until a step."""
    row = run_from_path(page.client, request)
    until = read_query_step(request, row.run)
    try:
        return {"diff": page.client.diff_files(row.run, until_step=until)}
    except UserError as error:
        return {"diff": "", "why": str(error)}


async def replay_run(page: PageContext, request: Request) -> Any:
    row, given = await _require_run_with_trusted_code(page, request), await read_json_body(request)
    swap = given.get("swap")
    check_role(request.state.person, required_role("view", replay_swap=swap))
    return await page.isolated.run_task(
        IsolatedTask("replay", page.options, row.run, {"swap": str(swap or "")})
    )


async def export_run(page: PageContext, request: Request) -> Any:
    """Return a run's export, as a file."""
    row, shape = run_from_path(page.client, request), request.query_params.get("format", "html")
    if shape not in ("html", "md", "json"):
        raise RefusedError(422, f"No format {shape[:20]!r}. Expected html, md or json.")
    made = await page.isolated.run_task(IsolatedTask("export", page.options, row.run, {"format": shape}))
    name = f"attachment; filename=run-{row.run}.{shape}"
    return PlainTextResponse(made["text"], headers={"content-disposition": name})


_KEYS = ("day", "model", "workflow", "repository")
_COLUMNS = ("runs", "turns", "tokens", "cached", "cost", "asked", "given", "refused", "waited", "failed")


def get_statistics(page: PageContext, request: Request) -> dict[str, Any]:
    by = request.query_params.get("by", "day")
    by = by if by in _KEYS else "day"
    found = page.client.statistics(by, parse_since_time("30d"))
    rows = [[key, *_statistics_cells(sums)] for key, sums in found.items()]
    return {
        "by": by,
        "keys": _KEYS,
        "columns": [by, *_COLUMNS],
        "rows": rows,
        "chart": _cost_or_token_bar_chart(found),
    }


def _cost_or_token_bar_chart(sums_by_key: Mapping[str, "Sums"]) -> dict[str, Any]:
    """Return a bar for each key: its cost, or its tokens where no cost is known."""
    what, values = "Cost", {key: sums.usd for key, sums in sums_by_key.items()}
    if not any(values.values()):
        what, values = (
            "Tokens",
            {key: float(s.input_tokens + s.output_tokens) for key, s in sums_by_key.items()},
        )
    most = max(values.values(), default=0.0)
    bars = [
        {"key": key, "part": value / most, "shown": _format_cost_or_tokens(what, value)}
        for key, value in values.items()
        if most
    ]
    return {"what": what, "most": _format_cost_or_tokens(what, most), "bars": bars}


def _format_cost_or_tokens(kind: str, value: float) -> str:
    return format_dollars(value) if kind == "Cost" else format_compact_number(int(value))


def _statistics_cells(sums: "Sums") -> list[str]:
    failed = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.failures.items()))
    cells: tuple[Any, ...] = (
        *(sums.runs, sums.turns, format_compact_number(sums.input_tokens + sums.output_tokens)),
        "" if sums.cached_share is None else f"{sums.cached_share:.0%}",
        format_dollars(sums.usd if sums.usd or not sums.unpriced else None),
        *(
            sums.asked,
            sums.given,
            sums.refused,
            format_duration(sums.waited_s) if sums.asked else "",
            failed or 0,
        ),
    )
    return [str(cell) for cell in cells]
