"""A request that a model's server refuses, as too long or for a picture in it, ends neither the prompt nor the run."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, execute
from fake_gemini.fake import FakeGemini
from folders import tree
from scripted import call

FULL = "The input token count (90000) exceeds the maximum number of tokens allowed (65536)."
LONG = {
    "rules": [
        {"match": {"schema": "1"}, "reply": {"text": '{"reasoning": "x", "next_speaker": "user"}'}},
        {
            "match": {"body": "fills the window"},
            "reply": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": FULL}},
        },
    ],
    "replies": [{"calls": [call("read_file", file_path="big.py")]}],
    "default": {"text": "Fine."},
}
PICTURE = {
    "rules": [
        {"match": {"schema": "1"}, "reply": {"text": '{"reasoning": "x", "next_speaker": "user"}'}},
        {
            "match": {"body": "inlineData"},
            "reply": {"error": {"code": 400, "message": "Unable to process input image."}},
        },
    ],
    "replies": [{"calls": [call("read_file", file_path="shot.png")]}],
    "default": {"text": "Fine."},
}


def ask(folder: Path, server: FakeGemini, *arguments: str) -> Ended:
    return execute(folder, *arguments, "-y", "-m", "gemini-2.5-pro", env=server.env)


def test_an_output_that_fills_the_window_is_left_out_and_the_conversation_goes_on(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    tree(tmp_path, {"big.py": "x = 1  # a line that fills the window\n" * 1_900})
    fake_gemini.play(LONG)
    done = ask(tmp_path, fake_gemini, "-p", "read big.py")
    assert (done.returncode, done.stdout) == (0, "Fine.\n"), done.stderr
    assert "65536" in done.stderr and "shortened to fit" in done.stderr
    last = json.dumps(fake_gemini.requests[-1].contents)
    assert "no room for it" in last and "start_line" in last
    again = ask(tmp_path, fake_gemini, "-c", "-p", "go on")
    assert (again.returncode, again.stdout) == (0, "Fine.\n"), again.stderr
    assert "shortened" not in again.stderr, "the window is known now"


def test_instructions_that_fill_the_window_are_named_and_the_next_prompt_goes_on(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    tree(tmp_path, {"AGENTS.md": "A rule that fills the window.\n" * 2_000})
    fake_gemini.play(LONG)
    done = ask(tmp_path, fake_gemini, "--skip-trust", "-p", "hello")
    assert done.returncode == 1
    assert "It is filled by AGENTS.md (" in done.stderr and "Shorten AGENTS.md" in done.stderr
    (tmp_path / "AGENTS.md").write_text("Be brief.\n")
    again = ask(tmp_path, fake_gemini, "--skip-trust", "-p", "hello")
    assert (again.returncode, again.stdout) == (0, "Fine.\n"), again.stderr


def test_a_picture_that_is_refused_is_left_out_and_the_conversation_goes_on(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    (tmp_path / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    fake_gemini.play(PICTURE)
    done = ask(tmp_path, fake_gemini, "-p", "look at shot.png")
    assert (done.returncode, done.stdout) == (0, "Fine.\n"), done.stderr
    assert "Unable to process input image" in done.stderr and "left out" in done.stderr
    assert "refused this image" in json.dumps(fake_gemini.requests[-1].contents)
    asked = len(fake_gemini.requests)
    again = ask(tmp_path, fake_gemini, "-c", "-p", "hi")
    assert (again.returncode, again.stdout) == (0, "Fine.\n"), again.stderr
    sent: list[Any] = [r.contents for r in fake_gemini.requests[asked:]]
    assert "inlineData" not in json.dumps(sent), "it is remembered, also by another process"


@pytest.mark.parametrize(
    ("text", "window", "counted"),
    [
        (FULL, 65_536, 90_000),
        ("prompt is too long: 210345 tokens > 200000 maximum", 200_000, 210_345),
        ("input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000", 200_000, 0),
        ("maximum context length is 128,000 tokens. However, you requested 130,001", 128_000, 130_001),
        ("request (13021 tokens) exceeds the available context size (8192 tokens)", 8_192, 13_021),
        ("Prompt contains 140000 tokens, too large for model with 131072 maximum", 131_072, 140_000),
        ("inputs + max_new_tokens must be <= 4096. Given: 5000", 4_096, 5_000),
        ("Input is too long for requested model.", 0, 0),
    ],
)
def test_the_window_is_read_from_the_refusal(text: str, window: int, counted: int) -> None:
    from interlock.services.models.provider_errors import parse_overflow_limits

    assert parse_overflow_limits(text) == (window, counted)
