"""check_limits: count the turn, or refuse it; and see whether the conversation has grown long."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import SizedIn, size
from interlock.state.deps import Deps
from interlock.state.turn_events import MaxSessionTurns


class CheckLimitsIn(SizedIn, total=False):
    turn_no: int
    session_turns: int
    max_turns: int
    max_session_turns: int


class CheckLimitsOut(TypedDict, total=False):
    long: bool
    turn_no: int
    session_turns: int
    turn_status: str
    attempt: int
    candidate: str
    stream_problem: str
    error: dict[str, str]
    failed_model: str
    rerouted: bool
    loop_found: dict[str, str]


async def check_limits(state: CheckLimitsIn, runtime: Runtime[Deps]) -> CheckLimitsOut:
    """Both limits count model turns; the session's is -1 when there is none."""
    fresh: CheckLimitsOut = {
        "long": False,
        "attempt": 1,
        "candidate": "",
        "stream_problem": "",
        "error": {},
        "failed_model": "",
        "rerouted": False,
        "loop_found": {},
        "turn_status": "",
    }
    session = state["max_session_turns"]
    if session >= 0 and state["session_turns"] >= session:
        runtime.stream_writer(MaxSessionTurns(limit=session))
        return _refuse(fresh, "max_session_turns", f"The session's limit of {session} turns is reached")
    if state["turn_no"] >= state["max_turns"]:
        runtime.stream_writer(MaxSessionTurns(limit=state["max_turns"]))
        return _refuse(fresh, "max_turns", f"This prompt's limit of {state['max_turns']} turns is reached")
    long = size(runtime.context, state).reaches(runtime.context.settings.model.compression_threshold)
    return {
        **fresh,
        "long": long,
        "turn_no": state["turn_no"] + 1,
        "session_turns": state["session_turns"] + 1,
    }


def _refuse(fresh: CheckLimitsOut, kind: str, what: str) -> CheckLimitsOut:
    message = f"{what}. Go on with: interlock resume RUN --max-turns N"
    return {**fresh, "turn_status": "session_limit", "error": {"type": kind, "message": message}}
