"""tools_execute: run one permitted call and journal its result."""

import asyncio
import time
from dataclasses import replace
from typing import Literal

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.hooks import fire_hooks, hook_node, wrap_hook_text
from interlock.nodes.requests import has_server_changed, require_request_and_answer, server_changed_result
from interlock.nodes.subagent import agent_seconds_left
from interlock.nodes.tools_approval import effective_approval_mode, require_tool_info
from interlock.nodes.tools_questions import INPUT_WANTED
from interlock.nodes.tools_results import (
    CALL,
    EXECUTED,
    MODES,
    build_tool_result_event,
    call_status_after_events,
    find_seen_files,
    load_deps_key_and_call,
    load_filled_forms,
    mode_refusal_or_noop_result,
    record_hook_decision,
    record_result_with_additions,
    require_recorded_result,
    shorten_hook_reason,
    should_fire_after_tool_hooks,
)
from interlock.prompts import load_prompt
from interlock.state.calls import CallKey, CallView, Planned, ToolResult, call_key_from_state, error_result
from interlock.state.deps import Deps, await_despite_cancel
from interlock.state.errors import RunError
from interlock.state.events import ToolStart
from interlock.state.hooks import HookOutcome
from interlock.state.journal import JournalRow
from interlock.state.messages import Message
from interlock.state.node import node, require_task_id
from interlock.state.summarize import output_rule, should_shorten_output
from interlock.state.tooling import Reach, ToolInfo, ToolRun
from interlock.state.tools import CallKind, ExecuteState

_CAUSE = 1000
"""Characters of the reason why an outcome is unknown."""
_LEAST_S = 0.1
"""Seconds for a call of a sub-agent whose time is up: enough to read a file."""


@node(
    reads=(
        *CALL,
        *MODES,
        "approval",
        "by_person",
        "agent",
        "mode",
        "skill_allows",
        "given",
        "hooked",
        "status",
    ),
    writes=("status", "cause"),
    labels=("done", "long output", "hooks", "unknown outcome", "input wanted"),
    moves=EXECUTED,
)
async def run_tool(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """On re-entry after a crash the journal decides: done, run it, or ask a person.

    `docs/internals.md#unknown-outcomes`.
    """
    deps, key, call = load_deps_key_and_call(state, runtime)
    info = require_tool_info(deps, call)
    row = deps.journal.find_row(key, call)
    if row is not None and row.state == "done" and row.result is not None:
        await deps.snapshots.snapshot_after_call(key)  # a kill may have prevented it
        return _update_after_execution(state, row.result, is_output_too_long(deps, call, row.result))
    if row is not None and row.state == "intent" and not _can_rerun(deps, info, row):
        return {"label": "unknown outcome", "cause": ""}
    result = await _refusal_before_run(deps, state, call) if row is None or row.state == "scheduled" else None
    if result is None:
        started = time.monotonic()
        left = max(agent_seconds_left(runtime, state["agent"]), _LEAST_S) if state.get("agent") else None
        runtime.stream_writer(_build_tool_start_event(deps, key, call))
        (shown, reach), filled = (
            _approved_preview_and_private_reach(deps, state, info, call),
            load_filled_forms(deps, state),
        )
        emit, seen = runtime.stream_writer, find_seen_files(deps, key)
        run = ToolRun(key, call, emit, left, given=filled, shown=shown, reach=reach, seen=seen)
        result = await _journal_intent_and_run(
            runtime, info, run, row, person_was_asked=bool(state["approval"])
        )
        if info.effect != "none" and (result.error or {}).get("type") == "unknown_outcome":
            # No result is known: the intent stays open, and a person is asked.
            return {"label": "unknown outcome", "cause": result.content[:_CAUSE]}
        meta = {"duration_ms": round((time.monotonic() - started) * 1000), **result.meta}
        seen = () if is_output_too_long(deps, call, result) else result.seen  # what is shortened isn't shown
        result = result.model_copy(update={"meta": meta, "seen": seen})
    deps.journal.record_result(key, call, result)
    written = info.effect == "file" and result.status == "success"
    await deps.snapshots.snapshot_after_call(key, str(result.meta.get("path", "")) if written else "")
    return _update_after_execution(state, result, is_output_too_long(deps, call, result))


def _build_tool_start_event(deps: Deps, key: CallKey, call: CallView) -> ToolStart:
    changed = call.args if key.attempt > 1 else None
    return ToolStart(
        tool_name=call.name, tool_id=call.id, summary=deps.toolset.summarize_call(call), parameters=changed
    )


def _approved_preview_and_private_reach(
    deps: Deps, state: ExecuteState, info: ToolInfo, call: CallView
) -> tuple[str, Reach]:
    """The approved preview, and which private addresses may be reached. The preview is empty if the person changed the
    arguments: they didn't see the new one, and approved what they wrote."""
    reach = deps.policy.allowed_private_network_reach(
        call, info.risk, effective_approval_mode(deps, info.risk, state)
    )
    if not state["approval"]:
        return "", reach
    request, answer = require_request_and_answer(deps, state["approval"])
    if answer.choice != "modify":
        return request.preview, reach
    return "", "named" if reach == "approved" else reach


async def _journal_intent_and_run(
    runtime: Runtime[Deps], info: ToolInfo, run: ToolRun, row: JournalRow | None, person_was_asked: bool
) -> ToolResult:
    """Journal the intent before any effect. File writes always complete, as a thread can't be cancelled.

    Calls a person was `person_was_asked` about count as changes; other shell lines only if not known to just read.
    """
    deps = runtime.context
    if info.effect == "none":
        return await _run_until_deadline(deps, run)
    planned: Planned | None = None
    if row is not None and row.state == "intent":
        planned = row.planned
    else:
        if info.effect == "file":
            computed = await deps.toolset.plan_change(run.call, run)
            if isinstance(computed, ToolResult):
                return computed
            planned = computed
            if planned.how:
                deps.steps.record_reason(
                    require_task_id(runtime, "A match"), f"{run.call.name}: {planned.how}"
                )
        changes = person_was_asked or info.effect == "file"
        if changes or not await asyncio.to_thread(deps.policy.is_read_only_command, run.call):
            only = (deps.toolset.written_paths(run.call) or [""])[0] if info.effect == "file" else ""
            await deps.snapshots.snapshot_before_call(run.key, only)
        deps.journal.record_intent(run.key, run.call, planned)
    work = deps.toolset.run_call(replace(run, planned=planned))
    return await (await_despite_cancel(work) if info.effect == "file" else work)


async def _run_until_deadline(deps: Deps, run: ToolRun) -> ToolResult:
    """Run a call without effects, cut short when time is up; calls with effects enforce their own limits."""
    try:
        async with asyncio.timeout(run.time_left_s):
            return await deps.toolset.run_call(run)
    except TimeoutError:
        return error_result(
            "timeout", f"The call was cut short after {run.time_left_s:.1f} s: no time is left."
        )


def _can_rerun(deps: Deps, info: ToolInfo, row: JournalRow) -> bool:
    """Whether an unfinished intent may be rerun: a file's hash shows if it was written; a command has no such proof."""
    if info.effect != "file" or row.planned is None:
        return info.effect == "none"
    return deps.toolset.current_file_digest(row.planned.path) in (row.planned.before, row.planned.after)


async def _refusal_before_run(deps: Deps, state: ExecuteState, call: CallView) -> ToolResult | None:
    """What was approved is what runs: compare arguments and files with the request once more, or ask the rules.

    `docs/internals.md#requests-and-decisions`.
    """
    if restricted := mode_refusal_or_noop_result(deps, state.get("mode", ""), call):
        return restricted  # a link or the modes themselves may have changed since the decision
    if not state["approval"]:
        return await _refusal_by_current_rules(deps, state, call)
    request, answer = require_request_and_answer(deps, state["approval"])
    approved = answer.args if answer.choice == "modify" else request.call.args
    if call.args != approved:
        raise RunError(f"Call {call.id!r} has other arguments than those that were approved; it was not run.")
    if has_server_changed(deps, request):
        return server_changed_result(request)
    changed = [
        file.path for file in request.files if deps.toolset.current_file_digest(file.path) != file.sha256
    ]
    if not changed:
        return None
    return error_result("stale_approval", load_prompt("run/call_stale").render(files=", ".join(changed)))


async def _refusal_by_current_rules(deps: Deps, state: ExecuteState, call: CallView) -> ToolResult | None:
    """Since the decision other calls of the batch ran, or waited for a person for days: where a path leads, and what a
    command would read, may have changed."""
    info = require_tool_info(deps, call)
    if state.get("by_person") or info.effect == "none":  # those look themselves at what they open
        return None
    mode = effective_approval_mode(deps, info.risk, state)
    policy = deps.policy.with_skill_rules(state.get("skill_allows", ""))
    now = await policy.decide_by_rules(call, info.risk, mode, deps.approvals.list_session_rules())
    if now.decision == "allow":
        return None
    return error_result("stale_decision", load_prompt("run/call_no_longer_allowed").render(reason=now.reason))


def _update_after_execution(state: ExecuteState, result: ToolResult, is_long: bool) -> ExecuteState:
    if (result.error or {}).get("type") == INPUT_WANTED:
        return {"label": "input wanted"}
    event = {"success": "succeed", "error": "fail", "cancelled": "cancel"}[result.status]
    ended: ExecuteState = {
        "status": call_status_after_events(state.get("status", "scheduled"), "execute", event)
    }
    hooks = should_fire_after_tool_hooks({**state, **ended})
    return {**ended, "label": "hooks" if hooks else "long output" if is_long else "done"}


@hook_node(
    reads=(*CALL, "kind"), writes=("shortened", "hook_notes", "hook_stop"), labels=("done", "long output")
)
async def after_tool(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """Hooks see the tool's original result, which stays in the journal; the model's version is a separate record."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    result = require_recorded_result(deps.journal, key)
    outcome = await fire_hooks("AfterTool", _after_tool_payload(call, result), state, runtime, call.name)
    record_hook_decision(runtime, key, "AfterTool", outcome)
    stop = shorten_hook_reason(outcome) if outcome.stop == "" else outcome.stop or ""
    update: ExecuteState = {"label": "done", "hook_stop": stop}
    update["hook_notes"] = _record_hook_additions(deps, call, outcome, stop)
    if outcome.decision == "block" and not stop:
        text = load_prompt("run/result_blocked").render(reason=shorten_hook_reason(outcome))
        blocked = Message(role="tool", name=call.name, status="error", content=text)
        return {**update, "shortened": deps.transcript.append("", [blocked])}
    long = state["kind"] == "tool" and is_output_too_long(deps, call, result)
    return {**update, "label": "long output"} if long else update


def _after_tool_payload(call: CallView, result: ToolResult) -> dict[str, JsonValue]:
    response: dict[str, JsonValue] = {
        "llmContent": result.content,
        "returnDisplay": result.meta.get("summary"),
    }
    if result.error:
        response["error"] = {**result.error}
    return {"tool_name": call.name, "tool_input": call.args, "tool_response": response}


def _record_hook_additions(deps: Deps, call: CallView, outcome: HookOutcome, stop: str) -> str:
    """Record of the additions to the result; empty: none."""
    parts = [wrap_hook_text(outcome.context)] if outcome.context else []
    parts += [load_prompt("run/stopped_after_call").render(reason=stop)] if stop else []
    if not parts:
        return ""
    return deps.transcript.append("", [Message(role="tool", name=call.name, content="\n\n".join(parts))])


@node(reads=(*CALL, "by_hook", "shortened", "hook_notes", "hook_stop"), writes=("finished",))
async def respond(state: ExecuteState, runtime: Runtime[Deps]) -> ExecuteState:
    """The result itself stays in the journal; the batch gets the attempt it belongs to."""
    key = call_key_from_state(state)
    stop = state.get("hook_stop", "")
    record = record_result_with_additions(
        runtime.context,
        key,
        state.get("shortened", ""),
        args_changed_by_hook=state.get("by_hook", False),
        notes=state.get("hook_notes", ""),
        stop=stop,
    )
    runtime.stream_writer(build_tool_result_event(runtime.context, key, record))
    word = "stop" if stop else "done"
    return {"finished": {str(key.index): {"word": word, "attempt": key.attempt, "record": record}}}


def route_by_call_kind(state: ExecuteState) -> CallKind:
    return state["kind"]


def is_output_too_long(deps: Deps, call: CallView, result: ToolResult) -> bool:
    """A cancelled call's output is left as it is: no model is asked while the run is stopping."""
    rule = output_rule(deps.settings, call.name)
    return result.status != "cancelled" and should_shorten_output(deps.settings, rule, result.content)


def route_after_subagent(state: ExecuteState) -> Literal["done", "hooks"]:
    return "hooks" if should_fire_after_tool_hooks(state) else "done"
