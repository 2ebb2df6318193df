"""A session in a git worktree: from its start, or by `/worktree`; and what is left of it."""

import subprocess
from pathlib import Path

from scripted import says
from session.terminal import Opens

REPLIES = [says("write_file", file_path="new.txt", content="made\n"), {"text": "Written."}]


def _git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=b")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def _make_repository(folder: Path) -> Path:
    _git(folder, "init", "-q")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder.with_name("work.worktrees")


def test_a_session_works_in_its_worktree_and_leaves_none_in_which_nothing_was_done(
    folder: Path, opens: Opens
) -> None:
    place = _make_repository(folder)
    with opens(REPLIES, "--worktree", "one", rows=40) as terminal:
        terminal.waits_for("Made the worktree", anywhere=True)
        terminal.waits_for("worktree-one")
        terminal.sends("/quit")
        assert terminal.ends() == 0
    assert not place.exists()
    with opens(None, "--worktree", "one", "--approval-mode", "auto_edit", rows=40) as terminal:
        terminal.say("write it", then="Written.")
        terminal.sends("/quit")
        assert terminal.ends() == 0
    assert (place / "one/new.txt").exists() and not (folder / "new.txt").exists()


def test_a_new_conversation_begins_in_a_worktree(folder: Path, opens: Opens) -> None:
    place = _make_repository(folder)
    with opens(REPLIES, "--approval-mode", "auto_edit", rows=40) as terminal:
        terminal.sends("/worktree a b", "can't be the name of a branch")
        terminal.sends("/worktree two", "A new conversation begins there.")
        terminal.say("write it", then="Written.")
        terminal.sends("!ls", "new.txt")
        terminal.sends("/worktrees", "1 uncommitted file")
        terminal.sends("/quit")
        assert terminal.ends() == 0
    assert (place / "two/new.txt").exists() and not (folder / "new.txt").exists()
