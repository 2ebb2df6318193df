"""page_actions: what a person does on the page: start, decide, prompt, stop, fork, rewind, undo."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request

from interlock.engine.client import Decision
from interlock.engine.client.cancel import stop_or_cancel_run_by_name
from interlock.engine.client.requests import decide_with_answers, decide_with_arguments
from interlock.web import drive_process
from interlock.web.endpoints import (
    RefusedError,
    build_submission_options,
    read_json_body,
    require_json_object,
    run_from_path,
)
from interlock.web.page_views import PageContext


async def start_run(page: PageContext, request: Request) -> Any:
    given = await read_json_body(request)
    run = page.client.new_run_id()
    workflow = given.get("workflow")
    if not isinstance(workflow, str) or not workflow:
        raise RefusedError(
            422, "`workflow` must be the name of a workflow. List them with: interlock workflows"
        )
    folder = _require_folder(given.get("workspace") or page.options.workspace or Path.cwd())
    values = require_json_object(given.get("input") or {}, "input")
    options = replace(
        page.options,
        workspace=folder,
        worktree=_read_worktree(given.get("worktree")),
        submitted=build_submission_options(page.options, given, request.state.person),
    )
    await drive_process.start_drive_process(drive_process.DriveJob(options, run, workflow, values))
    return {"run": run}


def _read_worktree(value: object) -> dict[str, str] | None:
    """Return the option for a run in a git worktree: `true`, or a name. Raises `RefusedError`."""
    if not isinstance(value, bool | str | None):
        raise RefusedError(422, f"`worktree` must be true or a name, not {value!r}.")
    return {"name": "" if value is True else value} if value else None


def _require_folder(path: object) -> Path:
    """Return the folder of a new run. Raises `RefusedError`."""
    try:
        folder = Path(str(path)).expanduser()
        there = folder.is_dir()
    except (OSError, RuntimeError, ValueError):  # no such home, a name that is too long, a null byte
        folder, there = Path(str(path)), False
    if not there:
        raise RefusedError(422, f"There is no folder {str(folder)[:200]!r}. Give a folder that exists.")
    return folder


async def decide_requests(page: PageContext, request: Request) -> Any:
    row, given = run_from_path(page.client, request), await read_json_body(request)
    waiting = {one.id: one.fields for one in page.client.waiting_requests(row.run)}
    decisions = given.get("decisions")
    if not isinstance(decisions, list) or not decisions:
        raise RefusedError(422, "`decisions` must be a list of objects with `id` and `choice`.")
    made = [
        _build_decision(waiting, require_json_object(one, "decisions"))
        for one in cast("list[Any]", decisions)
    ]
    if row.queue is None and row.status != "running":  # the server drives it on
        await asyncio.to_thread(page.client.check_run_defined_on_this_host, row.run)
    await asyncio.to_thread(page.client.record_decisions, row.run, made, request.state.person.name)
    # Its driver takes the answer up; where workers drive, it is saved with the job of one.
    if row.queue is None and run_from_path(page.client, request).status != "running":
        await page.resumer.resume_run(
            row, None, build_submission_options(page.options, {}, request.state.person)
        )
    return {"decided": len(made)}


def _build_decision(waiting_requests: Mapping[str, Any], answer: Mapping[str, Any]) -> Decision:
    """The decision that an answer makes. Raises `UserError`, or `RefusedError` for a request that no longer waits."""
    name, choice, text = str(answer.get("id")), answer.get("choice"), str(answer.get("text") or "")
    request = waiting_requests.get(name)
    if request is None:
        raise RefusedError(409, f"Request {name!r} no longer waits: it was decided elsewhere, or withdrawn.")
    if choice == "modify":
        return decide_with_arguments(request, require_json_object(answer.get("args") or {}, "args"))
    if request["kind"] == "question" and choice == "proceed_once":
        return decide_with_answers(request, [text])
    spoken = text if request["kind"] == "outcome" else None
    refused = choice == "reject" and not spoken
    return Decision(name, cast("Any", choice), feedback=text if refused else None, text=spoken)


async def send_prompt(page: PageContext, request: Request) -> Any:
    row, given = run_from_path(page.client, request), await read_json_body(request)
    text = str(given.get("prompt") or "").strip() or None
    waits = await page.resumer.resume_run(
        row, text, build_submission_options(page.options, {}, request.state.person)
    )
    return {"run": row.run, "waits": waits}


async def stop_run(page: PageContext, request: Request) -> Any:
    """Stop a run that is driven or queued, and cancel one that waits."""
    row, person = run_from_path(page.client, request), request.state.person
    waits_for_room = row.status != "running" and (row.error or {}).get("type") == "limit"
    if not waits_for_room and drive_process.is_driven_by_server(page.client, row):
        await asyncio.to_thread(drive_process.interrupt_drive, page.client, row.run)
        if row.queue is None:
            return {"run": row.run}
    found = await asyncio.to_thread(stop_or_cancel_run_by_name, page.options, row.run, person.name)
    if found.became == "decided" and row.queue is None:
        await page.resumer.resume_run(row, None, build_submission_options(page.options, {}, person))
    return {"run": row.run, "became": found.became}


def _read_step(body: Mapping[str, Any], run: str) -> int | None:
    step = body.get("step")
    if not isinstance(step, int | None):
        raise RefusedError(422, f"`step` must be a number, not {step!r}. See: interlock history {run}")
    return step


async def fork_run(page: PageContext, request: Request) -> Any:
    row, given = run_from_path(page.client, request), await read_json_body(request)
    step, here = _read_step(given, row.run), bool(given.get("in_place"))
    await asyncio.to_thread(page.client.check_run_folder_trusted, row.run)
    made = await asyncio.to_thread(lambda: page.client.fork_run(row.run, step, in_place=here))
    return {"run": made.run, "workspace": made.workspace}


async def preview_or_rewind_run(page: PageContext, request: Request) -> Any:
    """Without `sure`: what going back to a step would do to the files."""
    row, given = run_from_path(page.client, request), await read_json_body(request)
    step = _read_step(given, row.run)
    if step is None:
        raise RefusedError(422, f"To which step? Give `step`. See: interlock history {row.run}")
    await asyncio.to_thread(page.client.check_run_folder_trusted, row.run)
    found = await asyncio.to_thread(page.client.plan_rewind, row.run, step)
    if not given.get("sure"):
        return {"changes": [change._asdict() for change in found.changes]}
    return {"run": (await asyncio.to_thread(found.restore_and_fork_at_step)).run}


async def undo_changes(page: PageContext, request: Request) -> Any:
    row, given = run_from_path(page.client, request), await read_json_body(request)
    call = given.get("call")
    await asyncio.to_thread(page.client.check_run_folder_trusted, row.run)
    changed = await asyncio.to_thread(page.client.undo_changes, row.run, None if call is None else str(call))
    return {"changed": [change._asdict() for change in changed]}
