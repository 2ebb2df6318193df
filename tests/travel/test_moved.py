"""A run whose folder was moved goes on in the new one: decided requests count, and its changes can be taken back."""

import os
from pathlib import Path

from travel.conftest import Desk, write

REPLIES = [write("a.txt", "one\n"), write("b.txt", "two\n"), {"text": "done"}, {"text": "more"}]


def test_a_run_follows_its_folder_with_its_requests_and_snapshots(desk: Desk) -> None:
    run = desk.run(REPLIES, approval_mode="default").run
    desk("resume", run, "--approve", "1")
    moved = desk.work.rename(desk.folder / "moved")
    os.chdir(desk.folder)
    gone = desk("resume", run, "--approve", "2")
    assert gone.code == 2 and f"interlock resume {run} -C DIR" in gone.err and str(desk.work) in gone.err
    assert f"interlock resume {run} -C DIR" in desk("undo", run).err
    ended = desk("resume", run, "--approve", "2", "-C", "moved")
    assert (ended.code, ended.out) == (0, "done\n"), ended
    assert f"now works in {str(moved)!r}" in ended.err
    os.chdir(moved)
    assert desk("-c", "-p", "again").out == "more\n"  # nobody needs to name the folder again
    shown = desk("diff", "latest", "--files").out
    assert "+++ b/a.txt" in shown and "+++ b/b.txt" in shown
    assert desk("undo", "latest").out == "D a.txt\nD b.txt\n" and not [*Path().glob("*.txt")]
    assert "No difference" in desk("replay", "latest").out
    assert desk("audit", "verify").code == 0
