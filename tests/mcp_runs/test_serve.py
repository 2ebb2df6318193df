"""`interlock mcp serve`, driven by the SDK's client: workflows as tools, approvals by the client's user."""

import asyncio
import os
import sys
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult
from mcp_servers.place import Place

WRITE = {"tool_calls": [{"name": "write_file", "args": {"file_path": "a.txt", "content": "hi"}}]}


def server(place: Place, *replies: dict[str, Any]) -> StdioServerParameters:
    program = "import sys; from interlock.cli.main import main; sys.exit(main())"
    flags = ["mcp", "serve", "main", "next-speaker", "-C", str(place.work), "-m", place.script(*replies)]
    env = {**os.environ, "HOME": str(place.user), "INTERLOCK_HOME": str(place.home)}
    return StdioServerParameters(command=sys.executable, args=["-P", "-c", program, *flags], env=env)


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
def test_workflows_are_tools_whose_rights_are_not_the_callers_and_their_person_is_asked(
    place: Place, protocol: str
) -> None:
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"choice": "proceed_once"})

    async def played() -> None:
        parameters = server(place, WRITE, {"text": "Done."})
        async with Client(parameters, mode=protocol, elicitation_callback=approve) as client:
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


def test_without_a_person_the_run_is_parked_and_says_how_to_go_on(place: Place) -> None:
    async def played() -> Any:
        async with Client(server(place, WRITE, {"text": "Done."}), mode="legacy") as client:
            return await client.call_tool("main", {"prompt": "write"})

    answer = asyncio.run(played())
    facts = answer.structured_content
    assert (facts["status"], answer.is_error, (place.work / "a.txt").exists()) == ("waiting", False, False)
    assert facts["resume_command"] in answer.content[0].text
