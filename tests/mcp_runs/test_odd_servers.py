"""Servers that hang, die, flood, talk nonsense or change their mind: one clear answer each, and the run continues."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_servers.place import Place, calls
from patience import until
from warm import Warm

from interlock.engine import Decision, resume_sync
from interlock.engine.client.mcp_check import McpCheck
from interlock.services.mcp import connection, stdio

ALL = {"toolName": "*", "mcpName": "odd", "decision": "allow"}


@pytest.fixture(autouse=True)
def allowed(place: Place) -> None:
    """Allow its calls without trusting the server."""
    place.rules({**ALL, "priority": 100})
    place.servers(odd=place.odd())


def test_a_call_that_dies_on_is_asked_about_and_done_again_only_when_a_person_says_so(place: Place) -> None:
    outcome = place.main(
        calls(("mcp_odd_die", {"text": "x"})), {"expect": "Unknown outcome: .*code 3", "text": "over"}
    )
    (request,) = outcome.pending
    assert (request["kind"], place.noted()) == ("outcome", ["die x"])
    assert "gave no answer: it ended with code 3. The call may" in request["reason"]
    outcome = place.resume(outcome.run, decisions=[Decision(request["id"], "proceed_once")])
    (again,) = outcome.pending
    assert (again["kind"], place.noted()) == ("outcome", ["die x", "die x"])
    outcome = place.resume(outcome.run, decisions=[Decision(again["id"], "reject")])
    assert (outcome.status, len(place.noted())) == ("done", 2)


def test_a_call_that_is_never_answered_ends_at_its_time_limit_and_is_asked_about(place: Place) -> None:
    place.servers(odd=place.odd(timeout=5000))
    outcome = place.main(calls(("mcp_odd_hang", {"text": "x"})), {"text": "over"})
    (request,) = outcome.pending
    assert request["kind"] == "outcome" and "it did not answer within 5 s" in request["reason"]


@pytest.mark.parametrize("code", [-32000, -32001, -32700])
def test_an_error_with_a_code_that_the_sdk_uses_itself_is_the_servers_answer(place: Place, code: int) -> None:
    place.servers(odd=place.odd(env={"ODD_CODE": str(code)}))
    refused = {"expect": rf"refused the call: no tools/call.* here \({code}\)", "text": "over"}
    assert place.main(calls(("mcp_odd_refuse", {})), refused).status == "done"


def test_what_a_trusted_server_calls_idempotent_is_not_asked_about(place: Place) -> None:
    tools = {"ODD_TOOLS": "die,again"}
    place.servers(odd=place.odd(trust=True, env={**tools, "ODD_SAFE": "die"}))
    outcome = place.main(
        calls(("mcp_odd_die", {"text": "x"})),
        {"expect": "gave no answer", **calls(("mcp_odd_again", {"text": "y"}))},
        {"expect": "again done", "text": "over"},
    )
    assert outcome.status == "done", outcome.error
    assert place.noted() == ["die x", "again y"]  # it was reconnected in between


def test_a_run_that_was_killed_in_a_call_asks_what_became_of_it_and_leaves_no_server(place: Place) -> None:
    model = place.script(calls(("mcp_odd_hang", {"text": "x"})), {"text": "over"})
    env = {**os.environ, "HOME": str(place.user), "INTERLOCK_HOME": str(place.home)}
    child = Warm(["-p", "go", "-m", model], cwd=place.work, env=env)
    until(lambda: place.noted() == ["hang x"])
    child.kill()
    child.wait()
    until(lambda: not any(map(is_alive, place.starts())))
    outcome = resume_sync("latest", options=place.options())
    assert [r["kind"] for r in outcome.pending] == ["outcome"]
    assert place.noted() == ["hang x"]


def test_nonsense_and_chatter_between_messages_do_no_harm(place: Place) -> None:
    both = calls(("mcp_odd_garbage", {}), ("mcp_odd_chatter", {}))
    outcome = place.main(both, {"expect": "garbage done.*chatter done", "text": "over"})
    assert outcome.status == "done", outcome.error


def test_a_long_answer_is_kept_in_a_file_and_shortened(place: Place) -> None:
    place.settings(
        mcpServers={"odd": place.odd()},
        model={"summarizeToolOutput": {"mcp_odd_flood": {"how": "truncate"}}},
    )
    outcome = place.main(calls(("mcp_odd_flood", {})), {"expect": "line 0.*line 39999", "text": "over"})
    assert outcome.status == "done", outcome.error
    saved = [f for f in (place.home / "outputs").iterdir() if f.suffix == ".txt"]
    assert any(f.read_text().count("\n") == 39_999 for f in saved)


def test_a_lost_server_is_tried_again_some_times_and_then_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 0.0123
    """A delay that nothing else uses."""
    delays: list[float] = []
    waited = asyncio.timeout

    def noted(delay: float | None) -> asyncio.Timeout:
        delays.append(delay or 0)
        return waited(delay)

    monkeypatch.setattr(connection, "_FIRST_DELAY_S", first)
    monkeypatch.setattr(asyncio, "timeout", noted)
    place.servers(odd=place.odd(trust=True, env={"ODD_ONCE": "1", "ODD_SAFE": "die"}))
    twice = [calls(("mcp_odd_die", {"text": "x"})), calls(("mcp_odd_note", {"text": "y"}))]
    outcome = place.main(*twice, {"expect": "can't be reached.*not a second time", "text": "over"})
    assert outcome.status == "done", outcome.error
    planned = [first * 2**n for n in range(5)]
    assert [d for d in delays if d in planned][:2] == planned[:2]


def test_a_message_without_an_end_ends_the_session(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MOST", 100_000)
    place.servers(odd=place.odd(trust=True, env={"ODD_SAFE": "flood"}))
    long = calls(("mcp_odd_flood", {}))
    again = {"expect": "it sent a message of more than", **calls(("mcp_odd_note", {"text": "x"}))}
    outcome = place.main(long, again, {"expect": "note done", "text": "over"})
    assert (outcome.status, len(place.starts())) == ("done", 2), outcome.error


def test_a_changed_list_of_tools_counts_from_the_next_turn(place: Place) -> None:
    outcome = place.main(
        calls(("mcp_odd_change", {})),
        calls(("mcp_odd_fresh", {"text": "x"}), ("mcp_odd_note", {"text": "y"})),
        {"expect": "fresh done.*no tool 'mcp_odd_note'", "text": "over"},
    )
    assert outcome.status == "done", outcome.error
    assert place.noted() == ["fresh x"]


def test_an_approved_call_that_its_tool_no_longer_takes_is_not_made(place: Place) -> None:
    place.rules()
    parked = place.main(
        calls(("mcp_odd_note", {"text": "x"})), {"expect": "'path' is a required", "text": "over"}
    )
    place.takes(path={"type": "string"})
    done = place.resume(parked.run, decisions=[Decision(parked.pending[0]["id"], "proceed_once")])
    assert (done.status, place.noted()) == ("done", [])


@pytest.mark.parametrize(("given", "made"), [(None, ["note None"]), ("x", []), ("long", ["note long"])])
def test_an_argument_may_be_null_where_the_tool_says_so(place: Place, given: Any, made: list[str]) -> None:
    place.takes(text={"type": ["string", "null"], "minLength": 2, "description": "What to note."})
    outcome = place.main(calls(("mcp_odd_note", {"text": given})), {"text": "over"})
    assert (outcome.status, place.noted()) == ("done", made)


def test_tools_whose_names_have_only_other_letters_are_told_apart(place: Place) -> None:
    place.servers(odd=place.odd(env={"ODD_TOOLS": "a:工具,a:数据"}))
    place.main({"text": "over"})
    assert place.told == []
    (one,) = asyncio.run(McpCheck(place.options()).probe_servers("odd"))
    assert len({tool["name"] for tool in one["tools"] if tool["name"].startswith("mcp_odd_a___")}) == 2


def test_tools_that_cannot_be_called_are_skipped_by_name_and_the_others_work(place: Place) -> None:
    env = {"ODD_TOOLS": "note,look,again", "ODD_LOOSE": "look", "ODD_TASKS": "again"}
    place.servers(odd=place.odd(env=env))
    outcome = place.main(calls(("mcp_odd_note", {"text": "x"})), {"expect": "note done", "text": "over"})
    assert (outcome.status, place.noted()) == ("done", ["note x"])
    (one,) = asyncio.run(McpCheck(place.options()).probe_servers("odd"))
    assert one["warnings"] == [
        "tool 'look': inputSchema: Field required",
        "tool 'again': it runs as a task only, and Interlock makes plain calls",
    ]


def test_an_answer_that_the_protocol_does_not_know_is_an_answer(place: Place) -> None:
    outcome = place.main(
        calls(("mcp_odd_widget", {"a": 1})),
        {"expect": r'\{\\?"type\\?": \\?"widget\\?", \\?"x\\?": 1\}', **calls(("mcp_odd_widget", {}))},
        {"expect": r'y\\?": ?2', "text": "over"},
    )
    assert outcome.status == "done", (outcome.error, outcome.pending)


def test_an_sdk_that_is_too_old_is_named_and_the_run_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.services.packages.version", lambda _: "1.30.0")
    assert place.main({"text": "over"}).status == "done"
    assert "mcp is 1.30.0 here; expected 2.3 or newer" in place.told[0]


def test_progress_images_and_errors_are_shown_as_what_they_are(place: Place) -> None:
    each = [calls((f"mcp_odd_{name}", {})) for name in ("picture", "fail", "refuse")]
    outcome = place.main(
        calls(("mcp_odd_steps", {})),
        each[0],
        {"expect": r"image \(image/png, 19 bytes\) is in .*\.png.*embedded", **each[1]},
        {"expect": "it went wrong", **each[2]},
        {"expect": r"refused the call: no tools/call\\x1b\[31m here", "text": "over"},
    )
    assert outcome.status == "done", outcome.error
    live = "".join(event.text for event in place.events if event.type == "tool_output")
    assert live == "1/2 step\\x1b[1m\n2/2 step\\x1b[2m\n"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"command": "/nowhere/server"}, "No such file"),
        (
            {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no key\x1b[31m')"]},
            "no key\\x1b[31m",
        ),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, "ended with code 0"),
        (
            {"command": sys.executable, "args": ["-c", "input(), input()"], "timeout": 1},
            "within 1 ms, its `timeout`",
        ),
        ({"url": "http://127.0.0.1:9/mcp"}, "ConnectError"),
        ({"url": "here"}, "isn't an address"),
        ({}, "it needs `command`"),
        ({"command": "x", "url": "http://x"}, "exclude each other"),
    ],
)
def test_a_server_that_cant_be_had_is_told_once_and_stops_nothing_else(
    place: Place, server: dict[str, Any], why: str
) -> None:
    place.servers(bad=server, odd=place.odd())
    outcome = place.main(calls(("mcp_odd_note", {"text": "x"})), {"text": "over"})
    assert (outcome.status, place.noted()) == ("done", ["note x"])
    (line,) = [line for line in place.told if "'bad'" in line]
    assert "is skipped" in line and why in line


def test_servers_start_once_side_by_side_and_end_with_the_run(place: Place) -> None:
    place.servers(odd=place.odd(), two=place.odd(), off=place.odd(disabled=True))
    place.main(calls(("mcp_odd_note", {"text": "x"})), {"text": "over"})
    assert len(place.starts()) == 2
    assert place.log.read_text().count("end\n") == 2
    assert not any(map(is_alive, place.starts()))


@pytest.mark.sweep
def test_a_server_that_says_nothing_is_waited_for_a_while_and_left_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READY_S", 4.0)
    place.servers(mute=place.odd(env={"ODD_MUTE": "1"}), odd=place.odd())
    two = [calls(("mcp_odd_note", {"text": text})) for text in "xy"]
    outcome = place.main(*two, {"text": "over"})
    assert (outcome.status, place.noted()) == ("done", ["note x", "note y"])
    assert [line for line in place.told if "'mute'" in line] == [
        "MCP server 'mute' is still starting; its tools come when it is ready."
    ]
    assert not any(map(is_alive, place.starts()))


def test_a_server_with_a_timeout_is_waited_for_that_long_in_one_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READY_S", 0.1)
    place.servers(odd=place.odd(env={"ODD_SLOW": "2"}, timeout=120_000))
    outcome = place.main(calls(("mcp_odd_note", {"text": "x"})), {"text": "over"})
    assert (outcome.status, place.noted(), len(place.starts())) == ("done", ["note x"], 1)
    assert not [line for line in place.told if "'odd'" in line]


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("resources/templates/list", []),
        ("resources/list", ["resources/list: it refused: no resources/list"]),
        ("prompts/list", ["prompts/list: it refused: no prompts/list"]),
        ("tools/list", ["tools/list: it refused: no tools/list"]),
    ],
)
def test_a_list_that_a_server_refuses_hides_only_that_list(place: Place, lacks: str, told: list[str]) -> None:
    place.servers(odd=place.odd(env={"ODD_LACKS": lacks}))
    tool = "access_mcp_resource" if lacks == "tools/list" else "mcp_odd_note"
    args = {"server_name": "odd", "uri": "odd://a"} if lacks == "tools/list" else {"text": "x"}
    assert place.main(calls((tool, args)), {"text": "over"}).status == "done"
    assert [line for line in place.told if "'odd'" in line and "skipped" in line] == [
        line for line in place.told for one in told if one in line
    ]
    assert len([line for line in place.told if "skipped" in line]) == len(told)
    assert place.noted() == ([] if lacks == "tools/list" else ["note x"])


def test_an_answer_that_cant_be_read_ends_its_call_at_once_with_what_came(place: Place) -> None:
    outcome = place.main(
        calls(("mcp_odd_half", {}), ("mcp_odd_null", {}), ("mcp_odd_note", {"text": "x"})),
        {"expect": "smile \ufffd", "text": "over"},
    )
    assert (outcome.status, outcome.pending, place.noted()) == ("done", [], ["note x"])
    (null,) = [e for e in place.events if e.type == "tool_result" and e.tool_name == "mcp_odd_null"]
    assert (
        null.status == "error"
        and "its answer can't be read" in null.output
        and '"result": null' in null.output
    )


def is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("sent_before", [False, True])
def test_a_call_is_repeated_only_if_no_request_of_it_was_sent(sent_before: bool) -> None:
    from types import SimpleNamespace

    from interlock.services.mcp.exchanges import Exchange, NotRunError

    one = Exchange()
    for number in range(1 + sent_before):  # such as the call, and then the tools' list to check its answer
        one.begin_request(number)
    one.sent = False
    failed = one.to_lost_or_answered_error(SimpleNamespace(code=0), 1)
    assert isinstance(failed, NotRunError) is not sent_before
