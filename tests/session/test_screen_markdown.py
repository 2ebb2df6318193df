"""A streamed answer renders as if it came at once, however it was split; each block once; in linear work."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from interlock.cli.session import markdown
from interlock.cli.session.markdown import LIMIT, MarkdownStream
from interlock.cli.session.markdown_layout import MarkdownLayout, parse_markdown_blocks
from interlock.cli.session.theme import THEMES

WORDS = st.sampled_from(
    [
        "plain words",
        "**bold** and *soft*",
        "`code`",
        "a [link](https://x.org/a)",
        "日本語の文",
        "مرحبا",
        "👩‍💻 x",
        "1. no",
        "# no",
    ]
)
CODE = st.lists(st.sampled_from(["def f():", "    return 1", "", "- not a list", '"""', "  x"]), max_size=6)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 9))
    words = draw(st.lists(WORDS, min_size=1, max_size=4))
    if kind == 0:
        return f"{'#' * draw(st.integers(1, 4))} {words[0]}"
    if kind == 1:
        fence = draw(st.sampled_from(["```", "~~~", "````"]))
        return "\n".join([f"{fence}{draw(st.sampled_from(['', 'python', 'nonsense']))}", *draw(CODE), fence])
    if kind in (2, 3):
        between = draw(st.sampled_from(["\n", "\n\n", "\n  - inner\n", "\n  continued\n", "\n\n  apart\n\n"]))
        mark = "- " if kind == 2 else f"{draw(st.integers(0, 9))}. "
        return between.join(f"{mark}{word}" for word in words)
    if kind == 4:
        return "\n".join(["| a | b |", "|---|--:|", *(f"| {word} | 2 |" for word in words)])
    if kind == 5:
        return "\n".join(f"> {word}" for word in words)
    if kind == 6:
        return draw(
            st.sampled_from(["---", "***", "Title\n=====", "Title\n---", "    indented code\n\n    more"])
        )
    return "\n".join(words)


DOCUMENTS = st.lists(blocks(), max_size=6).flatmap(
    lambda made: st.lists(
        st.sampled_from(["\n", "\n\n", "\n\n\n"]), min_size=len(made), max_size=len(made)
    ).map(lambda gaps: "".join(block + gap for block, gap in zip(made, gaps, strict=True)))
)


def page(theme: str = "default", width: int = 30) -> MarkdownLayout:
    return MarkdownLayout(THEMES[theme].make_string_console(width), width, THEMES[theme].code)


def fed(pieces: list[str], theme: str = "default") -> list[Text]:
    stream = MarkdownStream(page(theme))
    return [*(line for piece in pieces for line in stream.feed(piece)), *stream.finish()]


def plain(lines: list[Text]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)]


@given(DOCUMENTS, st.lists(st.integers(0, 10_000), max_size=30))
def test_an_answer_doesnt_depend_on_how_it_was_cut(text: str, places: list[int]) -> None:
    assert fed(cut(text, places)) == fed([text])


@given(DOCUMENTS)
def test_what_streamed_reads_as_what_came_at_once(text: str) -> None:
    for theme in ("default", "no-color"):
        lines = text.split("\n")
        whole = plain(page(theme).layout_blocks(parse_markdown_blocks(lines), lines))
        assert plain(fed([*text], theme)) == whole


@given(
    st.text(alphabet="#>-*_`~| \n\t1.)[]()!\\<a:=+日", max_size=300),
    st.lists(st.integers(0, 300), max_size=9),
)
def test_nothing_breaks_it(text: str, places: list[int]) -> None:
    stream = MarkdownStream(page())
    shown: list[Text] = []
    for piece in cut(text, places):
        shown += stream.feed(piece)
        stream.render_unfinished()
    assert [*shown, *stream.finish()] == fed([text])


UNITS = ("word ", "- item\n", "> quote\n", "[", "\n", "- a\n  - b\n", "para\n\n")
STARTS = ("", "```python\n", "| a | b |\n|---|---|\n", "- ")


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        pytest.param(start, unit, marks=[pytest.mark.sweep] if start and unit != "word " else [])
        for start in STARTS
        for unit in UNITS
    ],
)
def test_the_work_grows_with_the_text(start: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in characters parsed or highlighted."""
    worked, parsed, code = list[int](), markdown.parse_markdown_blocks, MarkdownLayout.highlight_code

    def counted(lines: Sequence[str]) -> Any:
        worked.extend(len(line) + 1 for line in lines)
        return parsed(lines)

    def highlighted(page: MarkdownLayout, lines: Sequence[str], *more: Any) -> Any:
        worked.extend(len(line) + 1 for line in lines)
        return code(page, lines, *more)

    monkeypatch.setattr(markdown, "LIMIT", 1000)
    monkeypatch.setattr(markdown, "parse_markdown_blocks", counted)
    monkeypatch.setattr(MarkdownLayout, "highlight_code", highlighted)
    stream = MarkdownStream(page())
    text = start + unit * (5_000 // len(unit))
    for at in range(0, len(text), 97):
        stream.feed(text[at : at + 97])
    stream.finish()
    assert sum(worked) <= 12 * len(text)


def test_a_line_of_a_megabyte_passes_in_pieces() -> None:
    text = "word " * 200_000
    stream = MarkdownStream(page())
    shown = plain(stream.feed(text))
    assert sum(map(len, shown)) > 900_000 * 0.9
    assert len("".join(line.plain for line in stream.render_unfinished())) <= LIMIT
    assert "".join([*shown, *plain(stream.finish())]).count("word") == 200_000
