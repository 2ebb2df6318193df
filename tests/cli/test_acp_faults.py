"""`interlock acp` under bad input and faults: nothing ends but what was wrong."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_editor import ALLOWS, DONE, REJECTS, WRITE, Editor, FailedError, prompted, says
from folders import put
from patience import until

from interlock.acp.wire import JsonRpcConnection

Open = Callable[..., Editor]
Asking = Callable[..., tuple[Editor, str, int]]


FAULTS: dict[str, tuple[bytes, int]] = {
    "no JSON": (b"{", -32700),
    "no UTF-8": (b'{"jsonrpc": "2.0", "id": 901, "method": "\xff"}', -32700),
    "too deep": (b"[" * 100_000, -32700),
    "a batch": (b"[]", -32600),
    "no version": (b'{"id": 901, "method": "session/list"}', -32600),
    "a method that is a number": (b'{"jsonrpc": "2.0", "id": 901, "method": 7}', -32600),
    "an id that is a list": (b'{"jsonrpc": "2.0", "id": [], "method": "session/list"}', -32600),
    "an answer with nothing": (b'{"jsonrpc": "2.0", "id": 99}', -32600),
}
REQUESTS: dict[str, tuple[str, Any, int, str]] = {
    "unknown method": ("session/dance", {}, -32601, "session/dance"),
    "no object": ("session/new", [], -32602, "expected an object"),
    "relative folder": ("session/new", {"cwd": "work", "mcpServers": []}, -32602, "absolute path"),
    "missing folder": ("session/new", {"cwd": "/no/such", "mcpServers": []}, -32602, "no folder '/no/such'"),
    "malformed server": ("session/new", {"cwd": "/", "mcpServers": [{"name": "x"}]}, -32602, "malformed"),
    "unknown session": ("session/prompt", {"sessionId": "x", "prompt": []}, -32002, "No session 'x'"),
    "unknown session to load": ("session/load", {"sessionId": "x", "cwd": "/"}, -32002, "No session 'x'"),
    "no session named": ("session/close", {}, -32602, "sessionId"),
    "bad cursor": ("session/list", {"cursor": "x"}, -32602, "valid cursor"),
    "version that is a word": ("initialize", {"protocolVersion": "new"}, -32602, "whole number"),
    "unknown way to sign in": ("authenticate", {"methodId": "x"}, -32602, "'setup'"),
}
PROMPTS: dict[str, tuple[Any, str]] = {
    "empty": ([], "The prompt is empty"),
    "no blocks": ("hello", "expected list"),
    "broken base 64": ([{"type": "image", "mimeType": "image/png", "data": "%"}], "prompt[0]"),
    "audio": ([{"type": "audio", "mimeType": "audio/wav", "data": ""}], "isn't supported"),
    "no text": ([{"type": "text"}], "malformed"),
    "another machine's file": (
        [{"type": "resource_link", "name": "x", "uri": "file://host/etc/passwd"}],
        "names no file of this machine",
    ),
}


@pytest.mark.sweep
def test_faults_end_nothing_but_their_frame(editor: Open) -> None:
    here = editor({"text": "Still here."})
    for name, (line, code) in FAULTS.items():
        here.stray.clear()
        here.raw(line)
        here.until(lambda: bool(here.stray))
        assert here.stray[0]["error"]["code"] == code, name
    for name, (method, params, code, text) in REQUESTS.items():
        with pytest.raises(FailedError, match=re.escape(text)) as raised:
            here.call(method, params)
        assert raised.value.code == code, name
    here.send("session/dance", {})  # a notification is never answered
    here.raw(json.dumps({"jsonrpc": "2.0", "id": 77, "result": {}}).encode())  # to a question never asked
    session = here.new()
    for name, (blocks, text) in PROMPTS.items():
        with pytest.raises(FailedError, match=re.escape(text)) as raised:
            here.call("session/prompt", {"sessionId": session, "prompt": blocks})
        assert raised.value.code == -32602, name
    with pytest.raises(FailedError, match="takes 1,048,576"):
        here.prompt(session, "x" * 10_000_000)
    assert here.prompt(here.new(), "hello") == "end_turn" and here.text() == "Still here."


def test_nothing_comes_before_initialize_and_a_newer_version_gets_ours(tmp_path: Path) -> None:
    here = Editor(tmp_path)
    with pytest.raises(FailedError, match="before initialize"):
        here.call("session/list", {})
    assert here.call("initialize", {"protocolVersion": 99})["protocolVersion"] == 1
    here.kill()


def test_a_second_prompt_is_refused_while_one_is_under_way(asking: Asking) -> None:
    here, session, turn = asking(WRITE, DONE)
    with pytest.raises(FailedError, match="is running in this session"):
        here.prompt(session, "and this")
    other = here.new()
    assert {row["sessionId"] for row in here.call("session/list", {})["sessions"]} == {session}
    assert here.call("session/close", {"sessionId": other}) == {}
    here.reply(here.asked[0][1]["id"], result=ALLOWS(here.asked[0][1]["params"]))
    assert here.answer(turn)["stopReason"] == "end_turn"


@pytest.mark.parametrize(("person", "read"), [(ALLOWS, True), (REJECTS, False)])
def test_a_link_beyond_the_workspace_is_asked_about(
    editor: Open, tmp_path: Path, person: Any, read: bool
) -> None:
    secret = put(tmp_path / "secret.txt", "the word is plum\n")
    here = editor({"expect": "plum" if read else "^(?![^$]*plum)", "text": "Seen."}, person=person)
    link = {"type": "resource_link", "name": "secret.txt", "uri": secret.as_uri()}
    assert here.prompt(here.new(), "look", link) == "end_turn"
    assert here.text().endswith("Seen.") and "outside the workspace" in str(here.asked)


def test_the_end_of_stdin_ends_a_command_and_parks_the_run(editor: Open) -> None:
    here = editor(says("run_shell_command", command="echo $$ >pid; echo begun; sleep 600"), DONE)
    session = here.new()
    here.begin("session/prompt", prompted(session, "run it"))
    here.until(lambda: any("begun" in str(u.get("content")) for u in here.updates))
    assert here.leave() == 0
    child = Path("/proc", (here.folder / "pid").read_text().strip())
    until(lambda: not child.exists(), "the command's end")
    there = editor()
    there.load(session)
    (call,) = there.calls().values()
    assert call["kind"] == "execute" and there.text("user_message") == "run it"


def test_a_hostile_answer_to_a_question_decides_nothing(editor: Open, tmp_path: Path) -> None:
    answers: list[Any] = [{"outcome": {"outcome": "selected", "optionId": "no such"}}, {"outcome": 7}, []]
    for answer in answers:

        def hostile(_: Any, answer: Any = answer) -> Any:
            return answer

        here = editor(WRITE, DONE, person=hostile)
        session = here.new()
        here.prompt(session, "write")
        assert here.asked and not (tmp_path / "work" / "a.txt").exists(), answer
        assert f"A request stays open: interlock approvals {session}." in here.text()
        there = editor(WRITE, DONE)
        here.leave()
        there.load(session)
        there.until(lambda there=there: there.text().endswith("Done."))
        (tmp_path / "work" / "a.txt").unlink()


def test_a_cancel_that_comes_with_its_prompt_stops_it(editor: Open) -> None:
    here = editor({"text": "Late.", "delay_s": 600}, DONE)
    session = here.new()
    turn = here.begin("session/prompt", prompted(session, "wait"))
    here.send("session/cancel", {"sessionId": session})
    assert here.answer(turn) == {"stopReason": "cancelled"}


LINKS: dict[str, tuple[str, bool, str]] = {
    "a device": ("file:///dev/zero", True, ""),
    "a link in the workspace that leads out of it": ("{work}/out.txt", True, ""),
    "a folder outside": ("file:///etc", True, ""),
    "a missing file outside": ("file:///no/such", True, ""),
    "a name that ends a reference": ("file:///a%22%0Ab", True, ""),
    "a private file": ("{work}/.env", False, "may not touch '.env'"),
    "a missing file": ("{work}/nope.txt", False, "No file 'nope.txt'"),
    "an address": ("http://localhost/x", False, ""),
}
"""What is linked: its address, whether the person is asked, and what is said."""


def test_a_hostile_link_is_asked_about_or_refused(editor: Open) -> None:
    here = editor(*[DONE] * len(LINKS))
    (here.folder / ".env").write_text("WORD=plum")
    (here.folder / "out.txt").symlink_to("/etc/hostname")
    session = here.new()
    for name, (uri, asks, said) in LINKS.items():
        here.asked.clear()
        link = {"type": "resource_link", "name": "x", "uri": uri.format(work=here.folder.as_uri())}
        assert here.prompt(session, "look", link) == "end_turn", name
        assert bool(here.asked) == asks and said in here.text("agent_thought"), name


def test_a_folder_that_is_not_trusted_has_no_say_and_the_editor_is_told(editor: Open) -> None:
    here = editor(WRITE, DONE)
    settings = {"mcpServers": {"x": {"command": "touch", "args": [str(here.folder / "begun")]}}}
    own = here.folder / ".gemini"
    put(own / "settings.json", {**settings, "general": {"defaultApprovalMode": "yolo"}})
    put(own / "commands" / "hi.toml", 'prompt = "hello"')
    session = here.new()
    assert here.prompt(session, "write") == "end_turn" and len(here.asked) == 1
    assert "isn't trusted" in here.text("agent_thought") and "settings.json" in here.text("agent_thought")
    assert not (here.folder / "begun").exists()
    with pytest.raises(FailedError, match="interlock trust"):
        here.prompt(session, "/hi")


def test_a_folder_that_is_gone_ends_its_session_and_no_other(editor: Open, tmp_path: Path) -> None:
    here = editor(DONE, DONE)
    session = here.new()
    shutil.rmtree(here.folder)
    with pytest.raises(FailedError, match=re.escape(f"No directory {str(here.folder)!r}")):
        here.prompt(session, "go on")
    here.folder = tmp_path
    assert here.prompt(here.new(), "hello") == "end_turn"


def test_a_session_whose_record_is_damaged_is_an_error_and_can_be_loaded_once_it_is_whole(
    editor: Open, home: Path
) -> None:
    here = editor(DONE)
    session = here.new()
    assert here.prompt(session, "hello") == "end_turn"
    here.call("session/close", {"sessionId": session})
    kept = (home / "interlock" / "outputs").rename(home / "kept")
    with pytest.raises(FailedError, match=f"missing. .* interlock show {session} --verify") as raised:
        here.load(session)
    assert raised.value.code == -32603
    with pytest.raises(FailedError, match="No session"):
        here.prompt(session, "go on")
    shutil.rmtree(home / "interlock" / "outputs", ignore_errors=True)
    kept.rename(home / "interlock" / "outputs")
    here.load(session)
    assert here.text("user_message") == "hello"


def test_nothing_but_frames_leaves_through_stdout() -> None:
    program = """
import os, subprocess
from interlock.acp.wire import JsonRpcConnection
wire = JsonRpcConnection.take_over_stdio()
print("printed", flush=True)
os.write(1, b"written\\n")
subprocess.run(["echo", "echoed"])
assert input.__module__ and not os.read(0, 10)
os.write(wire._write, b"frame")
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], input=b"secret", capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"frame", b"printed\nwritten\nechoed\n")


def test_a_client_that_reads_slowly_delays_nobody_and_misses_only_what_is_repeated() -> None:
    async def written() -> list[Any]:
        (read, theirs), (taken, write) = os.pipe(), os.pipe()
        wire, gone = JsonRpcConnection(read, write), asyncio.Event()
        wire.start(lambda _: None, gone.set)
        for number in range(300):  # 30 MB
            wire.send_notification("session/update", {"output": "x" * 100_000}, droppable=True)
            wire.send_notification("session/update", {"number": number})
        came: list[Any] = []
        with os.fdopen(taken, "rb") as lines:
            while not came or came[-1] != {"number": 299}:
                came.append(json.loads(lines.readline())["params"])
        os.close(theirs)
        await gone.wait()
        return came

    came = asyncio.run(written())
    assert [one["number"] for one in came if "number" in one] == [*range(300)]
    assert 80 <= len(came) - 300 <= 90, "eight megabytes are held, and what is in the pipe"
