"""What a session gets from elsewhere: servers that need signing in, their prompts, subtasks."""

import sys
from pathlib import Path

from folders import put, tree
from mcp_servers.accounts import BROWSER, Accounts
from mcp_servers.sdk import Behind
from scripted import says
from session.terminal import Opens


def test_one_signs_in_to_a_server_and_sends_a_prompt_of_it(folder: Path, opens: Opens) -> None:
    home = folder.parent
    tree(home, {"browser.py": BROWSER, ".interlock/": ""})
    env = {"DISPLAY": ":0", "BROWSER": f"{sys.executable} {home / 'browser.py'} %s"}
    with Behind("http", accounts=Accounts()) as server:
        servers = {"sdk": {"httpUrl": server.url, "trust": True}}
        put(home / ".interlock" / "settings.json", {"mcpServers": servers})
        replies = [{"text": "Looks well.", "expect": "Review this: x = 1"}]
        with opens(replies, env=env, rows=40) as terminal:
            terminal.waits_for("›")
            terminal.type("/mcp auth sdk\r", then="Signed in to sdk: 5 tools.")
            terminal.waits_for("›")
            terminal.type("/sdk:rev", then="Ask for a review")
            terminal.type("iew code='x = 1'\r", then="Looks well.")


def test_a_subtask_is_asked_about_done_and_its_result_goes_to_the_task_above(
    folder: Path, opens: Opens
) -> None:
    below = {"agent": "task:0.0"}
    replies = [
        says("new_task", mode="code", message="write a note"),
        {**below, **says("write_to_file", path="note.txt", content="noted\n")},
        {**below, **says("attempt_completion", result="The note is written.")},
        {**says("attempt_completion", result="All of it is done."), "expect": "The note is written."},
    ]
    with opens(replies, "--mode", "orchestrator", rows=50) as terminal:
        terminal.say("have a note written", then="new_task")
        terminal.waits_for("[y] Yes")
        terminal.press("y", then="note.txt")
        terminal.waits_for("[y] Yes")
        assert not (folder / "note.txt").exists()
        terminal.press("y")
        for result in ("The note is written.", "All of it is done."):
            terminal.waits_for(f"\n  {result}\n")
            terminal.waits_for("[y] Yes")
            terminal.press("y")
            terminal.waits_for("[y] Yes", gone=True)
        terminal.waits_for("›")
    assert (folder / "note.txt").read_text() == "noted\n"
