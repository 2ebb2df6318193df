"""write_file: success, refusal, bad arguments."""

import os
import stat

import pytest
from pydantic import ValidationError
from tool_calls import Calls

from interlock.state.tooling import FileChange
from interlock.tools.write_file import WriteFileArgs


def planned(call: Calls, path: str, content: str, **more: dict[str, bytes]) -> FileChange:
    change = call.plan("write_file", file_path=path, content=content, **more)
    assert isinstance(change, FileChange), change
    return change


@pytest.mark.parametrize("name", ["a/b.txt", "grüße/日本 😀.txt"])
def test_a_new_file_is_created_with_its_directories(call: Calls, name: str) -> None:
    planned(call, name, "one\ntwo\n")
    assert list(call.folder.iterdir()) == [], "planning writes nothing"
    result = call("write_file", file_path=name, content="one\ntwo\n")
    assert call.read(name) == "one\ntwo\n"
    assert result.content == f"Created '{name}': 2 lines."
    assert "+two" in str(result.meta["diff"])


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfold\r\n", "new\nlines", b"\xef\xbb\xbfnew\r\nlines"),
        (b"\xef\xbb\xbfold\n", "\ufeffnew\n", b"\xef\xbb\xbfnew\n"),
        ("alté\n".encode("latin-1"), "né\n", "né\n".encode("latin-1")),
        (b"// ... rest of code ...\n", "x\n// ... rest of code ...\n", b"x\n// ... rest of code ...\n"),
    ],
)
def test_an_existing_file_keeps_endings_mark_encoding_and_mode(
    call: Calls, before: bytes, content: str, after: bytes
) -> None:
    call.write({"a.txt": before})
    path = call.folder / "a.txt"
    path.chmod(0o755)
    call.text("write_file", file_path="a.txt", content=content)
    assert path.read_bytes() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_the_same_content_again_is_no_error_and_no_change(call: Calls) -> None:
    call.write({"a": "x\n"})
    change = planned(call, "a", "x\n")
    assert (change.before, change.diff) == (change.after, "")
    assert "already" in change.message


def test_earlier_calls_of_the_batch_count(call: Calls) -> None:
    change = planned(call, "a", "new\n", earlier={str(call.folder.resolve() / "a"): b"earlier\n"})
    assert change.before == b"earlier\n"
    assert "-earlier" in change.diff


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("../a", "path_refused"),
        (".git/config", "path_refused"),
        ("node_modules/x", "path_refused"),
        ("dir", "is_directory"),
        ("file/below", "not_a_directory"),
        ("binary", "not_text"),
        ("latin", "not_text"),
        ("pipe", "not_a_file"),
        ("locked", "permission_denied"),
        ("x" * 300, "io_error"),
    ],
)
def test_what_cannot_be_written_says_so(call: Calls, path: str, kind: str) -> None:
    call.write({"dir/": "", "file": "", "binary": b"\0\1", "latin": "alté\n".encode("latin-1"), "locked": ""})
    os.mkfifo(call.folder / "pipe")
    (call.folder / "locked").chmod(0o444)
    assert "\n" not in call.failed(kind, "write_file", file_path=path, content="日本")


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
def test_a_placeholder_for_left_out_text_is_refused(call: Calls, line: str) -> None:
    call.failed("omission_placeholder", "write_file", file_path="a", content=f"one\n{line}\ntwo\n")


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
def test_ordinary_dots_are_fine(call: Calls, line: str) -> None:
    planned(call, "a", f"{line}\n")


@pytest.mark.parametrize(
    "args", [{}, {"file_path": "a"}, {"file_path": "", "content": ""}, {"file_path": "a", "content": 1}]
)
def test_bad_arguments_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        WriteFileArgs.model_validate(args)
