"""Themes: each renders everything, without colours where they are off; gemini-cli's names work; settings choose."""

import re

import pytest

from interlock.cli.session.screen import Screen
from interlock.cli.session.theme import THEMES, find_theme
from interlock.state.events import Finished, Init, MessageEvent, Result, Thought, ToolResultEvent

DIFF = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-total = old\n+total = new\n"
COLOURS = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
ATTRIBUTES = re.compile(r"\x1b\[(?:0|1|2|3|4|9)(?:;[123479])*m")


def drawn(screen: Screen) -> str:
    screen.show_prompt("prompt")
    for event in (
        Init(session_id="r", model="m", workflow="main"),
        Thought(content="**About** something"),
        MessageEvent(role="assistant", content="# T\n\n`code` [l](http://x.y)\n\n```python\nx = 1\n```\n"),
        Finished(reason="STOP", usage={}, duration_ms=1),
        ToolResultEvent(tool_name="e", tool_id="1", status="success", summary="Edit", diff=DIFF),
        ToolResultEvent(tool_name="e", tool_id="2", status="error", summary="Edit", error={"message": "no"}),
    ):
        screen(event)
    live = screen.live_text(10)
    screen(Result(status="cancelled"))
    return screen.take_finished_output() + live


@pytest.mark.parametrize("name", THEMES)
def test_a_theme_draws_everything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    shown = drawn(Screen(60, THEMES[name]))
    assert "total = " in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "\x1b[1mT\x1b[0m" in shown
    assert bool(COLOURS.search(shown)) is (name != "no-color")


@pytest.mark.parametrize("name", THEMES)
def test_without_colours_none_is_sent_and_changes_are_still_seen(name: str) -> None:
    shown = drawn(Screen(60, THEMES[name], color=False))
    assert not COLOURS.search(shown)
    assert ATTRIBUTES.sub("", shown).count("\x1b") == 0
    assert "\x1b[4mnew\x1b[0m" in shown
    assert "```python" in shown


def test_a_theme_that_is_changed_holds_from_there() -> None:
    screen = Screen(60, THEMES["dark"])
    screen.theme = THEMES["no-color"]
    assert not COLOURS.search(drawn(screen))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", "default"),
        ("Dark", "dark"),
        ("GitHub Light", "light"),
        ("Ayu", "dark"),
        ("ANSI", "default"),
        ("NoColor", "no-color"),
        ("GitHub Dark Colorblind", "colorblind"),
        ("mauve", None),
    ],
)
def test_names_of_gemini_cli_are_understood(name: str, found: str | None) -> None:
    theme = find_theme(name)
    assert (theme and theme.name) == found
