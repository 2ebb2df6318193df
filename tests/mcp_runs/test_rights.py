"""What a server says changes no permission: rules, trust, and visible texts."""

import asyncio
import os
from typing import Any

import pytest
from folders import put
from mcp_servers.place import SERVER, Place, calls
from scripted import says

from interlock.engine import Decision, run_sync
from interlock.engine.client.configuration_checks import PolicyCheck
from interlock.state.errors import InputError

LOOK = calls(("mcp_odd_look", {}))
NOTE = calls(("mcp_odd_note", {"text": "x"}))
OVER = {"text": "over"}


def test_a_server_that_nobody_trusts_is_asked_about_whatever_it_says(place: Place) -> None:
    place.servers(odd=place.odd())
    place.rules(
        {"priority": 100, "toolName": "*", "decision": "allow", "toolAnnotations": {"readOnlyHint": True}}
    )
    assert place.main(LOOK, OVER).status == "waiting"


def test_of_a_trusted_server_nothing_is_asked(place: Place) -> None:
    place.servers(odd=place.odd(trust=True))
    assert place.main(LOOK, NOTE, OVER).status == "done"
    assert place.noted() == ["note x"]
    checked = asyncio.run(
        PolicyCheck(place.options()).evaluate_call({"tool": "mcp_odd_note", "args": {"text": "x"}})
    )
    assert checked.explanation.verdict.rule == "settings mcpServers 'odd'"
    with pytest.raises(InputError, match=r"A tool of an MCP server \('odd'\) needs --server NAME"):
        asyncio.run(PolicyCheck(place.options()).evaluate_call({"tool": "note"}))


@pytest.mark.parametrize(
    ("table", "status"),
    [
        ({"toolName": "note", "mcpName": "odd", "decision": "deny"}, "refused"),
        ({"toolName": "mcp_odd_*", "decision": "deny"}, "refused"),
        ({"toolName": "*", "mcpName": "odd", "decision": "allow"}, "done"),
        ({"toolName": "*", "mcpName": "other", "decision": "allow"}, "waiting"),
        ({"toolName": "note", "mcpName": "odd", "decision": "allow", "argsPattern": '"text":"x"'}, "done"),
    ],
)
def test_rules_name_servers_and_their_tools(place: Place, table: dict[str, Any], status: str) -> None:
    place.servers(odd=place.odd())
    place.rules({"priority": 100, **table})
    outcome = place.main(NOTE, OVER)
    assert (outcome.error or {}).get("type", outcome.status) == status
    assert place.noted() == (["note x"] if status == "done" else [])


def test_always_for_a_server_covers_all_of_its_tools_and_no_other_server(place: Place) -> None:
    place.servers(odd=place.odd(), odd_b=place.odd())
    again = calls(("mcp_odd_again", {"text": "y"}))
    other = calls(("mcp_odd_b_note", {"text": "z"}))
    outcome = place.main(NOTE, again, other, OVER)
    (request,) = outcome.pending
    assert "proceed_always_server" in request["choices"]
    outcome = place.resume(outcome.run, decisions=[Decision(request["id"], "proceed_always_server")])
    assert outcome.pending[0]["tool_name"] == "mcp_odd_b_note"
    assert place.noted() == ["note x", "again y"]


def test_plan_mode_lets_nothing_of_a_server_through(place: Place) -> None:
    place.servers(odd=place.odd(trust=True))
    assert place.main(NOTE, OVER, approval_mode="plan").error["type"] == "refused"
    assert place.noted() == []


def test_a_tool_that_would_pass_for_another_servers_is_left_out(place: Place) -> None:
    """`odd` with the tool `b:note` would be called like `odd_b` with `note`, which is trusted."""
    place.servers(
        odd=place.odd(env={"ODD_TOOLS": "note,b:note"}),
        odd_b=place.odd(trust=True, env={"ODD_TOOLS": "look"}),
    )
    outcome = place.main(calls(("mcp_odd_b_note", {"text": "x"})), OVER)
    assert place.noted() == []
    assert any("'b:note' would pass for one of the server 'odd_b'" in line for line in place.told)
    assert outcome.status == "done"


def test_a_servers_name_may_hold_signs_that_names_of_tools_cant(place: Place) -> None:
    place.servers(**{"@acme/odd one": place.odd(trust=True), "github.com/docs": place.odd()})
    first = calls(("mcp_acme_odd_one_note", {"text": "x"}))
    outcome = place.main(first, calls(("mcp_github_com_docs_note", {"text": "y"})), OVER)
    assert place.noted() == ["note x"]
    assert outcome.pending[0]["tool_name"] == "mcp_github_com_docs_note"
    model = place.script({"expect": "Greet Ann", "text": "over"})
    greeted = run_sync("main", {"prompt": "/acme_odd_one:greet Ann"}, options=place.options(model=model))
    assert greeted.status == "done", greeted.error


def test_of_servers_with_one_name_for_tools_the_one_of_just_this_name_counts(place: Place) -> None:
    place.servers(**{"a b": place.odd(trust=True), "a_b": place.odd(), "a/b": place.odd(trust=True)})
    outcome = place.main(calls(("mcp_a_b_note", {"text": "x"})), OVER)
    assert outcome.status == "waiting" and place.noted() == []
    (said,) = (line for line in place.told if "'a b'" in line)
    assert "its tools would have the names of those of 'a_b'" in said
    assert said.endswith("interlock mcp test 'a b'")


def test_what_a_folder_brings_along_counts_once_it_is_trusted(place: Place) -> None:
    put(place.work / ".mcp.json", {"mcpServers": {"odd": place.odd()}})
    outcome = place.main(NOTE, OVER)
    assert any(".mcp.json (1 MCP server)" in line for line in outcome.warnings)
    assert place.starts() == []
    outcome = place.main(NOTE, OVER, skip_trust=True)
    assert outcome.pending[0]["tool_name"] == "mcp_odd_note"


def test_roos_file_counts_with_its_own_spelling_and_gives_way_to_settings(place: Place) -> None:
    roo = place.work / ".roo"
    roo.mkdir()
    odd = place.odd(
        env={"ODD_LOG": "${env:LOG}"},
        cwd="${workspaceFolder}/sub",
        disabledTools=["look"],
        alwaysAllow=["again"],
    )
    (place.work / "sub").mkdir()
    put(roo / "mcp.json", {"mcpServers": {"odd": odd, "bad": {"command": 3}, "off": {"url": "x"}}})
    place.settings(mcpServers={"odd": {"command": "/nowhere", "trust": True}})
    env = {"PATH": os.environ["PATH"], "LOG": str(place.log)}
    looked = calls(("mcp_odd_look", {}))
    again = {"expect": "No tool 'mcp_odd_look'", **calls(("mcp_odd_again", {"text": "y"}))}
    outcome = place.main(looked, again, NOTE, OVER, skip_trust=True, env=env)
    assert place.noted() == ["again y"]
    assert outcome.pending[0]["tool_name"] == "mcp_odd_note", outcome  # the user's trust is in another server
    assert any("mcpServers.bad.command is 3, expected a string" in line for line in outcome.warnings)


def test_secrets_of_servers_reach_no_model(place: Place) -> None:
    hidden = "s3cr3t-of-the-server-77"
    place.servers(odd=place.odd(trust=True, env={"ODD_API_KEY": hidden}))
    told = calls(("mcp_odd_note", {"text": "x"}), ("mcp_odd_tell", {}))
    outcome = place.main(told, {"expect": r"the key is \[redacted:odd.ODD_API_KEY\]", "text": "over"})
    assert outcome.status == "done", outcome.error


def test_trust_is_in_the_program_that_the_run_began_with(place: Place) -> None:
    ask = says("run_shell_command", command="echo hi > f")
    place.servers(odd=place.odd(trust=True))
    parked = place.main(ask, NOTE, OVER)
    place.servers(odd=place.odd(trust=True, args=["-I", "-S", str(SERVER), "changed"]))
    outcome = place.resume(parked.run, decisions=[Decision("all", "proceed_once")])
    assert outcome.pending[0]["tool_name"] == "mcp_odd_note"
    assert any("mcpServers" in line for line in outcome.warnings)


OTHER = ["-I", "-S", str(SERVER), "changed"]
"""Another program behind the name."""


def test_a_saved_grant_is_for_this_server_in_this_folder(place: Place) -> None:
    place.servers(odd=place.odd())
    outcome = place.main(NOTE, OVER)
    (request,) = outcome.pending
    assert request["always"]["proceed_always_and_save"] == "every call of `mcp_odd_note`, in this folder"
    place.resume(outcome.run, decisions=[Decision(request["id"], "proceed_always_and_save")])
    assert place.main(NOTE, OVER).status == "done"
    elsewhere = place.work.parent / "elsewhere"
    elsewhere.mkdir()
    assert place.main(NOTE, OVER, workspace=elsewhere).status == "waiting"
    place.servers(odd=place.odd(args=OTHER))
    assert place.main(NOTE, OVER).status == "waiting"
    assert place.noted() == ["note x"] * 2


@pytest.mark.parametrize("choice", ["proceed_once", "proceed_always_tool", "proceed_always_server"])
def test_an_approved_call_is_asked_anew_when_the_name_stands_for_another_server(
    place: Place, choice: str
) -> None:
    shell = says("run_shell_command", command="echo hi > f")
    place.servers(odd=place.odd())
    parked = place.main(NOTE, shell, NOTE, OVER)
    place.servers(odd=place.odd(args=OTHER))
    again = place.resume(parked.run, decisions=[Decision("all", choice)])
    assert (again.pending[0]["tool_name"], place.noted()) == ("mcp_odd_note", [])
    assert "another program or address now" in again.pending[0]["note"]
    approved = place.resume(parked.run, decisions=[Decision("all", choice)])
    assert (approved.pending[0]["tool_name"], place.noted()) == ("run_shell_command", ["note x"])
    place.servers(odd=place.odd())
    over = place.resume(parked.run, decisions=[Decision("all", "proceed_once")])
    assert (over.pending[0]["tool_name"], place.noted()) == ("mcp_odd_note", ["note x"])


@pytest.mark.parametrize(
    ("tool", "text", "done"), [("die", "redo", ["die x"]), ("quiz", "me", [])], ids=["outcome", "input"]
)
def test_no_answer_reaches_a_server_that_it_was_not_given_for(
    place: Place, tool: str, text: str, done: list[str]
) -> None:
    place.servers(odd=place.odd(trust=True))
    parked = place.main(
        calls((f"mcp_odd_{tool}", {"text": "x"})), {"expect": "changed since the call was approved", **OVER}
    )
    assert parked.status == "waiting", parked.error
    place.servers(odd=place.odd(args=OTHER, trust=True))
    decision = Decision(parked.pending[0]["id"], "proceed_once", text=text)
    outcome = place.resume(parked.run, decisions=[decision])
    assert (outcome.status, place.noted()) == ("done", done), outcome.pending
