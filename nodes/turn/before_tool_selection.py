"""before_tool_selection: let hooks choose which tools the model is offered with this request."""

from langgraph.runtime import Runtime

from interlock.nodes._hooked import AskedIn, AskedOut, ending, fired, warn
from interlock.nodes.turn._changes import BadChangeError, ToolChoice, read
from interlock.nodes.turn._request import RequestIn, request_of
from interlock.nodes.turn._shapes import shown_request
from interlock.state.deps import Deps
from interlock.state.hooks import HookOutcome


class BeforeToolSelectionIn(RequestIn, AskedIn, total=False):
    pass


class BeforeToolSelectionOut(AskedOut, total=False):
    request_tools: list[str] | None
    turn_status: str
    error: dict[str, str]


async def before_tool_selection(
    state: BeforeToolSelectionIn, runtime: Runtime[Deps]
) -> BeforeToolSelectionOut:
    """What isn't offered isn't forbidden: that is policy's to say."""
    request = request_of(state, runtime.context)
    given = {"llm_request": shown_request(request)}
    fire = await fired("BeforeToolSelection", given, state, runtime)
    if fire.open:
        return {**fire.asks}
    if end := ending("BeforeToolSelection", fire.outcome, "the request", runtime):
        return {**fire.asks, "turn_status": end.status, "error": end.error}
    return {**fire.asks, "request_tools": _chosen(fire.outcome, [t.name for t in request.tools], runtime)}


def _chosen(outcome: HookOutcome, offered: list[str], runtime: Runtime[Deps]) -> list[str] | None:
    """None: all. Names that there aren't are told to people."""
    try:
        choice = read(ToolChoice, outcome.output, "toolConfig")
    except BadChangeError as problem:
        warn("BeforeToolSelection", outcome, str(problem), runtime)
        return None
    if choice is None or (choice.mode != "NONE" and not choice.allowedFunctionNames):
        return None
    named = [] if choice.mode == "NONE" else choice.allowedFunctionNames or []
    if unknown := sorted(set(named).difference(offered)):
        warn("BeforeToolSelection", outcome, f"no tool {', '.join(map(repr, unknown))} is offered", runtime)
    return [name for name in offered if name in named]
