"""Servers built on the official SDK over each transport, and real published ones."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp_servers.place import Place, calls
from mcp_servers.sdk import NOTED, Answer, Behind, no_handshake
from patience import HANG_S

from interlock.engine import run_sync
from interlock.services.files.filesystem import OutputFiles
from interlock.services.mcp import endpoint
from interlock.services.mcp.servers import Servers
from interlock.services.mcp.spec import ServerSpec
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.tooling import ToolRun

SDK = Path(__file__).parent.parent / "mcp_servers" / "sdk.py"
BIN = Path(sys.executable).parent
ADD = calls(("mcp_sdk_add", {"a": 2, "b": 3}))
LOCAL_CODES = (-32000, -32001, -32700)
"""Those that the SDK uses for a lost connection, a timeout and an answer that can't be read."""
SUM = {"expect": '"sum": 5', "text": "over"}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_server_behind_an_address_gets_the_headers_of_settings(
    place: Place, kind: Literal["http", "sse"], named: bool
) -> None:
    """Without a type, streamable HTTP is tried first, then SSE."""
    with Behind(kind) as server:
        address = {"url": server.url, **({"type": kind} if named else {})}
        place.servers(sdk={**address, "headers": {"X-Door": "open $SESAME"}, "trust": True})
        env = {"PATH": os.environ["PATH"], "SESAME": "wide"}
        header = {"expect": "X-Door is open wide", **ADD}
        outcome = place.main(calls(("mcp_sdk_header", {"name": "X-Door"})), header, SUM, env=env)
    assert outcome.status == "done", (outcome.error, place.told)


def among(folder: Path, server: Behind, kind: Literal["http", "sse"] = "http") -> Servers:
    spec = ServerSpec("sdk", kind, url=server.url, trust=True)
    outputs = OutputFiles(folder)
    return Servers(
        {"sdk": spec}, workspace=folder, env={}, most=(0, 0), outputs=outputs, emit=print, home=folder
    )


def tool(name: str, **args: Any) -> ToolRun:
    return ToolRun(CallKey(message="m", index=0), CallView(id="0.0", name=name, args=args), print)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_restarted_server_is_connected_to_again_and_the_call_is_done_once(
    tmp_path: Path, kind: Literal["http", "sse"]
) -> None:
    async def played() -> list[str]:
        with Behind(kind) as server:
            servers = among(tmp_path, server, kind)
            told = [await servers.call_tool("sdk", tool("mcp_sdk_note", text="a"), print)]
        with Behind(kind, server.port):
            told += [await servers.call_tool("sdk", tool("mcp_sdk_note", text="b"), print)]
        told += [await servers.call_tool("sdk", tool("mcp_sdk_note", text="c"), print) for _ in "12"]
        with Behind(kind, server.port):
            told += [await servers.call_tool("sdk", tool("mcp_sdk_note", text="d"), print)]
        await servers.close()
        return [(result.error or {}).get("type", "") for result in told]

    NOTED.clear()
    assert asyncio.run(played()) == ["", "", "mcp_unavailable", "mcp_unavailable", ""]
    assert NOTED == ["a", "b", "d"]


def called(folder: Path, run: ToolRun, *answers: Answer, kind: Literal["http", "sse"] = "http") -> ToolResult:
    """The result of a call whose first requests are answered by `answers` in the server's place."""
    left = list(answers)

    def door(asked: dict[str, Any]) -> Answer | None:
        if asked.get("method") != "tools/call" or not left:
            return None
        status, kind, body = left.pop(0)
        return status, kind, body.replace(b"ID", str(asked["id"]).encode())

    async def played(server: Behind) -> ToolResult:
        servers = among(folder, server, kind)
        try:
            return await servers.call_tool("sdk", run, print)
        finally:
            await servers.close()

    with Behind(kind, door=door) as server:
        result = asyncio.run(played(server))
    assert left == []
    return result


def error(code: int, message: str, id_: str = "null") -> bytes:
    return f'{{"jsonrpc": "2.0", "id": {id_}, "error": {{"code": {code}, "message": "{message}"}}}}'.encode()


JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
FORGOTTEN: list[Answer] = [
    (404, JSON, error(-32600, "Session not found")),  # the SDK in Python
    (404, JSON, error(-32001, "Session not found")),  # the SDK in TypeScript
    (404, JSON, error(-32001, "Session not found", "ID")),
    (400, JSON, error(-32000, "Bad Request: No valid session ID provided")),  # its examples
    (400, JSON, error(-32000, "Bad Request: Server not initialized")),
    (400, TEXT, b"Invalid session ID"),
    (404, TEXT, b""),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("answer", FORGOTTEN)
def test_a_session_that_the_server_has_forgotten_is_begun_anew_and_the_call_is_done(
    tmp_path: Path, answer: Answer
) -> None:
    NOTED.clear()
    result = called(tmp_path, tool("mcp_sdk_note", text="x"), answer)
    assert (result.content, NOTED) == ("noted", ["x"])


def test_a_session_is_begun_anew_once_only(tmp_path: Path) -> None:
    NOTED.clear()
    again = called(tmp_path, tool("mcp_sdk_note", text="y"), FORGOTTEN[0], FORGOTTEN[0])
    assert (again.error or {}).get("type") == "mcp_unavailable", again
    assert NOTED == []


def test_a_session_over_sse_is_begun_anew_too(tmp_path: Path) -> None:
    NOTED.clear()
    run = tool("mcp_sdk_note", text="x")
    assert called(tmp_path, run, (404, TEXT, b"Could not find session"), kind="sse").content == "noted"
    result = called(tmp_path, run, (502, TEXT, b"no upstream"), kind="sse")
    assert result.content == "MCP server 'sdk' gave no answer: it answered HTTP 502: no upstream."
    assert NOTED == ["x"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        *[((200, JSON, error(code, "no money", "ID")), f"no money ({code})") for code in LOCAL_CODES],
        ((200, EVENTS, b"data: " + error(-32000, "no money", "ID") + b"\n\n"), "no money (-32000)"),
        ((400, JSON, error(-32602, "no such session of yours", "ID")), "no such session of yours (-32602)"),
        ((500, JSON, error(-32603, "out of luck", "ID")), "out of luck (-32603)"),
        ((403, TEXT, b"not for\x1b you"), "HTTP 403: not for\\x1b you"),
    ],
)
def test_an_error_that_the_server_answers_is_an_answer(tmp_path: Path, answer: Answer, said: str) -> None:
    result = called(tmp_path, tool("mcp_sdk_note", text="x"), answer)
    assert result.error == {
        "type": "mcp_error",
        "message": f"MCP server 'sdk' refused the call: {said}",
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, JSON, b'{"jsonrpc": "2.0", "id"'), "its answer can't be read"),
        (
            (200, JSON, b'{"jsonrpc": "2.0", "id": ID, "result": {"content": "none"}}'),
            "not what the protocol",
        ),
        ((200, JSON, b"[" + b"1," * 60_000 + b"1]"), "it sent a message of more than"),
        ((200, TEXT, b"fine"), "HTTP 200 without a result"),
        ((202, TEXT, b""), "HTTP 202 without a result"),
        (
            (500, JSON, b'{"detail": "Internal Server Error"}'),
            'HTTP 500: {"detail": "Internal Server Error"}',
        ),
        ((500, JSON, error(-32603, "Session terminated before the request completed")), "before the request"),
        ((502, "text/html", b"<h1>Bad gateway</h1>"), "HTTP 502."),
        ((200, EVENTS, b"data: " + b"x" * 200_000 + b"\n\n"), "it sent a message of more than"),
        ((200, EVENTS, b"data: nonsense\n\n"), "its answer can't be read"),
        ((200, EVENTS, b""), "the connection ended before it answered"),
    ],
)
def test_what_is_no_answer_leaves_the_outcome_unknown_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, why: str
) -> None:
    monkeypatch.setattr(endpoint, "MOST", 100_000)
    result = called(tmp_path, tool("mcp_sdk_note", text="x"), answer)
    assert (result.error or {}).get("type") == "unknown_outcome", result
    assert why in result.content


def test_an_answer_of_some_megabytes_is_one(tmp_path: Path) -> None:
    result = called(tmp_path, tool("mcp_sdk_long", size=3_000_000))
    assert len(result.content) == 3_000_000, result.content[:200]


def test_a_changed_list_is_heard_of_under_todays_protocol(tmp_path: Path) -> None:
    """For older protocols see `test_odd_servers`."""

    async def played(server: Behind) -> None:
        servers = among(tmp_path, server)
        assert (await servers.call_tool("sdk", tool("mcp_sdk_grow"), print)).content == "one more"
        async with asyncio.timeout(HANG_S):
            while "mcp_sdk_grown" not in servers.tools_by_name():
                await asyncio.sleep(0.01)
        assert (await servers.call_tool("sdk", tool("mcp_sdk_grown"), print)).content == "it has grown"
        await servers.close()

    with Behind("http", door=no_handshake) as server:
        asyncio.run(played(server))


def test_a_server_of_the_sdk_on_stdio_offers_resources_and_prompts(place: Place) -> None:
    place.servers(sdk={"command": sys.executable, "args": ["-I", str(SDK)], "trust": True})
    read = run_sync("mcp", {"action": "read", "server": "sdk", "uri": "note://a"}, options=place.options())
    assert read.output["content"] == "the note a", read
    (view,) = read.output["servers"]
    assert (view["version"], view["instructions"]) == ("sdk 7", "Add with add.")
    assert view["templates"][0]["name"] == "note://{name}"


def test_servers_of_others_work_side_by_side(place: Place) -> None:
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first one"]):
        subprocess.run(["git", *command], cwd=place.work, check=True)
    place.servers(
        time={"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"], "trust": True},
        git={"command": str(BIN / "mcp-server-git"), "trust": True},
        fetch={"command": str(BIN / "mcp-server-fetch"), "args": ["--ignore-robots-txt"], "trust": True},
    )
    both = calls(
        (
            "mcp_time_convert_time",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        ),
        ("mcp_git_git_log", {"repo_path": str(place.work)}),
        ("mcp_fetch_fetch", {"url": "http://127.0.0.1:9/"}),
    )
    outcome = place.main(both, {"expect": "21:00.*the first one.*Refused to fetch", "text": "over"})
    assert outcome.status == "done", (outcome.error, place.told)
