"""run_tool: do what was approved, once."""

import asyncio
import time
from dataclasses import replace

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.subagent._time import left_s
from interlock.nodes.tools._requests import answered
from interlock.nodes.tools._results import is_too_long
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, Planned, ToolResult, cancelled, failure
from interlock.state.charts import ToolCallChart, step
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ToolStart
from interlock.state.journal import JournalRow
from interlock.state.toolset import ToolInfo, ToolRun

_LEAST_S = 0.1
"""Seconds that a call of a sub-agent gets whose time is up: enough to read a file."""


class RunToolIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    approval: str
    agent: str
    status: str


class RunToolOut(TypedDict, total=False):
    status: str
    label: str


async def run_tool(state: RunToolIn, runtime: Runtime[Deps]) -> RunToolOut:
    """On re-entry after a crash the journal decides: done, do it, or ask a person (`engine.md` 13)."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    info = deps.toolset.info(call.name)
    if info is None:
        raise RunError(f"Tool {call.name!r} is gone. Resume when it is back.")
    row = deps.journal.find(key, call)
    if row is not None and row.state == "done" and row.result is not None:
        return _ended(state, row.result, is_too_long(deps, call, row.result))
    if row is not None and row.state == "intent" and not _repeatable(deps, info, row):
        return {"label": "unknown"}
    result = _refused(deps, state, call) if row is None or row.state == "scheduled" else None
    if result is None:
        started = time.monotonic()
        left = max(left_s(runtime, state["agent"]), _LEAST_S) if state.get("agent") else None
        runtime.stream_writer(_start_event(deps, key, call))
        run = ToolRun(
            key=key, call=call, emit=runtime.stream_writer, time_left_s=left, shown=_shown(deps, state)
        )
        result = await _execute(deps, info, run, row)
        meta = {"duration_ms": round((time.monotonic() - started) * 1000), **result.meta}
        result = result.model_copy(update={"meta": meta})
    deps.journal.finish(key, call, result)
    return _ended(state, result, is_too_long(deps, call, result))


def _start_event(deps: Deps, key: CallKey, call: CallView) -> ToolStart:
    changed = call.args if key.attempt > 1 else None
    return ToolStart(
        tool_name=call.name, tool_id=call.id, summary=deps.toolset.summary(call), parameters=changed
    )


def _shown(deps: Deps, state: RunToolIn) -> str:
    """Who changed the arguments wasn't shown what comes of them."""
    if not state["approval"]:
        return ""
    request, answer = answered(deps, state["approval"])
    return "" if answer.choice == "modify" else request.preview


async def _execute(deps: Deps, info: ToolInfo, run: ToolRun, row: JournalRow | None) -> ToolResult:
    """Intent first, for everything that has an effect."""
    if info.effect == "none":
        return await _until_cancelled(deps, run)
    if row is not None and row.state == "intent":
        return await deps.toolset.run(replace(run, planned=row.planned))
    planned: Planned | None = None
    if info.effect == "file":
        computed = await deps.toolset.plan(run.call)
        if isinstance(computed, ToolResult):
            return computed
        planned = computed
    deps.journal.intend(run.key, run.call, planned)
    return await deps.toolset.run(replace(run, planned=planned))


async def _until_cancelled(deps: Deps, run: ToolRun) -> ToolResult:
    """What leaves no effect may be cut short; anything else races token and time itself, and ends in order."""
    work = asyncio.ensure_future(deps.toolset.run(run))
    stop = asyncio.ensure_future(deps.cancel.wait())
    try:
        await asyncio.wait({work, stop}, timeout=run.time_left_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if not stop.done():
            return failure(
                "timeout", f"The call was cut short after {run.time_left_s:.1f} s: no time is left."
            )
        return cancelled(load("run/call_interrupted").text())
    finally:
        for task in (work, stop):
            task.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)


def _repeatable(deps: Deps, info: ToolInfo, row: JournalRow) -> bool:
    """An intent without an end: a file shows by its bytes whether it was written, a command doesn't."""
    if info.effect != "file" or row.planned is None:
        return info.effect == "none"
    return deps.toolset.now(row.planned.path) in (row.planned.before, row.planned.after)


def _refused(deps: Deps, state: RunToolIn, call: CallView) -> ToolResult | None:
    """What was approved is what runs: arguments and files are compared with the request once more."""
    if not state["approval"]:
        return None
    request, answer = answered(deps, state["approval"])
    approved = answer.args if answer.choice == "modify" else request.call.args
    if call.args != approved:
        raise RunError(f"Call {call.id!r} has other arguments than those that were approved; it was not run.")
    changed = [file.path for file in request.files if deps.toolset.now(file.path) != file.sha256]
    if not changed:
        return None
    return failure("stale_approval", load("run/call_stale").text(files=", ".join(changed)))


def _ended(state: RunToolIn, result: ToolResult, long: bool) -> RunToolOut:
    event = {"success": "succeed", "error": "fail", "cancelled": "cancel"}[result.status]
    executing = step(ToolCallChart, state.get("status", "scheduled"), "execute")
    return {"label": "long" if long else "done", "status": step(ToolCallChart, executing, event)}
