"""The schema of a small model's next answer leaves no room for files, lines and repetitions that can't work."""

from typing import Any

import pytest

from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.tools.json_calls import MOST_WHOLE, build_answer_schema

TEXT = "def f(a):\n    return a\n\n\ndef g(a):\n    return a\n    # end\n" + "pass\n" * MOST_WHOLE


def declared(name: str, *required: str, **more: str) -> ToolDeclaration:
    properties = {key: {"type": "string"} for key in (*required, *more)}
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return ToolDeclaration(name=name, description="x", parameters=parameters)


TOOLS = (
    declared("read_file", "file_path", start_line=""),
    declared("replace", "file_path", "old_string", "new_string"),
    declared("write_file", "file_path", "content"),
    declared("run_shell_command", "command"),
)


def made(name: str, result: str = "", works: bool = True, **args: str) -> list[Message]:
    call = ToolCall(id=str(id(args)) + str(sorted(args.items())), name=name, args={**args})
    status = "success" if works else "error"
    return [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=result, tool_call_id=call.id, name=name, status=status),
    ]


READ = made("read_file", TEXT, file_path="a.py")
FAILS = made("run_shell_command", "1 failed\nExit Code: 1", command="make test")
EDIT = made("replace", file_path="a.py", old_string="    # end", new_string="    # over")


def offered(*history: list[Message]) -> dict[str, dict[str, Any]]:
    """The arguments of each tool that is offered."""
    called, answer = build_answer_schema(TOOLS, [message for call in history for message in call])["anyOf"]
    assert [*answer["properties"]] == ["text"]
    calls = called["properties"]["call"]["anyOf"]
    return {call["properties"]["name"]["enum"][0]: call["properties"]["args"]["properties"] for call in calls}


def test_an_edit_takes_a_line_or_a_block_that_the_file_has_once() -> None:
    once = [
        "def f(a):",
        "def g(a):",
        "    # end",
        "def f(a):\n    return a",
    ]
    assert offered(READ)["replace"]["old_string"]["enum"] == once
    after = offered(READ, EDIT)["replace"]["old_string"]["enum"]
    assert "    # over" in after and "    # end" not in after
    written = made("write_file", file_path="b.py", content="x = 1\n" + "pass\n" * MOST_WHOLE)
    assert offered(written)["replace"]["old_string"]["enum"] == ["x = 1"]


def test_what_wasnt_read_cant_be_edited() -> None:
    assert "replace" not in offered()
    assert "replace" not in offered(made("read_file", "no such file", works=False, file_path="a.py"))
    assert offered(READ)["replace"]["file_path"]["enum"] == ["a.py"]


def test_a_short_file_is_written_anew_and_no_call_holds_its_text() -> None:
    assert "replace" not in offered(made("read_file", "x = 1\n", file_path="a.py"))
    assert [*offered()["write_file"]] == ["file_path"]


@pytest.mark.parametrize(
    "history",
    [
        [made("read_file", "[Lines 1-2 of 9.]\nx\ny", file_path="a.py")],
        [made("read_file", "x\n" * 400, file_path="a.py")],
        [READ, made("replace", works=False, file_path="a.py", old_string="q", new_string="r")],
    ],
)
def test_in_a_file_that_isnt_known_whole_an_edit_is_free(history: list[list[Message]]) -> None:
    assert "enum" not in offered(*history)["replace"]["old_string"]


def test_a_part_of_a_file_is_offered_once_something_names_lines() -> None:
    assert "start_line" not in offered(READ)["read_file"]
    assert "start_line" in offered(made("grep_search", "a.py:3: x", pattern="x"))["read_file"]
    assert (
        "start_line" in offered(made("read_file", "[Lines 1-2 of 9.]\nx\ny", file_path="a.py"))["read_file"]
    )


@pytest.mark.parametrize(
    ("history", "withheld"),
    [
        ([FAILS, FAILS], "run_shell_command"),
        ([FAILS, READ, FAILS], "run_shell_command"),
        ([READ, READ], "read_file"),
        ([FAILS, FAILS, READ], "run_shell_command"),
        ([READ, FAILS, READ], "read_file"),
        ([READ, FAILS, EDIT, FAILS], None),
        ([FAILS, made("run_shell_command", command="git add ."), FAILS], None),
    ],
)
def test_a_tool_whose_call_was_repeated_isnt_offered_until_something_has_changed(
    history: list[list[Message]], withheld: str | None
) -> None:
    names = {"read_file", "replace", "write_file", "run_shell_command"}
    if not any(call is READ for call in history):
        names.remove("replace")
    assert {*offered(*history)} == names - {withheld}
