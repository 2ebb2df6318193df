"""Renderers never get a secret, whether events hold it whole or in pieces, even from parallel agents and calls."""

from collections.abc import Sequence

from interlock.engine.driver.event_bus import EventRedactor
from interlock.services.secrets.redaction import Redactor
from interlock.state import events as ev

SECRET = "ghp_" + "aB3d" * 9
MARK = "[redacted:github-token]"


def shown(events: Sequence[ev.Event], redact: Redactor | None = None) -> list[ev.Event]:
    door = EventRedactor(redact or Redactor())
    return [out for event in events for out in door(event)]


def delta(text: str, agent: str = "") -> ev.MessageEvent:
    return ev.MessageEvent(role="assistant", content=text, delta=True, agent=agent)


def end(agent: str = "") -> ev.Finished:
    return ev.Finished(reason="stop", usage={}, duration_ms=0, agent=agent)


def test_every_string_of_an_event_is_looked_through() -> None:
    use = ev.ToolUse(tool_name="x", tool_id="1", parameters={"a": [{"b": SECRET}], "n": 1}, summary=SECRET)
    asked = ev.ApprovalRequired(
        id="1", kind="approval", tool_name="x", args={"a": SECRET}, reason=SECRET, preview=SECRET, choices=[]
    )
    for event in (
        use,
        asked,
        ev.ErrorEvent(severity="error", message=SECRET),
        ev.Thought(content=SECRET + " "),
    ):
        (out,) = shown([event])
        assert SECRET not in out.model_dump_json() and MARK in out.model_dump_json()
        assert type(out) is type(event)


def test_an_event_without_a_secret_is_the_same_event() -> None:
    for event in (delta("hello "), end(), ev.NodeStart(workflow="w", node="n", checkpoint_id="c")):
        (out,) = shown([event])
        assert out is event


def test_agents_and_calls_side_by_side_dont_mix() -> None:
    half, rest = SECRET[:20], SECRET[20:]
    out = shown(
        [
            delta(half, "a"),
            delta(half, "b"),
            ev.ToolOutput(tool_id="1", text=half),
            ev.ToolOutput(tool_id="2", text=half),
            end("b"),
            ev.ToolResultEvent(tool_name="x", tool_id="2", status="success"),
            delta(rest, "a"),
            ev.ToolOutput(tool_id="1", text=rest),
            end("a"),
            ev.ToolResultEvent(tool_name="x", tool_id="1", status="success"),
        ]
    )
    said = {
        a: "".join(e.content for e in out if isinstance(e, ev.MessageEvent) and e.agent == a) for a in "ab"
    }
    assert said == {"a": MARK, "b": half}
    told = {i: "".join(e.text for e in out if isinstance(e, ev.ToolOutput) and e.tool_id == i) for i in "12"}
    assert told == {"1": MARK, "2": half}


def test_the_result_brings_everything_that_waits_and_keeps_its_output() -> None:
    result = ev.Result(status="done", response=SECRET, output={"new_content": SECRET})
    waiting, last = shown([delta("sk-"), result])
    assert waiting == delta("sk-")
    assert isinstance(last, ev.Result) and last.response == MARK
    assert last.output == {"new_content": SECRET}


def test_switched_off_events_go_by() -> None:
    event = delta(SECRET)
    assert shown([event], Redactor(enabled=False)) == [event]
