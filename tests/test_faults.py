"""Faults of a model's server, at the first request and after a tool's result: retried, or a clear end. Never success.

A real server on loopback that speaks Gemini's protocol; the waits are a thousandth of their length.
"""

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from places import Place

from interlock.engine import Outcome, resume_sync, run_sync
from interlock.engine.read import list_steps

GOOD: dict[str, Any] = {"text": "The answer is 42."}
READ: dict[str, Any] = {"calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]}
STREAM_ATTEMPTS, ATTEMPTS = 4, 10
AUTO: dict[str, Any] = {"name": "auto", "aliases": {"auto": "gemini-2.5-pro"}, "fallback": ["pro", "flash"]}
INVALID: dict[str, dict[str, Any]] = {
    "no finish reason": {"text": "The ans", "finish": None},
    "empty": {"empty": True},
    "nothing said": {"text": ""},
    "cut after a piece": {"text": "The answer is long", "chunks": 4, "cut_after": 2},
    "no JSON after a piece": {"text": "The answer is long", "chunks": 4, "garbage_after": 2},
    "thoughts only": {"thought": "I should think about it."},
    "a malformed call": {"text": "", "finish": "MALFORMED_FUNCTION_CALL"},
}
"""An unusable answer; requested 4 times in all."""
UNREACHED: dict[str, dict[str, Any]] = {
    "429": {"error": 429},
    "429 with a delay": {"error": {"code": 429, "retry_delay": 7}},
    "429 with a header": {"error": {"code": 429, "retry_after": 7}},
    "503": {"error": 503},
    "500 in HTML": {"error": {"code": 500, "html": True}},
    "cut before a piece": {"text": "The answer", "cut_after": 0},
}
"""No answer; the request is made 10 times in all, then sent to another model."""
PLACES: dict[str, list[dict[str, Any]]] = {"first": [], "after a tool": [READ]}
FAULTS = [(fault, "first") for fault in (*INVALID, *UNREACHED)]
FAULTS += [(fault, "after a tool") for fault in ("nothing said", "empty", "503")]
STAYING = ("no finish reason", "nothing said", "503", "cut before a piece")
TOLERATED = {("nothing said", "after a tool")}
"""An empty text after a tool's result is no fault of the stream (`docs/internals.md#a-usable-answer`)."""


class Stage(Place):
    """One run against the server."""

    def __init__(self, folder: Path, server: FakeGemini, name: str = "gemini-2.5-pro", **model: Any) -> None:
        super().__init__(folder)
        quick = {
            "retryDelayScale": 0.001,
            "streamRetryDelay": 0,
            "skipNextSpeakerCheck": True,
            "fallback": [],
        }
        self.server, self.events = server, list[Any]()
        self.given = self.options(server.env, model=name, overrides={"model": {**quick, **model}})

    def play(self, script: list[Mapping[str, Any]]) -> Outcome:
        self.server.play(script)
        said = {"prompt": "What is it?"}
        return run_sync("main", said, options=self.given, renderers=[self.events.append])

    def resume(self, script: list[Mapping[str, Any]]) -> Outcome:
        self.server.play(script)
        run = next(e.session_id for e in self.events if e.type == "init")
        return resume_sync(run, options=self.given, renderers=[self.events.append])

    def waits(self, run: str) -> list[str]:
        """What the history says of each wait for another try."""
        return [step.reason for step in list_steps(self.folder / "home", run) if step.node == "wait_retry"]

    def told(self, kind: str) -> list[Any]:
        return [e for e in self.events if e.type == kind]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("fault", "place"), FAULTS)
def test_a_fault_that_passes_is_retried(
    fault: str, place: str, tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    stage = Stage(tmp_path, fake_gemini)
    bad = {**INVALID, **UNREACHED}[fault]
    outcome = stage.play([*PLACES[place], bad, bad, GOOD, GOOD])
    if (fault, place) in TOLERATED:
        assert (outcome.status, outcome.exit_code) == ("invalid_stream", 1)
        return
    assert (outcome.status, outcome.exit_code) == ("done", 0), outcome.error
    assert outcome.output["response"] == GOOD["text"]
    assert [m["role"] for m in outcome.output["history"]].count("assistant") == 1 + len(PLACES[place])
    if fault in UNREACHED:
        first, second = (e.delay_s for e in stage.told("retry"))
        assert first == second == 0.007 if "with a" in fault else first < second, (
            "the server's own, or they grow"
        )
    retries = [(f"attempt {e.attempt} after ", f" s: {e.reason}") for e in stage.told("retry")]
    for said, (start, end) in zip(stage.waits(outcome.run), retries, strict=True):
        assert said.startswith(start) and said.endswith(end)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("fault", "place"), [one for one in FAULTS if one[0] in STAYING])
def test_a_fault_that_stays_ends_clearly_and_can_be_resumed(
    fault: str, place: str, tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    stage = Stage(tmp_path, fake_gemini)
    bad = {**INVALID, **UNREACHED}[fault]
    outcome = stage.play([*PLACES[place], *[bad] * (ATTEMPTS + 2)])
    invalid = fault in INVALID
    assert outcome.status == ("invalid_stream" if invalid else "failed")
    assert outcome.exit_code == 1
    assert outcome.error is not None
    assert outcome.error["message"]
    assert outcome.output["response"] == ""
    asked = len(fake_gemini.requests) - len(PLACES[place])
    if (fault, place) not in TOLERATED:
        assert asked == (STREAM_ATTEMPTS if invalid else ATTEMPTS)
        assert len(stage.told("invalid_stream" if invalid else "retry")) == (
            STREAM_ATTEMPTS if invalid else ATTEMPTS - 1
        )
    if fault in UNREACHED:
        reason = stage.told("retry")[-1].reason
        assert stage.waits(outcome.run)[-1] == f"attempt {ATTEMPTS} was the last: {reason}"
    again = stage.resume([GOOD])
    assert (again.status, again.output["response"]) == ("done", GOOD["text"]), again.error


TOO_LARGE = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
LATER = ("It asks to wait 2.0 hours, until 2", "interlock resume RUN")
ONCE: list[tuple[Any, str, int, tuple[str, ...]]] = [
    (404, "failed", 1, ("404", "-m")),
    (400, "failed", 1, ()),
    (401, "failed", 41, ()),
    (403, "failed", 41, ()),
    ({"code": 429, "retry_after": 7300}, "failed", 1, LATER),
    ({"code": 503, "retry_after": 7300}, "failed", 1, LATER),
    ({"code": 400, "message": TOO_LARGE}, "context_overflow", 1, ()),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("error", "status", "code", "says"), ONCE)
def test_what_would_fail_again_is_asked_once_and_can_be_resumed(
    error: Any, status: str, code: int, says: tuple[str, ...], tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    stage = Stage(tmp_path, fake_gemini, fallback=["pro", "flash"])
    outcome = stage.play([{"error": error}, GOOD])
    assert (outcome.status, outcome.exit_code, len(fake_gemini.requests)) == (status, code, 1)
    told = str(outcome.error).replace(outcome.run, "RUN")
    assert [text for text in says if text not in told] == []
    assert stage.resume([GOOD]).status == "done"


def test_an_overloaded_model_is_replaced_under_auto_only(tmp_path: Path, fake_gemini: FakeGemini) -> None:
    for model, answers in (("auto", True), ("gemini-2.5-pro", False)):
        (folder := tmp_path / model).mkdir()
        stage = Stage(folder, fake_gemini, **{**AUTO, "name": model})
        helper = [{"error": 400}] if answers else []
        outcome = stage.play([*helper, *[{"error": 503}] * 10, GOOD])
        assert (outcome.status == "done") is answers
        assert (fake_gemini.requests[-1].model == "gemini-3.8-flash") is answers


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_a_server_that_is_not_there_ends_after_three_attempts(
    url: str, tmp_path: Path, fake_gemini: FakeGemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "invalid" in url:
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    stage = Stage(tmp_path, fake_gemini)
    stage.given = replace(stage.given, env={**(stage.given.env or {}), "GOOGLE_GEMINI_BASE_URL": url})
    outcome = stage.play([])
    assert (outcome.status, len(stage.told("retry"))) == ("failed", 2)
    assert [e.delay_s for e in stage.told("retry")] == [0.001] * 2, "seconds, scaled"
    assert outcome.error is not None and "could not be reached" in outcome.error["message"]


def test_a_bug_of_ours_is_no_failure_of_the_model(
    tmp_path: Path, fake_gemini: FakeGemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.services.models.request.TextDelta", None)
    outcome = Stage(tmp_path, fake_gemini).play([GOOD, GOOD])
    assert outcome.error is not None and outcome.error["type"] == "bug", outcome.error
    assert len(fake_gemini.requests) == 1


def test_a_request_that_cannot_fit_is_not_made(tmp_path: Path, fake_gemini: FakeGemini) -> None:
    stage = Stage(tmp_path, fake_gemini)
    small = {"models": {"gemini-2.5-pro": {"contextWindow": 100}}}
    stage.given = replace(stage.given, overrides={**stage.given.overrides, **small})
    outcome = stage.play([GOOD])
    assert (outcome.status, outcome.exit_code) == ("context_overflow", 1)
    assert not fake_gemini.requests
    assert stage.told("context_overflow")
