"""generate_image and web_search: tools that ask a model, through the CLI and a server that speaks Gemini's protocol."""

import base64
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import warm
from commands import Ended, execute, one_call, response
from fake_gemini.fake import FakeGemini
from folders import put

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}


def answered(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    candidate = {"index": 0, "content": {"role": "model", "parts": [*parts]}, "finishReason": "STOP", **more}
    return {"raw": [{"candidates": [candidate], "usageMetadata": USAGE}]}


def picture(data: bytes = PNG, mime: str = "image/png") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": base64.b64encode(data).decode()}}


@pytest.fixture
def interlock(tmp_path: Path, fake_gemini: FakeGemini) -> Callable[..., Ended]:
    (tmp_path / "work").mkdir()
    return partial(execute, tmp_path / "work", env=fake_gemini.env)


def test_a_picture_is_made_only_after_somebody_allowed_it_and_only_once(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    fake_gemini.play([answered({"text": "Here it is."}, picture())])
    parked = interlock(*one_call("generate_image", prompt="a red dot", path="art/dot.png"))
    assert parked.returncode == 75, parked.stderr
    assert fake_gemini.requests == []
    assert "a red dot" in interlock("approvals", "latest").stdout
    done = interlock("resume", "latest", "--approve", "all")
    assert response(done)["status"] == "success"
    assert (tmp_path / "work/art/dot.png").read_bytes() == PNG
    assert len(fake_gemini.requests) == 1
    asked = fake_gemini.requests[0]
    assert asked.model == "gemini-2.5-flash-image"
    assert asked.body["generationConfig"]["responseModalities"] == ["TEXT", "IMAGE"]
    assert "thinkingConfig" not in asked.body["generationConfig"]


KILLED = """import os, signal, sys
from interlock.services.files import calls
calls.write_keeping_file = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from interlock.cli.main import main
sys.exit(main())
"""


def test_killed_before_it_is_written_the_same_picture_is_written_and_not_paid_again(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    fake_gemini.play([answered(picture()), answered(picture(PNG + b"another"))])
    call, killed = one_call("generate_image", prompt="x", path="a.png"), put(tmp_path / "killed.py", KILLED)
    env = {**os.environ, **fake_gemini.env}
    assert warm.run([*call, "-y"], cwd=tmp_path / "work", env=env, program=killed).returncode == -9
    assert not (tmp_path / "work/a.png").exists()
    assert response(interlock("resume", "latest"))["status"] == "success"
    assert (tmp_path / "work/a.png").read_bytes() == PNG
    assert len(fake_gemini.requests) == 1


def test_a_mode_without_that_file_has_no_picture_made(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini
) -> None:
    drawn = {"name": "generate_image", "args": {"prompt": "x", "path": "a.png"}}
    done = {"name": "attempt_completion", "args": {"result": "done"}}
    fake_gemini.play([{"calls": [drawn]}, {"calls": [done]}])
    ended = interlock("run", "task", "x", "--mode", "architect", "-m", "gemini-2.5-pro", "-y")
    assert ended.returncode == 0, ended.stderr
    assert {request.model for request in fake_gemini.requests} == {"gemini-2.5-pro"}
    assert "may only edit files that match" in json.dumps(fake_gemini.requests[-1].contents)


def test_a_picture_may_begin_with_one_of_the_workspace(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    (tmp_path / "work/old.png").write_bytes(PNG)
    fake_gemini.play([answered(picture(PNG + b"\0"))])
    args = {"prompt": "make it blue", "path": "old.png", "image": "old.png"}
    done = interlock(*one_call("generate_image", **args), "-y")
    assert response(done)["status"] == "success"
    assert (tmp_path / "work/old.png").read_bytes() == PNG + b"\0"
    assert picture() in fake_gemini.requests[0].contents[0]["parts"]


@pytest.mark.parametrize(
    ("args", "reply", "kind", "says"),
    [
        ({"path": "a.png"}, answered({"text": "I won't draw that."}), "no_picture", "I won't draw that."),
        ({"path": "a.jpg"}, answered(picture()), "no_picture", "made image/png, not image/jpeg"),
        ({"path": "a.gif"}, {"text": ""}, "invalid_tool_params", "ends in .png"),
        ({"path": "../a.png"}, {"text": ""}, "invalid_tool_params", "outside"),
        ({"path": "a.png", "image": "none.png"}, {"text": ""}, "file_not_found", "none.png"),
    ],
)
def test_without_a_picture_nothing_is_written(
    interlock: Callable[..., Ended],
    fake_gemini: FakeGemini,
    tmp_path: Path,
    args: dict[str, str],
    reply: dict[str, Any],
    kind: str,
    says: str,
) -> None:
    fake_gemini.play([reply])
    found = response(interlock(*one_call("generate_image", prompt="x", **args), "-y"))
    assert found["error"]["type"] == kind, found
    assert says in found["content"]
    assert [*(tmp_path / "work").iterdir()] == []


def test_a_search_is_answered_by_gemini_with_its_sources(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini
) -> None:
    web = [{"web": {"uri": "https://a.example/x", "title": "A"}}, {"web": {"uri": "https://b.example/"}}]
    grounded = {"groundingMetadata": {"groundingChunks": web, "webSearchQueries": ["python release"]}}
    fake_gemini.play([answered({"text": "It is 3.15."}, **grounded)])
    found = response(interlock(*one_call("google_web_search", query="newest Python?")))
    assert found["content"] == (
        "Results for 'newest Python?':\n\nIt is 3.15.\n\n"
        "Sources:\n[1] A (https://a.example/x)\n[2] https://b.example/ (https://b.example/)"
    )
    assert fake_gemini.requests[0].body["tools"] == [{"googleSearch": {}}]


def test_a_search_that_a_rule_asks_about_names_what_searches(
    interlock: Callable[..., Ended], fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    rule = tmp_path / "ask.toml"
    rule.write_text('[[rule]]\ntoolName = "web_search"\ndecision = "ask"\npriority = 500\n')
    assert interlock(*one_call("web_search", query="x"), "--policy", str(rule)).returncode == 75
    assert "with Google's search" in interlock("approvals", "latest").stdout
    assert fake_gemini.requests == []


def setting(home: Path, value: str) -> None:
    (home / ".interlock").mkdir(exist_ok=True)
    (home / ".interlock/settings.json").write_text(json.dumps({"tools": {"webSearch": value}}))


def test_a_search_by_a_command_gets_the_query_on_stdin(interlock: Callable[..., Ended], home: Path) -> None:
    setting(home, "sed s/^/found:/")
    assert response(interlock(*one_call("web_search", query="--help"), "-y"))["content"].endswith(
        "found:--help"
    )
    setting(home, "false")
    assert response(interlock(*one_call("web_search", query="x"), "-y"))["error"]["type"] == "search_failed"


def test_a_model_that_cannot_search_is_named(interlock: Callable[..., Ended], home: Path) -> None:
    (home / ".interlock").mkdir()
    roles = {"model": {"roles": {"web_search": "openai:gpt-5"}}}
    (home / ".interlock/settings.json").write_text(json.dumps(roles))
    found = response(interlock(*one_call("web_search", query="x"), "-y"))
    assert "'openai:gpt-5' can't search the web" in found["content"]
    assert "model.roles.web_search" in found["content"]
