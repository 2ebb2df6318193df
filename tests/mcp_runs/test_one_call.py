"""A server's tool from its declaration to its result: approved, parked, resumed, executed once."""

from mcp_servers.place import Place, calls

from interlock.engine import Decision


def test_a_call_of_a_server_parks_and_is_done_after_the_approval(place: Place) -> None:
    place.servers(odd=place.odd())
    parked = place.main(
        calls(("mcp_odd_note", {"text": "hello"})), {"expect": "mcp_odd_note: note done", "text": "Noted."}
    )
    assert parked.status == "waiting", parked.error
    (request,) = parked.pending
    assert request["tool_name"] == "mcp_odd_note"
    assert place.noted() == []
    done = place.resume(parked.run, decisions=[Decision(request["id"], "proceed_once")])
    assert (done.status, done.output["response"]) == ("done", "Noted.")
    assert place.noted() == ["note hello"]
