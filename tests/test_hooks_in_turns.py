"""Hooks around prompts, model requests, answers and compressions: real commands, scripted models, the real engine."""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, call, complete, says

from interlock.engine import Decision, Outcome, resume_sync
from interlock.engine.diagrams import declared_edges
from interlock.engine.hook_log import HookLog
from interlock.state.events import ErrorEvent, MessageEvent, Thought
from interlock.state.turn_events import AgentBlocked, AgentStopped

Hooks = dict[str, str | list[str]]
DONE = {"text": "All of it is done."}
USER = {"role": "next_speaker", "text": '{"reasoning": "finished", "next_speaker": "user"}'}
LOOK = {"tool_calls": [call("list_directory", dir_path=".")]}


def say(**fields: Any) -> str:
    """A command that answers."""
    return f"echo {shlex.quote(json.dumps(fields))}"


def specific(**fields: Any) -> str:
    return say(hookSpecificOutput=fields)


def once(first: str, then: str = "true") -> str:
    """A command that says something else from the second time on."""
    return f'if [ -e "$0.once" ]; then {then}; else touch "$0.once"; {first}; fi'


BLOCK = say(decision="block", reason="not today")
STOP = say(**{"continue": False, "stopReason": "enough"})


class Hooked(Stage):
    """A stage with hooks, each of which keeps what it was told."""

    hooks: Hooks

    def configure(self, hooks: Hooks, **more: Any) -> "Hooked":
        settings = self.folder / "user" / ".gemini" / "settings.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        told = {
            event: [
                {
                    "hooks": [
                        self._hook(event, n, c, more)
                        for n, c in enumerate([commands] if isinstance(commands, str) else commands)
                    ]
                }
            ]
            for event, commands in hooks.items()
        }
        settings.write_text(json.dumps({"hooks": told}))
        return self

    def _hook(self, event: str, number: int, command: str, more: dict[str, Any]) -> dict[str, Any]:
        script = self.folder / f"{event}.{number}.sh"
        log = self.folder / f"{event}.jsonl"
        script.write_text(f"(cat; echo) >> {log}\n{command}\n")
        return {"type": "command", "name": f"my-{event}", "command": f"bash {script}", **more}

    def told(self, event: str) -> list[dict[str, Any]]:
        log = self.folder / f"{event}.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines() if line] if log.exists() else []

    def of(self, kind: type[Any]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]


@dataclass(frozen=True)
class Scene:
    hooks: Hooks
    replies: Replies = field(default_factory=lambda: [DONE])
    status: str = "done"
    exit_code: int = 0
    error: str = ""
    """Stands in the error's message."""
    workflow: str = "main"
    input: dict[str, Any] = field(default_factory=lambda: {"prompt": "go"})
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    fired: dict[str, int] = field(default_factory=dict[str, int])
    """How often each hook ran."""


LONG = {
    "history": [{"role": r, "content": f"{n} " * 300} for n in range(6) for r in ("user", "assistant")],
    "token_limit": 1000,
}
SNAPSHOT = "<scratchpad>x</scratchpad><state_snapshot><overall_goal>g</overall_goal></state_snapshot>"
COMPRESSOR = [{"role": "compressor", "text": SNAPSHOT}] * 2


def stopped(event: str, **more: Any) -> Scene:
    return Scene(
        {event: STOP},
        status="stopped_by_hook",
        exit_code=56,
        error=f"{event} hook 'my-{event}' stopped",
        **more,
    )


def blocked(event: str, what: str, **more: Any) -> Scene:
    error = f"{event} hook 'my-{event}' blocked {what}: not today"
    return Scene({event: BLOCK}, status="blocked_by_hook", exit_code=56, error=error, **more)


ASKED = {"skipNextSpeakerCheck": False}
SCENES: dict[str, Scene] = {
    "before agent: passes": Scene({"BeforeAgent": "true"}, fired={"BeforeAgent": 1}),
    "before agent: passes, once for all turns": Scene(
        {"BeforeAgent": "true"}, [LOOK, DONE], fired={"BeforeAgent": 1}
    ),
    "before agent: adds context": Scene({"BeforeAgent": specific(additionalContext="it is <b>Monday</b>")}),
    "before agent: stops": stopped("BeforeAgent", replies=[]),
    "before agent: blocks": blocked("BeforeAgent", "the prompt", replies=[]),
    "after agent: agrees": Scene({"AfterAgent": "true"}, fired={"AfterAgent": 1}),
    "after agent: agrees, after next speaker": Scene(
        {"AfterAgent": "true"}, [DONE, USER], model=ASKED, fired={"AfterAgent": 1}
    ),
    "after agent: stops": stopped("AfterAgent"),
    "after agent: sends the model on": Scene(
        {"AfterAgent": once("echo 'write tests, too' >&2; exit 2")},
        [DONE, {"text": "Tests, too.", "expect": "write tests, too"}],
        fired={"AfterAgent": 2},
    ),
    "after agent: blocks without a reason": Scene(
        {"AfterAgent": "exit 2"},
        status="blocked_by_hook",
        exit_code=56,
        error="AfterAgent hook 'my-AfterAgent' blocked the answer: It gave no reason.",
    ),
    "after agent: not after an error": Scene(
        {"AfterAgent": "true"},
        [{"error": {"status": 400}}],
        status="failed",
        exit_code=1,
        fired={"AfterAgent": 0},
    ),
    "after agent: not after an empty answer": Scene(
        {"AfterAgent": "true"},
        [LOOK, {"text": ""}],
        status="invalid_stream",
        exit_code=1,
        fired={"AfterAgent": 0},
    ),
    "before model: passes, at each turn": Scene(
        {"BeforeModel": "true"}, [LOOK, DONE], fired={"BeforeModel": 2}
    ),
    "before model: not again for an invalid stream": Scene(
        {"BeforeModel": "true"}, [{"text": ""}, DONE], fired={"BeforeModel": 1}
    ),
    "before model: stops": stopped("BeforeModel", replies=[]),
    "before model: blocks": blocked("BeforeModel", "the request", replies=[]),
    "before model: answers itself": Scene(
        {
            "BeforeModel": specific(
                llm_response={"candidates": [{"content": {"role": "model", "parts": ["by hook"]}}]}
            )
        },
        [],
    ),
    "before tool selection: passes": Scene({"BeforeToolSelection": "true"}, fired={"BeforeToolSelection": 1}),
    "before tool selection: stops": stopped("BeforeToolSelection", replies=[]),
    "before tool selection and before model": Scene(
        {"BeforeToolSelection": "true", "BeforeModel": "true"},
        fired={"BeforeToolSelection": 1, "BeforeModel": 1},
    ),
    "before model: after a look for loops": Scene(
        {"BeforeModel": "true"},
        [*[{"tool_calls": [call("read_file", file_path="a.py", start_line=n + 1)]} for n in range(30)], DONE],
        fired={"BeforeModel": 31},
    ),
    "after model: passes": Scene({"AfterModel": "true"}, [LOOK, DONE], fired={"AfterModel": 2}),
    "after model: stops": stopped("AfterModel"),
    "after model: blocks": blocked("AfterModel", "the answer"),
    "turn: a hook blocks it": Scene(
        {"AfterModel": BLOCK},
        workflow="turn",
        input={"request": "go"},
        status="blocked_by_hook",
        exit_code=56,
        error="not today",
    ),
    "plan: before agent blocks": Scene(
        {"BeforeAgent": BLOCK}, [], workflow="plan", status="failed", exit_code=56, error="blocked the prompt"
    ),
    "compress: passes": Scene(
        {"PreCompress": "true"},
        COMPRESSOR,
        "compressed",
        workflow="compress",
        input=LONG,
        fired={"PreCompress": 1},
    ),
    "compress: put off": Scene(
        {"PreCompress": BLOCK}, [], "noop", workflow="compress", input=LONG, fired={"PreCompress": 1}
    ),
    "compress: too short to ask": Scene(
        {"PreCompress": "true"},
        [],
        "noop",
        workflow="compress",
        input={**LONG, "token_limit": 10**6},
        fired={"PreCompress": 0},
    ),
}


def play(scene: Scene, folder: Path) -> tuple[Hooked, Outcome]:
    stage = Hooked(folder, scene.replies, settings={"model": scene.model})
    stage.configure(scene.hooks)
    return stage, stage.run(scene.workflow, scene.input)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_it_should(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    stage, outcome = play(scene, tmp_path / "stage")
    assert (outcome.status, outcome.exit_code) == (scene.status, scene.exit_code), outcome.error
    assert scene.error in (outcome.error or {}).get("message", "")
    assert {event: len(stage.told(event)) for event in scene.fired} == scene.fired


CUT: dict[str, Scene] = {
    "BeforeAgent": Scene({"BeforeAgent": "true"}),
    "AfterAgent": Scene({"AfterAgent": "true"}),
    "BeforeModel": Scene({"BeforeModel": "true"}),
    "BeforeToolSelection": Scene({"BeforeToolSelection": "true"}),
    "AfterModel": Scene({"AfterModel": "true"}),
    "PreCompress": Scene({"PreCompress": "true"}, COMPRESSOR, "compressed", workflow="compress", input=LONG),
    "BeforeAgent of a plan": Scene(
        {"BeforeAgent": "true"}, [DONE] * 3, "failed", 1, "without a plan", workflow="plan"
    ),
}


def _killed(*_: Any, **__: Any) -> None:
    raise OSError("killed")


def cut_short(
    stage: Hooked, scene: Scene, monkeypatch: pytest.MonkeyPatch, **decision: Any
) -> tuple[Outcome, Outcome]:
    """What a kill right after a hook's work leaves: it ran, and nobody wrote down that it had. The stop, the end."""

    stage.configure(scene.hooks)
    with monkeypatch.context() as patch:
        patch.setattr(HookLog, "finish", _killed)
        outcome = stage.run(scene.workflow, scene.input)
    waiting = stage.resume(outcome)
    decisions = [Decision(p["id"], **decision) for p in waiting.pending]
    return waiting, stage.resume(waiting, *decisions)


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize(("choice", "runs"), [("proceed_once", 2), ("reject", 1)])
def test_a_hook_that_a_kill_interrupted_runs_again_only_when_a_person_says_so(
    name: str, choice: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = CUT[name]
    event = name.split()[0]
    stage = Hooked(tmp_path / "stage", scene.replies)
    waiting, outcome = cut_short(stage, scene, monkeypatch, choice=choice)
    assert (waiting.status, waiting.exit_code) == ("waiting", 75)
    (request,) = waiting.pending
    assert request["kind"] == "outcome"
    assert f"{event}.0.sh" in request["preview"]
    assert (outcome.status, outcome.exit_code) == (scene.status, scene.exit_code), outcome.error
    assert len(stage.told(event)) == runs
    assert stage.told(event)[0].get("prompt") == stage.told(event)[-1].get("prompt")


def test_an_interrupted_hook_that_may_run_twice_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Hooked(tmp_path / "stage", [DONE]).configure({"AfterModel": "true"}, idempotent=True)
    with monkeypatch.context() as patch:
        patch.setattr(HookLog, "finish", _killed)
        outcome = stage.run("main", {"prompt": "go"})
    assert stage.resume(outcome).status == "done"
    assert len(stage.told("AfterModel")) == 2
