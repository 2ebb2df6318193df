"""write_file: success, refusal, bad arguments."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from interlock.state.calls import ToolResult
from interlock.state.tooling import FileChange
from interlock.tools.write_file import WriteFileArgs

Call = Callable[..., ToolResult]
Plan = Callable[..., FileChange | ToolResult]


def kind(result: FileChange | ToolResult) -> str:
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert result.content == result.error["message"]
    return result.error["type"]


def test_a_new_file_is_created_with_its_directories(call: Call, folder: Path) -> None:
    result = call("write_file", file_path="a/b.txt", content="one\ntwo\n")
    assert (folder / "a/b.txt").read_text() == "one\ntwo\n"
    assert result.content == "Created 'a/b.txt': 2 lines."
    assert "+two" in str(result.meta["diff"])


def test_planning_writes_nothing(plan: Plan, folder: Path) -> None:
    assert isinstance(plan("write_file", file_path="a/b.txt", content="x"), FileChange)
    assert list(folder.iterdir()) == []


def test_an_existing_file_keeps_endings_mark_encoding_and_mode(call: Call, folder: Path) -> None:
    path = folder / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfold\r\n")
    path.chmod(0o755)
    call("write_file", file_path="a.txt", content="new\nlines")
    assert path.read_bytes() == b"\xef\xbb\xbfnew\r\nlines"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    path.write_bytes("alté\n".encode("latin-1"))
    call("write_file", file_path="a.txt", content="né\n")
    assert path.read_bytes() == "né\n".encode("latin-1")


def test_text_that_the_encoding_cannot_hold_is_refused(plan: Plan, folder: Path) -> None:
    (folder / "a.txt").write_bytes("alté\n".encode("latin-1"))
    assert kind(plan("write_file", file_path="a.txt", content="日本")) == "not_text"


def test_the_same_content_again_is_no_error_and_no_change(plan: Plan, folder: Path) -> None:
    (folder / "a").write_text("x\n")
    change = plan("write_file", file_path="a", content="x\n")
    assert isinstance(change, FileChange)
    assert (change.before, change.diff) == (change.after, "")
    assert "already" in change.message


def test_earlier_calls_of_the_batch_count(plan: Plan, folder: Path) -> None:
    path = str(folder.resolve() / "a")
    change = plan("write_file", file_path="a", content="new\n", earlier={path: b"earlier\n"})
    assert isinstance(change, FileChange)
    assert change.before == b"earlier\n"
    assert "-earlier" in change.diff


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("../a", "path_refused"),
        (".git/config", "path_refused"),
        ("node_modules/x", "path_refused"),
        ("dir", "is_directory"),
        ("file/below", "not_a_directory"),
        ("binary", "not_text"),
        ("pipe", "not_a_file"),
        ("locked", "permission_denied"),
        ("x" * 300, "io_error"),
    ],
)
def test_what_cannot_be_written_says_so(plan: Plan, folder: Path, path: str, expected: str) -> None:
    (folder / "dir").mkdir()
    (folder / "file").write_text("")
    (folder / "binary").write_bytes(b"\0\1")
    os.mkfifo(folder / "pipe")
    (folder / "locked").write_text("")
    (folder / "locked").chmod(0o444)
    result = plan("write_file", file_path=path, content="x")
    assert kind(result) == expected
    assert isinstance(result, ToolResult)
    assert "\n" not in result.content


@pytest.mark.parametrize(
    "line",
    [
        "// ... rest of code ...",
        "# ... existing code ...",
        "    # rest of the file...",
        "/* ... unchanged methods ... */",
        "<!-- rest of the content … -->",
        "(rest of code ...)",
        "... remaining lines ...",
        "// ... the rest of your code remains unchanged ...",
        "// ...  rest  of  code",
        "#  existing   code  ...",
        "[rest of code]",
        "# [... existing code ...]",
        "(unchanged)",
        "// (other methods unchanged)",
        "<!-- [remaining content] -->",
        "(rest of code remains the same)",
        "// rest of code here",
        "# Rest of methods unchanged",
        "/* The rest of the styles remains unchanged */",
        "-- ... rest of query ...",
        "% … rest of the document …",
        "REM ... rest of script ...",
        "// ... (unchanged) ...",
        "# ... rest unchanged ...",
        "# . . . rest of the code . . .",
        "（rest of code）",
        "<rest of the file>",
        "rest of ...",
        "    // Rest of…",
        "// (rest of ...)",
        "# ... rest of the ...",
        "[rest of ...]",
        "/* rest of ... */",
    ],
)
def test_a_placeholder_for_left_out_text_is_refused(plan: Plan, line: str) -> None:
    assert kind(plan("write_file", file_path="a", content=f"one\n{line}\ntwo\n")) == "omission_placeholder"


@pytest.mark.parametrize(
    "line",
    [
        "print('...')",
        "the rest of the story...",
        "# ...",
        "x = [...]",
        "def f(): ...",
        "rest of code",
        "rest of",
        "rest of ... it all",
        "for the rest of ...",
        'title = "rest of ..."',
        "# the rest of the options",
        "# see below ...",
        "[unchanged]",
        "[existing_code]",
        "(lines)",
        "- the title (unchanged)",
        "(the rest of the story)",
        "# The rest of the code is in b.py",
        "# rest of the arguments are passed on",
        "// existing code paths are tested elsewhere",
        "# same as before",
        "# unchanged",
        "status: unchanged",
        "* unchanged",
        "! here",
        "# ... here",
        "<Foo {...rest} />",
        'say "... rest of code ..."',
    ],
)
def test_ordinary_dots_are_fine(plan: Plan, line: str) -> None:
    assert isinstance(plan("write_file", file_path="a", content=f"{line}\n"), FileChange)


def test_a_placeholder_that_stands_in_the_file_may_stay(plan: Plan, folder: Path) -> None:
    (folder / "a").write_text("// ... rest of code ...\n")
    assert isinstance(plan("write_file", file_path="a", content="x\n// ... rest of code ...\n"), FileChange)


@pytest.mark.parametrize(
    "args", [{}, {"file_path": "a"}, {"file_path": "", "content": ""}, {"file_path": "a", "content": 1}]
)
def test_bad_arguments_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WriteFileArgs.model_validate(args)


def test_unicode_names_work(call: Call, folder: Path) -> None:
    call("write_file", file_path="grüße/日本 😀.txt", content="x")
    assert (folder / "grüße/日本 😀.txt").read_text() == "x"
