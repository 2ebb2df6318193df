"""write_file: new files, what stays of an existing one, and text that was left out."""

import stat

import pytest
from folders import table
from tool_calls import Calls

from interlock.state.tooling import FileChange


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
        *(("\ufeffold\n".encode(c), "new\n", "\ufeffnew\n".encode(c)) for c in ("utf-16-le", "utf-32-le")),
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


def test_a_placeholder_for_left_out_text_is_refused_and_ordinary_dots_are_fine(call: Calls) -> None:
    lines = table(__file__, "left_out.yaml")
    for line in lines["refused"]:
        call.failed("omission_placeholder", "write_file", file_path="a", content=f"one\n{line}\ntwo\n")
    for line in lines["fine"]:
        planned(call, "a", f"{line}\n")
