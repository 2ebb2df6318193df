"""notices: what is said, beside the answer, of what a run does by itself."""

from interlock.cli.render.paint import one_line
from interlock.state.events import Event, NodeStart
from interlock.state.turn_events import (
    AgentBlocked,
    ChatCompressed,
    HelperFailed,
    HookRan,
    InvalidStream,
    LoopDetected,
    ModelInfo,
    Retry,
    RouteEvent,
)


def notice(event: Event, verbose: bool) -> str:
    """One line; empty: nothing is said of it."""
    match event:
        case Retry():
            reason = one_line(event.reason)
            return f"… asking again in {event.delay_s:.0f} s: {reason} (attempt {event.attempt})"
        case InvalidStream():
            return f"… the answer was incomplete: {one_line(event.reason)}"
        case LoopDetected():
            then = "it is told so, and tries another way" if event.count == 1 else "the run stops"
            return f"… the model goes round in circles: {one_line(event.detail, 300)}; {then}"
        case ChatCompressed():
            return f"… the conversation was compressed: {event.before:,} → {event.after:,} tokens, estimated"
        case RouteEvent() if verbose or event.strategy == "fallback":
            return f"… {event.model} answers, by {event.strategy}: {one_line(event.reason, 300)}"
        case HelperFailed() if verbose:
            return f"… the helper {event.role} gave no answer: {one_line(event.reason, 300)}"
        case AgentBlocked():
            return f"… a hook says no: {one_line(event.reason, 300)}"
        case HookRan() if verbose:
            said = f": {one_line(event.reason, 300)}" if event.reason else ""
            return f"… hook {one_line(event.name, 80)} of {event.event}, {event.decision}{said}"
        case NodeStart() if verbose:
            return f"› {event.workflow}.{event.node}"
        case ModelInfo() if verbose:
            return f"model: {event.model}"
        case _:
            return ""
