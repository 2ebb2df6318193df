"""tool_guard: decides whether a call of a tool that isn't ours may run: policy, hooks, and a person.

Called from inside somebody's node, which runs again from its start after each answer: every step finds what it did
before under the call's key.
"""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.current_run import park_node
from interlock.nodes.hooks import request_hook_outcome, wrap_hook_text
from interlock.nodes.requests import fire_notification_hooks, rejection_result, write_request
from interlock.nodes.tools_approval import store_grant
from interlock.nodes.tools_results import (
    hook_names,
    hook_reason,
    policy_decision,
    record_argument_change,
    record_call_decision,
    record_hook_decision,
    record_person_decision,
)
from interlock.prompts import load_prompt
from interlock.state.calls import (
    Answer,
    ApprovalRequest,
    CallKey,
    CallView,
    Choice,
    Risk,
    SessionRule,
    Verdict,
)
from interlock.state.deps import Deps
from interlock.state.errors import HookError
from interlock.state.hooks import HookOutcome
from interlock.state.run import HookEvent, is_hooked

_ALWAYS: Final = "proceed_always_tool"
NESTED: ContextVar[bool] = ContextVar("whether a guarded tool's own code runs", default=False)
_SETTLE_S = 0.05
"""Seconds in which calls that were made at the same time begin, too, some of them in threads."""


class RefusedError(Exception):
    """The call isn't run; the text is its answer."""


@dataclass
class GuardedCall:
    runtime: Runtime[Deps]
    task: str
    key: str
    """Names it within its task, the same whenever its node runs."""
    view: CallView
    risk: Risk
    parameters: tuple[str, ...]
    """Arguments that a person may give; empty: any."""

    @property
    def deps(self) -> Deps:
        return self.runtime.context

    def at(self, attempt: int) -> CallKey:
        return CallKey(message=f"{self.task}:{self.key}", index=0, attempt=attempt)

    def request(self, attempt: int) -> str:
        return self.request_of(self.task, self.key, attempt)

    @staticmethod
    def request_of(task: str, key: str, attempt: int) -> str:
        """The key of what a person is asked of an attempt."""
        return f"interrupt:call:{task}:{key}:{attempt}"

    @property
    def hooks(self) -> Any:
        return {"hooked": self.deps.hooks.configured}


async def admit_call(call: GuardedCall) -> CallView:
    """The call as it may run, with arguments that a hook or a person changed. Raises `RefusedError`."""
    attempt, by_person, hooked = 1, False, 0
    while True:
        verdict = await _policy_verdict(call, attempt)
        asked = (
            call.deps.approvals.get(call.request(attempt)) is not None
        )  # its answer counts, whatever is allowed now
        must_ask, reason = asked or (verdict.decision == "ask" and not by_person), verdict.reason
        if is_hooked(call.hooks, "BeforeTool") and hooked != attempt:
            hooked = attempt
            outcome = await _fire_hooks(call, "BeforeTool", attempt, {"tool_input": call.view.args})
            if changed := _call_changed_by_hook(call, outcome, attempt):
                call.view, attempt, hooked, by_person = changed, attempt + 1, attempt + 1, False
                continue
            if outcome.decision == "ask" and not by_person:
                must_ask, reason = True, f"{hook_names(outcome)} asks: {hook_reason(outcome)}"
        if not must_ask:
            return call.view
        answer = await _person_answer(call, attempt, verdict, reason)
        if answer.choice != "modify":
            return call.view
        call.view = call.view.model_copy(update={"args": answer.args or {}})
        attempt, by_person = attempt + 1, True


async def _policy_verdict(call: GuardedCall, attempt: int) -> Verdict:
    """The policy's word, softened by what a person allowed for the run. Raises `RefusedError` for a deny."""
    deps, mode = call.deps, call.deps.info.approval_mode
    rules = deps.approvals.session_rules()
    verdict = await deps.policy.decide(call.view, call.risk, mode, rules)
    own = SessionRule(tool=call.view.name)
    granted = next((rule for rule in rules if rule == own), None)
    if verdict.decision == "ask" and granted and _can_grant_always(deps, verdict):
        verdict = verdict.model_copy(update={"decision": "allow", "session": granted})
    record_call_decision(call.runtime, call.at(attempt), policy_decision(verdict, mode))
    if verdict.decision == "deny":
        why = verdict.deny_message or verdict.reason
        raise RefusedError(load_prompt("run/call_denied").text(tool=call.view.name, reason=why))
    return verdict


def _can_grant_always(deps: Deps, verdict: Verdict) -> bool:
    """Whether all calls of the tool may be allowed at once: not where a rule that somebody wrote asks."""
    return (
        not verdict.by_checker
        and deps.info.approval_mode != "plan"
        and "default.toml" in (verdict.rule or "default.toml")
    )


async def _fire_hooks(
    call: GuardedCall, event: HookEvent, attempt: int, payload: Mapping[str, JsonValue]
) -> HookOutcome:
    """What the hooks say. Raises `RefusedError` if they block the call, `HookError` if they stop the run."""
    key, name = f"{event}:{call.task}:{call.key}:{attempt}", call.view.name
    emit, about = call.runtime.stream_writer, {"tool_name": name, **payload}
    outcome = await call.deps.hooks.fire(event, key, about, subject=name, emit=emit)
    if outcome.unknown:
        request_hook_outcome(outcome.unknown, call.runtime)
        park_node(outcome.unknown)
    record_hook_decision(call.runtime, call.at(attempt), event, outcome)
    if outcome.stop is not None:
        raise HookError(
            f"{event} {hook_names(outcome)} stopped the run: {hook_reason(outcome)}", "stopped_by_hook"
        )
    if outcome.decision == "block":
        prompt = "run/call_blocked" if event == "BeforeTool" else "run/result_blocked"
        raise RefusedError(load_prompt(prompt).text(reason=hook_reason(outcome)))
    return outcome


def _call_changed_by_hook(call: GuardedCall, outcome: HookOutcome, attempt: int) -> CallView | None:
    """The call with a hook's arguments; None: unchanged."""
    args = outcome.output.get("tool_input")
    if not isinstance(args, dict) or args == call.view.args:
        return None
    record_argument_change(call.runtime, call.at(attempt), "hook", attempt + 1, hook_names(outcome))
    return call.view.model_copy(update={"args": args})


async def _person_answer(call: GuardedCall, attempt: int, verdict: Verdict, reason: str) -> Answer:
    """A person's answer; parks the run until there is one. Raises `RefusedError` for a rejection."""
    deps, key = call.deps, call.request(attempt)
    request = deps.approvals.get(key)
    if request is None:
        request = await _approval_request(call, key, verdict, reason)
        write_request(call.runtime, request)
        if is_hooked(call.hooks, "Notification"):
            await fire_notification_hooks(deps, request, call.runtime.stream_writer)
    if (answer := deps.approvals.answer(key)) is None:
        await _park_with_siblings(deps.info.run, call.task, key)
    assert answer is not None
    record_person_decision(
        call.runtime, call.at(attempt), key, answer, attempt + 1 if answer.choice == "modify" else 0
    )
    if answer.choice == "reject":
        raise RefusedError(rejection_result(answer).content)
    own = SessionRule(tool=call.view.name) if answer.choice == _ALWAYS else None
    rule = own or deps.policy.always_rule(call.view, call.risk, answer.choice, deps.info.approval_mode)
    await store_grant(deps, key, call.risk, rule, answer, call.runtime.stream_writer)
    return answer


async def _approval_request(call: GuardedCall, key: str, verdict: Verdict, reason: str) -> ApprovalRequest:
    deps, mode = call.deps, call.deps.info.approval_mode
    offered = await asyncio.to_thread(deps.policy.choices, call.view, call.risk, verdict, mode)
    # "All edits" is of editing tools, and this graph has no channel for it.
    choices: list[Choice] = [choice for choice in offered if choice not in ("cancel", "proceed_always_edits")]
    rules = ((c, deps.policy.always_rule(call.view, call.risk, c, mode)) for c in choices if "always" in c)  # pyright: ignore[reportArgumentType]
    always: dict[str, str] = {choice: rule.covers for choice, rule in rules if rule is not None}
    if not always and _can_grant_always(deps, verdict):
        choices.insert(1, _ALWAYS)
        always[_ALWAYS] = SessionRule(tool=call.view.name).covers
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=call.view,
        reason=reason,
        preview=call_preview(call.view),
        parts=verdict.parts,
        choices=tuple(choices),
        always=always,
        parameters=call.parameters,
    )


def call_preview(view: CallView) -> str:
    """The call for people: an argument a line."""
    return "\n".join(f"{name}: {value}" for name, value in view.args.items())


async def hook_addition(call: GuardedCall, response: JsonValue) -> str:
    """What hooks add to the result for the model; empty: nothing. Raises `RefusedError` if they block it."""
    if not is_hooked(call.hooks, "AfterTool"):
        return ""
    payload: dict[str, JsonValue] = {"tool_input": call.view.args, "tool_response": response}
    outcome = await _fire_hooks(call, "AfterTool", 1, payload)
    return wrap_hook_text(outcome.context) if outcome.context else ""


@dataclass
class _ConcurrentCalls:
    """Calls of one task that are under way at the same time, as LangGraph's `ToolNode` makes them."""

    busy: int = 0
    asking: list[str] = field(default_factory=list[str])
    parked: tuple[str, ...] = ()
    changed: asyncio.Event = field(default_factory=asyncio.Event)


_groups: dict[tuple[str, str], _ConcurrentCalls] = {}


def enter_call(run: str, task: str) -> None:
    """Count a call among those of its task, in the run's event loop; `leave` it."""
    _groups.setdefault((run, task), _ConcurrentCalls()).busy += 1


def leave_call(run: str, task: str) -> None:
    group = _groups[run, task]
    group.busy -= 1
    group.changed.set()
    if not group.busy:
        del _groups[run, task]


async def _park_with_siblings(run: str, task: str, key: str) -> None:
    """Park once each call of the task is over or asks, too: a call that runs on would be cut, and nothing be known."""
    group = _groups.get((run, task))
    if group is None or NESTED.get():
        park_node(key)
    await asyncio.sleep(_SETTLE_S)
    group.asking.append(key)
    group.changed.set()
    try:
        while group.busy > len(group.asking):
            group.changed.clear()
            await group.changed.wait()
        group.parked = group.parked or (*group.asking,)
        park_node(*group.parked)  # the same from each: LangGraph keeps the one that it hears of first
    finally:
        group.asking.remove(key)
