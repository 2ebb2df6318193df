"""`interlock mcp serve`, driven by the SDK's client: workflows as tools, approvals by the client's user."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import warm
from commands import ENTRY
from mcp import Client, StdioServerParameters
from mcp.server.stdio import stdio_server
from mcp.types import ElicitResult
from mcp_servers.place import Place
from patience import HANG_S

from interlock.engine.read import list_runs

WRITE = {"tool_calls": [{"name": "write_file", "args": {"file_path": "a.txt", "content": "hi"}}]}


GRAPH = '''
"""Publishes."""
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

State = TypedDict("State", {"topic": str, "model": str, "text": str}, total=False)

def ask(state):
    return {"text": f"{state['model']}: {interrupt({'question': 'Publish?', 'topic': state['topic']})}"}

graph = StateGraph(State).add_node(ask).add_edge(START, "ask").compile()
'''


class Server:
    """`mcp serve` in a place, and its process once it is forked."""

    def __init__(
        self,
        place: Place,
        *replies: dict[str, Any],
        mode: str = "default",
        names: Sequence[str] = ("main", "next-speaker"),
    ) -> None:
        self.words = ["mcp", "serve", *names, "-C", str(place.work), "-m", place.script(*replies)]
        self.words += ["--approval-mode", mode]
        self.env = {**os.environ, "HOME": str(place.user), "INTERLOCK_HOME": str(place.home)}

    def started(self) -> StdioServerParameters:
        """As a client starts it."""
        program, *arguments = ENTRY
        return StdioServerParameters(command=program, args=[*arguments, *self.words], env=self.env)

    @asynccontextmanager
    async def forked(self) -> AsyncGenerator[Any]:
        """As if it was started. The library's streams of a server are a client's, too."""
        stdin, asking = os.pipe()
        self.process = warm.Warm(
            self.words, cwd=Path.cwd(), env=self.env, stdin=stdin, stdout=subprocess.PIPE
        )
        os.close(stdin)
        assert self.process.stdout
        with self.process.stdout as answers, os.fdopen(asking, "w") as asks:
            async with stdio_server(anyio.wrap_file(answers), anyio.wrap_file(asks)) as streams:
                yield streams
                asks.close()  # it ends, and with it what is read
        self.process.wait(HANG_S)


@pytest.mark.parametrize(("protocol", "start"), [("legacy", Server.started), ("auto", Server.forked)])
def test_workflows_are_tools_whose_rights_are_not_the_callers_and_their_person_is_asked(
    place: Place, protocol: str, start: Callable[[Server], Any]
) -> None:
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"choice": "proceed_once"})

    async def played() -> None:
        transport = start(Server(place, WRITE, {"text": "Done."}))
        async with Client(transport, mode=protocol, elicitation_callback=approve) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["main", "next-speaker"]
            assert {"workspace", "model", "approval_mode"}.isdisjoint(
                tools["main"].input_schema["properties"]
            )
            loose = await client.call_tool("main", {"prompt": "x", "approval_mode": "yolo"})
            assert loose.is_error and "is decided where this server was started" in str(loose.content)
            bad = await client.call_tool("main", {"prompts": "x"})
            assert bad.is_error and "Did you mean 'prompt'?" in str(bad.content)
            answer = await client.call_tool("main", {"prompt": "write"})
            assert (answer.content[0].text, answer.is_error) == ("Done.", False)  # type: ignore[union-attr]
            assert answer.structured_content["status"] == "done"

    asyncio.run(played())
    assert (place.work / "a.txt").read_text() == "hi"
    assert len(asked) == 1 and "write_file" in asked[0] and "+hi" in asked[0]


def test_somebodys_graph_is_a_tool_with_its_own_fields_and_its_question_reaches_the_clients_user(
    place: Place,
) -> None:
    (place.work / "agent.py").write_text(GRAPH)
    said: list[ElicitResult] = [
        ElicitResult(action="decline"),
        ElicitResult(action="accept", content={"answer": "yes"}),
    ]

    async def told(context: Any, params: Any) -> ElicitResult:
        assert "Publish?" in params.message and "topic: tea" in params.message
        return said.pop(0)

    async def played() -> None:
        transport = Server(place, names=[f"{place.work / 'agent.py'}:graph"]).forked()
        async with Client(transport, mode="legacy", elicitation_callback=told) as client:
            (tool,) = (await client.list_tools()).tools
            assert (tool.name, tool.description) == ("agent_graph", "Publishes")
            assert {*tool.input_schema["properties"]} == {"topic", "model", "text"}
            bad = await client.call_tool("agent_graph", {"topc": "tea"})
            assert bad.is_error and "Did you mean 'topic'?" in str(bad.content)
            unknown = await client.call_tool("agent", {})
            assert unknown.is_error and "There are: agent_graph." in str(unknown.content)
            asks, answers = [
                await client.call_tool("agent_graph", {"topic": "tea", "model": "m"}) for _ in range(2)
            ]
            run = asks.structured_content["run"]
            assert f"interlock resume {run} --answer {run}-q1='your answer'" in asks.content[0].text  # type: ignore[union-attr]
            assert answers.structured_content["output"]["text"] == "m: yes"

    asyncio.run(played())


def test_without_a_person_the_run_is_parked_and_says_how_to_go_on(place: Place) -> None:
    async def played() -> Any:
        async with Client(Server(place, WRITE, {"text": "Done."}).forked(), mode="legacy") as client:
            return await client.call_tool("main", {"prompt": "write"})

    answer = asyncio.run(played())
    facts = answer.structured_content
    assert (facts["status"], answer.is_error, (place.work / "a.txt").exists()) == ("waiting", False, False)
    assert facts["resume_command"] in answer.content[0].text


@pytest.mark.parametrize("how", ["signal", "cancelled"])
def test_a_stopped_call_leaves_a_run_that_goes_on_and_no_traceback(
    place: Place, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    begin = {"name": "run_shell_command", "args": {"command": "touch begun && sleep 1000"}}

    async def played() -> Any:
        server = Server(place, {"tool_calls": [begin]}, {"text": "Done."}, mode="yolo")
        async with Client(server.forked(), mode="legacy") as client:
            call = asyncio.ensure_future(client.call_tool("main", {"prompt": "write"}))
            async with asyncio.timeout(HANG_S):
                while not (place.work / "begun").exists():
                    await asyncio.sleep(0.05)
                if how == "signal":
                    server.process.send_signal(signal.SIGTERM)
                    return await call
                call.cancel()
                while not (found := stopped()):
                    await asyncio.sleep(0.05)
                assert await client.list_tools()
            return found

    def stopped() -> list[str]:
        return [row.run for row in list_runs(place.home) if row.status == "interrupted"]

    answer = asyncio.run(played())
    if how == "signal":
        (run,) = stopped()
        assert answer.structured_content["resume_command"] == f"interlock resume {run}"
        assert f"Go on with: interlock resume {run}" in answer.content[0].text
    assert "Traceback" not in capfd.readouterr().err
