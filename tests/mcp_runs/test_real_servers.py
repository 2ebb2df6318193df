"""Servers built on the official SDK over each transport, and real published ones."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp_servers.place import Place, calls
from mcp_servers.sdk import Answer, Behind, no_handshake
from patience import HANG_S

from interlock.engine import run_sync
from interlock.services.files.filesystem import OutputFiles
from interlock.services.mcp import remote
from interlock.services.mcp.servers import Servers
from interlock.services.mcp.spec import ServerSpec
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.tooling import ToolRun

SDK = Path(__file__).parent.parent / "mcp_servers" / "sdk.py"
BIN = Path(sys.executable).parent
ADD = calls(("mcp_sdk_add", {"a": 2, "b": 3}))
SUM = {"expect": '"sum": 5', "text": "over"}


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_server_behind_an_address_gets_the_headers_of_settings(
    place: Place, kind: Literal["http", "sse"]
) -> None:
    with Behind(kind) as server:
        address = {"httpUrl": server.url} if kind == "http" else {"url": server.url, "type": "sse"}
        place.servers(sdk={**address, "headers": {"X-Door": "open $SESAME"}, "trust": True})
        env = {"PATH": os.environ["PATH"], "SESAME": "wide"}
        header = {"expect": "X-Door is open wide", **ADD}
        outcome = place.main(calls(("mcp_sdk_header", {"name": "X-Door"})), header, SUM, env=env)
    assert outcome.status == "done", (outcome.error, place.told)


def among(folder: Path, server: Behind) -> Servers:
    spec = ServerSpec("sdk", "http", url=server.url, trust=True)
    outputs = OutputFiles(folder)
    return Servers(
        {"sdk": spec}, workspace=folder, env={}, most=(0, 0), outputs=outputs, emit=print, home=folder
    )


def tool(name: str, **args: Any) -> ToolRun:
    return ToolRun(CallKey(message="m", index=0), CallView(id="0.0", name=name, args=args), print)


def test_a_server_that_went_away_is_told_of_and_connected_to_again_when_it_is_back(tmp_path: Path) -> None:
    add = tool("mcp_sdk_add", a=1, b=2)

    async def played() -> list[str]:
        with Behind("http") as server:
            servers = among(tmp_path, server)
            there = await servers.call("sdk", add, print)
        gone = [await servers.call("sdk", add, print) for _ in "12"]
        with Behind("http", server.port):
            back = await servers.call("sdk", add, print)
        await servers.close()
        return [(result.error or {}).get("type", "") for result in (there, *gone, back)]

    assert asyncio.run(played()) == ["", "mcp_lost", "mcp_unavailable", ""]


def called(folder: Path, server: Behind, run: ToolRun) -> ToolResult:
    async def played() -> ToolResult:
        servers = among(folder, server)
        try:
            return await servers.call("sdk", run, print)
        finally:
            await servers.close()

    return asyncio.run(played())


def test_a_session_that_the_server_has_forgotten_is_begun_anew_and_the_call_is_done(tmp_path: Path) -> None:
    forgets = [(404, "text/plain", b"")]

    def door(asked: dict[str, Any]) -> Answer | None:
        return forgets.pop() if asked.get("method") == "tools/call" and forgets else None

    with Behind("http", door=door) as server:
        assert '"sum": 3' in called(tmp_path, server, tool("mcp_sdk_add", a=1, b=2)).content
    assert forgets == []


@pytest.mark.parametrize(
    "answer",
    [
        (200, "application/json", b'{"jsonrpc": "2.0", "id"'),
        (200, "application/json", b'{"jsonrpc": "2.0", "id": ID, "result": {"content": "none"}}'),
        (200, "application/json", b"[" + b"1," * 60_000 + b"1]"),
        (502, "text/html", b"<h1>Bad gateway</h1>"),
        (200, "text/event-stream", b"data: " + b"x" * 200_000 + b"\n\n"),
        (200, "text/event-stream", b""),
    ],
)
def test_what_is_no_answer_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(remote, "MOST", 100_000)

    def door(asked: dict[str, Any]) -> Answer | None:
        status, kind, body = answer
        whole = (status, kind, body.replace(b"ID", str(asked.get("id")).encode()))
        return whole if asked.get("method") == "tools/call" else None

    with Behind("http", door=door) as server:
        result = called(tmp_path, server, tool("mcp_sdk_long", size=9))
    assert (result.error or {}).get("type") == "unknown_outcome", result


def test_an_answer_of_some_megabytes_is_one(tmp_path: Path) -> None:
    with Behind("http") as server:
        result = called(tmp_path, server, tool("mcp_sdk_long", size=3_000_000))
    assert len(result.content) == 3_000_000, result.content[:200]


def test_a_changed_list_is_heard_of_under_todays_protocol(tmp_path: Path) -> None:
    """For older protocols see `test_odd_servers`."""

    async def played(server: Behind) -> None:
        servers = among(tmp_path, server)
        assert (await servers.call("sdk", tool("mcp_sdk_grow"), print)).content == "one more"
        async with asyncio.timeout(HANG_S):
            while "mcp_sdk_grown" not in servers.tools():
                await asyncio.sleep(0.01)
        assert (await servers.call("sdk", tool("mcp_sdk_grown"), print)).content == "it has grown"
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
