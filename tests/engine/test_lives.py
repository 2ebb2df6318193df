"""What a call and an approval mode went through, as their statecharts draw it: every move, with who decided."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Stage, call
from commands import Run
from folders import put
from scripted import tools

from interlock.cli.commands.show import newest_call_lines
from interlock.cli.render.output import Paint
from interlock.engine import Decision, Outcome, run_sync
from interlock.engine.client import Client
from interlock.state.errors import UserError
from interlock.state.events import ToolOutput

WRITE = call("write_file", file_path="b", content="x\n")
PLAN = call("write_file", file_path="plan.md", content="# Plan\n- [ ] one\n")
HAND_IN = call("exit_plan_mode", plan_filename="plan.md")
READ = call("read_file", file_path="a.py")
ASK = call("ask_user", questions=[{"header": "Which", "question": "Which one?", "type": "text"}])
RULES = {"tools": {"exclude": ["run_shell_command(curl)"]}}

CALLS: dict[str, tuple[dict[str, Any], Sequence[dict[str, Any]], str]] = {
    "allowed by a rule": (READ, (), "schedule execute succeed"),
    "denied by a rule": (call("run_shell_command", command="curl x"), (), "fail"),
    "bad arguments": (call("read_file", nothing=1), (), "fail"),
    "no such tool": (call("raed_file", file_path="a.py"), (), "fail"),
    "fails while it runs": (call("read_file", file_path="none"), (), "schedule execute fail"),
    "approved": (WRITE, [{"choice": "proceed_once"}], "ask schedule execute succeed"),
    "rejected": (WRITE, [{"choice": "reject"}], "ask fail"),
    "cancelled": (WRITE, [{"choice": "cancel"}], "ask cancel"),
    "rewritten": (
        WRITE,
        [{"choice": "modify", "args": {"file_path": "c", "content": "y\n"}}],
        "ask modify schedule execute succeed",
    ),
    "answered": (ASK, [{"choice": "proceed_once", "text": "this"}], "schedule execute succeed"),
}


def staged(tmp_path: Path, *batches: list[dict[str, Any]]) -> Stage:
    replies = [*({"tool_calls": batch} for batch in batches), {"text": "done"}]
    return Stage(tmp_path, replies, RULES)


def decided(stage: Stage, outcome: Outcome, **answer: Any) -> Outcome:
    return stage.resume(outcome, Decision(outcome.pending[0]["id"], **answer))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_went_through_its_chart(tmp_path: Path, name: str) -> None:
    made, answers, events = CALLS[name]
    stage = staged(tmp_path, [made])
    outcome = stage.run("main", {"prompt": "go"})
    client = Client(stage.options)
    for answer in answers:
        waiting = outcome.pending[0]["id"]
        if made is WRITE:  # it has no number yet, so the request names it
            assert (
                client.read_lifecycle(outcome.run, "tool-call", waiting).current_state == "awaiting_approval"
            )
        outcome = decided(stage, outcome, **answer)
    life = client.read_lifecycle(outcome.run, "tool-call", "1")
    assert " ".join(move.event for move in life.moves) == events
    assert life.current_state == client.calls(outcome.run)[0].status
    deciding = [move for move in life.moves if move.why]
    people = ("approved by", "rejected by", "cancelled by", "answered by")
    if answers:
        assert deciding[-1].why.startswith(people), life
    elif "policy" in [d["by"] for d in client.calls(outcome.run)[0].decided]:
        assert "rule" in deciding[0].why or "settings" in deciding[0].why


def test_a_call_under_way_says_since_when(tmp_path: Path) -> None:
    """*Executing* is committed with the intent: another process sees it while the command runs."""
    stage = staged(tmp_path, [call("run_shell_command", command="echo hi; sleep 0.3")])
    seen: list[tuple[str, str]] = []

    def look(event: Any) -> None:
        if isinstance(event, ToolOutput) and not seen:
            client = Client(stage.options)
            run = client.runs()[0].run
            life = client.read_lifecycle(run, "tool-call", "1")
            seen.append(
                (
                    f"{life.current_state} {life.mark}",
                    "\n".join(newest_call_lines(client, run, Paint(io.StringIO()))),
                )
            )

    run_sync("main", {"prompt": "go"}, options=replace(stage.options, approval_mode="yolo"), renderers=[look])
    ((now, shown),) = seen
    assert now == "executing runs now" and "running for" in shown and "unknown" not in shown


def test_a_mode_went_through_its_chart(tmp_path: Path) -> None:
    batches = [[READ], [PLAN], [HAND_IN], [PLAN, HAND_IN]]
    stage = staged(tmp_path, *batches)
    outcome = stage.run("plan", {"prompt": "x"})
    client = Client(stage.options)
    assert client.read_lifecycle(outcome.run, "approval-mode").current_state == "plan.review"
    outcome = decided(stage, outcome, choice="reject", feedback="test it")
    stage.follow = False
    outcome = decided(stage, outcome, choice="proceed_always")
    moves = client.read_lifecycle(outcome.run, "approval-mode").moves
    assert [move.event for move in moves] == [
        *("use_plan", "read", "write_plan", "exit_plan_mode"),
        *("reject", "exit_plan_mode", "approve_auto_edit"),
    ]
    assert moves[4].why.endswith("“test it”") and moves[6].why.startswith("approved by ")
    main = stage.resume(replace(outcome, run=next(r.run for r in client.runs() if r.workflow == "main")))
    assert [move.event for move in client.read_lifecycle(main.run, "approval-mode").moves] == ["carried_out"]


def test_the_command_draws_both(run: Run, tmp_path: Path) -> None:
    script = put(tmp_path / "script.json", [tools(call("glob", pattern="*")), {"text": "x"}])
    assert run("-m", f"script:{script}", "-p", "go").code == 0
    drawn = run("diagram", "tool-call", "--run", "latest", "--call", "1").out
    assert '"schedule<br/>allowed by built-in rule' in drawn and 'success["success ×1"]' in drawn
    assert 'default_["default ×1: now"]' in run("diagram", "approval-mode", "--run", "latest").out
    for argv, hint in ((("tool-call",), "--call N"), (("run",), "interlock show")):
        refused = run("diagram", *argv, "--run", "latest")
        assert refused.code == 2 and hint in refused.err
    with pytest.raises(UserError, match="has no call '9'"):
        Client.for_this_user().read_lifecycle(Client.for_this_user().find_run("latest").run, "tool-call", "9")
