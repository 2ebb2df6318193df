"""Path tests of `route`, `loop-check`, `next-speaker` and of how `turn` and `main` use them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
from agent_runs.stage import of_checks, of_hooks
from folders import put
from places import Place
from scripted import says

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.diagrams import declared_edges, taken_edges
from interlock.engine.read import list_step_rows, list_steps
from interlock.engine.read.run_path import build_run_path
from interlock.nodes.loop_detectors import hash_call, is_call_polling
from interlock.nodes.main import TURN_ENDS, turn_end_label
from interlock.state.errors import RunError
from interlock.state.messages import Message, ToolCall
from interlock.state.turn import TurnStatus

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

Replies = list[dict[str, Any]]
DONE = {"text": "All of it is done."}
USER = {"role": "next_speaker", "text": '{"reasoning": "finished", "next_speaker": "user"}'}
MODEL = {"role": "next_speaker", "text": '{"reasoning": "announces more", "next_speaker": "model"}'}
WORDS = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in "lnrst"]
NOISE = " ".join(WORDS[n * 131 % 350] for n in range(900))
CHANT = "I am sorry for the confusion, let me try it once more now. " * 30


def choice(model: str) -> dict[str, Any]:
    return {"role": "classifier", "text": json.dumps({"reasoning": "why", "model_choice": model})}


def score(value: int) -> dict[str, Any]:
    answer = {"complexity_reasoning": "why", "complexity_score": value}
    return {"role": "classifier", "text": f"```json\n{json.dumps(answer)}\n```"}


def looks(*sure: float) -> Replies:
    """What the models answer that look for a loop: how sure the first is, then the stronger one."""
    answers = [{"unproductive_state_analysis": "…", "unproductive_state_confidence": value} for value in sure]
    roles = ("loop_check", "loop_double_check")
    return [{"role": role, "text": json.dumps(answer)} for role, answer in zip(roles, answers, strict=False)]


READ = says("read_file", file_path="a.txt")
PAGES = [says("read_file", file_path="a.txt", start_line=1 + i) for i in range(30)]
USED_UP = {"error": {"status": 404, "message": "no such model"}}
BUSY = {"error": {"status": 503}}


@dataclass(frozen=True)
class Scene:
    replies: Replies
    input: dict[str, Any] = field(default_factory=lambda: {"prompt": "go"})
    workflow: str = "main"
    status: str = "done"
    exit_code: int = 0
    output: dict[str, Any] = field(default_factory=dict[str, Any])
    """Part of the output."""
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings under `model`."""
    models: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings under `models`."""
    second: Replies = field(default_factory=list[dict[str, Any]])
    """Replies of a second model, the fallback for the first."""
    limits: dict[str, Any] = field(default_factory=dict[str, Any])


CALLS = [{"type": "tool_call", "name": "ls", "args": {"path": "."}}]
TURNS = [{"type": "prompt", "prompt_id": "p", "text": "do it"}, *[{"type": "turn"}] * 30]
NUMBERS = {"numericalRouting": ["gemini-2.5"]}
HISTORY = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Shall I?"}]
ASKED = {**HISTORY[1], "tool_calls": [{"id": "1", "name": "ls", "args": {}}]}


def route(replies: Replies = [], model: Mapping[str, Any] = {}, **given: Any) -> Scene:  # noqa: B006
    expected = given.pop("expect")
    given = {"request": "rename x to y", "requested_model": "auto", **given}
    output = dict(zip(("model", "strategy"), expected, strict=True))
    return Scene(replies, given, "route", output=output, model=dict(model))


def speaker(who: str | None, by: str, history: list[Any], replies: Replies = []) -> Scene:  # noqa: B006
    return Scene(
        replies, {"history": history}, "next-speaker", output={"next_speaker": who, "decided_by": by}
    )


def loops(events: list[Any], replies: Replies = [], history: Any = None, **output: Any) -> Scene:  # noqa: B006
    given = {"events": events, **({} if history is None else {"history": history})}
    return Scene(replies, given, "loop-check", output=output)


SHELL = Scene([says("run_shell_command", command="true")], status="waiting", exit_code=75)
TOO_LONG = {"error": {"status": 413, "message": "prompt is too long"}}
COUNT = says("run_shell_command", command="echo >> lines; wc -l < lines")
TIMED = says("run_shell_command", command="echo >> lines; echo $(wc -l < lines).5 s")
PRO, FLASH, LITE = "gemini-2.5-pro", "gemini-3.8-flash", "gemini-3.5-flash-lite"
SCENES: dict[str, Scene] = {
    "route: the classifier says flash": route([choice("flash")], expect=(FLASH, "classifier")),
    "route: the classifier says pro": route([choice("pro")], expect=(PRO, "classifier")),
    "route: its choice is unavailable": route(
        [choice("pro")], unavailable=["pro"], expect=(FLASH, "default")
    ),
    "route: it fails": route([], expect=(PRO, "default")),
    "route: it talks": route([{"role": "classifier", "text": "flash!"}] * 2, expect=(PRO, "default")),
    "route: a named model": route(requested_model="flash-lite", expect=(LITE, "override")),
    "route: a named model that is gone": route(
        requested_model="flash", unavailable=["flash"], expect=(LITE, "fallback")
    ),
    "route: a named model that is gone under its id": route(
        requested_model="flash", unavailable=[FLASH, "flash-lite"], expect=(PRO, "fallback")
    ),
    "route: a named model of a provider that has no other": route(
        requested_model="openai:gpt-5", unavailable=["openai:gpt-5"], expect=("openai:gpt-5", "override")
    ),
    "route: all are gone": route(
        requested_model="pro", unavailable=["pro", "flash", "flash-lite"], expect=(PRO, "override")
    ),
    "route: plan mode": route(approval_mode="plan", expect=(PRO, "approval_mode")),
    "route: an approved plan": route(approved_plan=True, expect=(FLASH, "approval_mode")),
    "route: an approved plan without flash": route(
        [choice("pro")], approved_plan=True, unavailable=["flash"], expect=(PRO, "classifier")
    ),
    "route: a low score": route([score(89)], NUMBERS, expect=(FLASH, "numerical")),
    "route: a high score": route([score(90)], NUMBERS, expect=(PRO, "numerical")),
    "route: no score": route([score(101)] * 2, NUMBERS, expect=(PRO, "default")),
    "next-speaker: nothing was said": speaker(None, "precheck", []),
    "next-speaker: a tool has answered": speaker(
        "model", "precheck", [HISTORY[0], ASKED, {"role": "tool", "tool_call_id": "1", "content": "x"}]
    ),
    "next-speaker: a call is open": speaker("model", "precheck", [HISTORY[0], ASKED]),
    "next-speaker: an empty answer": speaker("model", "precheck", [HISTORY[0], {"role": "assistant"}]),
    "next-speaker: the user has spoken": speaker(None, "precheck", HISTORY[:1]),
    "next-speaker: the helper says user": speaker("user", "model", HISTORY, [USER]),
    "next-speaker: the helper says model": speaker("model", "model", HISTORY, [MODEL]),
    "next-speaker: the helper fails": speaker(None, "none", HISTORY),
    "loop-check: five calls": loops(CALLS * 5, detected=True, kind="tool_call", at_event=4, count=1),
    "loop-check: six calls": loops(CALLS * 6, detected=True, at_event=4, count=2),
    "loop-check: four calls": loops(
        CALLS * 4, detected=False, kind=None, at_event=None, verdicts=[False] * 4
    ),
    "loop-check: a chant": loops(
        [{"type": "content", "text": CHANT}], detected=True, kind="content", at_event=0
    ),
    "loop-check: noise": loops([{"type": "content", "text": NOISE}], detected=True, kind="noise", at_event=0),
    "loop-check: a limit, although loops are let be": Scene(
        [],
        {"events": [{"type": "turn"}, {"type": "content", "text": NOISE}, *CALLS * 9]},
        "loop-check",
        output={"detected": True, "kind": "length", "at_event": 1, "count": 1},
        model={"disableLoopDetection": True, "maxReplyTokens": 500},
    ),
    "loop-check: a verdict that isn't due": loops(
        [*TURNS[:-1], {"type": "model_verdict", "confidence": 1.0}], detected=False
    ),
    "loop-check: a verdict, no stronger model": loops(
        [*TURNS, {"type": "model_verdict", "confidence": 0.9}], detected=True, kind="model", at_event=31
    ),
    "loop-check: a verdict, the stronger model failed": loops(
        [*TURNS, {"type": "model_verdict", "confidence": 1.0, "double_check_confidence": None}],
        detected=False,
        interval=10,
        next_check_turn=40,
    ),
    "loop-check: models are asked": loops(
        TURNS, looks(0.95, 0.92), HISTORY, detected=True, kind="model", at_event=30
    ),
    "loop-check: one model is not sure": loops(
        TURNS, looks(0.5), HISTORY, detected=False, interval=10, next_check_turn=40
    ),
    "loop-check: the stronger model disagrees": loops(
        TURNS, looks(0.95, 0.2), HISTORY, detected=False, interval=13, next_check_turn=43
    ),
    "loop-check: the model fails": loops(TURNS, [], HISTORY, detected=False, next_check_turn=40),
    "loop-check: turned off": Scene(
        [],
        {"events": CALLS * 9},
        "loop-check",
        output={"detected": False},
        model={"disableLoopDetection": True},
    ),
    "the model goes on, and what it said first is part of its response": Scene(
        [{"text": "Now I will do the rest."}, DONE, MODEL, USER],
        output={"response": f"Now I will do the rest.\n\n{DONE['text']}"},
    ),
    "a window that is too small": Scene(
        [DONE], status="context_overflow", exit_code=1, models={"script": {"contextWindow": 5}}
    ),
    "an output that is left out, and another that seemed to fit": Scene(
        [*[says("read_file", file_path="long.txt")] * 2, TOO_LONG, TOO_LONG, DONE]
    ),
    "a request that stays too long": Scene([*[TOO_LONG] * 3, DONE], status="context_overflow", exit_code=1),
    "a command that isn't there": Scene([], {"prompt": "/nothing"}, status="failed", exit_code=42),
    "an empty answer, then a good one": Scene([{"text": ""}, DONE]),
    "nobody is asked": Scene([DONE], model={"skipNextSpeakerCheck": True}),
    "the model goes on until the limit": Scene(
        [{"text": "And more."}] * 3 + [MODEL] * 3, status="turn_limit", exit_code=53, limits={"max_turns": 3}
    ),
    "an empty answer after a tool": Scene([READ, {"text": ""}, DONE, USER]),
    "an empty answer after a tool, and nobody looks": Scene(
        [READ, {"text": ""}], status="invalid_stream", exit_code=1, model={"skipNextSpeakerCheck": True}
    ),
    "five calls, a nudge, another way": Scene([*[READ] * 5, DONE]),
    "five calls, a nudge, the same call": Scene([*[READ] * 6], status="loop_detected", exit_code=58),
    "five calls, answered otherwise each time": Scene(
        [*[COUNT] * 6, DONE], {"prompt": "wait", "approval_mode": "yolo"}
    ),
    "five calls, answered otherwise but for times": Scene(
        [*[TIMED] * 5, DONE],
        {"prompt": "wait", "approval_mode": "yolo"},
        model={"skipNextSpeakerCheck": True},
    ),
    "five answers, a nudge, the same answer": Scene(
        [{"text": "Wait."}, *[MODEL, {"text": "Wait."}] * 5], status="loop_detected", exit_code=58
    ),
    "a chant, a nudge, another way": Scene([{"text": CHANT, "chunks": 60}, DONE]),
    "a chant, a nudge, a chant": Scene(
        [{"text": CHANT, "chunks": 60}] * 2, status="loop_detected", exit_code=58
    ),
    "noise, a nudge, another way": Scene([{"text": NOISE, "chunks": 90}, DONE]),
    "noise, a nudge, noise": Scene([{"text": NOISE, "chunks": 90}] * 2, status="loop_detected", exit_code=58),
    "a limit, although loops are let be": Scene(
        [{"text": NOISE, "chunks": 90}] * 2,
        status="loop_detected",
        exit_code=58,
        model={"disableLoopDetection": True, "maxReplyTokens": 500},
    ),
    "loops are let be": Scene([*[READ] * 7, {"text": CHANT}], model={"disableLoopDetection": True}),
    "thirty turns, and the models see a loop": Scene([*PAGES, DONE, *looks(1, 1)], limits={"max_turns": 40}),
    "thirty turns, and the models see none": Scene([*PAGES, DONE, *looks(0)]),
    "thirty turns alone": Scene([DONE, *looks(0)], {"request": "hi", "turn_no": 30}, "turn", status="ok"),
    "an unknown model is replaced once": Scene([USED_UP], second=[DONE]),
    "an overloaded model is replaced once": Scene([BUSY] * 10, second=[DONE]),
    "both models fail": Scene([BUSY] * 10, second=[BUSY] * 10, status="failed", exit_code=1),
    "there is no other model": Scene([USED_UP], status="failed", exit_code=1),
    "a lost connection is no reason for another model": Scene(
        [{"error": {}}] * 10, second=[DONE], status="failed", exit_code=1
    ),
}


@dataclass
class Played:
    outcome: Outcome
    events: list[Any]
    options: Options

    @property
    def taken(self) -> set[tuple[str, str, str]]:
        path = build_run_path(list_step_rows(self.options.home, self.outcome.run), "done")
        return taken_edges(self.outcome.workflow, path)

    def told(self, kind: str) -> list[Any]:
        return [e for e in self.events if e.type == kind]


def options(scene: Scene, folder: Path) -> Options:
    place = Place(folder)
    (place.work / "a.txt").write_text("one\ntwo\n" * 40)
    (place.work / "long.txt").write_text("a long line of text\n" * 400)
    first, second = folder / "first.json", folder / "second.json"
    put(first, scene.replies)
    put(second, scene.second)
    chain = [f"script:{first}", f"script:{second}"] if scene.second else []
    aliases = {"aliases": {"auto": f"script:{first}"}} if chain else {}
    quick = {"retryDelayScale": 0, "streamRetryDelay": 0, "fallback": chain or ["pro", "flash", "flash-lite"]}
    return place.options(
        model="auto" if chain else f"script:{first}",  # only `auto` falls back to another model
        overrides={"model": {**quick, **aliases, **scene.model}, "models": scene.models},
        limits=scene.limits,
    )


def play(scene: Scene, folder: Path) -> Played:
    events, chosen = list[Any](), options(scene, folder)
    outcome = run_sync(scene.workflow, scene.input, options=chosen, renderers=[events.append])
    return Played(outcome, events, chosen)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    outcome = played(play, scene).outcome
    assert (outcome.status, outcome.exit_code) == (scene.status, scene.exit_code), outcome.error
    assert {key: outcome.output.get(key, "absent") for key in scene.output} == scene.output
    if scene.output.get("decided_by") == "precheck":
        assert outcome.stats["models"] == {}, "it costs no call"


def test_every_declared_edge_is_taken_by_some_scene(tmp_path: Path, played: Callable[..., Any]) -> None:
    """Covers `main` and `turn`, too; the graphs of tools, and hooks, have their own scenes."""
    stopped = play(SHELL, tmp_path / "stopped")
    cancel = Decision(stopped.outcome.pending[0]["id"], "cancel")
    resume_sync(stopped.outcome.run, decisions=[cancel], options=stopped.options)
    taken = stopped.taken.union(*(played(play, scene).taken for scene in SCENES.values()))
    graphs = {"main", "turn", "route", "loop-check", "next-speaker"}
    declared = set[tuple[str, str, str]]().union(*map(declared_edges, graphs))
    others = {"command", "compress", "ide_context", "repair", "take_repair"}
    """In `test_commands`, `test_compress_now`, `test_ide_context`, `test_repair`."""
    mine = {
        e for e in declared if e[0] in graphs and not (of_hooks(e) or of_checks(e)) and others.isdisjoint(e)
    }
    assert mine - taken == set()


# Beyond the table


@pytest.mark.parametrize(
    ("limits", "said"),
    [({}, "the reply ran on with words without sentences"), ({"maxReplyTokens": 300}, "ran past 300 tokens")],
)
def test_a_reply_that_ran_on_is_told_by_what_it_was(
    limits: dict[str, int], said: str, tmp_path: Path
) -> None:
    scene = Scene([{"text": NOISE, "chunks": 90}, DONE], models={"script": limits})
    played = play(scene, tmp_path)
    (told,) = played.told("loop_detected")
    assert said in told.detail
    assert told.count == 1
    (nudged,) = [m for m in played.outcome.output["history"] if m.get("origin") == "nudge"]
    assert nudged["content"].startswith(f"Your last reply was stopped: {told.detail}. ")
    shown = "".join(e.content for e in played.told("message") if e.role == "assistant")
    assert 1_000 < len(shown) < 2_500


def test_why_this_model_is_told_kept_and_shown(
    played: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.cli.catalog import execute_command

    found = played(play, SCENES["an unknown model is replaced once"])
    first, second = found.told("route")
    assert (first.strategy, second.strategy) == ("default", "fallback")
    assert second.model.endswith("second.json")
    assert "first.json is unavailable for the rest of this run" in second.reason
    monkeypatch.setenv("INTERLOCK_HOME", str(found.options.home))
    assert execute_command("show", [found.outcome.run]) == 0
    shown = capsys.readouterr().out
    assert "by fallback" in shown
    assert "unavailable for the rest of this run" in " ".join(shown.split())


def test_the_model_is_chosen_once_a_prompt_and_again_for_the_next(tmp_path: Path) -> None:
    scene = Scene([READ, READ, DONE, USER, DONE, USER])
    played = play(scene, tmp_path / "stage")
    assert len(played.told("route")) == 1
    assert len([s for s in list_steps(played.options.home, played.outcome.run) if s.workflow == "route"]) == 2
    more: list[Any] = []
    resume_sync(played.outcome.run, prompt="more", options=played.options, renderers=[more.append])
    assert len([e for e in more if e.type == "route"]) == 1


def test_a_model_that_is_gone_stays_gone_and_an_overloaded_one_is_tried_again(tmp_path: Path) -> None:
    for number, (failing, model) in enumerate((([USED_UP], "second.json"), ([BUSY] * 10, "first.json"))):
        scene = Scene([*failing, DONE, DONE], second=[DONE, DONE])
        played = play(scene, tmp_path / str(number))
        more: list[Any] = []
        outcome = resume_sync(
            played.outcome.run, prompt="more", options=played.options, renderers=[more.append]
        )
        assert outcome.status == "done", outcome.error
        assert [Path(e.model).name for e in more if e.type == "route"] == [model]


def test_a_chant_is_cut_and_never_enters_the_conversation(played: Callable[..., Any]) -> None:
    found = played(play, SCENES["a chant, a nudge, another way"])
    shown = "".join(e.content for e in found.told("message") if e.delta)
    size = -(-len(CHANT) // 60)
    assert len(shown.removesuffix(DONE["text"])) <= 10 * 59 + size
    (loop,) = found.told("loop_detected")
    assert (loop.kind, loop.count) == ("content", 1)
    roles = [(m["role"], m.get("origin")) for m in found.outcome.output["history"]]
    assert roles == [("user", "person"), ("user", "nudge"), ("assistant", None)]
    assert "sorry for the confusion" in found.outcome.output["history"][1]["content"]
    assert found.outcome.stats["output_tokens"] > 100, "what was thrown away is paid for, too"


@pytest.mark.parametrize(
    ("name", "ran"),
    [
        ("a nudge, another way", 4),
        ("answered otherwise each time", 6),
        ("answered otherwise but for times", 4),
    ],
)
def test_the_looping_call_is_not_run_unless_it_polls_and_more_than_the_time_is_new(
    played: Callable[..., Any], name: str, ran: int
) -> None:
    found = played(play, SCENES[f"five calls, {name}"])
    assert len(found.told("tool_result")) == ran
    nudges = [m["content"] for m in found.outcome.output["history"] if m.get("origin") == "nudge"]
    assert len(found.told("loop_detected")) == len(nudges) == (ran == 4)
    assert all("read_file" in text or "run_shell_command" in text for text in nudges)


def test_polling_ends_when_all_calls_remembered_are_the_same() -> None:
    history: list[Message] = []
    for number in range(25):
        history.append(Message(role="assistant", tool_calls=(ToolCall(id=f"{number}", name="ls", args={}),)))
        history.append(Message(role="tool", tool_call_id=f"{number}", content=f"{number} of 100"))
    key = hash_call("ls", {})
    assert is_call_polling([key] * 24, 1, history)
    assert not is_call_polling([key] * 25, 1, history)
    assert not is_call_polling([key] * 5, 1, history[:7]), "not answered four times"


def test_a_stopped_loop_goes_on_with_advice(tmp_path: Path) -> None:
    scene = SCENES["five calls, a nudge, the same call"]
    played = play(Scene([*scene.replies, DONE, USER], status=scene.status), tmp_path / "stage")
    error = played.outcome.error
    assert error is not None
    assert f"interlock resume {played.outcome.run} --no-loop-check" in error["message"]
    outcome = resume_sync(played.outcome.run, prompt="Try list_directory.", options=played.options)
    assert (outcome.status, outcome.output["response"]) == ("done", DONE["text"])


def test_a_helper_that_fails_is_told_and_changes_nothing(tmp_path: Path) -> None:
    played = play(Scene([DONE]), tmp_path / "stage")
    assert played.outcome.status == "done"
    (failed,) = played.told("helper_failed")
    assert (failed.role, "no replies" in failed.reason) == ("next_speaker", True)


def test_something_follows_every_status_of_a_turn_and_an_unknown_one_is_an_error() -> None:
    followed = {status: turn_end_label(status) for status in get_args(TurnStatus)}
    ends = {status for status, end in followed.items() if end not in TURN_ENDS}
    assert ends == {"calls", "ok", "loop_nudge"}
    with pytest.raises(RunError, match="'well', which nothing follows"):
        turn_end_label("well")
