"""apply_diff and insert_content: never the wrong place, whatever the hint; whatever can be applied is."""

from pathlib import Path
from typing import Any

import pytest
from folders import table
from hypothesis import given
from hypothesis import strategies as st
from patience import lines_run
from tool_calls import Calls

from interlock.state.deps import StopFlag, Stopped
from interlock.tools.apply_diff import apply_blocks
from interlock.tools.file_content import TextFile
from interlock.tools.matcher.blocks import Block, DiffError, parse_blocks
from interlock.tools.matcher.windows import WorkBudget

TABLE: dict[str, list[Any]] = table(__file__, "diffs.yaml")


def block(search: str, new: str, line: int = 0) -> str:
    hint = f":start_line:{line}\n-------\n" if line else ""
    middle = f"{new}\n" if new else ""
    return f"<<<<<<< SEARCH\n{hint}{search}\n=======\n{middle}>>>>>>> REPLACE\n"


def test_blocks_are_applied_by_their_lines_in_any_order(call: Calls, folder: Path) -> None:
    (folder / "a").write_text("a\nb\nc\na\nb\nc\n")
    said = call("apply_diff", path="a", diff=block("b", "B", 5) + "\n" + block("a", "A\nA2", 1)).content
    assert (folder / "a").read_text() == "A\nA2\nb\nc\na\nB\nc\n"
    assert said == "Edited 'a': 2 of 2 blocks applied (block 1 at line 6; block 2 at line 1)."


def test_a_block_that_cannot_be_placed_is_named_and_the_others_are_applied(call: Calls, folder: Path) -> None:
    (folder / "a").write_text("one\ntwo\nx\nx\n")
    said = call("apply_diff", path="a", diff=block("two", "2") + block("x", "y") + block("gone", "z")).content
    assert (folder / "a").read_text() == "one\n2\nx\nx\n"
    assert "1 of 3 blocks applied (block 1 at line 2)" in said
    assert "Block 2 was not applied: the search text stands at several places of 'a' (lines 3, 4)" in said
    assert "Block 3 was not applied: the search text isn't in 'a'." in said


def diff_of(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else block(*part) for part in parts)


@pytest.mark.parametrize(("text", "parts", "kind", "says"), TABLE["refused"])
def test_what_cannot_be_done_changes_nothing_and_says_why(
    call: Calls, text: str, parts: list[Any], kind: str, says: str
) -> None:
    call.write({"a": text})
    assert says in call.failed(kind, "apply_diff", path="a", diff=diff_of(parts))


@pytest.mark.parametrize(
    ("hint", "changed"), [(100, 100), (104, 100), (95, 100), (106, None), (30, None), (3, 1), (55, None)]
)
def test_a_hint_may_be_a_few_lines_off_where_nothing_else_is_near(
    call: Calls, folder: Path, hint: int, changed: int | None
) -> None:
    lines = ["x" if n in (1, 100) else f"line {n}" for n in range(1, 200)]
    (folder / "a").write_text("\n".join(lines) + "\n")
    call("apply_diff", path="a", diff=block("x", "NEW", hint))
    after = (folder / "a").read_text().split("\n")
    assert [n for n, line in enumerate(after, 1) if line == "NEW"] == [n for n in [changed] if n]


@pytest.mark.parametrize(("text", "parts", "after"), TABLE["applied"])
def test_a_block_changes_the_lines_that_are_meant_and_margins_of_listings_are_no_text_unless_the_file_has_them(
    call: Calls, text: str, parts: list[Any], after: str
) -> None:
    call.write({"a": text})
    assert (call("apply_diff", path="a", diff=diff_of(parts)).status, call.read("a")) == ("success", after)


@given(
    st.lists(st.sampled_from(["a", "b", "1 | a", "2 | b", "| a", "3 || a"]), min_size=1, max_size=60),
    st.integers(0, 59),
    st.integers(1, 3),
    st.integers(-8, 8),
    st.integers(0, 70),
    st.sampled_from(["N | ", "| ", ""]),
)
def test_a_margin_never_leads_to_a_wrong_place(
    lines: list[str], at: int, count: int, off: int, hint: int, margin: str
) -> None:
    """Text that stands as it was written wins; else only the one place is changed that the numbers count."""
    at %= len(lines)
    old = lines[at:][:count]
    sent = [margin.replace("N", str(at + off + n)) + line for n, line in enumerate(old, 1)]
    new = margin.replace("N", str(at + off + 1)) + "NEW"
    work = apply_blocks(
        "f", TextFile("\n".join(lines) + "\n"), parse_blocks(block("\n".join(sent), new, hint)), WorkBudget()
    )
    if not work.places:
        return
    after = work.final_text.split("\n")
    changed = next(n for n, line in enumerate(after) if line.endswith("NEW"))
    written = [n for n in range(len(lines)) if lines[n : n + len(old)] == sent]
    bare = [n for n in range(len(lines)) if lines[n : n + len(old)] == old]
    assert changed in (written or bare)
    assert (after[:changed], after[changed + 1 :]) == (lines[:changed], [*lines[changed + len(old) :], ""])
    if not written and margin == "N | ":
        said = at + off + 1
        assert abs(changed + 1 - said) <= 5
        assert changed + 1 == (hint or said) or all(
            abs(n + 1 - (hint or said)) > 30 for n in {*bare} - {changed}
        )


def test_blocks_of_one_call_share_their_comparisons_and_end_when_asked() -> None:
    """Four times the blocks don't take four times the work, counted in executed lines of Python."""
    file = TextFile("".join(f"    value_{n} = compute({n}, other)\n" for n in range(2_000)))
    nearly = [Block((f"    valeu_{n} = compute(x, otter)",), ("z",), n) for n in range(1, 161)]
    few, many = (
        lines_run(lambda count=count: apply_blocks("f", file, nearly[:count], WorkBudget(2_000_000)))
        for count in (40, 160)
    )
    assert many < 1.5 * few
    alike = [Block(tuple(f"    valeu_{k} = compute({k}, other)" for k in range(20)), ("z",), 0)] * 9
    assert lines_run(lambda: apply_blocks("f", file, alike, WorkBudget(2_000_000))) < 1_000_000
    assert apply_blocks(
        "f", file, [Block(("    value_7 = compute(7, other)",), ("z",), 0)], WorkBudget(0)
    ).places
    stop = StopFlag()
    stop.request_stop()
    with pytest.raises(Stopped):
        apply_blocks("f", file, nearly, WorkBudget(check=stop.raise_if_stopped))


@pytest.mark.parametrize(
    "diff",
    [
        "<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\na\n=======\n:start_line:3\nb\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\na\n=======\nb\n",
        "<<<<<<< SEARCH\na\n",
        "<<<<<<< SEARCH\n<<<<<<< HEAD\n=======\nb\n>>>>>>> REPLACE\n",
        "=======\nb\n>>>>>>> REPLACE\n",
        block("a", "b") + "and then",
        block("a", "b") * 201,
    ],
)
def test_a_marker_out_of_its_place_or_too_many_blocks_are_refused(diff: str) -> None:
    with pytest.raises(DiffError):
        parse_blocks(diff)


LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(
            ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "-------", ":start_line:1", "\\=======", "\\"]
        ),
    ),
    min_size=1,
    max_size=5,
)


def escaped(lines: list[str]) -> str:
    marks = ("<<<<<<<", "=======", ">>>>>>>", "-------", ":start_line:", ":end_line:")
    return "".join(f"{chr(92) * line.lstrip(chr(92))[:99].startswith(marks)}{line}\n" for line in lines)


@given(LINES, st.one_of(st.just([]), LINES), st.integers(0, 99))
def test_any_text_survives_a_block_when_it_is_escaped(search: list[str], new: list[str], line: int) -> None:
    hint = f":start_line:{line}\n" if line else ""
    text = f"<<<<<<< SEARCH\n{hint}-------\n{escaped(search)}=======\n{escaped(new)}>>>>>>> REPLACE"
    assert parse_blocks(text) == [Block(tuple(search), tuple(new) if new != [""] else (), line)]


@given(
    st.lists(st.sampled_from(["a", "b", "  a", "c d"]), min_size=1, max_size=90),
    st.integers(0, 89),
    st.integers(1, 3),
    st.integers(0, 120),
)
def test_only_the_place_that_is_meant_is_ever_changed(
    lines: list[str], at: int, count: int, hint: int
) -> None:
    """A unique or hinted place is changed: anything else is refused."""
    old = lines[at % len(lines) :][:count]
    starts = [n for n in range(len(lines)) if lines[n : n + len(old)] == old]
    work = apply_blocks(
        "f", TextFile("\n".join(lines) + "\n"), [Block(tuple(old), ("NEW",), hint)], WorkBudget()
    )
    if not work.places:
        assert len(starts) > 1
        return
    changed = work.final_text.split("\n").index("NEW")
    assert work.final_text == "\n".join([*lines[:changed], "NEW", *lines[changed + len(old) :], ""])
    assert changed in starts
    others = [abs(start + 1 - hint) for start in starts if start != changed]
    assert changed + 1 == hint or not others or (abs(changed + 1 - hint) <= 5 and min(others) > 30)


@given(
    st.lists(st.sampled_from(["a", "b b", "  a a", "c"]), min_size=1, max_size=30),
    st.integers(0, 29),
    st.integers(1, 3),
    st.sampled_from([0, 1, 2]),
)
def test_a_blank_line_that_the_file_does_not_have_takes_no_other_line_with_it(
    lines: list[str], at: int, count: int, before: int
) -> None:
    at %= len(lines)
    old = lines[at:][:count]
    search = [*[""] * before, *old, ""]
    work = apply_blocks(
        "f", TextFile("\n".join(lines) + "\n"), [Block(tuple(search), ("NEW",), at + 1)], WorkBudget()
    )
    if work.places:
        made = [line.lstrip() if line.strip() == "NEW" else line for line in work.final_text.split("\n")]
        assert made == [*lines[:at], "NEW", *lines[at + len(old) :], ""]


def test_content_is_put_before_a_line_or_at_the_end(call: Calls, folder: Path) -> None:
    for before, line, after in (
        ("a\nb\n", 2, "a\nnew\nb\n"),
        ("a\r\nb\r\n", 1, "new\r\na\r\nb\r\n"),
        ("a\nb", 0, "a\nb\nnew"),
        ("a\nb\n", 3, "a\nb\nnew\n"),
        ("", 0, "new\n"),
    ):
        (folder / "a").write_bytes(before.encode())
        call("insert_content", path="a", line=line, content="new")
        assert (folder / "a").read_bytes() == after.encode()
    assert call("insert_content", path="d/new", line=0, content="x\n").status == "success"
    assert (folder / "d/new").read_text() == "x\n"
