"""The `mcp` workflow alone: what each action answers, and that every edge is taken."""

from typing import Any

import pytest
from mcp_servers.place import Place

from interlock.engine import Decision, run_sync
from interlock.engine.diagrams import declared_edges, taken_edges
from interlock.state.errors import InputError


def ask(place: Place, **given: Any) -> Any:
    return run_sync("mcp", given, options=place.options())


def test_each_action_is_answered_and_every_edge_taken(place: Place) -> None:
    bad = {"command": "/nowhere/server"}
    place.servers(odd=place.odd(), bad=bad, off={**place.odd(), "disabled": True})
    listed = ask(place, action="list")
    odd, broken, off = listed.output["servers"]
    assert (odd["status"], broken["status"], off["status"]) == ("connected", "failed", "disabled")
    assert "No such file" in broken["error"]
    assert "mcp_odd_note" in [tool["name"] for tool in odd["tools"]]
    assert odd["resources"] == [{"name": "odd://a", "description": "Letter\\u202e a", "args": []}]
    assert odd["templates"][0]["name"] == "odd://{letter}"
    assert odd["prompts"][0] == {"name": "greet", "description": "A greeting", "args": ["who*"]}

    read = ask(place, action="read", server="odd", uri="odd://b")
    assert read.output["content"] == "this is odd://b"
    prompted = ask(place, action="prompt", server="odd", name="greet", args={"who": "Ann"})
    assert prompted.output["content"] == "Greet Ann."
    asked = ask(place, action="call", server="odd", name="note", args={"text": "x"})
    (request,) = asked.pending
    called = place.resume(asked.run, decisions=[Decision(request["id"], "proceed_once")])
    assert (called.output["content"], called.output["is_error"]) == ("note done", False)

    unknown = ask(place, action="list", server="ode")
    assert (unknown.exit_code, unknown.output["error"]["type"]) == (1, "unknown_server")
    assert "'odd'" in unknown.output["error"]["message"]
    failed = ask(place, action="call", server="bad", name="x")
    assert (failed.exit_code, failed.output["error"]["type"]) == (1, "mcp_unavailable")
    wrong = place.resume(
        ask(place, action="call", server="odd", name="fail").run, decisions=[Decision("all", "proceed_once")]
    )
    assert (wrong.exit_code, wrong.error) == (1, {"type": "mcp_error", "message": "it went wrong"})

    taken: set[tuple[str, str, str]] = set()
    for outcome in (listed, read, prompted, called, unknown, failed):
        taken |= taken_edges("mcp", place.path(outcome.run))
    assert {edge for edge in declared_edges("mcp") if edge[0] == "mcp"} - taken == set()


def test_what_an_action_needs_is_named(place: Place) -> None:
    with pytest.raises(InputError, match="Input field 'uri' is missing: action 'read' needs it"):
        ask(place, action="read", server="odd")
