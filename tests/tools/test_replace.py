"""replace: success, refusal, bad arguments, and what stays."""

import asyncio
import dataclasses
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from interlock.services.files.calls import FileCalls
from interlock.state.calls import ToolResult
from interlock.state.tooling import FileChange, ToolContext
from interlock.tools import replace as replace_tool
from interlock.tools.replace import ReplaceArgs
from interlock.tools.table import TOOLS

Call = Callable[..., ToolResult]
Plan = Callable[..., FileChange | ToolResult]


def failed(result: FileChange | ToolResult, kind: str) -> str:
    assert isinstance(result, ToolResult)
    assert result.status == "error"
    assert result.error is not None
    assert result.error["type"] == kind
    return result.content


def test_one_exact_match_is_replaced_and_shown(call: Call, folder: Path) -> None:
    (folder / "a.py").write_text("".join(f"line {i}\n" for i in range(1, 21)))
    result = call("replace", file_path="a.py", old_string="line 10\n", new_string="ten\nmore\n")
    assert (folder / "a.py").read_text().splitlines()[8:12] == ["line 9", "ten", "more", "line 11"]
    assert result.content.startswith("Edited 'a.py': 1 replacement. Lines 5-16 are now:\nline 5\n")
    assert result.content.endswith("line 15")


def test_the_expected_number_of_matches_is_replaced(call: Call, folder: Path) -> None:
    (folder / "a").write_text("x y x y x\n")
    call("replace", file_path="a", old_string="x", new_string="zz", expected_replacements=3)
    assert (folder / "a").read_text() == "zz y zz y zz\n"
    call("replace", file_path="a", old_string="y", new_string="", expected_replacements=None)
    assert (folder / "a").read_text() == "zz  zz  zz\n"


def test_all_replaced_places_are_shown_until_there_are_too_many(call: Call, folder: Path) -> None:
    lines = [f"{i}\n" for i in range(1, 101)]
    (folder / "a").write_text("".join([*lines[:20], "x\n", *lines[20:40], "x\n", *lines[40:]]))
    few = call("replace", file_path="a", old_string="x\n", new_string="one\ntwo\n", expected_replacements=2)
    assert "Lines 16-49 are now:" in few.content
    assert few.content.endswith("one\ntwo\n41\n42\n43\n44\n45")
    (folder / "a").write_text("".join(["x\n", *lines, "x\n"]))
    many = call("replace", file_path="a", old_string="x\n", new_string="y\n", expected_replacements=2)
    assert "Lines 1-60 are now:" in many.content
    assert many.content.endswith("\n… (up to line 102)")


@pytest.mark.parametrize("expected", [1, 3])
def test_another_number_of_matches_is_refused_with_their_lines(
    plan: Plan, folder: Path, expected: int
) -> None:
    (folder / "a").write_text("x\n\nx\n")
    text = failed(
        plan("replace", file_path="a", old_string="x", new_string="y", expected_replacements=expected),
        "occurrence_mismatch",
    )
    assert f"stands 2 times in 'a' (lines 1, 3), expected {expected}." in text


def test_no_match_names_the_nearest_text(plan: Plan, folder: Path) -> None:
    (folder / "a.py").write_text("import os\n\ndef total(items):\n    return sum(items)\n")
    text = failed(
        plan("replace", file_path="a.py", old_string="def sum_of(values):", new_string="x"), "no_occurrence"
    )
    assert "line 3:\ndef total(items):" in text
    none = plan("replace", file_path="a.py", old_string="x y z", new_string="y", expected_replacements=None)
    failed(none, "no_occurrence")


def test_edits_of_other_kinds_of_nothing_are_refused(plan: Plan, folder: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "empty").write_text("")
    (folder / "bin").write_bytes(b"\0")
    failed(plan("replace", file_path="a", old_string="x", new_string="x"), "no_change")
    failed(plan("replace", file_path="a", old_string="x", new_string="x\n"), "no_change")
    failed(plan("replace", file_path="a", old_string="", new_string="x"), "create_existing")
    failed(plan("replace", file_path="empty", old_string="", new_string="x"), "create_existing")
    failed(plan("replace", file_path="bin", old_string="x", new_string="y"), "not_text")
    failed(plan("replace", file_path="nowhere", old_string="x", new_string="y"), "file_not_found")
    failed(plan("replace", file_path="../a", old_string="x", new_string="y"), "path_refused")
    failed(plan("replace", file_path=".", old_string="x", new_string="y"), "path_refused")


def test_an_empty_old_string_creates_a_missing_file(call: Call, folder: Path) -> None:
    assert (
        call("replace", file_path="new/a", old_string="", new_string="x\n").content
        == "Created 'new/a': 1 line."
    )
    assert (folder / "new/a").read_text() == "x\n"


def test_a_placeholder_is_refused_unless_it_is_part_of_the_old_text(plan: Plan, folder: Path) -> None:
    (folder / "a").write_text("// ... rest of code ...\nx\n")
    failed(
        plan("replace", file_path="a", old_string="x", new_string="// rest of code ..."),
        "omission_placeholder",
    )
    old = "// ... rest of code ...\nx"
    assert isinstance(plan("replace", file_path="a", old_string=old, new_string=old + "\ny"), FileChange)


def test_the_text_of_an_ignored_file_is_not_told(plan: Plan, folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("secret\n")
    (folder / "secret").write_text("password = 1\n")
    text = failed(
        plan("replace", file_path="secret", old_string="password = 2", new_string="x"), "path_refused"
    )
    assert "password = 1" not in text


def test_earlier_edits_of_the_batch_are_seen(plan: Plan, folder: Path) -> None:
    (folder / "a").write_text("one\n")
    change = plan(
        "replace",
        file_path="a",
        old_string="two",
        new_string="three",
        earlier={str(folder.resolve() / "a"): b"two\n"},
    )
    assert isinstance(change, FileChange)
    assert change.after == b"three\n"


def test_windows_endings_match_and_stay_and_the_mode_too(call: Call, folder: Path) -> None:
    path = folder / "a.bat"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    path.chmod(0o750)
    call("replace", file_path="a.bat", old_string="one\ntwo\n", new_string="1\r\n2\n")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("before", "after"), [("a\nb\n", "a\nc\n"), ("a\nb", "a\nc"), ("a\r\nb\r\n", "a\r\nc\r\n")]
)
@pytest.mark.parametrize("tail", ["", "\n"])
def test_the_final_newline_stays_as_it_was(
    call: Call, folder: Path, before: str, after: str, tail: str
) -> None:
    (folder / "a").write_bytes(before.encode())
    old = "b\n" if before.endswith("\n") else "b"
    call("replace", file_path="a", old_string=old, new_string=f"c{tail}")
    assert (folder / "a").read_bytes() == after.encode()


def test_a_change_of_all_text_to_nothing_empties_the_file(call: Call, folder: Path) -> None:
    (folder / "a").write_text("a\n")
    call("replace", file_path="a", old_string="a\n", new_string="")
    assert (folder / "a").read_bytes() == b""


TEXT = st.text(st.sampled_from("ab \n\t日é"), max_size=20)


@given(
    before=TEXT,
    old=st.text(st.sampled_from("XY\n"), min_size=1, max_size=4).filter(lambda t: t.strip("\n")),
    after=TEXT,
    new=st.text(st.sampled_from("QZ\n"), max_size=5).filter(lambda t: t != ""),
    coding=st.sampled_from([("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe")]),
    windows=st.booleans(),
    mode=st.sampled_from([0o644, 0o755, 0o600]),
)
def test_only_the_replaced_window_changes(
    call: Call,
    folder: Path,
    before: str,
    old: str,
    after: str,
    new: str,
    coding: tuple[str, bytes],
    windows: bool,
    mode: int,
) -> None:
    encoding, mark = coding

    def to_bytes(text: str) -> bytes:
        return mark + (text.replace("\n", "\r\n") if windows else text).encode(encoding)

    whole = f"first\n{before}|{old}|{after}."
    path = folder / "a"
    path.write_bytes(to_bytes(whole))
    path.chmod(mode)
    call("replace", file_path="a", old_string=old, new_string=new)
    assert path.read_bytes() == to_bytes(f"first\n{before}|{new}|{after}.")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(
    "args",
    [
        {"file_path": "a", "old_string": "x"},
        {"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 0},
        {"file_path": "a", "old_string": "x", "new_string": "y", "allow": True},
    ],
)
def test_bad_arguments_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ReplaceArgs.model_validate(args)


def test_what_earlier_calls_of_a_batch_do_is_computed_once_for_each_state_of_a_file(
    context: ToolContext, folder: Path
) -> None:
    file = folder / "a"
    file.write_text("0\n1\n2\n")
    made: list[str] = []

    async def counted(args: Any, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
        made.append(args.old_string)
        return await replace_tool.plan(args, context, earlier)

    tool = dataclasses.replace(TOOLS["replace"], plan=counted)
    calls = [
        (tool, ReplaceArgs(file_path="a", old_string=old, new_string="x")) for old in ("0", "gone", "1", "2")
    ]
    files = FileCalls(context.workspace)
    for count in range(4):
        asyncio.run(files.file("a", calls[:count], context))
    now = asyncio.run(files.file("a", calls, context))
    assert (now.data, made) == (b"x\nx\nx\n", ["0", "gone", "1", "2"])
    file.write_text("0\n1\n2\n3\n")
    now = asyncio.run(files.file("a", calls, context))
    assert (now.data, len(made)) == (b"x\nx\nx\n3\n", 8)
