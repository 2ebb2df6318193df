"""What the screen shows for the events of real runs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from folders import put
from places import Place
from scripted import call, says, tools

from interlock.cli.session.screen import Screen
from interlock.cli.session.theme import THEMES
from interlock.engine import run_sync
from interlock.engine.options import Outcome
from interlock.state.events import Event

SGR = re.compile(r"\x1b\[[0-9;]*m")
TOOK = re.compile(r" · \d[\d.]* (?:ms|s)")
CODE = "def add(a, b):\n    return a - b\n"


def ran(folder: Path, replies: Sequence[dict[str, Any]]) -> tuple[list[Event], Outcome]:
    place, events = Place(folder), list[Event]()
    (place.work / "calc.py").write_text(CODE)
    put(folder / "replies.json", replies)
    given = place.options(model=f"script:{folder / 'replies.json'}", skip_trust=True, approval_mode="yolo")
    return events, run_sync("main", {"prompt": "Fix it"}, options=given, renderers=[events.append])


def shown(events: Sequence[Event]) -> str:
    """On a screen wide enough that no line is broken because its call took long."""
    screen = Screen(100, THEMES["default"], clock=lambda: 0.0)
    out = ""
    for event in events:
        screen(event)
        out += screen.take_finished_output()
        live = screen.live_text(8)
        assert live.count("\n") < 8
    screen.end_drive()
    assert screen.live_text(8) == ""
    return TOOK.sub("", SGR.sub("", out + screen.take_finished_output()))


def todos(*status: str) -> dict[str, Any]:
    steps = ("Read", "Fix")
    given = [{"description": d, "status": s} for d, s in zip(steps, status, strict=True)]
    return call("write_todos", todos=given)


def test_a_run_from_its_thought_to_its_answer(tmp_path: Path) -> None:
    said = {"thought": "**Looking**\n\nFirst I read it.", "text": "I look first."}
    look = [todos("in_progress", "pending"), call("read_file", file_path="calc.py")]
    change = {"old_string": "a - b", "new_string": "a + b", "instruction": "x"}
    replies = [
        {**said, "tool_calls": look},
        says("replace", file_path="calc.py", **change),
        says("run_shell_command", command="seq 1 20; false"),
        says("read_file", file_path="gone.py"),
        tools(todos("completed", "completed")),
        {"text": "It **added** wrongly.\n\n- fixed\n- tested"},
    ]
    events, _ = ran(tmp_path, replies)
    assert shown(events) == (
        "∴ Looking\n"
        "\n"
        "I look first.\n"
        "\n"
        "✓ Read calc.py\n"
        "✓ Edit calc.py: x · +1 −1\n"
        "  1   def add(a, b):\n"
        "  2 -     return a - b\n"
        "  2 +     return a + b\n"
        "✗ $ seq 1 20; false · exit 1\n"
        "  │ 1\n  │ 2\n  │ 3\n"
        "  │ … 12 lines: /show --call 2.0\n"
        "  │ 16\n  │ 17\n  │ 18\n  │ 19\n  │ 20\n"
        "✗ Read gone.py · No file 'gone.py'. Find it with glob or list_directory.\n"
        "\n"
        "Steps · 2 of 2 done\n"
        "  ✓ Read\n"
        "  ✓ Fix\n"
        "\n"
        "It added wrongly.\n"
        "\n"
        "• fixed\n"
        "• tested\n"
    )


def test_a_sub_agent_is_one_line_while_it_works_and_one_when_it_is_over(tmp_path: Path) -> None:
    look = call("list_directory", dir_path=".")
    edit = call("write_file", file_path="new.py", content="x = 1\n")
    agent = {"agent": "generalist:0.0"}
    events, _ = ran(
        tmp_path,
        [
            says("invoke_agent", agent_name="generalist", prompt="Write new.py"),
            {**agent, "tool_calls": [look, edit]},
            {**agent, "tool_calls": [call("complete_task", result="written")]},
            {"text": "Done."},
        ],
    )
    moment = next(n for n, e in enumerate(events) if e.type == "tool_result" and e.agent)
    screen = Screen(60, THEMES["default"], clock=lambda: 0.0)
    for event in events[:moment]:
        screen(event)
    live = SGR.sub("", screen.live_text(10))
    assert re.search(r"^▸ generalist .* · 1 turn · 0 s$", live, re.MULTILINE), live
    text = shown(events)
    assert "generalist:0.0 › Write new.py · +1\n  1 + x = 1\n" in text
    assert "List" not in text
    assert re.search(r"^▪ generalist · 3 calls, goal, 2 turns", text, re.MULTILINE), text


def test_how_a_drive_ended_badly_is_said_with_what_it_took(tmp_path: Path) -> None:
    events, outcome = ran(tmp_path, [{"error": {"status": 400, "message": "bad request"}}])
    text = shown(events)
    assert outcome.error
    assert f"✗ {outcome.error['message']}" in text
