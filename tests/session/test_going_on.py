"""After a kill, a stop or an exit, the conversation is intact, nothing is doubled, and it continues."""

import signal
from pathlib import Path
from typing import Any

import pytest
from patience import until
from session.terminal import ASKED, HELD, LATE, Opens, Terminal, edit

from interlock.engine.read import list_runs

SLEEP = {"tool_calls": [{"name": "run_shell_command", "args": {"command": "echo began >> began; sleep 60"}}]}


def shown(terminal: Terminal) -> str:
    return "\n".join(terminal.scrollback)


def test_killed_while_an_answer_streams_it_is_asked_for_again(opens: Opens) -> None:
    with opens([LATE]) as terminal:
        terminal.say("talk", then=ASKED)
        terminal.kill()
    with opens([{"text": "To the end of it."}], "-c") as terminal:
        terminal.waits_for("press Enter to go on")
        assert "❯ talk" in shown(terminal)
        terminal.press("enter", then="end of it")
        assert shown(terminal).count("❯ talk") == 1


@pytest.mark.sweep
def test_killed_in_a_tool_its_outcome_is_asked_and_it_is_not_run_twice(folder: Path, opens: Opens) -> None:
    with opens([SLEEP, {"text": "All right."}], "-y") as terminal:
        terminal.say("sleep a bit", then="began >> began")
        until((folder / "began").exists)
        terminal.kill()
    with opens(None, "-c") as terminal:
        terminal.waits_for("press Enter to go on")
        terminal.press("enter", then="[s] Leave it")
        terminal.press("s", then="All right.")
    assert (folder / "began").read_text() == "began\n"


def test_killed_while_something_is_asked_it_is_asked_again(folder: Path, opens: Opens) -> None:
    with opens([edit(), {"text": "Written."}]) as terminal:
        terminal.say("write it", then="[y] Yes")
        terminal.kill()
    with opens(None, "-c") as terminal:
        terminal.waits_for("[y] Yes")
        assert shown(terminal).count("❯ write it") == 1
        terminal.press("y", then="Written.")
    assert (folder / "notes.txt").read_text() == "new\n"


def test_ctrl_c_stops_the_agent_and_the_next_prompt_takes_its_place(folder: Path, opens: Opens) -> None:
    with opens([SLEEP, {"text": "As you wish.", "expect": "do this instead"}], "-y") as terminal:
        terminal.say("sleep a bit")
        until((folder / "began").exists)
        terminal.press("c-c", then="Cancelled")
        terminal.say("do this instead", then="As you wish.")


def test_prompts_wait_their_turn_and_can_be_taken_back(folder: Path, opens: Opens) -> None:
    with opens([HELD, {"text": "One."}, {"text": "Two.", "expect": "second, better"}], "-y") as terminal:
        terminal.say("first")
        until((folder / "began").exists)
        terminal.type("second")
        terminal.press("enter", then="queued: second")
        terminal.press("up")
        terminal.waits_for("queued", gone=True)
        terminal.type(", better")
        terminal.press("enter", then="queued: second, better")
        (folder / "go").touch()
        terminal.waits_for("Two.")
        assert shown(terminal).index("One.") < shown(terminal).index("❯ second, better")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_agent_cleanly_and_restores_the_terminal(opens: Opens, number: int) -> None:
    with opens([LATE]) as terminal:
        terminal.say("talk", then=ASKED)
        terminal.process.send_signal(number)
        terminal.ends()
        (run,) = list_runs(terminal.folder.parent / "state")
        assert run.status == "interrupted"
        assert terminal.restored
        assert f"interlock -r {run.run}" in shown(terminal)


def test_ctrl_c_twice_leaves_and_says_how_to_come_back(opens: Opens) -> None:
    with opens([LATE]) as terminal:
        terminal.say("talk", then=ASKED)
        terminal.press("c-c", "c-c")
        assert terminal.ends() == 0
        assert "Go on with: interlock -r " in shown(terminal)
        assert terminal.restored


def test_a_run_that_there_is_none_of_is_said_before_a_session_opens(opens: Opens) -> None:
    with opens([{"text": "x"}], "-r", "nosuch") as terminal:
        assert terminal.ends() == 2
        shown = "\n".join(terminal.screen)
    assert "No run 'nosuch'" in shown
    assert "›" not in shown


def test_an_error_is_one_line_and_the_session_can_be_used(opens: Opens) -> None:
    bad: list[dict[str, Any]] = [{"error": {"status": 400, "message": "no such thing"}}] * 3
    with opens([*bad, {"text": "Fine."}]) as terminal:
        terminal.say("hello", then="✗")
        terminal.say("again")

        def is_sent() -> bool:
            """A prompt sent before the first drive was over is given back, to be sent again."""
            if given_back := "› again" in terminal.screen:
                terminal.press("enter")
            return not given_back and "❯ again" in terminal.screen

        until(is_sent, "the prompt")
        until(lambda: "\n".join(terminal.screen).count("✗") == 2, "the second error")
        terminal.press("c-d")
        assert terminal.ends() == 0


def test_a_terminal_that_is_gone_ends_the_session_and_loses_nothing(opens: Opens) -> None:
    with opens([LATE]) as terminal:
        terminal.say("talk", then=ASKED)
        terminal.hang_up()
        assert terminal.ends() == 0
    with opens([{"text": "The answer."}], "-c") as terminal:
        terminal.waits_for("press Enter to go on")
        terminal.press("enter", then="The answer.")
