"""tools_decide: begin a batch: read its calls by protocol, announce them, and answer those that aren't run; take each
of the others from its name to `ready`, or to an answer without execution."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.edit import strings_to_try
from interlock.nodes.guessed_encodings import ask_about_guessed_encoding
from interlock.nodes.hooks import fire_hooks, hook_node
from interlock.nodes.mcp import MCP_BY_NAMES, resolve_named_mcp_call
from interlock.nodes.tools_approval import can_trust_previews, effective_approval_mode, require_tool_info
from interlock.nodes.tools_results import (
    CALL,
    MODES,
    WITHOUT_RUN,
    answer_call_without_running,
    build_tool_result_event,
    find_seen_files,
    format_hook_names,
    load_deps_key_and_call,
    load_earlier_calls,
    mode_refusal_or_noop_result,
    policy_decision_record,
    record_argument_change,
    record_call_decision,
    record_hook_decision,
    record_result_with_additions,
    shorten_hook_reason,
)
from interlock.prompts import load_prompt, render_prompt
from interlock.state.calls import (
    CallKey,
    CallOutcome,
    CallView,
    ToolResult,
    call_key_from_state,
    error_result,
)
from interlock.state.deps import Deps
from interlock.state.edit import EDIT_TOOL, EditState
from interlock.state.errors import RunError
from interlock.state.events import ToolUse
from interlock.state.hooks import HookOutcome
from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.node import node
from interlock.state.run import is_hooked
from interlock.state.task import DEEPEST
from interlock.state.tools import DecideState, ToolsState
from interlock.tools.call_arguments import TaggedTools, normalize_argument_names
from interlock.tools.json_calls import JsonCall, split_json_calls

_Reader = Callable[[str, Sequence[ToolDeclaration]], tuple[str, Sequence[JsonCall]]]
"""Separates a text from the calls in it."""


def route_by_protocol(state: ToolsState) -> Literal["native", "xml", "json"]:
    """`auto`: a model that called natively, or as JSON, was taken at its word (`Models.next_call_protocol`)."""
    match state.get("protocol"):
        case "xml" | "auto":
            return "xml"
        case "json":
            return "json"
        case _:
            return "native"


@node(reads=("head",), writes=("head",))
async def parse_xml(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Read calls from the tags in a message that was passed in; those of an answer were read as it streamed."""
    return _append_parsed_calls(state, runtime, _parse_json_or_tag_calls)


def _append_parsed_calls(state: ToolsState, runtime: Runtime[Deps], reader: _Reader) -> ToolsState:
    """Read the calls of a message that has none yet."""
    deps = runtime.context
    message = deps.transcript.read_message(state["head"])
    if message.tool_calls:
        return {}
    text, found = reader(message.text, deps.toolset.declare_tools())
    calls = [ToolCall(id=f"0.{i}", name=name, args=args) for i, (name, args) in enumerate(found)]
    read = normalize_call_argument_names(
        message.model_copy(update={"content": text, "tool_calls": tuple(calls)})
    )
    return {"head": deps.transcript.append(state["head"], [read])}


def _parse_json_or_tag_calls(text: str, offered: Sequence[ToolDeclaration]) -> tuple[str, Sequence[JsonCall]]:
    """JSON out of habit counts, too. Raises `RunError` if a tag can't be read."""
    rest, found = split_json_calls(text, offered)
    if found:
        return rest, found
    tools = TaggedTools(offered)
    parser = tools.make_parser()
    parser.feed(text)
    parser.close()
    if parser.problem:
        raise RunError(
            f"The text's calls can't be read: {parser.problem}. Write each one out, with its closing tag."
        )
    return parser.text, [*map(tools.resolve_call, parser.calls)]


@node(reads=("head", "protocol", "withheld"), writes=("head", "message", "count", "decided", "stop"))
async def parse(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Calls stay in the chain; the batch is identified by the record that contains them.

    JSON in a message that was passed in is read here: one object, or fenced ones.
    """
    deps = runtime.context
    found: ToolsState = (
        _append_parsed_calls(state, runtime, split_json_calls) if state.get("protocol") == "json" else {}
    )
    head = found.get("head", state["head"])
    message = deps.transcript.read_message(head)
    if not message.tool_calls:
        raise RunError(f"The batch {head!r} holds no call; expected an assistant message with calls.")
    for call in message.tool_calls:
        summary = deps.toolset.summarize_call(CallView(id=call.id, name=call.name, args=call.args))
        use = ToolUse(tool_name=call.name, tool_id=call.id, parameters=call.args, summary=summary)
        runtime.stream_writer(use)
    parsed: ToolsState = {**found, "message": head, "count": len(message.tool_calls), "stop": ""}
    if withheld := state.get("withheld"):
        parsed["decided"] = {
            index: _answer_withheld_call(int(index), why, state, runtime) for index, why in withheld.items()
        }
    return parsed


def normalize_call_argument_names(message: Message) -> Message:
    """The message's calls with the tools' own argument names."""
    calls = (
        c.model_copy(update={"args": normalize_argument_names(c.name, c.args)}) for c in message.tool_calls
    )
    return message.model_copy(update={"tool_calls": tuple(calls)})


def _answer_withheld_call(index: int, why: str, state: ToolsState, runtime: Runtime[Deps]) -> CallOutcome:
    """Answer a call that won't be run."""
    deps, key = runtime.context, CallKey(message=state["head"], index=index)
    call = deps.journal.read_call(key)
    match why:
        case "repeated":
            result = error_result("repeated_call", render_prompt("task_loop/repeated_call", tool=call.name))
        case "open todos":
            result = error_result("open_todos", render_prompt("task_loop/open_todos"))
        case "too deep":
            result = error_result("not_executed", render_prompt("task_loop/too_deep", levels=str(DEEPEST)))
        case _:
            result = error_result("not_executed", render_prompt("task_loop/second_call"))
    deps.journal.record_result(key, call, result)
    runtime.stream_writer(build_tool_result_event(deps, key, ""))
    return {"word": "answered", "attempt": 1}


_FRESH: DecideState = {
    "attempt": 1,
    "asks": 0,
    "by_person": False,
    "by_hook": False,
    "must_ask": False,
    "hook_attempt": 0,
    "hook_reason": "",
    "approval": "",
    "status": "validating",
}


@node(
    reads=("message", "index", *MODES),
    writes=(*_FRESH,),
    labels=("known", "unknown"),
    moves=("fail",),
)
async def resolve(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """An unknown tool is an error with the nearest names."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    by_names = call.name in MCP_BY_NAMES and deps.toolset.find_call_problem(call) is None
    if by_names and not await _is_denied_under_original_name(deps, call, state):
        named = await resolve_named_mcp_call(deps, call)
        if isinstance(named, ToolResult):
            return {**_FRESH, **answer_call_without_running(deps, state, call, named, "unknown")}
        deps.journal.record_changed_arguments(key.next_attempt, named)
        record_argument_change(runtime, key, "program", 2, call.name, "it is the server's own tool")
        return {**_FRESH, "label": "known", "attempt": 2}
    if deps.toolset.find_tool_info(call.name) is not None:
        return {
            **_FRESH,
            "label": "known",
            "attempt": _redirect_to_plans_and_get_attempt(runtime, state, key, call),
        }
    near = deps.toolset.nearest_tool_names(call.name)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    unknown = error_result("tool_not_registered", f"No tool {call.name!r}.{hint}")
    return {**_FRESH, **answer_call_without_running(deps, state, call, unknown, "unknown")}


async def _is_denied_under_original_name(deps: Deps, call: CallView, state: DecideState) -> bool:
    """Whether somebody's rule denies a call under the name it was made by, too. Plan mode decides by the other name."""
    risk = require_tool_info(deps, call).risk
    mode = "yolo" if state["approval_mode"] == "plan" else effective_approval_mode(deps, risk, state)
    return (await deps.policy.decide_by_rules_and_checkers(call, risk, mode, ())).decision == "deny"


def _redirect_to_plans_and_get_attempt(
    runtime: Runtime[Deps], state: DecideState, key: CallKey, call: CallView
) -> int:
    """In plan mode, redirect a relative Markdown path to the plans folder; returns the attempt with those arguments."""
    deps = runtime.context
    placed = deps.plans.redirect_to_plans_folder(call) if state.get("approval_mode") == "plan" else None
    if placed is None:
        return 1
    deps.journal.record_changed_arguments(key.next_attempt, placed)
    record_argument_change(runtime, key, "program", 2, "plan mode", "a plan's file lies in the plans folder")
    return 2


@node(
    reads=(*CALL, "mode", "skill_denies", "status"),
    writes=("status",),
    labels=("valid", "in a mode", "invalid"),
    moves=("fail",),
)
async def validate(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """Invalid arguments are an error naming the field."""
    deps, _, call = load_deps_key_and_call(state, runtime)
    problem = deps.toolset.find_call_problem(call)
    if problem is None:
        return {"label": "in a mode" if state.get("mode") or state.get("skill_denies") else "valid"}
    return answer_call_without_running(
        deps, state, call, error_result("invalid_tool_params", problem), "invalid"
    )


@node(
    reads=(*CALL, "mode", "skill_denies", "status"),
    writes=("status",),
    labels=("allowed", "restricted"),
    nondeterministic=True,
    moves=("fail",),
)
async def check_mode(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """Refuse tools and files that the mode of work doesn't have, and tools that a skill of this prompt forbids."""
    deps, _, call = load_deps_key_and_call(state, runtime)
    refusal = mode_refusal_or_noop_result(deps, state.get("mode", ""), call)
    refusal = refusal or _skill_refusal(deps, state.get("skill_denies", ""), call)
    if refusal is None:
        return {"label": "allowed"}
    return answer_call_without_running(deps, state, call, refusal, "restricted")


def _skill_refusal(deps: Deps, denied: str, call: CallView) -> ToolResult | None:
    """The answer to a call of a tool that a skill forbids; `mcp_SERVER_*` names all of a server's."""
    info = deps.toolset.find_tool_info(call.name)
    names = {call.name, info.name if info else call.name}
    if any(fnmatchcase(name, pattern) for name in names for pattern in denied.split(",")):
        text = f"A skill that is followed here forbids `{call.name}` until the next prompt."
        return error_result("mode_restriction", text)
    return None


@node(
    reads=(
        *(*CALL, *MODES, "by_person", "hook_reason", "hook_attempt", "hooked"),
        *("edit_status", "skill_allows", "status"),
    ),
    writes=("must_ask", "verdict", "rules", "status"),
    labels=("allow", "ask", "hooks", "deny", "no match"),
    moves=("fail",),
)
async def check_policy(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """Deny answers the call. Else hooks run first, then a person may be asked."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    info = require_tool_info(deps, call)
    mode = effective_approval_mode(deps, info.risk, state)
    policy = deps.policy.with_skill_rules(state.get("skill_allows", ""))
    verdict = await policy.decide_by_rules_and_checkers(
        call, info.risk, mode, deps.approvals.list_session_rules()
    )
    if info.risk == "write":
        earlier = load_earlier_calls(deps, key.message, key.index)
        seen = find_seen_files(deps, key)
        verdict = await ask_about_guessed_encoding(deps, call, verdict, mode, earlier, seen)
    record_call_decision(runtime, key, policy_decision_record(verdict, mode))
    if verdict.decision == "deny":
        why = verdict.deny_message or verdict.reason
        text = load_prompt("run/call_denied").render(tool=call.name, reason=why)
        denied = error_result("policy_violation", text, rule=verdict.rule, why=why)
        return answer_call_without_running(deps, state, call, denied, "deny")
    # A person approved these arguments by writing them.
    must_ask = (verdict.decision == "ask" or bool(state.get("hook_reason"))) and not state["by_person"]
    if info.name == EDIT_TOOL and not state["by_person"] and await _should_correct_edit(deps, state, call):
        return {"label": "no match", "must_ask": must_ask}
    # Hooks see every attempt once, but never their own changes.
    hooks = is_hooked(state, "BeforeTool") and state["hook_attempt"] != state["attempt"]
    if not hooks and not must_ask:
        return {"label": "allow", "must_ask": False}
    return {
        "label": "hooks" if hooks else "ask",
        "must_ask": must_ask,
        "verdict": verdict.model_dump(mode="json", exclude_defaults=True),
        "rules": deps.policy.rules_fingerprint(),
    }


async def _should_correct_edit(deps: Deps, state: DecideState, call: CallView) -> bool:
    """Whether the old string isn't in the file and no correction has been tried yet."""
    earlier = load_earlier_calls(deps, state["message"], state["index"])
    if state.get("edit_status") or not can_trust_previews(deps, earlier):
        return False
    seen = find_seen_files(deps, call_key_from_state(state))
    return (await deps.toolset.preview_call(call, earlier, seen)).code == "no_occurrence"


@node(
    reads=(*CALL, "helper", "helper_role", "edit_status", "explanation", "error", "status"),
    writes=("attempt", "status"),
    labels=("corrected", "answered"),
    moves=("fail", "schedule execute succeed"),
)
async def take_edit(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """Corrected strings are a new attempt, checked and approved like any other; else the call is finished."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    if state["edit_status"] == "applied":
        mending: EditState = {"message": key.message, "index": key.index, "attempt": key.attempt}
        tried = strings_to_try(
            deps, {**mending, "helper": state["helper"], "helper_role": state["helper_role"]}
        )
        args = {**call.args, "old_string": tried.old, "new_string": tried.new}
        deps.journal.record_changed_arguments(
            key.next_attempt, CallView(id=call.id, name=call.name, args=args)
        )
        why = state.get("explanation") or "what the edit looked for isn't in the file"
        record_argument_change(runtime, key, "helper", key.next_attempt.attempt, state["helper_role"], why)
        return {"label": "corrected", "attempt": key.next_attempt.attempt}
    if state["edit_status"] == "already_applied":
        text = load_prompt("run/edit_already_there").render(explanation=state.get("explanation") or "")
        done = ToolResult(status="success", content=text)
        return answer_call_without_running(deps, state, call, done, "answered", *WITHOUT_RUN)
    failed = error_result(state["error"]["code"], state["error"]["message"])
    return answer_call_without_running(deps, state, call, failed, "answered")


@hook_node(
    reads=(*CALL, "by_person", "must_ask", "status"),
    writes=("attempt", "by_person", "by_hook", "must_ask", "hook_attempt", "hook_reason", "status"),
    labels=("allow", "ask", "changed", "blocked", "stopped"),
    moves=("fail",),
)
async def before_tool(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """A hook may block, stop, require approval, or change the arguments. Its allow doesn't override others' asks."""
    deps, key, call = load_deps_key_and_call(state, runtime)
    payload: dict[str, JsonValue] = {"tool_name": call.name, "tool_input": call.args}
    outcome = await fire_hooks("BeforeTool", payload, state, runtime, call.name)
    if outcome.stop is not None or outcome.decision == "block":
        record_hook_decision(runtime, key, "BeforeTool", outcome)
        label = "blocked" if outcome.stop is None else "stopped"
        return answer_call_without_running(deps, state, call, _hook_refusal_result(outcome), label)
    amended = _record_arguments_from_hook(deps, key, call, outcome)
    record_hook_decision(runtime, key, "BeforeTool", outcome, amended.attempt if amended else 0)
    # Writing the arguments is approval by a person, but not if a hook changed them afterwards.
    by_person = state["by_person"] and amended is None
    asks = outcome.decision == "ask" and not by_person
    must_ask = state["must_ask"] or asks
    found: DecideState = {
        "label": "changed" if amended else "ask" if must_ask else "allow",
        "approval": "",
        "attempt": (amended or key).attempt,
        "hook_attempt": (amended or key).attempt,
        "hook_reason": f"{format_hook_names(outcome)} asks: {shorten_hook_reason(outcome)}" if asks else "",
        "must_ask": must_ask,
        "by_person": by_person,
    }
    return {**found, "by_hook": True} if amended else found


def _hook_refusal_result(outcome: HookOutcome) -> ToolResult:
    kind = "stopped_by_hook" if outcome.stop is not None else "blocked_by_hook"
    why = outcome.stop or shorten_hook_reason(outcome)
    prompt = "run/call_stopped_by_hook" if outcome.stop is not None else "run/call_blocked"
    result = error_result(
        kind, load_prompt(prompt).render(reason=why), hook=format_hook_names(outcome), why=why
    )
    return result.model_copy(update={"stop": outcome.stop and why})


def _record_arguments_from_hook(
    deps: Deps, key: CallKey, call: CallView, outcome: HookOutcome
) -> CallKey | None:
    """The attempt with a hook's arguments; None: unchanged."""
    args = outcome.output.get("tool_input")
    if not isinstance(args, dict) or args == call.args:
        return None
    deps.journal.record_changed_arguments(key.next_attempt, CallView(id=call.id, name=call.name, args=args))
    return key.next_attempt


@node(reads=(*CALL, "by_hook", "label"), writes=("decided",), group="errors")
async def respond_undone(state: DecideState, runtime: Runtime[Deps]) -> DecideState:
    """A cancel is passed on: it ends all remaining calls of the batch."""
    key = call_key_from_state(state)
    record = record_result_with_additions(
        runtime.context, key, args_changed_by_hook=state.get("by_hook", False)
    )
    runtime.stream_writer(build_tool_result_event(runtime.context, key, record))
    word = "cancel" if state["label"] == "cancel" else "answered"
    return {"decided": {str(key.index): {"word": word, "attempt": key.attempt, "record": record}}}
