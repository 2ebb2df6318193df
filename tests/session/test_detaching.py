"""A run outlives its session: a worker goes on with it after `/detach`, and after the terminal was closed."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import put
from patience import until
from session.terminal import HELD, Opens, Terminal, edit

from interlock.engine.read import RunRow, list_runs
from interlock.engine.store.worker_file import find_worker

pytestmark = pytest.mark.sqlite


@pytest.fixture(autouse=True)
def worker_ends(folder: Path) -> Iterator[None]:
    yield
    while worker := find_worker(folder.parent / "state"):
        if worker.pid:
            os.kill(worker.pid, signal.SIGKILL)
        time.sleep(0.05)


def run_of(folder: Path) -> RunRow:
    (row,) = list_runs(folder.parent / "state")
    return row


def test_a_worker_goes_on_once_the_call_under_way_has_ended_and_attach_decides_what_it_asks(
    folder: Path, opens: Opens
) -> None:
    with opens([HELD, edit(), {"text": "All done."}], "--skip-trust", rows=40) as terminal:
        terminal.say("work", then="[y] Yes")
        terminal.press("y")
        until((folder / "began").exists)
        terminal.sends("/detach", "once what runs now has ended")
        assert terminal.process.poll() is None, "the call isn't cut off"
        put(folder / "go", "")
        assert terminal.ends() == 0
        assert "goes on without this session" in terminal.text and "ancelled" not in terminal.text
    until(lambda: run_of(folder).status == "waiting")
    with Terminal(folder, "attach", run_of(folder).run, rows=40) as terminal:
        terminal.waits_for("[y] Yes")
        terminal.press("y", then="All done.")
        terminal.waits_for("›")
        terminal.press("c-d")
        assert terminal.ends() == 0
    assert (folder / "notes.txt").read_text() == "new\n" and run_of(folder).status == "done"


def test_detach_without_work_left_says_so_and_the_session_stays(folder: Path, opens: Opens) -> None:
    with opens([{"text": "Hello."}]) as terminal:
        terminal.waits_for("›")
        terminal.sends("/detach", "Nothing has run yet")
        terminal.say("hello", then="Hello.")
        terminal.waits_for("›")
        terminal.sends("/detach", "nothing of it is left to do")
        terminal.press("c-d")
        assert terminal.ends() == 0


@pytest.mark.parametrize("detaches", [False, True])
def test_closing_the_terminal_leaves_the_run_to_a_worker_if_settings_say_so(
    detaches: bool, folder: Path, opens: Opens
) -> None:
    put(folder.parent / ".interlock/settings.json", {"general": {"detachWhenClosed": detaches}})
    with opens([HELD, {"text": "All done."}], "-y", "--skip-trust") as terminal:
        terminal.say("work")
        until((folder / "began").exists)
        terminal.hang_up()
        if detaches:
            put(folder / "go", "")
        terminal.process.wait(60)
    if detaches:
        until(lambda: run_of(folder).status == "done")
    assert run_of(folder).status == ("done" if detaches else "interrupted")


def test_the_live_list_starts_a_run_that_a_worker_drives(folder: Path) -> None:
    script = put(folder.parent / "replies.json", [edit(), {"text": "All done."}])
    put(folder.parent / ".interlock/settings.json", {"model": {"name": f"script:{script}"}})
    with Terminal(folder, "top") as terminal:
        terminal.waits_for("No run waits")
        terminal.press("n", then="Prompt of a new run")
        terminal.press("q", "escape", then="q quit")
        terminal.press("n", then="Prompt of a new run")
        terminal.sends("add a note", "New run: ")
        terminal.waits_for("1 waiting")
        terminal.waits_for("Create notes.txt (+1)")
        terminal.press("q")
        assert terminal.ends() == 0
    assert run_of(folder).title == "add a note"
