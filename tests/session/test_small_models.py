"""A small model on this machine, in a session: calls under a schema, a short prompt, other names for arguments."""

import json
from pathlib import Path

from commands import execute
from local_server import Local
from session.terminal import Terminal

from interlock.state.text import estimate_tokens


def said(text: str, name: str = "", **args: str) -> str:
    return json.dumps({"text": text, "call": {"name": name, "args": args} if name else None})


def test_a_small_model_reads_edits_and_ends_in_a_session(folder: Path, local: Local) -> None:
    local.is_llama()
    (folder / "a.txt").write_text("the word is plum\n")
    local.turns += [
        said("I look.", "read_file", path="a.txt"),
        said("I edit.", "replace", file="a.txt", old_text="plum", new_text="pear", instruction="x"),
        said("It is pear now."),
    ]
    arguments = ("-m", "openai:qwen", "--protocol", "json")
    with Terminal(folder, *arguments, env=local.env, columns=100, rows=30) as terminal:
        terminal.say("change the word", then="[y] yes")
        terminal.waits_for("plum")
        terminal.press("y", then="It is pear now.")
        terminal.waits_for("% left")
        footer = next(line for line in terminal.screen if "% left" in line)
        assert "qwen" in footer and "100% left" not in footer
    assert (folder / "a.txt").read_text() == "the word is pear\n"
    first = local.asked[0]
    assert "response_format" in first and estimate_tokens(first["messages"][0]["content"]) <= 1_200
    listed = execute(folder, "models", env=local.env).stdout
    assert "openai:qwen" in listed and "16,384" in listed
