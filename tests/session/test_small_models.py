"""A small model on this machine, in a session: calls under a schema, a short prompt, other names for arguments."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import execute
from folders import put
from local_server import Local, delta
from session.terminal import Terminal

from interlock.state.text import estimate_tokens


def said(text: str, name: str = "", **args: str) -> str:
    call = {"call": {"name": name, "args": args}} if name else {}
    return json.dumps({**call, "text": text})


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
        terminal.say("change the word", then="[y] Yes")
        terminal.waits_for("plum")
        terminal.press("y", then="It is pear now.")
        terminal.waits_for_line(r".*qwen.* (?!100)\d+% left")
    assert (folder / "a.txt").read_text() == "the word is pear\n"
    first, second = local.asked[:2]
    assert "response_format" in first and estimate_tokens(first["messages"][0]["content"]) <= 1_200
    assert first["messages"][0] == second["messages"][0], "the fixed part comes first and stays"
    assert "path" not in json.loads(second["messages"][-2]["content"])["call"]["args"]
    with Terminal(folder, "models", env=local.env, columns=100) as terminal:
        assert terminal.ends() == 0
        (row,) = [line for line in terminal.screen if line.startswith("openai:qwen")]
        assert "16,384" in row and row.endswith("tried"), "its window, and that it was tried"


def test_a_session_shows_how_far_a_slow_server_has_read_and_says_which_limit_it_missed(
    folder: Path, local: Local
) -> None:
    local.is_llama()
    put(folder.parent / ".interlock/settings.json", '{"models": {"openai:qwen": {"firstTokenTimeout": 2}}}')
    go = threading.Event()

    def reads(answers: bool) -> Iterator[dict[str, Any]]:
        yield {**delta(role="assistant"), "prompt_progress": {"total": 900, "cache": 0, "processed": 512}}
        go.wait(60)
        if answers:
            yield from (delta(content="Here I am."), delta("stop"))

    local.turns += [reads(True), reads(False)]
    arguments = ("-m", "openai:qwen", "--protocol", "native")
    with Terminal(folder, *arguments, env=local.env, columns=100, rows=30) as terminal:
        terminal.say("hello", then="reading 512 of 900 tokens")
        go.set()
        terminal.waits_for("Here I am.")
        go.clear()
        terminal.say("again", then="nothing came for 2 s (models.NAME.firstTokenTimeout sets")
        terminal.waits_for("Send a prompt to try again")
        go.set()


def test_a_model_that_never_calls_as_json_is_constrained_after_two_turns_and_three_mistakes_end_a_task(
    folder: Path, local: Local
) -> None:
    local.is_llama()
    wrong = said("I read.", "read_file")
    local.turns += ["Well.", "Hm.", wrong]
    arguments = ("run", "task", "do it", "-y", "-m", "openai:qwen", "--mode", "code")
    done = execute(folder, *arguments, env=local.env)
    assert done.returncode == 1
    assert (
        "made 3 mistakes in a row: (1) no tool was called; (2) no tool was called; (3) read_file"
        in done.stderr
    )
    assert ["response_format" in request for request in local.asked] == [False, False, True]
