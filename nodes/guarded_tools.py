"""guarded_tools: LangChain tools under the run's policy, approvals, hooks, journal and redaction.

First whether a call may run, then how it is run. It is called from inside somebody's node, which runs again from its
start after each answer: every step finds what it did before under the call's key.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import count
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langchain_core.tools import tool as made_tool
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from interlock.nodes.current_run import (
    current_deps,
    park_until_answered,
    require_current_task_info,
    schedule_in_run_loop,
    submit_to_run_loop,
)
from interlock.nodes.effects import EffectEntry, node_path, run_effect, run_effect_sync
from interlock.nodes.hooks import wrap_hook_text, write_hook_outcome_request
from interlock.nodes.requests import fire_request_notification_hooks, rejection_result, write_and_emit_request
from interlock.nodes.tools_approval import store_always_choice
from interlock.nodes.tools_results import (
    format_hook_names,
    policy_decision_record,
    record_argument_change,
    record_call_decision,
    record_hook_decision,
    record_person_decision,
    shorten_hook_reason,
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
from interlock.state.deps import GRACE_S, Deps
from interlock.state.errors import HookError, SetupError
from interlock.state.hooks import HookOutcome
from interlock.state.run import HookEvent, is_hooked
from interlock.state.text import clean_json, first_validation_error

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

    def attempt_key(self, attempt: int) -> CallKey:
        return CallKey(message=f"{self.task}:{self.key}", index=0, attempt=attempt)

    def request_key(self, attempt: int) -> str:
        return self.build_request_key(self.task, self.key, attempt)

    @staticmethod
    def build_request_key(task: str, key: str, attempt: int) -> str:
        """The key of what a person is asked of an attempt."""
        return f"interrupt:call:{task}:{key}:{attempt}"

    @property
    def hook_state(self) -> Any:
        return {"hooked": self.deps.hooks.hooked_events}


async def admit_call(call: GuardedCall) -> CallView:
    """The call as it may run, with arguments that a hook or a person changed. Raises `RefusedError`."""
    attempt, by_person, hooked = 1, False, 0
    while True:
        verdict = await _decide_by_policy_or_refuse(call, attempt)
        asked = (
            call.deps.approvals.find_request(call.request_key(attempt)) is not None
        )  # its answer counts, whatever is allowed now
        must_ask, reason = asked or (verdict.decision == "ask" and not by_person), verdict.reason
        if is_hooked(call.hook_state, "BeforeTool") and hooked != attempt:
            hooked = attempt
            outcome = await _fire_call_hooks_or_refuse(
                call, "BeforeTool", attempt, {"tool_input": call.view.args}
            )
            if changed := _record_and_apply_hook_arguments(call, outcome, attempt):
                call.view, attempt, hooked, by_person = changed, attempt + 1, attempt + 1, False
                continue
            if outcome.decision == "ask" and not by_person:
                must_ask, reason = True, f"{format_hook_names(outcome)} asks: {shorten_hook_reason(outcome)}"
        if not must_ask:
            return call.view
        answer = await _get_approval_or_park(call, attempt, verdict, reason)
        if answer.choice != "modify":
            return call.view
        call.view = call.view.model_copy(update={"args": answer.args or {}})
        attempt, by_person = attempt + 1, True


async def _decide_by_policy_or_refuse(call: GuardedCall, attempt: int) -> Verdict:
    """The policy's word, softened by what a person allowed for the run. Raises `RefusedError` for a deny."""
    deps, mode = call.deps, call.deps.info.approval_mode
    rules = deps.approvals.list_session_rules()
    verdict = await deps.policy.decide_by_rules_and_checkers(call.view, call.risk, mode, rules)
    own = SessionRule(tool=call.view.name)
    granted = next((rule for rule in rules if rule == own), None)
    if verdict.decision == "ask" and granted and _can_grant_always(deps, verdict):
        verdict = verdict.model_copy(update={"decision": "allow", "session": granted})
    record_call_decision(call.runtime, call.attempt_key(attempt), policy_decision_record(verdict, mode))
    if verdict.decision == "deny":
        why = verdict.deny_message or verdict.reason
        raise RefusedError(load_prompt("run/call_denied").render(tool=call.view.name, reason=why))
    return verdict


def _can_grant_always(deps: Deps, verdict: Verdict) -> bool:
    """Whether all calls of the tool may be allowed at once: not where a rule that somebody wrote asks."""
    return (
        not verdict.by_checker
        and deps.info.approval_mode != "plan"
        and "default.toml" in (verdict.rule or "default.toml")
    )


async def _fire_call_hooks_or_refuse(
    call: GuardedCall, event: HookEvent, attempt: int, payload: Mapping[str, JsonValue]
) -> HookOutcome:
    """What the hooks say. Raises `RefusedError` if they block the call, `HookError` if they stop the run."""
    key, name = f"{event}:{call.task}:{call.key}:{attempt}", call.view.name
    emit, about = call.runtime.stream_writer, {"tool_name": name, **payload}
    outcome = await call.deps.hooks.fire(event, key, about, subject=name, emit=emit)
    if outcome.unknown:
        write_hook_outcome_request(outcome.unknown, call.runtime)
        park_until_answered(outcome.unknown)
    record_hook_decision(call.runtime, call.attempt_key(attempt), event, outcome)
    if outcome.stop is not None:
        raise HookError(
            f"{event} {format_hook_names(outcome)} stopped the run: {shorten_hook_reason(outcome)}",
            "stopped_by_hook",
        )
    if outcome.decision == "block":
        prompt = "run/call_blocked" if event == "BeforeTool" else "run/result_blocked"
        raise RefusedError(load_prompt(prompt).render(reason=shorten_hook_reason(outcome)))
    return outcome


def _record_and_apply_hook_arguments(
    call: GuardedCall, outcome: HookOutcome, attempt: int
) -> CallView | None:
    """The call with a hook's arguments; None: unchanged."""
    args = outcome.output.get("tool_input")
    if not isinstance(args, dict) or args == call.view.args:
        return None
    record_argument_change(
        call.runtime, call.attempt_key(attempt), "hook", attempt + 1, format_hook_names(outcome)
    )
    return call.view.model_copy(update={"args": args})


async def _get_approval_or_park(call: GuardedCall, attempt: int, verdict: Verdict, reason: str) -> Answer:
    """A person's answer; parks the run until there is one. Raises `RefusedError` for a rejection."""
    deps, key = call.deps, call.request_key(attempt)
    request = deps.approvals.find_request(key)
    if request is None:
        request = await _build_approval_request(call, key, verdict, reason)
        write_and_emit_request(call.runtime, request)
        if is_hooked(call.hook_state, "Notification"):
            await fire_request_notification_hooks(deps, request, call.runtime.stream_writer)
    if (answer := deps.approvals.find_answer(key)) is None:
        await _park_when_siblings_settle(deps.info.run, call.task, key)
    assert answer is not None
    record_person_decision(
        call.runtime, call.attempt_key(attempt), key, answer, attempt + 1 if answer.choice == "modify" else 0
    )
    if answer.choice == "reject":
        raise RefusedError(rejection_result(answer).content)
    own = SessionRule(tool=call.view.name) if answer.choice == _ALWAYS else None
    rule = own or deps.policy.session_rule_for_choice(
        call.view, call.risk, answer.choice, deps.info.approval_mode
    )
    await store_always_choice(deps, key, call.risk, rule, answer, call.runtime.stream_writer)
    return answer


async def _build_approval_request(
    call: GuardedCall, key: str, verdict: Verdict, reason: str
) -> ApprovalRequest:
    deps, mode = call.deps, call.deps.info.approval_mode
    offered = await asyncio.to_thread(deps.policy.offered_choices, call.view, call.risk, verdict, mode)
    # "All edits" is of editing tools, and this graph has no channel for it.
    choices: list[Choice] = [choice for choice in offered if choice not in ("cancel", "proceed_always_edits")]
    rules = (
        (c, deps.policy.session_rule_for_choice(call.view, call.risk, c, mode))
        for c in choices
        if "always" in c
    )  # pyright: ignore[reportArgumentType]
    always: dict[str, str] = {choice: rule.scope_text for choice, rule in rules if rule is not None}
    if not always and _can_grant_always(deps, verdict):
        choices.insert(1, _ALWAYS)
        always[_ALWAYS] = SessionRule(tool=call.view.name).scope_text
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=call.view,
        reason=reason,
        preview=format_call_arguments(call.view),
        parts=verdict.parts,
        choices=tuple(choices),
        always=always,
        parameters=call.parameters,
    )


def format_call_arguments(view: CallView) -> str:
    """The call for people: an argument a line."""
    return "\n".join(f"{name}: {value}" for name, value in view.args.items())


async def fire_after_tool_hooks(call: GuardedCall, response: JsonValue) -> str:
    """What hooks add to the result for the model; empty: nothing. Raises `RefusedError` if they block it."""
    if not is_hooked(call.hook_state, "AfterTool"):
        return ""
    payload: dict[str, JsonValue] = {"tool_input": call.view.args, "tool_response": response}
    outcome = await _fire_call_hooks_or_refuse(call, "AfterTool", 1, payload)
    return wrap_hook_text(outcome.context) if outcome.context else ""


@dataclass
class _ConcurrentCalls:
    """Calls of one task that are under way at the same time, as LangGraph's `ToolNode` makes them."""

    busy: int = 0
    asking: list[str] = field(default_factory=list[str])
    parked: tuple[str, ...] = ()
    changed: asyncio.Event = field(default_factory=asyncio.Event)


_groups: dict[tuple[str, str], _ConcurrentCalls] = {}


def register_running_call(run: str, task: str) -> None:
    """Count a call among those of its task, in the run's event loop; `leave` it."""
    _groups.setdefault((run, task), _ConcurrentCalls()).busy += 1


def unregister_running_call(run: str, task: str) -> None:
    group = _groups[run, task]
    group.busy -= 1
    group.changed.set()
    if not group.busy:
        del _groups[run, task]


async def _park_when_siblings_settle(run: str, task: str, key: str) -> None:
    """Park once each call of the task is over or asks, too: a call that runs on would be cut, and nothing be known."""
    group = _groups.get((run, task))
    if group is None or NESTED.get():
        park_until_answered(key)
    await asyncio.sleep(_SETTLE_S)
    group.asking.append(key)
    group.changed.set()
    try:
        while group.busy > len(group.asking):
            group.changed.clear()
            await group.changed.wait()
        group.parked = group.parked or (*group.asking,)
        park_until_answered(
            *group.parked
        )  # the same from each: LangGraph keeps the one that it hears of first
    finally:
        group.asking.remove(key)


_CALL_ID: ContextVar[str | None] = ContextVar("id of the tool call that runs", default=None)
_HANDED: ContextVar[bool] = ContextVar(
    "whether the call is decided, and one half calls the other", default=False
)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_RISKS = ("read", "write", "execute", "network")


def guard_tool_node(node: Any) -> None:
    """Guard the tools of a `ToolNode`, in runs that ask for it (`--guard`)."""
    by_name: dict[str, BaseTool] = node.tools_by_name
    by_name.update(
        {name: _guard_tool(tool, "execute", only_with_flag=True) for name, tool in by_name.items()}
    )


def guarded(
    tools: Iterable[BaseTool | Callable[..., Any]], *, risk: Risk | Mapping[str, Risk] = "execute"
) -> list[BaseTool]:
    """LangChain tools, or functions, whose calls the run decides on, as it does on those of its own tools.

    Each call goes through policy, hooks and approvals; its effect is journaled, so a kill neither loses nor repeats it;
    secrets are taken out of its result. A call that is refused answers with the reason. Works in `ToolNode`,
    `create_agent` and nodes of your own. `risk`: `read` (allowed, and repeated after a kill), `write`, `network` or
    `execute`, for all or by name; unnamed tools have `execute`, which asks. Outside a run of Interlock the tools just
    run. Raises `SetupError` for what is no tool, or an unknown risk.
    """
    found = [_guard_tool(_to_langchain_tool(one), risk) for one in tools]
    if isinstance(risk, Mapping) and (lost := risk.keys() - {tool.name for tool in found}):
        raise SetupError(f"guarded: no tool {min(lost)!r}; the tools are {', '.join(t.name for t in found)}.")
    return found


def _to_langchain_tool(tool_or_function: Any) -> BaseTool:
    if isinstance(tool_or_function, BaseTool):
        return tool_or_function
    if callable(tool_or_function):
        return made_tool(tool_or_function)
    raise SetupError(f"guarded: {tool_or_function!r} isn't a tool; expected a LangChain tool or a function.")


def _guard_tool(
    tool: BaseTool, risks: Risk | Mapping[str, Risk], *, only_with_flag: bool = False
) -> BaseTool:
    """`only_with_flag`: only in runs with `--guard`."""
    if hasattr(type(tool), "interlock_risk"):
        return tool
    risk = risks if isinstance(risks, str) else risks.get(tool.name, "execute")
    if risk not in _RISKS:
        raise SetupError(f"guarded: the risk {risk!r} of {tool.name!r} is none of {', '.join(_RISKS)}.")
    copy = tool.model_copy()
    object.__setattr__(copy, "__class__", _make_guarded_class(type(tool), risk, only_with_flag))
    return copy


def _make_guarded_class(tool_class: Any, risk: Risk, only_with_flag: bool) -> type:
    """A class of tools that asks before it runs what `tool_class` runs."""

    async def arun(self: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        with _set_context_variables((_CALL_ID, tool_call_id), (_HANDED, False)):
            return await tool_class.arun(self, *args, tool_call_id=tool_call_id, **kwargs)

    def run(self: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        with _set_context_variables((_CALL_ID, tool_call_id), (_HANDED, False)):
            return tool_class.run(self, *args, tool_call_id=tool_call_id, **kwargs)

    @wraps(tool_class._arun if tool_class._arun is not BaseTool._arun else tool_class._run)  # pyright: ignore[reportPrivateUsage]
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (under := _new_invocation(self, risk, only_with_flag, args, kwargs)) is None:
            return await tool_class._arun(self, *args, **kwargs)
        return await under.run_guarded(partial(tool_class._arun, self))

    @wraps(tool_class._run)
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (under := _new_invocation(self, risk, only_with_flag, args, kwargs)) is None:
            return tool_class._run(self, *args, **kwargs)
        return under.run_guarded_sync(partial(tool_class._run, self))

    methods = {
        "arun": wraps(tool_class.arun)(arun),
        "run": wraps(tool_class.run)(run),
        "_arun": _arun,
        "_run": _run,
    }
    return type(
        tool_class.__name__,
        (tool_class,),
        {**methods, "__module__": tool_class.__module__, "interlock_risk": property(lambda _: risk)},
    )


def _new_invocation(
    tool: Any, risk: Risk, only_with_flag: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "_ToolInvocation | None":
    """None: outside a run, or the tool's own code calls its other half."""
    if _HANDED.get() or (deps := current_deps()) is None or (only_with_flag and not deps.info.guard):
        return None
    info = require_current_task_info(f"The tool {tool.name!r}", deps)
    # The arguments that a model gives; LangGraph gives others.
    own = [*(getattr(tool.tool_call_schema, "model_fields", None) or tool.args)]
    given = {**dict(zip(own, args, strict=False)), **{key: kwargs[key] for key in kwargs if key in own}}
    shown: Any = clean_json(_ANY.dump_python(given, mode="json", fallback=str, warnings=False))
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:12]
    key = _next_invocation_key(f"{tool.name}#{digest}", deps, info)
    view = CallView(id=_CALL_ID.get() or key, name=tool.name, args=shown)
    runtime = Runtime(context=deps, stream_writer=deps.emit, execution_info=info)
    call = GuardedCall(runtime, info.task_id, key, view, risk, tuple(own))
    grace_s = None if is_sync_tool(tool) else GRACE_S
    entry = EffectEntry(
        deps, info.task_id, key, node_path(info), risk == "read", view, info.node_attempt, grace_s
    )
    return _ToolInvocation(tool, call, entry, args, kwargs, view.args)


def _next_invocation_key(name: str, deps: Deps, info: Any) -> str:
    """The key of a call in its task, the same whenever the node runs.

    Equal calls of one message run beside each other, in any order: the id that the model gave each tells them apart.
    Calls without an id are told apart by their order.
    """
    call = _CALL_ID.get() or ""
    # An attempt that took too long may still number its own calls.
    numbered = name if info.node_attempt == 1 else f"{name} {info.node_attempt}"
    order = deps.steps.next_occurrence_index(info.task_id, numbered)
    if earlier := _find_key_from_earlier_version(name, call, order, deps, info):
        return earlier
    number = deps.steps.next_occurrence_index(info.task_id, f"{numbered} of {call}")
    return f"{name}@{hashlib.sha256(call.encode()).hexdigest()[:12] if call else ''}.{number}"


def _find_key_from_earlier_version(name: str, call_id: str, order: int, deps: Deps, info: Any) -> str:
    """The key of a call that an earlier version began, and numbered by its order; empty: it is none."""
    for place in count():
        key = f"{name}.{place}"
        request = deps.approvals.find_request(GuardedCall.build_request_key(info.task_id, key, 1))
        if request is None:
            break
        if call_id and request.call.id == call_id:
            return key
    key = f"{name}.{order}"
    return key if deps.effects.find_row(info.task_id, key, node_path(info)) is not None else ""


@dataclass
class _ToolInvocation:
    """One call of a guarded tool."""

    tool: Any
    call: GuardedCall
    entry: EffectEntry
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    model_args: dict[str, JsonValue]
    """The arguments that the model gave."""

    async def run_guarded(self, work: Callable[..., Any]) -> Any:
        """What the tool returned, or why it wasn't run."""
        place = (self.call.deps.info.run, self.call.task)
        register_running_call(*place)
        try:
            args, kwargs = self._merge_changed_arguments(await admit_call(self.call))

            async def run() -> list[Any]:
                with _set_context_variables((NESTED, True), (_HANDED, True)):
                    return [self._redact_value(await work(*args, **kwargs))]

            return await self._fire_hooks_on_result(await run_effect(self.entry, run, (), {}))
        except RefusedError as refused:
            return self._make_error_result(str(refused))
        finally:
            unregister_running_call(*place)

    def run_guarded_sync(self, work: Callable[..., Any]) -> Any:
        """As `ended`, in a thread."""
        place = (self.call.deps.info.run, self.call.task)
        what, instead = f"{self.tool.name}.invoke()", f"await {self.tool.name}.ainvoke()"
        schedule_in_run_loop(register_running_call, *place)
        admission = submit_to_run_loop(what, instead, partial(admit_call, self.call))
        try:
            args, kwargs = self._merge_changed_arguments(admission.result())

            def run() -> list[Any]:
                with _set_context_variables((NESTED, True), (_HANDED, True)):
                    return [self._redact_value(work(*args, **kwargs))]

            result = run_effect_sync(self.entry, run, (), {})
            return submit_to_run_loop(what, instead, partial(self._fire_hooks_on_result, result)).result()
        except RefusedError as refused:
            return self._make_error_result(str(refused))
        finally:
            schedule_in_run_loop(unregister_running_call, *place)

    def _merge_changed_arguments(self, view: CallView) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call with: the caller's, with those that a person or a hook changed."""
        if view.args == self.model_args:
            return self.args, self.kwargs
        self.entry.tool_call = view
        new: dict[str, Any] = dict(view.args)
        schema = self.tool.tool_call_schema
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            try:
                made = schema.model_validate(new)
            except ValidationError as error:
                fault = ": ".join(first_validation_error(error))
                raise RefusedError(
                    f"Not run: the changed arguments don't fit {view.name!r}: {fault}."
                ) from error
            new = {key: getattr(made, key) for key in schema.model_fields}
        kept = {key: value for key, value in self.kwargs.items() if key not in self.call.parameters}
        if self.args:  # a tool of one text
            return (*new.values(),), kept
        return (), {**kept, **new}

    async def _fire_hooks_on_result(self, result: list[Any] | None) -> Any:
        if result is None:  # a person said to skip it
            cause = "the run was killed or stopped while this call ran."
            return self._make_error_result(load_prompt("run/call_unknown_outcome").render(cause=cause))
        (value,) = result
        shown: JsonValue = _ANY.dump_python(value, mode="json", fallback=str, warnings=False)
        more = await fire_after_tool_hooks(self.call, {"llmContent": shown})
        return f"{value}\n\n{more}" if more and isinstance(value, str) else value

    def _make_error_result(self, text: str) -> Any:
        """The text as the tool's failed result; for a caller that isn't a model, as its value."""
        call_id = _CALL_ID.get()
        answer: Any = text
        if call_id:
            answer = ToolMessage(text, tool_call_id=call_id, name=self.tool.name, status="error")
        return (answer, None) if self.tool.response_format == "content_and_artifact" else answer

    def _redact_value(self, value: Any) -> Any:
        """The value without secrets in its texts."""
        if isinstance(value, str):
            return self.call.deps.effects.redact(value)
        if isinstance(value, BaseMessage):
            return value.model_copy(update={"content": self._redact_value(value.content)})
        if isinstance(value, Command):
            return replace(cast("Command[Any]", value), update=self._redact_value(value.update))
        if type(value) in (list, tuple):
            return type(value)(self._redact_value(one) for one in cast("list[Any]", value))
        if type(value) is dict:
            return {key: self._redact_value(one) for key, one in cast("dict[Any, Any]", value).items()}
        return value


def is_sync_tool(tool: BaseTool) -> bool:
    """Whether a tool runs in a thread, which nothing can stop, even where it is called with `ainvoke`."""
    if isinstance(tool, StructuredTool | Tool):
        return tool.coroutine is None
    own: Any = next(one for one in type(tool).__mro__ if "interlock_risk" not in vars(one))
    return own._arun is BaseTool._arun  # pyright: ignore[reportPrivateUsage]


@contextmanager
def _set_context_variables(*assignments: tuple[ContextVar[Any], Any]) -> Generator[None]:
    tokens = [(variable, variable.set(value)) for variable, value in assignments]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)
