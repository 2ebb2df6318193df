"""_hooked: what nodes that fire hooks share: the firing's key, what a hook adds, and how it ends a prompt."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from langgraph.runtime import Runtime
from pydantic import JsonValue
from typing_extensions import TypedDict

from interlock.nodes._helper import task_of
from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.events import ErrorEvent
from interlock.state.hooks import NO_REASON, HookEvent, HookOutcome
from interlock.state.messages import Message
from interlock.state.turn_events import AgentBlocked, AgentStopped

_REASON_CHARS = 2000
"""Of a reason in the state, which every checkpoint repeats."""
_NAME_CHARS = 80
"""Of a hook that is named by its command."""


class AskedIn(TypedDict, total=False):
    """What every node that fires hooks reads."""

    hook_key: str


class HookWaits(TypedDict, total=False):
    """What routers after hooks read."""

    hook_event: str
    approval: str


class AskedOut(HookWaits, total=False):
    """What every node that fires hooks writes; `hook_event` is empty once the hooks have answered."""

    hook_key: str


class Fired(NamedTuple):
    """`asks`: what the node writes of the firing itself; `open`, it writes nothing else."""

    outcome: HookOutcome
    asks: AskedOut

    @property
    def open(self) -> bool:
        """The hooks haven't answered: the node runs again, see `waits`."""
        return bool(self.asks.get("hook_event"))


class Ending(NamedTuple):
    """A hook has ended the prompt."""

    status: Literal["stopped_by_hook", "blocked_by_hook"]
    error: dict[str, str]


async def fired(
    event: HookEvent,
    given: Mapping[str, JsonValue],
    state: AskedIn,
    runtime: Runtime[Deps],
    subject: str = "",
) -> Fired:
    """Fire an event; its key is that of the graph's task, and of the first try after a person was asked."""
    key = state.get("hook_key") or f"{event}:{task_of(runtime, event)}"
    outcome = await runtime.context.hooks.fire(event, key, given, subject=subject, emit=runtime.stream_writer)
    if outcome.unknown:
        return Fired(outcome, {"hook_event": event, "hook_key": key, "approval": outcome.unknown})
    if runtime.context.cancel.requested and any(v.warning for v in outcome.verdicts):
        # Who stops a run must not thereby let pass what a hook would have looked at: a resumed run fires anew.
        return Fired(outcome, {"hook_event": event, "hook_key": "", "approval": ""})
    return Fired(outcome, {"hook_event": "", "hook_key": ""})


def waits(state: HookWaits) -> Literal["unknown", "cancelled", ""]:
    """What hooks that haven't answered wait for: a person, as a kill hid what became of them, or a resume."""
    if not state.get("hook_event"):
        return ""
    return "unknown" if state.get("approval") else "cancelled"


def ending(event: HookEvent, outcome: HookOutcome, what: str, runtime: Runtime[Deps]) -> Ending | None:
    """How a stop or a block ends the prompt, told to people; None: it goes on. `what` would have been next."""
    if outcome.stop is not None:
        reason = outcome.stop or NO_REASON
        runtime.stream_writer(AgentStopped(reason=reason))
        return Ending(
            "stopped_by_hook", _error("stopped_by_hook", f"{_hook(event, outcome)} stopped the run", reason)
        )
    if outcome.decision == "block":
        reason = outcome.reason or NO_REASON
        runtime.stream_writer(AgentBlocked(reason=reason))
        return Ending(
            "blocked_by_hook", _error("blocked_by_hook", f"{_hook(event, outcome)} blocked {what}", reason)
        )
    return None


def warn(event: HookEvent, outcome: HookOutcome, problem: str, runtime: Runtime[Deps]) -> None:
    """Tell people that what a hook asked for isn't done."""
    text = f"What the {_hook(event, outcome)} asked for isn't done: {problem}."
    runtime.stream_writer(ErrorEvent(severity="warning", message=text))


def context_message(context: str) -> Message:
    """What a hook tells the model, as a message that nobody takes for the user's."""
    return Message(role="user", origin="hook", content=marked(context))


def marked(context: str) -> str:
    """A hook's text between tags that it can't close itself."""
    return load("run/hook_context").text(context=context.replace("<", "&lt;").replace(">", "&gt;"))


def _hook(event: HookEvent, outcome: HookOutcome) -> str:
    """Which hook it was: of several, those that blocked."""
    blocking = [v.name for v in outcome.verdicts if v.decision == "block"]
    names = [" ".join(n.split())[:_NAME_CHARS] for n in blocking or [v.name for v in outcome.verdicts]]
    if not names:
        return f"{event} hook"
    return f"{event} hook{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _error(kind: str, what: str, reason: str) -> dict[str, str]:
    cut = reason if len(reason) <= _REASON_CHARS else f"{reason[:_REASON_CHARS]} […]"
    return {"type": kind, "message": f"{what}: {cut}"}
