"""scan: go through what happened, as far as no model is needed; take in what models said."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.loop_check._events import read_events
from interlock.nodes.loop_check._judging import judged
from interlock.nodes.loop_check._replay import NO_PROGRESS, replay
from interlock.state.deps import Deps
from interlock.state.loop_check import INTERVAL, Judgement


class ScanIn(TypedDict, total=False):
    events: str
    asks: bool
    turn_no: int
    judgements: list[Judgement]
    loop_interval: int


class ScanOut(TypedDict, total=False):
    check_due: bool
    off: bool
    judgements: list[Judgement]
    loop_interval: int
    loop_next: int
    loop_found: dict[str, str]


async def scan(state: ScanIn, runtime: Runtime[Deps]) -> ScanOut:
    """In a run this is reached when a look is due; alone, whole sessions are gone through."""
    deps = runtime.context
    off = deps.settings.model.disable_loop_detection
    judgements = state.get("judgements", [])
    if state.get("events"):
        asks = state["asks"] and not off
        due = asks and replay(read_events(deps, state["events"]), judgements, asks).due
        return {"check_due": due, "off": off}
    interval = state.get("loop_interval") or INTERVAL
    if not judgements and not off:
        return {"check_due": True, "loop_found": {}}
    loop = False
    if judgements:
        loop, interval = judged(judgements[0], interval)
    return {
        "check_due": False,
        "judgements": [],
        "loop_interval": interval,
        "loop_next": state["turn_no"] + interval,
        "loop_found": {"kind": "model", "detail": NO_PROGRESS} if loop else {},
    }
