"""What a session shows and does while one works in it, point by point."""

import base64
import os
import re
from pathlib import Path

from folders import put
from patience import until
from scripted import PNG, shell, tools
from session.terminal import Opens, edit

from interlock.engine.read import list_runs

MADE = shell("mkdir -p __pycache__; echo > __pycache__/m.pyc; sleep 0.1")
SLOW = shell("touch began; until [ -e go ]; do sleep 0.05; done")


def test_an_undo_is_known_to_the_model_and_to_the_next_session(folder: Path, opens: Opens) -> None:
    told = r"(?s)took back changes.*undid write_file notes.txt: D notes.txt"
    replies = [edit(), tools(MADE), {"text": "Both."}, {"expect": told, "text": "I know."}]
    with opens(replies, "-y") as terminal:
        terminal.say("write it", then="Both.")
        terminal.sends("/undo", "Undoing the last change (write_file", "D notes.txt")
        terminal.sends("/quit")
        assert "pyc" not in "\n".join(terminal.scrollback).partition("/undo")[2]
        terminal.ends()
    with opens(None, "-c") as terminal:
        terminal.waits_for("↶ The user undid write_file notes.txt")
        terminal.say("and now?", then="I know.")
        terminal.sends("/show", "undone")


def test_a_no_is_one_line_and_no_error(folder: Path, opens: Opens) -> None:
    with opens([edit(), {"text": "Then not.", "expect": "another file"}]) as terminal:
        terminal.say("write it", then="[y] Yes")
        terminal.type("n", then="Reason (optional)")
        terminal.sends("another file", "– Create notes.txt · refused: another file", "Then not.")
        assert not (folder / "notes.txt").exists()
        until(lambda: list_runs(folder.parent / "state")[0].status == "failed", "its end")
        terminal.press("c-d")
        terminal.ends()
        screen = "\n".join(terminal.scrollback)
        assert "✗" not in screen and screen.count("refused") == 1, "the decision is told once, as no failure"


def test_the_footer_tells_what_runs_and_how_far_a_first_answer_has_come(folder: Path, opens: Opens) -> None:
    replies = [tools(SLOW, delay_s=0.5, usage={"input": 9_000, "output": 10}), {"text": "Done."}]
    put(folder / ".git/HEAD", "ref: refs/heads/topic\n")
    put(
        folder.parent / ".interlock/policies/mine.toml",
        '[[rule]]\ntoolName = "run_shell_command"\ncommandRegex = ".*"\ndecision = "allow"\npriority = 900\n',
    )
    with opens(replies, columns=110) as terminal:
        terminal.say("wait", then="is reading")
        footer = " s · asks first · replies.json · 99% left · 9.0k tokens · ⎇ topic"
        terminal.waits_for_line(r"\$ touch began; until.*" + re.escape(footer))
        (folder / "go").touch()
        terminal.waits_for("Done.")


def test_keys_and_servers_are_seen_tested_and_removed_here(folder: Path, opens: Opens) -> None:
    own = put(
        folder.parent / ".gemini/.env", "GROQ_API_KEY='gsk-abcd'\nOPENAI_BASE_URL='http://127.0.0.1:9/v1'\n"
    )
    with opens([], rows=40) as terminal:
        terminal.waits_for("›")
        terminal.sends("/auth", "…abcd", "GROQ_API_KEY in ~/.gemini/.env")
        terminal.sends("/auth test openai", "127.0.0.1:9 can't be reached")
        terminal.sends("/auth remove groq", "Removed groq from ~/.gemini/.env.")
        assert own.read_text() == "OPENAI_BASE_URL='http://127.0.0.1:9/v1'\n"
        terminal.sends("/auth remove openai", "Removed openai from ~/.gemini/.env.")
        terminal.sends("/auth", "No key and no server is set. Set one: /auth set PROVIDER")
        terminal.sends("/model nonsense", "like", "/model openai:gpt-5.")


def test_context_editor_search_and_images(folder: Path, opens: Opens) -> None:
    programs = folder.parent / "bin"
    programs.mkdir()
    (folder.parent / "clip.png").write_bytes(base64.b64decode(PNG))
    for name, line in {
        "wl-paste": f"cat {folder.parent}/clip.png",
        "edits": 'echo "from the editor" > "$1"',
    }.items():
        put(programs / name, f"#!/bin/sh\n{line}\n")
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "EDITOR": str(programs / "edits")}
    replies = [{"text": "The needle is here."}, {"text": "I see it."}]
    with opens(replies, env=env, rows=40) as terminal:
        terminal.say("first prompt", then="needle")
        terminal.sends("/context", "system prompt", "tools", "your prompts", "free")
        terminal.sends("/editor", "› from the editor")
        terminal.press("c-u")
        terminal.press("c-v", then="[image #1]")
        terminal.sends(" what is it?", "I see it.")
        terminal.sends("/clear", "A new conversation")
        terminal.sends("/resume", "Go on with which run?")
        terminal.type("needle", then="…The needle is here.")
        terminal.press("enter", then="I see it.")


def test_a_resize_loses_no_line_and_keeps_what_is_typed(opens: Opens) -> None:
    text = "\n\n".join(f"paragraph {n} of the answer" for n in range(30))
    with opens([{"text": text}], rows=20) as terminal:
        terminal.say("talk", then="paragraph 29 of")
        terminal.type("half a line", then="half a line")
        for columns in (50, 100, 60):
            terminal.resize(columns, 20)
        terminal.type(" more", then="half a line more")
        shown = "\n".join(terminal.scrollback)
        assert all(f"paragraph {n} of the answer" in shown for n in range(30))


def test_an_export_begins_with_the_conversation_and_history_fits(folder: Path, opens: Opens) -> None:
    with opens([edit(), {"text": "It is **written**."}], "-y", rows=50) as terminal:
        terminal.say("write notes.txt", then="written")
        terminal.sends("/export", "Exported run")
        terminal.sends("/history", "finish")
        at = next(n for n, line in enumerate(terminal.screen) if line.startswith("step"))
        rows = [line for line in terminal.screen[at + 1 :] if line.strip()][:-2]
        assert rows and all(re.match(r"(\d+)? +\d\d:\d\d:\d\d ", row) for row in rows), rows
    until(lambda: any(folder.glob("run-*.html")), "the page")
    (page,) = folder.glob("run-*.html")
    text = page.read_text()
    assert text.index("<h2>Conversation") < text.index("<h2>Files") < text.index("<h2>Path")
    assert "<strong>written</strong>" in text and 'class="asked">write notes.txt' in text
