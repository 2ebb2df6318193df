"""The fake itself: what it refuses, and that it runs as a program."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from fake_gemini.history import refused
from patience import HANG_S

USER = {"role": "user", "parts": [{"text": "hi"}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "a", "args": {}}}]}
ANSWER = {"role": "user", "parts": [{"functionResponse": {"name": "a", "response": {"output": "x"}}}]}
SAID = {"role": "model", "parts": [{"text": "yes"}]}


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([], "not specified"),
        ([SAID, USER], "alternate"),
        ([USER, USER], "alternate"),
        ([USER, SAID], "end with a user role"),
        ([USER, {"role": "model", "parts": []}, USER], "must not be empty"),
        ([USER, CALL, USER], "equal to the number"),
        ([USER, SAID, ANSWER], "equal to the number"),
        ([USER, CALL, {"role": "user", "parts": ANSWER["parts"] * 2}], "equal to the number"),
    ],
)
def test_a_history_that_the_api_refuses_is_refused(contents: list[Any], told: str) -> None:
    assert told in str(refused(contents, signatures=False))


def test_a_history_that_the_api_takes_is_taken() -> None:
    assert refused([USER, CALL, ANSWER, SAID, USER], signatures=False) is None
    assert "thought_signature" in str(refused([USER, CALL, ANSWER], signatures=True))
    assert refused([USER, CALL, ANSWER, SAID, USER], signatures=True) is None  # an older turn


def post(url: str, body: Any, key: str = "k") -> Any:
    headers = {"Content-Type": "application/json", **({"x-goog-api-key": key} if key else {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_answers_as_gemini_does(fake_gemini: FakeGemini) -> None:
    fake_gemini.play([{"text": "hello", "chunks": 2}, {"text": "hello", "chunks": 2}])
    model = f"{fake_gemini.url}/v1beta/models/gemini-2.5-pro"
    status, whole = post(f"{model}:generateContent", {"contents": [USER]})
    parts = json.loads(whole)["candidates"][0]["content"]["parts"]
    assert (status, "".join(p["text"] for p in parts)) == (200, "hello")
    status, events = post(f"{model}:streamGenerateContent?alt=sse", {"contents": [USER]})
    assert (status, events.count("data: ")) == (200, 2)
    assert json.loads(post(f"{model}:countTokens", {"contents": [USER]})[1])["totalTokens"] > 0
    assert post(f"{model}:generateContent", {"contents": [USER]})[0] == 400  # used up
    assert post(f"{model}:generateContent", {"contents": [USER]}, key="")[0] == 403
    with urllib.request.urlopen(f"{fake_gemini.url}/v1beta/models", timeout=HANG_S) as answer:
        assert json.loads(answer.read())["models"]


def test_rules_choose_by_what_the_request_holds(fake_gemini: FakeGemini) -> None:
    """A client that was killed and asks again gets the same."""
    fake_gemini.play(
        {
            "rules": [
                {"match": {"schema": "next_speaker"}, "reply": '{"next_speaker": "user"}'},
                {
                    "match": {"last_user": "hi"},
                    "by": "since_user",
                    "replies": [{"calls": [{"name": "a"}]}, "done"],
                },
            ]
        }
    )
    url = f"{fake_gemini.url}/v1beta/models/m:generateContent"
    for _ in range(2):
        assert "functionCall" in post(url, {"contents": [USER]})[1]
        assert "done" in post(url, {"contents": [USER, CALL, ANSWER]})[1]
    schema = {"generationConfig": {"responseJsonSchema": {"title": "next_speaker"}}}
    assert "next_speaker" in post(url, {"contents": [USER], **schema})[1]


def test_it_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(["hello"]))
    server = Path(__file__).parent / "server.py"
    given = [
        "--port-file",
        tmp_path / "port",
        "--script",
        tmp_path / "script.json",
        "--log",
        tmp_path / "log.jsonl",
    ]
    with subprocess.Popen([sys.executable, server, *given], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith(
                "READY http://127.0.0.1:"
            )
            url = f"http://127.0.0.1:{(tmp_path / 'port').read_text()}/v1beta/models/m:generateContent"
            assert "hello" in post(url, {"contents": [USER]})[1]
        finally:
            process.send_signal(signal.SIGTERM)
    row = json.loads((tmp_path / "log.jsonl").read_text())
    assert row["method"] == "generateContent" and row["at"] > 0
    assert row["headers"]["x-goog-api-key"] == "***"
