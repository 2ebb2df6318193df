"""The same journeys in tmux, a terminal that people use, with its own reflow, scrollback and window sizes."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import put
from patience import until
from scripted import shell, tools
from session.terminal import ENTRY, edit
from tmuxes import Tmux

# The journeys of the other tests again, in another terminal.
pytestmark = [
    pytest.mark.sweep,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed"),
]
WIDE = "漢字の文章 و نص عربي 👩‍👩‍👧 e\u0301"


class Session(Tmux):
    def begins(self, *arguments: str) -> None:
        self.opens(str(ENTRY), *arguments)
        self.waits_for("›")

    def left(self) -> bool:
        has_session = ["tmux", "-S", str(self.socket), "has-session"]
        until(lambda: subprocess.run(has_session, capture_output=True, check=False).returncode, "the end")
        return True


@pytest.fixture
def tmux(folder: Path) -> Iterator[Session]:
    made = Session(folder)
    yield made
    made.closes()


def test_a_first_session_to_an_approved_edit_a_long_output_and_out_of_it(tmux: Session) -> None:
    lines = shell("seq 1 10000")
    replies = [edit(), {"text": f"Written. {WIDE}"}, tools(lines), {"text": "All 10,000."}]
    script = put(
        tmux.folder.parent / "replies.json", [*replies, {"text": "late", "delay_s": 60}, {"text": "never"}]
    )
    tmux.begins("-m", f"script:{script}", "--allowed-tools", "run_shell_command(seq)")
    tmux.says("write notes.txt")
    tmux.waits_for("[y] Yes")
    assert not (tmux.folder / "notes.txt").exists()
    tmux.do("send-keys", "y")
    tmux.waits_for(WIDE.partition(" ")[0])
    assert (tmux.folder / "notes.txt").read_text() == "new\n"
    tmux.says("count")
    tmux.waits_for("All 10,000.")
    assert tmux.text.count("│ 10000") == 1
    assert len(tmux.text.splitlines()) < 100
    tmux.says("think")
    tmux.waits_for("❯ think")  # sent; before that, Ctrl-C belongs to the input line
    tmux.do("send-keys", "C-c")
    tmux.waits_for("Cancelled")
    time.sleep(2.1)  # a second one within two seconds would leave
    tmux.do("send-keys", "C-c", "C-c")
    assert tmux.left()


def test_a_window_that_is_closed_while_an_answer_streams_and_is_resized_loses_nothing(tmux: Session) -> None:
    stream = {"text": "\n\n".join(f"paragraph {n} of it" for n in range(40)), "chunks": 200, "delay_s": 6}
    script = put(tmux.folder.parent / "replies.json", [{"text": "First answer."}, stream])
    tmux.begins("-m", f"script:{script}")
    tmux.says("one")
    tmux.waits_for("First answer.")
    tmux.says("two")
    tmux.waits_for("paragraph 3 of")
    for columns in ("50", "100", "40"):
        tmux.do("resize-window", "-x", columns, "-y", "20")
        time.sleep(0.2)
    tmux.do("kill-session")
    tmux.begins("-c", "-m", f"script:{script}")
    tmux.waits_for("First answer.")
    tmux.do("send-keys", "Enter")
    tmux.waits_for("paragraph 39 of")
    assert tmux.text.count("First answer.") == 1
    assert tmux.text.count("paragraph 39 of") == 1
