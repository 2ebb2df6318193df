"""What people and programs see of a run, from recorded events."""

import io
import json
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.catalog import execute_command
from interlock.cli.driving import _drive_and_show_outcome
from interlock.cli.render.live_calls import format_progress
from interlock.cli.render.output import Paint, sanitize_for_terminal, strip_codes_and_overwritten_text
from interlock.cli.render.pending_requests import pending_request_lines
from interlock.cli.render.text_view import TextView
from interlock.cli.render.views import JsonView, StreamJsonView
from interlock.engine.client import Client, Options, Outcome, Renderer
from interlock.engine.client.health import examine_and_repair_store
from interlock.state import events as e
from interlock.state.errors import RunError

GOLDEN = Path(__file__).parent.parent / "golden" / "cli"
Golden = Callable[[Path, str], None]
DIFF = (
    "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
)

Named = dict[str, Any]
READ: Named = {"tool_name": "read_file", "tool_id": "0.0", "summary": "Read calc.py"}
EDIT: Named = {"tool_name": "replace", "tool_id": "0.1", "summary": "Edit calc.py"}
TEST: Named = {"tool_name": "run_shell_command", "tool_id": "0.2", "summary": "$ pytest -q"}
GLOB: Named = {"tool_name": "glob", "tool_id": "0.3"}
EVENTS: list[e.Event] = [
    e.Init(session_id="aa11bb22", model="flash", workflow="main"),
    e.NodeStart(workflow="turn", node="call_model", checkpoint_id="c1"),
    e.ModelInfo(model="gemini-3.8-flash"),
    e.Retry(reason="503: overloaded", delay_s=5.2, attempt=1),
    e.Thought(content="The sign is wrong."),
    e.MessageEvent(role="assistant", content="I'll look ", delta=True),
    e.MessageEvent(role="assistant", content="at it.", delta=True),
    e.Finished(reason="stop", usage={"input": 1200, "output": 34}, duration_ms=80),
    e.NodeEnd(workflow="turn", node="call_model", checkpoint_id="c1", duration_ms=81.5),
    e.ToolUse(parameters={"file_path": "calc.py"}, **READ),
    e.ToolUse(parameters={"file_path": "calc.py"}, **EDIT),
    e.ToolResultEvent(status="success", output="def add", duration_ms=3, **READ),
    e.ToolResultEvent(status="success", output="ok", duration_ms=12, diff=DIFF, **EDIT),
    e.ToolUse(parameters={"command": "pytest"}, **{**TEST, "summary": "$ pytest"}),
    e.ToolStart(parameters={"command": "pytest -q"}, **TEST),
    e.ToolOutput(tool_id="0.2", text="collecting\r\x1b[32mcollected 2 items\x1b[0m\n..  "),
    e.ToolOutput(tool_id="0.2", text="[100%]\n"),
    *(e.ToolOutput(tool_id="0.2", text=f"line {number}\n") for number in range(40)),
    e.ToolResultEvent(status="success", duration_ms=2140, exit="exit 1", **TEST),
    e.ToolUse(**GLOB, parameters={}, summary=""),
    e.ToolResultEvent(**GLOB, status="error", error={"type": "x", "message": "pattern is missing\nmore"}),
    e.InvalidStream(reason="no finish reason"),
    e.ErrorEvent(severity="warning", message="settings.json: $X is not set."),
    e.MessageEvent(role="assistant", content="Fixed: ", delta=True),
    e.MessageEvent(role="assistant", content="add adds.", delta=True),
    e.Finished(reason="stop", usage={"input": 1300, "output": 10}, duration_ms=70),
    e.Result(status="done", response="Fixed: add adds."),
]
DONE = Outcome(
    run="aa11bb22",
    workflow="main",
    status="done",
    exit_code=0,
    output={"status": "done", "response": "Fixed: add adds."},
    stats={"total_tokens": 2544, "tool_calls": 4},
    warnings=["settings.json: $X is not set."],
)


ALWAYS = ("proceed_always", "proceed_always_and_save")


def _request(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"aa11bb22-1.{number}",
        "number": number,
        "kind": "approval",
        "tool_name": "replace",
        "args": {"file_path": "calc.py", "old_string": "a - b", "new_string": "it's a + b"},
        "reason": "edits ask in mode default",
        "preview": DIFF,
        "parts": [],
        "choices": ["proceed_once", *ALWAYS, "modify", "reject", "cancel"],
        "always": dict.fromkeys(ALWAYS, "replace with calc.py"),
        "note": None,
        "questions": [],
        "checkpoint_id": "c9",
        **changes,
    }


_PARTS = [
    {"text": "pytest -q", "decision": "allow", "reason": "a rule of yours"},
    {"text": "git push --force", "decision": "ask", "reason": "it writes to a remote"},
]
PENDING = [
    _request(1),
    _request(
        2,
        tool_name="run_shell_command",
        args={"command": "pytest -q && git push --force", "description": "x" * 200},
        reason="No rule allows `git push`.",
        preview="pytest -q && git push --force",
        always=dict.fromkeys(ALWAYS, "exactly `pytest` and `git push`"),
        parts=_PARTS,
        note="It was asked before; the files have changed since, so the preview is new.",
    ),
    _request(
        3,
        kind="question",
        tool_name="ask_user",
        args={},
        reason="The model asks you.",
        preview="Which style?",
        choices=["proceed_once", "reject"],
        questions=[
            {
                "question": "Which style?",
                "options": [{"label": "terse", "description": "one line"}, {"label": "full"}],
            }
        ],
    ),
    _request(
        4,
        kind="outcome",
        tool_name="run_shell_command",
        args={"command": "git push"},
        reason="The run was killed while this ran.",
        preview="git push",
        choices=["proceed_once", "reject"],
    ),
]
WAITING = Outcome(
    run="aa11bb22",
    workflow="main",
    status="waiting",
    exit_code=75,
    stats={"total_tokens": 10},
    pending=PENDING,
    resume_command="interlock resume aa11bb22",
)
FAILED = Outcome(
    run="aa11bb22",
    workflow="main",
    status="turn_limit",
    exit_code=53,
    output={"status": "turn_limit", "response": ""},
    error={"type": "turn_limit", "message": "3 turns were used."},
    resume_command="interlock resume aa11bb22",
)


def _shown(view: Renderer, outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    for event in EVENTS:
        view(event)
    view.show_outcome(outcome)  # type: ignore[attr-defined]
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_text_puts_the_answer_alone_on_stdout(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    out, err = _shown(TextView("fix it"), DONE, capsys)
    assert out == "Fixed: add adds.\n"
    golden(GOLDEN / "text.txt", err)


def test_text_tells_more_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = _shown(TextView(verbose=True), DONE, capsys)
    assert "The sign is wrong." in err
    assert "› turn.call_model" in err
    assert "model: gemini-3.8-flash" in err


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (FAILED, "3 turns were used. (turn_limit)\nGo on with: interlock resume aa11bb22\n"),
        (
            Outcome("aa11", "main", "cancelled", 130, resume_command="interlock resume aa11"),
            "the run stopped: cancelled\nGo on with: interlock resume aa11\n",
        ),
    ],
)
def test_text_of_an_error_says_what_and_how_to_go_on(
    outcome: Outcome, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    TextView().show_outcome(outcome)
    assert capsys.readouterr() == ("", f"interlock: {told}")


def test_a_run_that_waits_shows_what_why_and_every_command(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    view = TextView("fix the failing test\nplease")
    view.show_outcome(WAITING)
    shown = capsys.readouterr()
    assert shown.out == ""
    golden(GOLDEN / "waiting.txt", shown.err)


def test_the_answer_is_whole_when_pieces_of_it_were_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    view = TextView()
    view(e.MessageEvent(role="assistant", content="add adds.", delta=True))
    view.show_outcome(DONE)
    assert capsys.readouterr().out == "Fixed: add adds.\n"


@pytest.mark.parametrize(
    ("decided", "said"),
    [
        (("aa11bb22-1.8", "aa11bb22-1.9"), "Your 2 decisions are kept."),
        (("aa11bb22-1.8", "aa11bb22-11.9"), "Your decision is kept."),
        (("aa11bb22-2.1",), ""),
    ],
)
def test_decisions_of_a_batch_that_waits_are_kept_and_those_that_were_applied_are_not_said_to_wait(
    decided: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = TextView(decided=decided)
    view.show_outcome(WAITING)
    assert [line for line in capsys.readouterr().err.splitlines() if "kept" in line] == (
        [f"{said} Calls of one batch run when all of them are decided."] if said else []
    )


def test_once_a_batch_asks_a_question_or_for_a_review_its_decisions_have_been_applied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    review = _request(5, tool_name="exit_plan_mode", args={})
    for request in (PENDING[2], review):
        TextView(decided=("aa11bb22-1.8",)).show_outcome(replace(WAITING, pending=[request]))
        assert "kept" not in capsys.readouterr().err


@pytest.mark.parametrize(("name", "outcome"), [("done", DONE), ("waiting", WAITING), ("failed", FAILED)])
def test_json_is_one_object(
    name: str, outcome: Outcome, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = _shown(JsonView(), outcome, capsys)
    assert err == ""
    golden(GOLDEN / f"json-{name}.json", out)


def test_stream_json_is_one_event_a_line_and_the_result_last(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = _shown(StreamJsonView(timestamp=lambda: "2026-01-02T03:04:05.678Z"), DONE, capsys)
    lines = [json.loads(line) for line in out.splitlines()]
    assert err == ""
    assert all(list(line)[:2] == ["type", "timestamp"] for line in lines)
    assert [line["type"] for line in lines].count("result") == 1
    assert lines[-1]["type"] == "result"
    golden(GOLDEN / "stream.jsonl", out)


def test_stream_json_says_success_waiting_or_error_and_nothing_after_its_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for outcome, status in ((DONE, "success"), (WAITING, "waiting"), (FAILED, "error")):
        view = StreamJsonView()
        view.show_outcome(outcome)
        view(EVENTS[0])
        (line,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert (line["status"], line["exit_code"]) == (status, outcome.exit_code)


OPTIONS = Options(home=Path("/nowhere"))


@pytest.mark.parametrize("view", [JsonView(), StreamJsonView()])
def test_a_run_that_breaks_off_is_json_too(view: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> Outcome:
        raise RunError("no luck")

    with pytest.raises(RunError):
        _drive_and_show_outcome(fail, view, Client(OPTIONS))
    shown = json.loads(capsys.readouterr().out)
    assert shown["error"] == {"type": "run", "message": "no luck", "code": 1}


def test_a_reader_that_is_gone_does_not_change_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert _drive_and_show_outcome(lambda _: WAITING, JsonView(), Client(OPTIONS)) == 75
        stdout.flush()


def test_answers_keep_their_letters_but_lose_their_control() -> None:
    assert (
        sanitize_for_terminal("שלום\u200f \u200d x\x1b]0;title\x07")
        == "שלום\u200f \u200d x\\x1b]0;title\\x07"
    )
    assert strip_codes_and_overwritten_text("\x1b]0;t\x07\x1b[1;31m50%\x1b[K\r100%\x1b[m\r") == "100%"


def test_a_long_preview_says_that_it_is_cut_and_where_the_rest_is() -> None:
    request = _request(1, preview="--- a\n+++ b\n" + "+x\n" * 500)
    paint = Paint(io.StringIO())
    cut = list(pending_request_lines("aa11bb22", "t", [request], paint))
    assert any("382 more lines, NOT shown here: interlock approvals aa11bb22" in line for line in cut)
    assert (
        sum(line == "    +x" for line in pending_request_lines("aa11bb22", "t", [request], paint, limit=None))
        == 500
    )


def test_unknown_outcomes_of_one_effect_are_one_list_that_says_how_to_answer_all() -> None:
    """A map that a kill cut off; a call that differs stands alone."""
    reason = "The run was killed while this took place."
    rest: Any = {"kind": "outcome", "reason": reason, "choices": ["proceed_once", "reject"]}
    charges = [
        _request(n, tool_name="charge", args={"item": n}, preview=f"item: {n}", **rest) for n in range(1, 31)
    ]
    other = _request(31, tool_name="mail", args={}, preview="effect mail of end", **rest)
    lines = list(
        pending_request_lines("aa11bb22", "t", [*charges[:15], other, *charges[15:]], Paint(io.StringIO()))
    )
    text = "\n".join(lines)
    assert text.count(reason) == 2 and "30 unknown outcomes of charge" in text
    listed = [line.split() for line in lines if '{"item": ' in line]
    assert len(listed) == 20 and [line[0] for line in listed[14:16]] == ["15", "16"]
    assert "… 10 more, NOT shown here: interlock approvals aa11bb22" in text
    assert "Unknown outcome: mail" in text and "--answer 31=redo" in text
    assert "interlock resume aa11bb22 --answer all=skip" in text
    assert (
        sum(
            '{"item": ' in one
            for one in pending_request_lines("a", "t", charges, Paint(io.StringIO()), limit=None)
        )
        == 30
    )


class _Terminal:
    """A pseudo-terminal in place of stdout and stderr; collects the output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._master, slave = pty.openpty()
        self._stream = os.fdopen(slave, "w")
        self._data = b""
        self._reader = threading.Thread(target=self._collect)
        self._reader.start()
        monkeypatch.setattr(sys, "stdout", self._stream)
        monkeypatch.setattr(sys, "stderr", self._stream)
        monkeypatch.setenv("TERM", "xterm-256color")

    def _collect(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self._data += data
        except OSError:  # how Linux reports that the other side was closed
            return

    def text(self) -> str:
        self._stream.close()
        self._reader.join()
        os.close(self._master)
        return self._data.decode().replace("\r\n", "\n")


def test_on_a_terminal_the_answer_streams_once_between_spinner_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = _Terminal(monkeypatch)
    view = TextView("fix it")
    for event in EVENTS:
        view(event)
        view.flush()
    view.show_outcome(DONE)
    text = terminal.text()
    assert text.count("add adds.") == 1
    assert "turn › call_model" in text
    assert "\x1b[32m✓\x1b[0m Edit calc.py · +1 −1" in text
    assert text.rstrip().endswith("Fixed: add adds.")


def _at(workflow: str, node: str) -> e.NodeStart:
    return e.NodeStart(workflow=workflow, node=node, checkpoint_id="")


def test_on_a_terminal_a_bar_stands_while_its_workflow_goes_from_node_to_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shown(*events: e.Event) -> str:
        terminal = _Terminal(monkeypatch)
        view = TextView("fix it")
        for event in (_at("search", "store"), e.Progress(what="indexing", done=5, total=10, unit="files")):
            view(event)
        for event in events:
            view(event)
        view.flush()
        view.show_outcome(DONE)
        return terminal.text()

    assert "search › chunk · 0 ms · ━━━━━━━━━━────────── indexing 5 of 10 files" in re.sub(
        r"· \d+ ms", "· 0 ms", shown(_at("search", "chunk"))
    )
    over = e.Progress(what="indexing", done=10, total=10, unit="files")
    assert "indexing" not in shown(_at("search", "chunk"), over)
    assert "indexing" not in shown(_at("turn", "call_model")), "it was left"


def test_on_a_terminal_a_long_command_leaves_room_for_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal(monkeypatch)
    view = TextView("fix it")
    named: Named = {"tool_name": "run_shell_command", "tool_id": "1", "summary": "make " + "x" * 300}
    view(e.ToolUse(parameters={}, **named))
    view(e.ToolResultEvent(status="success", output="no", exit="exit 3", duration_ms=900, **named))
    rejected: dict[str, Any] = {"message": "Rejected by the user, not run. The user says: " + "why " * 90}
    view(e.ToolResultEvent(status="error", error=rejected, duration_ms=0, **named))
    failed, refused = (line for line in terminal.text().splitlines() if "✗" in line)
    assert "make xxxx" in failed and "… · exit 3 · 900 ms" in failed
    assert "make xxxx" in refused and "… · Rejected by the user, not run." in refused


def test_on_a_terminal_the_diff_is_coloured_unless_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    for no_color, expected in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal = _Terminal(monkeypatch)
        view = TextView("fix it")
        view.show_outcome(WAITING)
        assert (
            "\x1b[32m+    return a \x1b[0m\x1b[32;7m+\x1b[0m\x1b[32m b\x1b[0m" in terminal.text()
        ) is expected


def test_on_a_terminal_the_examination_of_the_store_shows_how_far_it_is(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.run("aa11bb22")
    monkeypatch.chdir(tmp_path)
    terminal = _Terminal(monkeypatch)
    assert execute_command("doctor", ["--store"]) == 0
    shown = terminal.text()
    assert re.search(r"store · .*━ \w+ \d+ of \d+ (rows|runs)", shown)
    assert "pages       ok" in shown.rpartition("\x1b[2K")[2], "the bar is gone when the findings are shown"
    told = list[str]()
    list(
        examine_and_repair_store(
            made.store.home, lambda progress: told.append(format_progress(progress)[21:])
        )
    )
    assert told[-2:] == ["comparing 1 of 1 runs", "verifying 1 of 1 runs"]
