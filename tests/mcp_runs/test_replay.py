"""A run with MCP servers replays from their recorded answers: none is started or called."""

from typing import Any

import pytest
from commands import Run
from mcp_servers.place import Place, calls

from interlock.engine import Decision, run_sync


@pytest.fixture
def replay(place: Place, run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("INTERLOCK_HOME", str(place.home))
    monkeypatch.setenv("HOME", str(place.user))
    return lambda name: run("replay", name, "--json")


def test_a_run_with_a_servers_tools_replays_without_the_server(place: Place, replay: Any) -> None:
    place.servers(odd=place.odd())
    parked = place.main(
        calls(("mcp_odd_note", {"text": "hello"})),
        calls(("mcp_odd_no_such", {}), ("mcp_odd_read_resource", {"uri": "odd://b"})),
        {"text": "Noted."},
    )
    outcome = parked
    while outcome.status == "waiting":
        outcome = place.resume(parked.run, decisions=[Decision("all", "proceed_once")])
    assert outcome.status == "done"
    noted, starts = place.noted(), len(place.starts())
    place.servers(odd={**place.odd(), "command": "/nowhere/server"})
    found = replay(parked.run)
    assert (found.code, found.json["divergence"]) == (0, None), found.err
    assert (place.noted(), len(place.starts())) == (noted, starts)


@pytest.mark.parametrize(
    "given",
    [
        {"action": "list"},
        {"action": "read", "server": "odd", "uri": "odd://b"},
        {"action": "read", "server": "odd", "uri": "odd://gone"},
        {"action": "prompt", "server": "odd", "name": "greet", "args": {"who": "Ann"}},
        {"action": "call", "server": "bad", "name": "x"},
    ],
)
def test_the_mcp_workflow_replays_without_a_server(place: Place, replay: Any, given: dict[str, Any]) -> None:
    place.servers(odd=place.odd(), bad={"command": "/nowhere/server"})
    run = run_sync("mcp", given, options=place.options()).run
    starts = len(place.starts())
    found = replay(run)
    assert found.json["divergence"] is None, found.json["divergence"]
    assert len(place.starts()) == starts


def test_a_prompt_of_a_server_is_spelled_out_as_then(place: Place, replay: Any) -> None:
    place.servers(odd=place.odd())
    options = place.options(model=place.script({"expect": "Greet Ann", "text": "Hello."}))
    run = run_sync("main", {"prompt": "/odd:greet Ann"}, options=options).run
    assert replay(run).json["divergence"] is None
    assert len(place.starts()) == 1
