"""_events: the events of a check that runs alone; they are a chain record, not state."""

from pydantic import TypeAdapter

from interlock.state.deps import Deps
from interlock.state.loop_check import LoopEvent

EVENTS = TypeAdapter(list[LoopEvent])


def read_events(deps: Deps, record: str) -> list[LoopEvent]:
    return EVENTS.validate_json(deps.transcript.message(record).text)
