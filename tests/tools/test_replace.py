"""replace: what is replaced, what is shown of it, and what stays."""

import asyncio
import dataclasses
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import Calls

from interlock.services.files.calls import FileWriteCalls
from interlock.state.tooling import FileChange, ToolContext
from interlock.tools.replace import ReplaceArgs
from interlock.tools.table import TOOLS


def edit(call: Calls, file: str, old: str, new: str, expected: int | None = 1) -> str:
    return call.text(
        "replace", file_path=file, old_string=old, new_string=new, expected_replacements=expected
    )


LEFT_OUT = "// ... rest of code ...\nx\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "expected", "after"),
    [
        ("x y x y x\n", "x", "zz", 3, "zz y zz y zz\n"),
        ("x y x y x\n", "y", "", None, "x  x  x\n"),
        ("a\n", "a\n", "", 1, ""),
        # The final newline stays as it was.
        *(("a\nb\n", "b\n", f"c{tail}", 1, "a\nc\n") for tail in ("", "\n")),
        *(("a\nb", "b", f"c{tail}", 1, "a\nc") for tail in ("", "\n")),
        *(("a\r\nb\r\n", "b\n", f"c{tail}", 1, "a\r\nc\r\n") for tail in ("", "\n")),
        # A blank line that the file doesn't have stands for its end.
        *(("x\n  a\n", "a\n\n", f"b\nc{tail}", 1, "x\n  b\n  c\n") for tail in ("", "\n", "\n\n")),
        ("\ufeffone\r\ntwo\r\nthree", "one\ntwo\n", "1\r\n2\n", 1, "\ufeff1\r\n2\r\nthree"),
        # A placeholder that is part of the old text.
        (LEFT_OUT, LEFT_OUT, LEFT_OUT + "y\n", 1, LEFT_OUT + "y\n"),
    ],
)
def test_the_expected_number_of_matches_is_replaced(
    call: Calls, before: str, old: str, new: str, expected: int | None, after: str
) -> None:
    call.write({"a": before})
    edit(call, "a", old, new, expected)
    assert call.read("a") == after


def test_replaced_places_are_shown_until_there_are_too_many(call: Calls) -> None:
    lines = [f"line {i}\n" for i in range(1, 101)]
    call.write(
        {"one": "".join(lines[:20]), "few": "".join([*lines[:20], "x\n", *lines[20:40], "x\n", *lines[40:]])}
    )
    one = edit(call, "one", "line 10\n", "ten\nmore\n")
    assert call.read("one").splitlines()[8:12] == ["line 9", "ten", "more", "line 11"]
    assert one.startswith("Edited 'one': 1 replacement. Lines 5-16 are now:\nline 5\n")
    assert one.endswith("line 15")
    few = edit(call, "few", "x\n", "one\ntwo\n", 2)
    assert "Lines 16-49 are now:" in few
    assert few.endswith("one\ntwo\nline 41\nline 42\nline 43\nline 44\nline 45")
    call.write({"many": "".join(["x\n", *lines, "x\n"])})
    many = edit(call, "many", "x\n", "y\n", 2)
    assert "Lines 1-60 are now:" in many
    assert many.endswith("\n… (up to line 102)")
    call.write({"wide": "x" * 300_000 + "Y\n"})
    assert len(edit(call, "wide", "Y", "Z")) < 2_200


TEXT = st.text(st.sampled_from("ab \n\t日é"), max_size=20)


@given(
    before=TEXT,
    old=st.text(st.sampled_from("XY\n"), min_size=1, max_size=4).filter(lambda t: t == t.strip("\n")),
    after=TEXT,
    new=st.text(st.sampled_from("QZ\n"), max_size=5).filter(lambda t: t != ""),
    coding=st.sampled_from([("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe")]),
    windows=st.booleans(),
    mode=st.sampled_from([0o644, 0o755, 0o600]),
)
def test_only_the_replaced_window_changes(
    call: Calls, before, old, after, new, coding, windows, mode
) -> None:
    encoding, mark = coding

    def to_bytes(text: str) -> bytes:
        return mark + (text.replace("\n", "\r\n") if windows else text).encode(encoding)

    call.write({"a": to_bytes(f"first\n{before}|{old}|{after}.")})
    path = call.folder / "a"
    path.chmod(mode)
    edit(call, "a", old, new)
    assert path.read_bytes() == to_bytes(f"first\n{before}|{new}|{after}.")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_what_earlier_calls_of_a_batch_do_is_computed_once_for_each_state_of_a_file(
    context: ToolContext, folder: Path
) -> None:
    file = folder / "a"
    file.write_text("0\n1\n2\n")
    made: list[str] = []
    own = TOOLS["replace"].plan
    assert own is not None

    async def counted(args: Any, context: ToolContext, earlier: Mapping[str, bytes]) -> FileChange:
        made.append(args.old_string)
        return await own(args, context, earlier)

    tool = dataclasses.replace(TOOLS["replace"], plan=counted)
    calls = [
        (tool, ReplaceArgs(file_path="a", old_string=old, new_string="x")) for old in ("0", "gone", "1", "2")
    ]
    files = FileWriteCalls(context.workspace)
    for count in range(4):
        asyncio.run(files.read_target_file("a", calls[:count], context))
    now = asyncio.run(files.read_target_file("a", calls, context))
    assert (now.data, made) == (b"x\nx\nx\n", ["0", "gone", "1", "2"])
    file.write_text("0\n1\n2\n3\n")
    now = asyncio.run(files.read_target_file("a", calls, context))
    assert (now.data, len(made)) == (b"x\nx\nx\n3\n", 8)
