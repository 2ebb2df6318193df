"""The built-in toolset: declared, checked, summarised, run; every failure of a tool is an answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_google_genai._function_utils import convert_to_genai_function_declarations
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel

from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.toolset import BuiltinToolset, parameter_schema
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.events import Event, ToolOutput
from interlock.state.settings import Settings
from interlock.state.tooling import Processes, Tool, ToolContext, ToolRun
from interlock.state.workspace import PathRefused
from interlock.tools.table import TOOLS

KEY = CallKey(message="m", index=0)
A = {"file_path": "a"}


def build(root: Path, tools: Mapping[str, Tool] = TOOLS) -> BuiltinToolset:
    return BuiltinToolset(
        workspace=FolderWorkspace(root),
        processes=cast(Processes, None),
        outputs=OutputFiles(root.parent / "state"),
        settings=Settings(),
        tools=tools,
    )


@pytest.fixture
def toolset(tmp_path: Path) -> BuiltinToolset:
    (tmp_path / "project").mkdir()
    return build(tmp_path / "project")


def view(tool: str, /, **args: Any) -> CallView:
    return CallView(id="c1", name=tool, args=args)


def once(toolset: BuiltinToolset, call: CallView) -> ToolResult:
    return asyncio.run(toolset.run_call(ToolRun(key=KEY, call=call, emit=lambda _: None)))


def test_every_tool_is_named_as_in_the_table_and_runs_or_plans(tmp_path: Path) -> None:
    for name, tool in TOOLS.items():
        assert tool.name == name
        assert (tool.run is None) != (tool.plan is None)
        assert tool.risk == "write" if tool.plan else True
        assert tool.description.endswith(".")
    there = {n: replace(TOOLS[n], installed=lambda n=n: n == "glob") for n in ("glob", "browser_action")}
    assert [d.name for d in build(tmp_path, there).declare_tools()] == ["glob"]


def schemas(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [schema]
    for part in [
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", ()),
        *filter(None, [schema.get("items")]),
    ]:
        found += schemas(part)
    return found


def test_declarations_are_plain_schemas_with_every_field_described(toolset: BuiltinToolset) -> None:
    for declaration in toolset.declare_tools():
        for schema in schemas(declaration.parameters):
            assert not {"$ref", "$defs", "title", "default", "const", "additionalProperties"} & set(schema)
            for name, field in schema.get("properties", {}).items():
                assert field.get("description"), f"{declaration.name}.{name} has no description"


def test_geminis_client_takes_every_declaration(toolset: BuiltinToolset) -> None:
    taken = convert_to_genai_function_declarations([d.model_dump() for d in toolset.declare_tools()])
    tool: Any = taken[0] if isinstance(taken, list) else taken
    declared = {f.name: f.parameters.properties for f in tool.function_declarations}
    assert [*declared] == [*TOOLS]
    assert {*declared["ask_user"]["questions"].items.properties} >= {"question", "options", "multiSelect"}


def test_definitions_are_put_in_place_and_optional_means_left_out() -> None:
    class Inner(BaseModel):
        """Not for models."""

        x: int

    class Outer(BaseModel):
        inner: Inner
        many: list[Inner] = []
        maybe: int | None = None
        three: int | None = 3

    schema = parameter_schema(Outer)
    assert schema["properties"]["inner"]["properties"] == {"x": {"type": "integer"}}
    assert schema["properties"]["many"]["items"]["required"] == ["x"]
    assert schema["properties"]["maybe"] == {"type": "integer"}
    assert schema["properties"]["three"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema["required"] == ["inner"]


def test_unknown_and_excluded_tools_are_not_there(tmp_path: Path) -> None:
    toolset = build(tmp_path, {name: tool for name, tool in TOOLS.items() if name != "write_file"})
    assert toolset.find_tool_info("write_file") is None
    assert "write_file" not in [d.name for d in toolset.declare_tools()]
    assert toolset.nearest_tool_names("read_fil")[0] == "read_file"
    assert len(toolset.nearest_tool_names("zzz")) == 3
    result = once(toolset, view("write_file", file_path="a", content=""))
    assert result.error is not None
    assert result.error["type"] == "tool_not_registered"


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        ("read_file", {}, "read_file: 'file_path' is missing."),
        (
            "read_file",
            {"path": "a", **A},
            "'path' is not a parameter, expected one of file_path, start_line, ",
        ),
        ("read_file", {**A, "start_line": "x"}, "'start_line': input should be a valid integer"),
        (
            "read_file",
            {**A, "start_line": 3, "end_line": 2},
            "end_line is 2, expected at least start_line (3).",
        ),
        ("write_todos", {"todos": [{"status": "no"}]}, "'todos[0].status': input should be 'pending', "),
        ("write_todos", {"todos": [{"status": "pending"}]}, "'todos[0].description' is missing"),
        ("read_file", {"file_path": "../x"}, "read_file: '../x' leads outside the workspace"),
        ("write_file", {"file_path": ".env", "content": ""}, "write_file: '.env' is refused"),
        ("list_directory", {"wait_for_previous": 1}, "'wait_for_previous': expected true or false, got 1."),
        ("nothing", {}, "Tool 'nothing' not found."),
    ],
)
def test_bad_arguments_are_told_in_one_line(
    toolset: BuiltinToolset, tool: str, args: dict[str, Any], expected: str
) -> None:
    problem = toolset.find_call_problem(view(tool, **args))
    assert problem is not None
    assert expected in problem
    assert "\n" not in problem


def test_good_arguments_have_no_problem(toolset: BuiltinToolset) -> None:
    assert toolset.find_call_problem(view("read_file", file_path="a", start_line="2")) is None
    waits = view("list_directory", wait_for_previous=True)
    assert (toolset.find_call_problem(waits), once(toolset, waits).status) == (None, "success")


def test_a_summary_is_one_short_line_whatever_the_arguments(toolset: BuiltinToolset) -> None:
    assert toolset.summarize_call(view("read_file", file_path="a.py", start_line=3)) == "Read a.py, lines 3-"
    assert toolset.summarize_call(view("read_file")) == "read_file"
    assert toolset.summarize_call(view("nothing")) == "nothing"
    long = toolset.summarize_call(
        view("replace", file_path="a", instruction="x\ny " * 99, old_string="", new_string="")
    )
    assert "\n" not in long
    assert len(long) <= 160


class NoArgs(BaseModel):
    pass


def test_what_a_tool_did_not_foresee_is_an_answer_and_signals_go_through(tmp_path: Path) -> None:
    """A cancel, and those of the graph."""

    def done(raised: BaseException) -> ToolResult:
        async def run(args: NoArgs, context: ToolContext) -> ToolResult:
            raise raised

        odd = Tool("odd", "Odd.", NoArgs, "read", lambda _: "odd", run=run)
        return once(build(tmp_path, {"odd": odd}), view("odd"))

    for raised, kind, text in (
        (RuntimeError("two\nlines"), "unhandled_exception", "odd failed: RuntimeError: two lines"),
        (OSError(28, "No space left on device"), "unhandled_exception", "No space left"),
        (PathRefused("not that one"), "path_refused", "not that one"),
    ):
        result = done(raised)
        assert ((result.error or {})["type"], text in result.content) == (kind, True)
    for signal in (asyncio.CancelledError(), GraphBubbleUp()):
        with pytest.raises(type(signal)):
            done(signal)


def test_an_alias_is_the_same_tool_but_not_declared_and_live_output_carries_the_calls_id(
    tmp_path: Path,
) -> None:
    async def run(args: NoArgs, context: ToolContext) -> ToolResult:
        context.emit_output("hello")
        return ToolResult(status="success", content="ok")

    heard: list[Event] = []
    loud = Tool("loud", "Loud.", NoArgs, "read", lambda _: "loud", run=run, aliases=("noisy",))
    toolset = build(tmp_path, {"glob": TOOLS["glob"], "loud": loud})
    info = toolset.find_tool_info("noisy")
    assert info is not None and info.name == "loud"
    assert [d.name for d in toolset.declare_tools()] == ["glob", "loud"]
    result = asyncio.run(toolset.run_call(ToolRun(key=KEY, call=view("noisy"), emit=heard.append)))
    assert (result.status, heard) == ("success", [ToolOutput(tool_id="c1", text="hello")])
