"""guarded_tools: LangChain tools under the run's policy, approvals, hooks, journal and redaction."""

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import count
from typing import Any, cast

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langchain_core.tools import tool as made_tool
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from interlock.nodes.current_run import call_in_run_loop, current_deps, current_task_info, submit_to_run_loop
from interlock.nodes.effects import EffectEntry, node_path, run_effect, run_effect_sync
from interlock.nodes.tool_guard import (
    NESTED,
    GuardedCall,
    RefusedError,
    admit_call,
    enter_call,
    hook_addition,
    leave_call,
)
from interlock.prompts import load_prompt
from interlock.state.calls import CallView, Risk
from interlock.state.deps import GRACE_S, Deps
from interlock.state.errors import SetupError
from interlock.state.text import clean_json, first_validation_error

_CALL_ID: ContextVar[str | None] = ContextVar("id of the tool call that runs", default=None)
_HANDED: ContextVar[bool] = ContextVar(
    "whether the call is decided, and one half calls the other", default=False
)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_RISKS = ("read", "write", "execute", "network")


def guard_tool_node(node: Any) -> None:
    """Guard the tools of a `ToolNode`, in runs that ask for it (`--guard`)."""
    by_name: dict[str, BaseTool] = node.tools_by_name
    by_name.update({name: _guard_tool(tool, "execute", asked_for=True) for name, tool in by_name.items()})


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
    found = [_guard_tool(_to_tool(one), risk) for one in tools]
    if isinstance(risk, Mapping) and (lost := risk.keys() - {tool.name for tool in found}):
        raise SetupError(f"guarded: no tool {min(lost)!r}; the tools are {', '.join(t.name for t in found)}.")
    return found


def _to_tool(one: Any) -> BaseTool:
    if isinstance(one, BaseTool):
        return one
    if callable(one):
        return made_tool(one)
    raise SetupError(f"guarded: {one!r} isn't a tool; expected a LangChain tool or a function.")


def _guard_tool(tool: BaseTool, risks: Risk | Mapping[str, Risk], *, asked_for: bool = False) -> BaseTool:
    """`asked_for`: only in runs with `--guard`."""
    if hasattr(type(tool), "interlock_risk"):
        return tool
    risk = risks if isinstance(risks, str) else risks.get(tool.name, "execute")
    if risk not in _RISKS:
        raise SetupError(f"guarded: the risk {risk!r} of {tool.name!r} is none of {', '.join(_RISKS)}.")
    copy = tool.model_copy()
    object.__setattr__(copy, "__class__", _guarded_class(type(tool), risk, asked_for))
    return copy


def _guarded_class(own: Any, risk: Risk, asked_for: bool) -> type:
    """A class of tools that asks before it runs what `own` runs."""

    async def arun(self: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        with _set_context_variables((_CALL_ID, tool_call_id), (_HANDED, False)):
            return await own.arun(self, *args, tool_call_id=tool_call_id, **kwargs)

    def run(self: Any, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        with _set_context_variables((_CALL_ID, tool_call_id), (_HANDED, False)):
            return own.run(self, *args, tool_call_id=tool_call_id, **kwargs)

    @wraps(own._arun if own._arun is not BaseTool._arun else own._run)  # pyright: ignore[reportPrivateUsage]
    async def _arun(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (under := _open_invocation(self, risk, asked_for, args, kwargs)) is None:
            return await own._arun(self, *args, **kwargs)
        return await under.ended(partial(own._arun, self))

    @wraps(own._run)
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (under := _open_invocation(self, risk, asked_for, args, kwargs)) is None:
            return own._run(self, *args, **kwargs)
        return under.ended_sync(partial(own._run, self))

    methods = {"arun": wraps(own.arun)(arun), "run": wraps(own.run)(run), "_arun": _arun, "_run": _run}
    return type(
        own.__name__,
        (own,),
        {**methods, "__module__": own.__module__, "interlock_risk": property(lambda _: risk)},
    )


def _open_invocation(
    tool: Any, risk: Risk, asked_for: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "_ToolInvocation | None":
    """None: outside a run, or the tool's own code calls its other half."""
    if _HANDED.get() or (deps := current_deps()) is None or (asked_for and not deps.info.guard):
        return None
    info = current_task_info(f"The tool {tool.name!r}", deps)
    # The arguments that a model gives; LangGraph gives others.
    own = [*(getattr(tool.tool_call_schema, "model_fields", None) or tool.args)]
    given = {**dict(zip(own, args, strict=False)), **{key: kwargs[key] for key in kwargs if key in own}}
    shown: Any = clean_json(_ANY.dump_python(given, mode="json", fallback=str, warnings=False))
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:12]
    key = _invocation_key(f"{tool.name}#{digest}", deps, info)
    view = CallView(id=_CALL_ID.get() or key, name=tool.name, args=shown)
    runtime = Runtime(context=deps, stream_writer=deps.emit, execution_info=info)
    call = GuardedCall(runtime, info.task_id, key, view, risk, tuple(own))
    grace_s = None if is_sync_tool(tool) else GRACE_S
    entry = EffectEntry(
        deps, info.task_id, key, node_path(info), risk == "read", view, info.node_attempt, grace_s
    )
    return _ToolInvocation(tool, call, entry, args, kwargs, view.args)


def _invocation_key(name: str, deps: Deps, info: Any) -> str:
    """The key of a call in its task, the same whenever the node runs.

    Equal calls of one message run beside each other, in any order: the id that the model gave each tells them apart.
    Calls without an id are told apart by their order.
    """
    call = _CALL_ID.get() or ""
    # An attempt that took too long may still number its own calls.
    numbered = name if info.node_attempt == 1 else f"{name} {info.node_attempt}"
    order = deps.steps.numbered(info.task_id, numbered)
    if earlier := _earlier_version_key(name, call, order, deps, info):
        return earlier
    number = deps.steps.numbered(info.task_id, f"{numbered} of {call}")
    return f"{name}@{hashlib.sha256(call.encode()).hexdigest()[:12] if call else ''}.{number}"


def _earlier_version_key(name: str, call: str, order: int, deps: Deps, info: Any) -> str:
    """The key of a call that an earlier version began, and numbered by its order; empty: it is none."""
    for place in count():
        key = f"{name}.{place}"
        request = deps.approvals.get(GuardedCall.request_of(info.task_id, key, 1))
        if request is None:
            break
        if call and request.call.id == call:
            return key
    key = f"{name}.{order}"
    return key if deps.effects.find(info.task_id, key, node_path(info)) is not None else ""


@dataclass
class _ToolInvocation:
    """One call of a guarded tool."""

    tool: Any
    call: GuardedCall
    entry: EffectEntry
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    asked: dict[str, JsonValue]
    """The arguments that the model gave."""

    async def ended(self, work: Callable[..., Any]) -> Any:
        """What the tool returned, or why it wasn't run."""
        place = (self.call.deps.info.run, self.call.task)
        enter_call(*place)
        try:
            args, kwargs = self._call_arguments(await admit_call(self.call))

            async def run() -> list[Any]:
                with _set_context_variables((NESTED, True), (_HANDED, True)):
                    return [self._redact_value(await work(*args, **kwargs))]

            return await self._with_hook_addition(await run_effect(self.entry, run, (), {}))
        except RefusedError as refused:
            return self._answer(str(refused))
        finally:
            leave_call(*place)

    def ended_sync(self, work: Callable[..., Any]) -> Any:
        """As `ended`, in a thread."""
        place = (self.call.deps.info.run, self.call.task)
        what, instead = f"{self.tool.name}.invoke()", f"await {self.tool.name}.ainvoke()"
        call_in_run_loop(enter_call, *place)
        admission = submit_to_run_loop(what, instead, partial(admit_call, self.call))
        try:
            args, kwargs = self._call_arguments(admission.result())

            def run() -> list[Any]:
                with _set_context_variables((NESTED, True), (_HANDED, True)):
                    return [self._redact_value(work(*args, **kwargs))]

            result = run_effect_sync(self.entry, run, (), {})
            return submit_to_run_loop(what, instead, partial(self._with_hook_addition, result)).result()
        except RefusedError as refused:
            return self._answer(str(refused))
        finally:
            call_in_run_loop(leave_call, *place)

    def _call_arguments(self, view: CallView) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call with: the caller's, with those that a person or a hook changed."""
        if view.args == self.asked:
            return self.args, self.kwargs
        self.entry.about = view
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

    async def _with_hook_addition(self, result: list[Any] | None) -> Any:
        if result is None:  # a person said to skip it
            cause = "the run was killed or stopped while this call ran."
            return self._answer(load_prompt("run/call_unknown_outcome").text(cause=cause))
        (value,) = result
        shown: JsonValue = _ANY.dump_python(value, mode="json", fallback=str, warnings=False)
        more = await hook_addition(self.call, {"llmContent": shown})
        return f"{value}\n\n{more}" if more and isinstance(value, str) else value

    def _answer(self, text: str) -> Any:
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
def _set_context_variables(*given: tuple[ContextVar[Any], Any]) -> Generator[None]:
    tokens = [(variable, variable.set(value)) for variable, value in given]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)
