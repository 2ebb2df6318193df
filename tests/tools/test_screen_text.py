"""What the model reads of a command's output is what a screen would show of it."""

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.screen_text import ScreenText

PIECES = st.sampled_from(
    [
        *(
            "a",
            "word ",
            "日本",
            "\n",
            "\n",
            "\r",
            "\b",
            "\x1b[31m",
            "\x1b[0m",
            "\x1b[K",
            "\x1b[1K",
            "\x1b[2K",
        ),
        *(
            "\x1b[A",
            "\x1b[2A",
            "\x1b[B",
            "\x1b[3C",
            "\x1b[D",
            "\x1b[5G",
            "\x1b[E",
            "\x1b[F",
            "\x1b[J",
            "\x1b[P",
        ),
        *("\x1b[2X", "\x1b7", "\x1b8", "\x1b]0;title\x07", "\x07", "\x1b(B", "\x1b[?25l"),
    ]
)


def shown(*parts: str) -> str:
    screen = ScreenText()
    return "".join(map(screen.feed, parts)) + screen.finish()


def on_screen(text: str) -> list[str]:
    screen = pyte.Screen(200, 100)
    screen.set_mode(pyte.modes.LNM)  # as a terminal's driver ends lines
    pyte.Stream(screen).feed(text)
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


@given(st.lists(PIECES.filter(lambda piece: piece != "日本"), max_size=40), st.integers(1, 7))
def test_it_is_what_an_emulator_shows_wherever_the_output_is_cut(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    mine = "\n".join(line.rstrip() for line in shown(*parts).split("\n")).rstrip().split("\n")
    assert mine == on_screen(text)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("\x1b[1m\x1b[32m✓\x1b[0m 3 passed\r\n", "✓ 3 passed\n"),
        ("10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        ("layer 1\nlayer 2\n\x1b[2A\x1b[2Klayer 1 done\n\x1b[B", "layer 1 done\nlayer 2\n"),
        ("see \x1b]8;;https://a.b\x1b\\the page\x1b]8;;\x1b\\\n", "see the page\n"),
        ("before\n\x1b[?1049h\x1b[2J\x1b[Ha pager\x1b[?1049lafter\n", "before\nafter\n"),
        ("kept\n\x1b[H\x1b[2Jone\n\x1b[H\x1b[2Jtwo\n", "kept\ntwo\n"),
        ("a\tb\n", "a\tb\n"),
        ("a\0b\0", "a\0b\0"),  # `find -print0`; what sends it spells NUL out
        ("caf\udce9.txt\n", "caf\\xe9.txt\n"),
        (
            "head\n" + "\0\udcff\1\udcfe" * 9 + "\n\udcffx\ntail",
            "head\n[Output that isn't text in UTF-8 isn't shown here.]\ntail",
        ),
        ("\x1b[999999999Bx", "x"),
    ],
)
def test_what_redraws_colours_or_is_no_text_is_left_out(written: str, text: str) -> None:
    assert shown(written).lstrip("\n") == text
    assert shown(*written).lstrip("\n") == text


def test_a_long_output_is_given_back_as_it_comes() -> None:
    screen = ScreenText()
    lines = [f"line {number}\n" for number in range(2_000)]
    given_back = [screen.feed(line) for line in lines]
    assert "".join(given_back) and "".join(given_back) + screen.finish() == "".join(lines)
    assert shown(*["x" * 50_000] * 9) == "x" * 450_000


def test_odd_numbers_in_sequences_neither_fail_nor_fill_the_memory() -> None:
    assert shown("a\x1b[" + "9" * 5000 + "Db") == "b"
    assert len(shown("\x1b[99999C" * 100 + "b")) < 10_000
