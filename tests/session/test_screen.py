"""A run's events as lines: finished ones once, live ones never larger than their space."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any, cast

from pydantic import JsonValue
from rich.cells import cell_len
from rich.table import Table

from interlock.cli.session.decision_panel import DecisionPanel
from interlock.cli.session.screen import Screen
from interlock.cli.session.theme import THEMES
from interlock.engine.client import Decision
from interlock.engine.client.answer_choices import plan_under_review
from interlock.engine.client.requests import decided_request_line
from interlock.state import events as ev
from interlock.state.seen import SeenFile
from interlock.tools.stale_files import StaleFile

SGR = re.compile(r"\x1b\[[0-9;]*m")


def made(*events: ev.Event, width: int = 80, theme: str = "default") -> Screen:
    screen = Screen(width, THEMES[theme], clock=lambda: 0.0)
    for event in events:
        screen(event)
    return screen


def plain(text: str) -> list[str]:
    return SGR.sub("", text).split("\n")


def answer(text: str, size: int = 5) -> Iterable[ev.Event]:
    yield ev.Init(session_id="r", model="m", workflow="main")
    for at in range(0, len(text), size):
        yield ev.MessageEvent(role="assistant", content=text[at : at + size], delta=True)


def test_a_paragraph_is_printed_once_when_it_is_over() -> None:
    screen = made(*answer("The first.\n\nThe second"))
    assert plain(screen.take_finished_output()) == ["The first.", ""]
    assert plain(screen.take_finished_output()) == [""]
    assert "The second" in plain(screen.live_text(10))
    screen(ev.Finished(reason="STOP", usage={}, duration_ms=1))
    assert plain(screen.take_finished_output()) == ["", "The second", ""]


ODD = (
    "\n" * 500,
    "\t" * 500,
    "```python",
    "x" * 1_000_000,
    "| a |\n|---|\n" * 50,
    "- " * 400,
    "\u0301" * 300,
)


def test_live_lines_fit_the_place_that_they_have() -> None:
    text = "word " * 500 + "\n| a | b |\n|---|---|\n| 日本語 | x |\n" + "x" * 500
    call = ev.ToolStart(tool_name="sh", tool_id="1", summary="make " * 40)
    lines = ev.ToolOutput(tool_id="1", text="日本語\t" * 50 + "\n")
    for width in (20, 40, 81):
        screen = made(*answer(text), call, lines, lines, width=width)
        for height in (1, 2, 5, 30):
            shown = plain(screen.live_text(height))
            assert len(shown) <= height and max(map(cell_len, shown)) <= width
    for text in ODD:
        screen = made(*answer(text, 4096), width=20)
        shown = plain(screen.live_text(5))
        assert len(shown) <= 5 and max(map(cell_len, shown)) <= 20
        screen(ev.Result(status="done", response=text))
        assert plain(screen.take_finished_output())[-1] == ""


def test_a_bar_stands_while_its_workflow_goes_from_node_to_node() -> None:
    def at(workflow: str, node: str) -> ev.NodeStart:
        return ev.NodeStart(workflow=workflow, node=node, checkpoint_id="")

    begins = ev.Init(session_id="r", model="m", workflow="main")
    half = ev.Progress(what="indexing", done=5, total=10, unit="files")
    screen = made(begins, at("search", "store"), half, at("search", "chunk"))
    assert "indexing 5 of 10 files" in screen.live_text(10)
    screen(at("turn", "call_model"))
    assert "indexing" not in screen.live_text(10)


HARMFUL = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u202c\x00\u200b\r"


def test_nothing_that_a_terminal_obeys_comes_through() -> None:
    """From any source: the model, tools, files, a person's paste, an error."""
    screen = Screen(60, THEMES["dark"])
    screen.show_prompt(HARMFUL)
    screen.show_note(HARMFUL)
    screen.show_renderable(Table(title=HARMFUL))
    live = ""
    for event in (
        ev.Init(session_id="r", model="m", workflow="main"),
        ev.Thought(content=HARMFUL),
        *(
            ev.MessageEvent(role="assistant", content=t, delta=True)
            for t in f"{HARMFUL} [a](http://x/{HARMFUL})"
        ),
        ev.ToolUse(tool_name="write_todos", tool_id="0", parameters={"todos": [{"description": HARMFUL}]}),
        ev.ToolResultEvent(tool_name="write_todos", tool_id="0", status="success"),
        ev.AgentStart(agent="a:0", name=HARMFUL, task=HARMFUL),
        ev.ToolStart(tool_name="sh", tool_id="1", summary=HARMFUL),
        ev.ToolOutput(tool_id="1", text=f"{HARMFUL}\n{HARMFUL}"),
        ev.Progress(what=HARMFUL, done=1, total=2, unit=HARMFUL),
        ev.Retry(reason=HARMFUL, delay_s=1, attempt=1),
        ev.ErrorEvent(severity="error", message=HARMFUL),
        ev.HandOver(run=HARMFUL, workflow=HARMFUL),
    ):
        screen(event)
        live += screen.live_text(20)
    diff = f"--- a/{HARMFUL}\n+++ b/x\n@@ -1 +1 @@\n-{HARMFUL}\n+{HARMFUL}x\n"
    screen(
        ev.ToolResultEvent(
            tool_name=HARMFUL, tool_id="1", status="error", error={"message": HARMFUL}, diff=diff
        )
    )
    screen(ev.AgentEnd(agent="a:0", reason=HARMFUL, turns=1, duration_s=1))
    screen(ev.Result(status="failed", error={"type": HARMFUL, "message": HARMFUL}, resume_command=HARMFUL))
    shown = SGR.sub("", live + screen.take_finished_output())
    assert "evil" in shown
    assert not set(shown) & {"\x1b", "\x9b", "\x07", "\x00", "\r", "\u202e", "\u202c", "\u200b"}


def test_the_answer_that_came_otherwise_is_shown_once() -> None:
    events = [*answer("Nearly done.")]
    assert plain(made(*events, ev.Result(status="done", response="Nearly done.")).take_finished_output()) == [
        "Nearly done.",
        "",
    ]
    changed = made(*events, ev.Result(status="done", response="A hook said this."))
    assert plain(changed.take_finished_output()) == ["Nearly done.", "", "A hook said this.", ""]


def test_a_long_answer_that_comes_whole_is_taken_in_pieces_between_which_others_paint() -> None:
    """The session gets only part of a stream that is too fast for it; the final event has all of it."""
    screen = made(*answer("paragraph 0 of"))
    painted: list[str] = []
    screen.changed = lambda: painted.append(screen.take_finished_output())
    whole = "\n\n".join(f"paragraph {n} of many" for n in range(1000))
    screen(ev.Result(status="done", response=whole))
    assert sum("paragraph" in text for text in painted) >= 5
    lines = plain("".join(painted))
    assert [line for line in lines if line.endswith("of many")] == whole.split("\n\n")


def test_the_result_of_an_edit_that_was_decided_here_adds_nothing_to_the_decision() -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    request = {
        "id": "r-1",
        "call": "1",
        "kind": "approval",
        "tool_name": "replace",
        "args": {"file_path": "f"},
        "preview": diff,
        "reason": "",
        "choices": ["proceed_once", "reject"],
    }
    edit: dict[str, Any] = {"tool_name": "replace", "tool_id": "1", "summary": "Edit f"}
    done = ev.ToolResultEvent(**edit, status="success", diff=diff)
    no = ev.ToolResultEvent(**edit, status="error", error={"type": "rejected", "message": "for the model"})
    assert "  1 + b" in plain(made(done).take_finished_output())
    assert plain(made(no).take_finished_output()) == ["– Edit f · refused", ""]
    for choice, result, line in (
        ("proceed_once", done, "✓ Edit f · accepted (+1 −1)"),
        ("reject", no, "– Edit f · refused"),
    ):
        screen, decision = made(), Decision("r-1", cast(Any, choice))
        screen.show_decided([request], [decision], decided_request_line(request, decision))
        screen(result)
        assert plain(screen.take_finished_output()) == [line, ""]


def test_a_refused_write_says_why_in_a_line_and_shows_its_diff() -> None:
    now = SeenFile(path="f", digest="1")
    stale = StaleFile("unread", now, None, None, cast(Any, None))
    why = str(stale.make_overwrite_error("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"))
    refused = {"type": "not_read", "message": why}
    result = ev.ToolResultEvent(
        tool_name="write_file", tool_id="1", status="error", summary="Write f", error=refused
    )
    first, *diff = plain(made(result).take_finished_output())
    assert first == "✗ Write f · 'f' exists and you haven't read it, so nothing was written."
    assert [line.strip() for line in diff[-3:]] == ["1 - a", "1 + b", ""]


def test_steps_stand_while_a_person_decides_and_are_printed_once_at_the_end() -> None:
    todos: list[JsonValue] = [{"description": "Read", "status": "in_progress"}]
    start = ev.Init(session_id="r", model="m", workflow="main")
    screen = made(
        start,
        ev.ToolUse(tool_name="write_todos", tool_id="1", parameters={"todos": todos}),
        ev.ToolResultEvent(tool_name="write_todos", tool_id="1", status="success"),
    )
    assert "  ▸ Read" in plain(screen.live_text(9))
    screen(ev.Result(status="waiting"))
    screen.end_drive()
    assert (screen.take_finished_output(), screen.live_text(9)) == ("", "")
    screen(start)
    assert "  ▸ Read" in plain(screen.live_text(9))
    screen(ev.Result(status="done"))
    assert plain(screen.take_finished_output()) == ["Steps · 0 of 1 done", "  ▸ Read", ""]


def test_a_paste_of_many_lines_is_folded() -> None:
    screen = made()
    screen.show_prompt("\n".join(f"line {n}" for n in range(5000)))
    shown = plain(screen.take_finished_output())
    assert shown[0] == "❯ line 0"
    assert shown[-2:] == ["  … 4,980 more lines", ""]


def test_a_plan_is_shown_rendered_above_its_choices_and_in_the_scrollback_once_approved() -> None:
    request = {
        "id": "r-1",
        "call": "1",
        "kind": "approval",
        "tool_name": "exit_plan_mode",
        "args": {"plan_filename": "fix.md", "plan": "# Fix\n\n1. Change **add**"},
        "preview": "# Fix\n\n1. Change **add**",
        "reason": "The plan is ready.",
        "choices": ["proceed_once", "proceed_always", "reject"],
    }
    screen = made()

    async def panel_lines() -> list[str]:
        panel = DecisionPanel([request], cast(Any, None), screen.layout_markdown)
        return [line.plain for line in panel.lines(80, 22)]

    assert asyncio.run(panel_lines()) == [
        "Plan: fix.md",
        "Fix",
        "",
        "1. Change add",
        "❯ [y] Yes, and ask before each edit",
        "  [a] Yes to all: the plan's edits need no further approval; commands still do",
        "  [n] No, and say why",
        "  The plan is ready.",
        "  [v] view all  [?] more  Esc: later",
    ]
    decision = Decision("r-1", "proceed_once")
    screen.show_decided([request], [decision], decided_request_line(request, decision))
    assert plain(screen.take_finished_output()) == [
        "Fix",
        "",
        "1. Change add",
        "",
        "✓ Plan: fix.md · accepted",
        "",
    ]
    assert plan_under_review({**request, "tool_name": "replace"}) == ""
