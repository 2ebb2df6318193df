"""turning_door: the doors of what a turn looks after itself with: `route`, `loop-check`, `next-speaker`."""

from collections.abc import Mapping
from typing import Any

from interlock.engine.outside import Outside, append_history, to_message
from interlock.nodes.loop_check import EVENTS, Replay, replay
from interlock.state.loop_check import LoopCheckInput, LoopCheckOutput
from interlock.state.messages import Message
from interlock.state.next_speaker import NextSpeakerInput, NextSpeakerOutput
from interlock.state.route import AUTO, RouteInput, RouteOutput
from interlock.state.text import clean


def enter_route(given: RouteInput, out: Outside) -> dict[str, Any]:
    """Without `requested_model` it is the run's model, but a script: that only plays the helpers."""
    asked = given.requested_model
    if "requested_model" not in given.model_fields_set and not out.model.startswith("script:"):
        asked = out.model
    request = to_message("request", {"role": "user", "origin": "person", "content": given.request})
    return {
        "head": out.transcript.append(append_history(out.transcript, given.history), [request]),
        "model": asked or AUTO,
        "approval_mode": out.approval_mode,
        "approved_plan": given.approved_plan,
        "unavailable": dict.fromkeys(given.unavailable, "run"),
    }


def leave_route(values: Mapping[str, Any], out: Outside) -> RouteOutput:  # noqa: ARG001 - a door's signature
    return RouteOutput(
        model=values["chosen_model"],
        strategy=values["strategy"],
        reasoning=values["route_reason"],
        latency_ms=values["route_ms"],
    )


def enter_loop_check(given: LoopCheckInput, out: Outside) -> dict[str, Any]:
    """The events are a record of the chain; the state holds its id."""
    events = Message(
        role="user",
        origin="context",
        content=clean(EVENTS.dump_json(given.events, exclude_unset=True).decode()),
    )
    return {
        "head": append_history(out.transcript, given.history) if given.history else "",
        "events": out.transcript.append("", [events]),
        "asks": given.history is not None,
    }


def leave_loop_check(values: Mapping[str, Any], out: Outside) -> LoopCheckOutput:
    """Gone through once more: thousands of verdicts are no state."""
    events = EVENTS.validate_json(out.transcript.message(values["events"]).text)
    if values["off"]:
        found = Replay(verdicts=[False] * len(events))
    else:
        found = replay(events, values.get("judgements", []), values["asks"])
    return LoopCheckOutput(
        detected=found.at_event is not None,
        kind=found.kind,
        detail=found.detail,
        at_event=found.at_event,
        count=found.count,
        interval=found.interval,
        next_check_turn=found.next_check,
        verdicts=found.verdicts,
    )


def enter_next_speaker(given: NextSpeakerInput, out: Outside) -> dict[str, Any]:
    return {"head": append_history(out.transcript, given.history)}


def leave_next_speaker(values: Mapping[str, Any], out: Outside) -> NextSpeakerOutput:  # noqa: ARG001 - a door's signature
    return NextSpeakerOutput(
        next_speaker=values["next_speaker"] or None,
        reasoning=values["speaker_reason"],
        decided_by=values["decided_by"],
    )
