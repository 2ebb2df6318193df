"""Pending requests are asked about right away at a terminal; runs the command line on a real one."""

import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from folders import put
from patience import until
from scripted import call, says, shell, tools
from session.terminal import Terminal

ASKS = "(l: later): "


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Generator[Open]:
    """Start `interlock -p go` with scripted replies and more arguments."""
    (tmp_path / "work").mkdir()
    with ExitStack() as opened:

        def start(
            *replies: dict[str, Any], arguments: tuple[str, ...] = ("-p", "go"), **env: str
        ) -> Terminal:
            put(tmp_path / "script.json", replies)
            model = ("-m", f"script:{tmp_path / 'script.json'}")
            return opened.enter_context(Terminal(tmp_path / "work", *model, *arguments, columns=200, env=env))

        yield start


DONE = {"text": "All is done."}


def test_yes_always_edit_and_no_are_taken_as_they_are_typed(terminal: Open, tmp_path: Path) -> None:
    editor = put(tmp_path / "editor", "#!/bin/sh\nsed -i 's/touch c/touch edited/' \"$1\"\n")
    batch = [shell("touch a"), shell("mkdir b"), shell("touch c"), shell("touch d")]
    run = terminal(tools(*batch), tools(shell("mkdir b -p")), DONE, VISUAL=str(editor))
    shown = run.until(ASKS)
    assert "1 of 4: Run touch a" in shown
    choices = """
  [y] Yes
  [a] Yes, and don't ask again in this run for exactly `touch a`
  [s] Yes, and don't ask again in this or later runs for exactly `touch a`, in this folder
  [e] Yes, after I change it
  [n] No, and say why
  [c] No, and stop the run
  y/a/s/e/n/c (l: later): """
    assert choices in shown
    run.type("what\n")
    assert "'what' isn't one of y, a, s, e, n, c, l." in run.until(ASKS)
    run.type("y\n")
    assert "2 of 4: Run mkdir b" in run.until(ASKS)
    run.type("always\n")
    run.until(ASKS)
    run.type("e\n")
    run.until(ASKS)
    run.type("n\n")
    run.until("Reason (optional): ")
    run.type("no d here\n")
    assert run.ends() == 0, run.text
    rest = run.text
    assert "✓ touch edited" in rest and "All is done." in rest, rest
    assert "no d here" in rest
    assert "✓ mkdir b -p" in rest and rest.count(ASKS) == 5, "the second mkdir wasn't asked about"
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["a", "b", "edited"]


@pytest.mark.parametrize("keys", ["l\n", "\x04", "\x03"])
def test_later_leaves_it_parked_with_the_commands_and_keeps_what_was_said_before(
    terminal: Open, tmp_path: Path, keys: str
) -> None:
    replies = (tools(shell("touch a"), shell("touch b")), DONE)
    run = terminal(*replies)
    run.until(ASKS)
    run.type("y\n")
    run.until(ASKS)
    run.type(keys)
    shown = run.until("--approve 2")
    assert run.ends() == 75, run.text
    assert "Your decision is kept." in shown
    again = terminal(*replies, arguments=("resume", "latest"))
    assert "Run touch b" in again.until(ASKS)
    again.type("y\n")
    assert again.ends() == 0, again.text
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["a", "b"]


def test_questions_are_answered_and_what_was_typed_ahead_is_no_answer(terminal: Open, tmp_path: Path) -> None:
    options = [{"label": "terse"}, {"label": "full"}]
    one = {"question": "Which style?", "type": "choice", "options": options}
    two = [{"question": "Your name?"}, {"question": "Your town?"}]
    run = terminal(
        tools(shell("touch x; until [ -e go ]; do sleep 0.05; done")),
        says("ask_user", questions=[one]),
        tools(call("ask_user", questions=two), expect="full"),
        {"expect": "Your name\\?.*Ann.*Your town\\?.*Rome", **DONE},
    )
    run.until(ASKS)
    run.type("y\n")
    until((tmp_path / "work" / "x").exists)
    run.type("1\n")  # while the command runs: no question yet
    (tmp_path / "work" / "go").touch()
    assert "2. full" in run.until(ASKS)
    run.type("2\n")
    run.until("Question 1 of 2 (l: later): ")
    run.type("Ann\n")
    run.until("Question 2 of 2 (l: later): ")
    run.type("Rome\n")
    assert run.ends() == 0, run.text


def test_a_plan_is_reviewed_where_it_was_made(terminal: Open) -> None:
    plan = "# Plan\n\n## Steps\n1. write it\n"
    write = call("write_file", file_path="plan.md", content=plan)
    hand_in = call("exit_plan_mode", plan_filename="plan.md")
    run = terminal(tools(write), tools(hand_in), DONE, arguments=("run", "plan", "make a plan"))
    shown = run.until(ASKS)
    assert "1. write it" in shown and "[a] Yes to all: the plan's edits need no further approval" in shown
    run.type("y\n")
    run.until("carries on from here (main)")
    assert run.ends() == 0, run.text


def test_without_a_terminal_nothing_is_asked(terminal: Open) -> None:
    run = terminal(tools(shell("touch a")), DONE, arguments=("-p", "go", "-o", "json"))
    assert run.ends() == 75, run.text
    assert ASKS not in run.text


MAP = """
import os, signal
from pathlib import Path
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict
from interlock.workflow import effect_sync

class State(TypedDict, total=False):
    item: str

def charge(item):
    with Path("charged").open("a") as file:
        file.write(f"{item} ")
    while len(Path("charged").read_text().split()) < 3:
        pass
    os.kill(os.getpid(), signal.SIGKILL)

def work(state, runtime):
    effect_sync(runtime, "charge", charge, state["item"])

def items(state):
    return [Send("work", {"item": item}) for item in "abc"]

graph = StateGraph(State).add_node(work).add_conditional_edges(START, items, ["work"]).compile()
"""


def test_one_word_answers_for_every_unknown_outcome_of_a_map(tmp_path: Path) -> None:
    put(tmp_path / "work/agent.py", MAP)
    with Terminal(tmp_path / "work", "run", "agent.py:graph", columns=200) as killed:
        assert killed.ends() == -signal.SIGKILL
    with Terminal(tmp_path / "work", "resume", "latest", columns=200) as run:
        assert "Add “all” to decide 2 more like it the same way." in (run.until(ASKS))
        run.type("s all\n")
        assert run.ends() == 0, run.text
        assert run.text.count(ASKS) == 1
    assert sorted((tmp_path / "work/charged").read_text().split()) == ["a", "b", "c"]
