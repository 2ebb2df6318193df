"""Narrow, resized, stopped, without colours or a cursor: the session fits its terminal."""

import re
import signal
from pathlib import Path

import pytest
from patience import until
from session.terminal import ENTRY, HELD, Opens, edit

from interlock.engine.read import list_runs

SHELL = 'set -m; "$0" "$@"; echo stopped; fg'


def test_what_comes_after_a_resize_is_wrapped_at_the_new_width(opens: Opens) -> None:
    with opens([{"text": f"1. {' '.join(f'word{n:02}' for n in range(20))}."}]) as terminal:
        terminal.waits_for("›")
        terminal.resize(40, 24)
        terminal.say("tell me", then="word19.")
        terminal.waits_for("\n   word05 word06 word07 word08 word09\n", anywhere=True)


def test_no_color_writes_none(opens: Opens) -> None:
    with opens([{"text": "# Title\n\n**bold**"}], env={"NO_COLOR": "1"}) as terminal:
        terminal.say("hello", then="Title")
        terminal.press("c-d")
        terminal.ends()
        colours = re.findall(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m", bytes(terminal.written))
    assert colours == []


def test_where_lines_are_all_there_is_edits_commands_and_shell_lines_work(folder: Path, opens: Opens) -> None:
    (folder / "other.json").write_text('[{"text": "Another one answers."}]')
    replies = [edit(), {"text": "Written."}, {"text": "Seen.", "expect": "is-it-mine"}]
    with opens(replies, env={"TERM": "dumb", "MINE": "mine"}, rows=60) as terminal:

        def says(line: str, shown: str) -> None:
            terminal.waits_for("\n>")
            terminal.type(f"{line}\n", then=shown)

        terminal.waits_for(">")
        terminal.type("/nothing\n", then="No command '/nothing'.")
        says("/diff", "Nothing has run yet")
        says("write it", "[y] Yes")
        terminal.type("y\n", then="Written.")
        says("!echo is-it-$MINE; exit 3", "exit 3")
        says("two", "Seen.")
        says("/show", "path    open_prompt")
        says("/copy", "no clipboard")
        says("/approval-mode plan", "Approval mode plan")
        says("/approval-mode", "Which approval mode? [1-3, Enter: none]")
        terminal.type("1\n", then="Approval mode default")
        says("/clear", "A new conversation.")
        says("/model script:other.json", "other.json")
        says("three", "Another one answers.")
        terminal.press("c-d")
        assert terminal.ends() == 0
        assert b"\x1b[" not in terminal.written
        assert "Go on with: interlock -r " in "\n".join(terminal.screen)
    assert (folder / "notes.txt").read_text() == "new\n"
    assert len(list_runs(folder.parent / "state")) == 2


def test_ctrl_c_stops_the_agent_where_lines_are_all_there_is(folder: Path, opens: Opens) -> None:
    with opens([HELD, {"text": "Well."}], "-y", "--screen-reader") as terminal:
        terminal.waits_for(">")
        terminal.type("work\n")
        until((folder / "began").exists)
        terminal.press("c-c", then="It stopped midway")
        terminal.type("never mind\n", then="Well.\n>")
        terminal.press("c-c")
        assert terminal.ends() == 0
        assert re.findall(rb"\x1b[^\[]|\x1b\[[^m]*[A-Zhl]", terminal.written) == []


@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_a_session_of_lines_cleanly(busy: bool, folder: Path, opens: Opens) -> None:
    with opens([HELD], "-y", *(["work"] if busy else []), env={"TERM": "dumb"}) as terminal:
        if busy:
            until((folder / "began").exists)
        else:
            terminal.waits_for(">")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 0
        assert ("Go on with: interlock -r " in "\n".join(terminal.screen)) is busy
    assert [run.status for run in list_runs(folder.parent / "state")] == ["interrupted"] * busy


def test_stopped_with_ctrl_z_the_terminal_is_the_shells_and_the_session_comes_back(opens: Opens) -> None:
    with opens([{"text": "Still here."}], command=("bash", "-ic", SHELL, str(ENTRY))) as terminal:
        terminal.say("hello", then="Still here.")
        terminal.press("c-z", then="stopped")
        terminal.waits_for("›")
        terminal.type("back again", then="› back again")
