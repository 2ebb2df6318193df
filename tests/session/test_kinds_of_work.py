"""test_kinds_of_work: plans, tasks, runs that somebody else drives, and models that can't be used."""

import subprocess
from pathlib import Path

import pytest
from patience import until
from scripted import call, says, tools
from session.terminal import HELD, Opens, Terminal, edit
from warm import Warm


def test_always_for_a_plan_ends_with_it_and_the_mode_is_what_the_footer_says(
    folder: Path, opens: Opens
) -> None:
    replies = [
        says("write_file", file_path="plan.md", content="1. do it\n"),
        says("exit_plan_mode", plan_filename="plan.md"),
        edit(),
        {"text": "Carried out."},
        edit(file="later.txt"),
        {"text": "Later, too."},
    ]
    with opens(replies, rows=40) as terminal:
        terminal.say("/plan do it", then="[a] Yes to all")
        terminal.waits_for("plan mode")
        terminal.press("a", then="Carried out.")
        assert (folder / "notes.txt").exists(), "unasked, while the plan is carried out"
        terminal.waits_for("asks first")
        terminal.say("go on", then="later.txt (+1)")
        terminal.waits_for("[y] Yes")
        terminal.press("y", then="Later, too.")
        terminal.say("/clear", then="A new conversation")
        terminal.waits_for_line("asks first")


def test_a_mode_of_work_makes_it_a_task_whose_result_is_accepted(folder: Path, opens: Opens) -> None:
    write = call("write_to_file", path="a.txt", content="x\n", line_count=1)
    replies = [tools(write), says("attempt_completion", result="All done here.")]
    with opens(replies, "--mode", "code") as terminal:
        terminal.say("write a file", then="[y] Yes")
        terminal.press("y", then="All done here.")
        terminal.waits_for("[y] Yes")
        terminal.press("y")
        terminal.waits_for("[y] Yes", gone=True)
        terminal.waits_for("›")
    assert (folder / "a.txt").read_text() == "x\n"


def test_a_run_that_another_process_drives_is_followed_and_then_gone_on_with(opens: Opens) -> None:
    terminal = opens([HELD, {"text": "The first answer."}, {"text": "The second."}], "-c")
    told = ("-p", "hi", "-y", "-m", terminal.arguments[1])
    other = Warm(told, cwd=terminal.folder, env=terminal.env, stderr=subprocess.DEVNULL)
    try:
        until((terminal.folder / "began").exists, "the other process's run")
        with terminal:
            terminal.waits_for("drives this run")
            (terminal.folder / "go").touch()
            terminal.waits_for("The first answer.")
            terminal.say("and then?", then="The second.")
            assert "\n".join(terminal.scrollback).count("The first answer.") == 1
    finally:
        other.kill()


@pytest.mark.parametrize(
    ("model", "said"), [("gemini-2.5-pro", "GEMINI_API_KEY"), ("nothing:x", "No provider 'nothing'")]
)
def test_a_model_that_cannot_be_asked_is_one_line(folder: Path, model: str, said: str) -> None:
    with Terminal(folder, "-m", model) as terminal:
        terminal.say("hello")
        terminal.waits_for(said)
        terminal.say("hello again")
        terminal.press("c-d")
        assert terminal.ends() == 0
