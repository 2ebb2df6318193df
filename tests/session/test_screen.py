"""A run's events as lines: finished ones once, live ones never larger than the place that they have."""

import re
from collections.abc import Iterable

from rich.cells import cell_len

from interlock.cli.session.screen import Screen
from interlock.cli.session.theme import THEMES
from interlock.state.events import (
    Event,
    Finished,
    Init,
    MessageEvent,
    Result,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
)

SGR = re.compile(r"\x1b\[[0-9;]*m")


def made(*events: Event, width: int = 80, theme: str = "default") -> Screen:
    screen = Screen(width, THEMES[theme], clock=lambda: 0.0)
    for event in events:
        screen(event)
    return screen


def plain(text: str) -> list[str]:
    return SGR.sub("", text).split("\n")


def answer(text: str, size: int = 5) -> Iterable[Event]:
    yield Init(session_id="r", model="m", workflow="main")
    for at in range(0, len(text), size):
        yield MessageEvent(role="assistant", content=text[at : at + size], delta=True)


def test_a_paragraph_is_printed_once_when_it_is_over() -> None:
    screen = made(*answer("The first.\n\nThe second"))
    assert plain(screen.finished()) == ["The first.", ""]
    assert plain(screen.finished()) == [""]
    assert "The second" in plain(screen.live(10))
    screen(Finished(reason="STOP", usage={}, duration_ms=1))
    assert plain(screen.finished()) == ["", "The second", ""]


def test_live_lines_fit_the_place_that_they_have() -> None:
    events = [*answer("word " * 500 + "\n| a | b |\n|---|---|\n| 日本語 | x |\n" + "x" * 500)]
    call = ToolStart(tool_name="sh", tool_id="1", summary="make " * 40)
    lines = ToolOutput(tool_id="1", text="日本語\t" * 50 + "\n")
    for width in (20, 40, 81):
        screen = made(*events, call, lines, lines, width=width)
        for height in (1, 2, 5, 30):
            shown = plain(screen.live(height))
            assert len(shown) <= height
            assert max(map(cell_len, shown)) <= width


def test_a_long_output_is_folded() -> None:
    screen = made(
        ToolStart(tool_name="sh", tool_id="1", summary="make"),
        *(ToolOutput(tool_id="1", text=f"line {n}\n") for n in range(10_000)),
        ToolResultEvent(tool_name="sh", tool_id="1", status="success", summary="make"),
    )
    shown = plain(screen.finished())
    assert shown[:2] == ["✓ make", "  │ line 0"]
    assert "  │ … 9,992 lines: /show --call 1" in shown
    assert shown[-2:] == ["  │ line 9999", ""]


def test_a_run_that_is_over_leaves_nothing_live() -> None:
    screen = made(
        *answer("Half a"), Result(status="cancelled", stats={"total_tokens": 1200, "elapsed_ms": 3000})
    )
    assert screen.live(10) == ""
    assert plain(screen.finished()) == ["Half a", "", "– Cancelled · 1.2k tokens · 3.0 s", ""]
