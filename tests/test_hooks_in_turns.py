"""Hooks around prompts, model requests, answers and compressions: real commands, scripted models, the real engine."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, call, complete, of_hooks, says
from hooked_calls.stage import Hooked, answer, press_ctrl_c, specific

from interlock.engine import Decision, Outcome, resume_sync
from interlock.engine.diagrams import declared_edges
from interlock.engine.store.journal import HookLog
from interlock.state.events import AgentBlocked, AgentStopped, ErrorEvent, MessageEvent, Thought

DONE = {"text": "All of it is done."}
USER = {"role": "next_speaker", "text": '{"reasoning": "finished", "next_speaker": "user"}'}
LOOK = {"tool_calls": [call("list_directory", dir_path=".")]}


def once(first: str, then: str = "true") -> str:
    """A command that says something else from the second time on."""
    return f'if [ -e "$0.once" ]; then {then}; else touch "$0.once"; {first}; fi'


def python(code: str) -> str:
    """A command that runs `code` with its input as `told`."""
    head = "import json, sys; told = json.load(sys.stdin)\n"
    return f'printf %s "$input" | python3 -c {shlex.quote(head + code)}'


def of(stage: Stage, kind: type[Any]) -> list[Any]:
    return [e for e in stage.events if isinstance(e, kind)]


BLOCK = answer(decision="block", reason="not today")
STOP = answer(**{"continue": False, "stopReason": "enough"})


@dataclass(frozen=True)
class Scene:
    hooks: dict[str, str]
    replies: Replies = field(default_factory=lambda: [DONE])
    status: str = "done"
    exit_code: int = 0
    error: str = ""
    """Appears in the error's message."""
    workflow: str = "main"
    input: dict[str, Any] = field(default_factory=lambda: {"prompt": "go"})
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    fired: dict[str, int] = field(default_factory=dict[str, int])
    """How often each hook ran."""
    response: str | None = None
    history: list[str] | None = None
    """What the conversation holds at the end."""
    said: list[str] | None = None
    """The reasons told of a stopped or blocked prompt or answer."""


LONG = {
    "history": [{"role": r, "content": f"{n} " * 300} for n in range(6) for r in ("user", "assistant")],
    "token_limit": 1000,
}
SNAPSHOT = "<scratchpad>x</scratchpad><state_snapshot><overall_goal>g</overall_goal></state_snapshot>"
COMPRESSOR = [{"role": "compressor", "text": SNAPSHOT}] * 2


def passes(event: str, replies: Sequence[dict[str, Any]] = (DONE,), times: int = 1, **more: Any) -> Scene:
    return Scene({event: "true"}, [*replies], fired={event: times}, **more)


def stopped(event: str, **more: Any) -> Scene:
    error = f"{event} hook 'my-{event}' stopped"
    return Scene({event: STOP}, status="stopped_by_hook", exit_code=56, error=error, **more)


def blocked(event: str, what: str, **more: Any) -> Scene:
    error = f"{event} hook 'my-{event}' blocked {what}: not today"
    return Scene({event: BLOCK}, status="blocked_by_hook", exit_code=56, error=error, **more)


def sent_back(why: str, then: str = "true") -> dict[str, str]:
    """A hook that is content with the second answer, if `then` is."""
    return {"AfterAgent": once(f"echo '{why}' >&2; exit 2", then)}


FINAL = {"tool_calls": [call("attempt_completion", result="it works")]}
TOLD = "assert (told['prompt_response'], told['stop_hook_active']) == ('it works', True)"
SCRIPT = "the stage's own"
ASKED = {"skipNextSpeakerCheck": False}
BY_HOOK = {"candidates": [{"content": {"role": "model", "parts": ["by hook"]}}]}
SCENES: dict[str, Scene] = {
    "before agent: passes": passes("BeforeAgent"),
    "before agent: passes, once for all turns": passes("BeforeAgent", [LOOK, DONE]),
    "before agent: adds context": Scene({"BeforeAgent": specific(additionalContext="it is <b>Monday</b>")}),
    "before agent: stops, and the prompt stays": stopped("BeforeAgent", replies=[], history=["go"], said=["enough"]),
    "before agent: blocks, and the prompt is gone": blocked(
        "BeforeAgent", "the prompt", replies=[], history=[], said=["not today"]
    ),
    "after agent: agrees": passes("AfterAgent"),
    "after agent: agrees, after next speaker": passes("AfterAgent", [DONE, USER], model=ASKED),
    "after agent: stops": stopped("AfterAgent"),
    "after agent: sends the model on": Scene(
        sent_back("write tests, too"), [DONE, {"text": "Tests, too.", "expect": "write tests, too"}],
        fired={"AfterAgent": 2},
    ),
    "after agent: blocks without a reason": Scene(
        {"AfterAgent": "exit 2"}, status="blocked_by_hook", exit_code=56,
        error="AfterAgent hook 'my-AfterAgent' blocked the answer: It gave no reason.",
    ),
    "after agent: not after an error": passes(
        "AfterAgent", [{"error": {"status": 400}}], 0, status="failed", exit_code=1
    ),
    "after agent: not after an empty answer": passes(
        "AfterAgent", [LOOK, {"text": ""}], 0, status="invalid_stream", exit_code=1
    ),
    "after agent: accepts a task's result": passes("AfterAgent", [FINAL], workflow="task"),
    "after agent: sends a task on": Scene(
        sent_back("write tests, too", python(TOLD)), [FINAL, {**FINAL, "expect": "write tests, too"}],
        workflow="task", fired={"AfterAgent": 2},
    ),
    "after agent: never content, and feedback costs a turn": Scene(
        {"AfterAgent": BLOCK}, [DONE] * 3, "turn_limit", 53, limits={"max_turns": 3}, fired={"AfterAgent": 3}
    ),
    "after agent: stops a task": stopped("AfterAgent", replies=[FINAL], workflow="task"),
    "after agent: sends a plan on": Scene(
        sent_back("name the tests, too"), [DONE, {**DONE, "expect": "name the tests, too"}, *[DONE] * 2],
        "failed", 1, "without a plan", workflow="plan", fired={"AfterAgent": 4},
    ),
    "after agent: stops a plan": replace(stopped("AfterAgent", workflow="plan"), status="failed"),
    "before model: passes, at each turn": passes("BeforeModel", [LOOK, DONE], 2),
    "before model: not again for an invalid stream, which isn't shown either": Scene(
        {"BeforeModel": "true", "AfterModel": "true"}, [{"text": ""}, DONE], fired={"BeforeModel": 1, "AfterModel": 1}
    ),
    "before model: stops": stopped("BeforeModel", replies=[]),
    "before model: blocks": blocked("BeforeModel", "the request", replies=[]),
    "before model: answers itself": Scene({"BeforeModel": specific(llm_response=BY_HOOK)}, [], response="by hook"),
    "before tool selection: passes": passes("BeforeToolSelection"),
    "before tool selection: stops": stopped("BeforeToolSelection", replies=[]),
    "before tool selection and before model": Scene(
        {"BeforeToolSelection": "true", "BeforeModel": "true"}, fired={"BeforeToolSelection": 1, "BeforeModel": 1}
    ),
    "before model: after a look for loops": passes(
        "BeforeModel", status="ok", workflow="turn", input={"request": "go", "turn_no": 30, "sticky_model": SCRIPT}
    ),
    "after model: passes": passes("AfterModel", [LOOK, DONE], 2),
    "after model: stops": stopped("AfterModel"),
    "after model: blocks": blocked("AfterModel", "the answer"),
    "turn: a hook blocks it": blocked("AfterModel", "the answer", workflow="turn", input={"request": "go"}),
    "plan: before agent blocks": replace(
        blocked("BeforeAgent", "the prompt", replies=[], workflow="plan"), status="failed"
    ),
    "compress: passes": passes("PreCompress", COMPRESSOR, status="compressed", workflow="compress", input=LONG),
    "compress: put off": Scene(
        {"PreCompress": BLOCK}, [], "noop", workflow="compress", input=LONG, fired={"PreCompress": 1}
    ),
    "compress: too short to ask": passes(
        "PreCompress", [], 0, status="noop", workflow="compress", input={**LONG, "token_limit": 10**6}
    ),
}  # fmt: skip


def play(scene: Scene, folder: Path) -> tuple[Hooked, Outcome]:
    stage = Hooked(folder, scene.replies, {"model": scene.model}, scene.limits, hooks=scene.hooks)
    given = {key: stage.options.model if value == SCRIPT else value for key, value in scene.input.items()}
    return stage, stage.run(scene.workflow, given)


def check(name: str, scene: Scene, stage: Hooked, outcome: Outcome) -> None:
    assert (outcome.status, outcome.exit_code) == (scene.status, scene.exit_code), (name, outcome.error)
    assert scene.error in (outcome.error or {}).get("message", ""), name
    assert {event: len(stage.seen(event)) for event in scene.fired} == scene.fired, name
    assert scene.response in (None, outcome.output.get("response")), name
    assert scene.history in (None, [m.get("content") for m in outcome.output.get("history", ())]), name
    assert scene.said in (
        None,
        [e.reason for e in stage.events if isinstance(e, AgentBlocked | AgentStopped)],
    ), name


TURN = ("BeforeAgent", "AfterAgent", "BeforeModel", "BeforeToolSelection", "AfterModel")
CUT: dict[str, Scene] = {
    **{event: Scene({event: "true"}) for event in TURN},
    "PreCompress": Scene({"PreCompress": "true"}, COMPRESSOR, "compressed", workflow="compress", input=LONG),
    "AfterAgent of a task": Scene({"AfterAgent": "true"}, [FINAL], workflow="task"),
    "AfterAgent of a plan": Scene(
        {"AfterAgent": "true"}, [DONE, {"error": {"status": 400}}], "failed", 1, workflow="plan"
    ),
    "BeforeAgent of a plan": Scene(
        {"BeforeAgent": "true"}, [DONE] * 3, "failed", 1, "without a plan", workflow="plan"
    ),
}


def _killed(*_: Any, **__: Any) -> None:
    raise OSError("killed")


def cut_short(
    stage: Hooked, scene: Scene, monkeypatch: pytest.MonkeyPatch, **decision: Any
) -> tuple[Outcome, Outcome]:
    """Simulate a kill right after a hook's work: it ran, but that isn't recorded. Returns the stop and the end."""

    stage.configure(scene.hooks)
    with monkeypatch.context() as patch:
        patch.setattr(HookLog, "record_reply", _killed)
        outcome = stage.run(scene.workflow, scene.input)
    waiting = stage.resume(outcome)
    decisions = [Decision(p["id"], **decision) for p in waiting.pending]
    return waiting, stage.resume(waiting, *decisions)


def cancelled(stage: Hooked, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, Outcome]:
    """Press Ctrl-C while the hook runs. Returns that outcome, and the resumed run's."""
    stage.configure(scene.hooks)
    with monkeypatch.context() as patch:
        press_ctrl_c(*scene.hooks, patch)
        outcome = stage.run(scene.workflow, scene.input)
    asked = stage.resume(outcome)
    (request,) = asked.pending
    return outcome, stage.resume(asked, Decision(request["id"], "proceed_once", text="redo"))


def test_every_scene_ends_as_it_should_and_they_take_every_edge_of_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers the graphs that fire hooks; other tables take their other edges."""
    taken: set[tuple[str, str, str]] = set()
    for number, (name, scene) in enumerate(SCENES.items()):
        stage, outcome = play(scene, tmp_path / str(number))
        check(name, scene, stage, outcome)
        taken |= stage.edges(outcome)
    for name, scene in CUT.items():
        stage = Hooked(tmp_path / name.replace(" ", "-"), scene.replies)
        waiting, outcome = cut_short(stage, scene, monkeypatch, choice="reject")
        (request,) = waiting.pending
        assert (waiting.exit_code, request["kind"]) == (75, "outcome"), name
        assert f"{name.split()[0]}.sh" in request["preview"]
        check(name, scene, stage, outcome)
        assert len(stage.seen(name.split()[0])) == 1, f"{name}: what a person skips doesn't run again"
        taken |= stage.edges(outcome)
    for name, scene in CUT.items():
        stage = Hooked(tmp_path / f"{name.replace(' ', '-')}-cancelled", scene.replies)
        first, outcome = cancelled(stage, scene, monkeypatch)
        assert (first.status, first.exit_code) == ("cancelled", 130), name
        check(name, scene, stage, outcome)
        assert stage.seen(name.split()[0]), f"{name}: nothing passes a hook because it was stopped"
        taken |= stage.edges(outcome)
    stage, outcome = play(SCENES["after agent: stops"], tmp_path / "again")
    taken |= stage.edges(stage.resume(outcome))
    graphs = ("main", "turn", "plan", "compress")
    declared = set[tuple[str, str, str]]().union(*map(declared_edges, graphs))
    mine = {(g, a, b) for g, a, b in declared if g in graphs and of_hooks((g, a, b)) and a != "take_repair"}
    assert mine - taken == set(), "of a repair: in `test_repair`"


def test_runs_without_hooks_enter_none_of_their_nodes(tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [LOOK, DONE])
    outcome = stage.run("main", {"prompt": "go"})
    rows = stage.rows("select node from steps where run = $1 order by seq", outcome.run)
    words = ("hook", "agent", "session")
    assert [row["node"] for row in rows if any(word in row["node"] for word in words)] == []
    assert stage.rows("select * from hook_calls") == []
    turn = ["check_limits", "mask_tool_outputs", "check_context", "call_model", "check_stream", "turn"]
    assert [row["node"] for row in rows][-len(turn) - 1 :] == [*turn, "finish"]


# Input of hooks, and the effect of their answers


def test_context_of_a_hook_is_a_message_of_its_own_and_nobody_takes_it_for_the_users_words(
    tmp_path: Path,
) -> None:
    hook = specific(additionalContext="</hook_context> it is <b>Monday</b>")
    stage = Hooked(tmp_path / "stage", [{"text": "ok", "expect": "(?s)go.*Monday"}])
    outcome = stage.configure({"BeforeAgent": hook}).run("main", {"prompt": "go"})
    prompt, context, _ = outcome.output["history"]
    assert (prompt["content"], prompt["origin"]) == ("go", "person")
    assert context["origin"] == "hook"
    assert context["content"] == (
        "<hook_context>&lt;/hook_context&gt; it is &lt;b&gt;Monday&lt;/b&gt;</hook_context>"
    )
    assert stage.seen("BeforeAgent")[0]["prompt"] == "go"


@pytest.mark.parametrize(("word", "prompt"), [(BLOCK, None), (STOP, None), (BLOCK, "walk")])
def test_a_refused_prompt_or_another_in_its_place_is_shown_to_the_hook_again_and_said_once(
    word: str, prompt: str | None, tmp_path: Path
) -> None:
    stage = Hooked(tmp_path / "stage", [DONE]).configure({"BeforeAgent": word})
    refused = stage.run("main", {"prompt": "go"})
    assert refused.exit_code == 56
    stage.configure({"BeforeAgent": "true"})
    outcome = resume_sync(refused.run, prompt=prompt, options=stage.options)
    assert (outcome.status, outcome.output["response"]) == ("done", DONE["text"])
    assert [m["content"] for m in outcome.output["history"]] == [prompt or "go", DONE["text"]]
    assert [t["prompt"] for t in stage.seen("BeforeAgent")] == ["go", prompt or "go"]


def test_a_refused_answer_has_only_its_hook_to_pass_when_it_is_tried_again(tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [DONE]).configure({"AfterAgent": "exit 2", "BeforeAgent": "true"})
    refused = stage.run("main", {"prompt": "go"})
    assert (refused.status, refused.output["response"]) == ("blocked_by_hook", "")
    stage.configure({"AfterAgent": "true", "BeforeAgent": "true"})
    outcome = stage.resume(refused)
    assert (outcome.status, outcome.output["response"]) == ("done", DONE["text"])
    assert len(stage.seen("BeforeAgent")) == 1
    assert len(outcome.output["history"]) == 2


def test_a_hook_after_the_agent_reads_all_that_was_said_and_its_reason_is_the_next_request(
    tmp_path: Path,
) -> None:
    replies = [
        {"text": "I look.", **LOOK},
        {"text": "Looked."},
        {"text": "Tested.", "expect": "test it"},
        {"text": "Again.", "expect": "once more"},
    ]
    second = once(answer(decision="deny", reason="once more")).replace("$0", "$0.second")
    feedback = once(answer(decision="block", reason="test it"), second)
    stage = Hooked(tmp_path / "stage", replies).configure({"AfterAgent": feedback, "BeforeAgent": "true"})
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.output["response"] == "Again."
    told = stage.seen("AfterAgent")
    assert [t["prompt_response"] for t in told] == [
        "I look.\nLooked.",
        "I look.\nLooked.\nTested.",
        "I look.\nLooked.\nTested.\nAgain.",
    ]
    assert [t["stop_hook_active"] for t in told] == [False, True, True]
    assert {t["prompt"] for t in told} == {"go"}
    hooks = [m["content"] for m in outcome.output["history"] if m.get("origin") == "hook"]
    assert hooks == ["test it", "once more"]
    assert len(stage.seen("BeforeAgent")) == 1
    assert [e.reason for e in of(stage, AgentBlocked)] == ["test it", "once more"]


def test_a_required_hook_that_fails_after_the_agent_is_no_feedback(tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [DONE]).configure({"AfterAgent": "exit 1"}, required=True)
    outcome = stage.run("main", {"prompt": "go"})
    assert (outcome.status, outcome.exit_code) == ("blocked_by_hook", 56)
    assert len(stage.seen("AfterAgent")) == 1


def test_a_further_prompt_is_asked_about_anew(tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [DONE, {"text": "more"}])
    stage.configure({"BeforeAgent": "true", "AfterAgent": "true"})
    outcome = stage.run("main", {"prompt": "go"})
    resume_sync(outcome.run, prompt="on", options=stage.options)
    assert [t["prompt"] for t in stage.seen("BeforeAgent")] == ["go", "on"]
    assert [t["prompt_response"] for t in stage.seen("AfterAgent")] == [DONE["text"], "more"]


# Requests


def test_hooks_see_what_is_sent_and_their_changes_hold_for_that_request_alone(tmp_path: Path) -> None:
    """Model, temperature and texts; calls and results keep what belongs to them."""
    change = python(
        'messages = told["llm_request"]["messages"]\n'
        "for m in messages:\n"
        '    if m["role"] in ("user", "tool"): m["content"] = m["content"].replace("a.py", "SECRET")\n'
        'change = {"messages": messages, "config": {"temperature": 0.25}}\n'
        'print(json.dumps({"hookSpecificOutput": {"llm_request": change}}))'
    )
    replies = [
        {**LOOK, "thought": "hm", "expect": "look at SECRET"},
        {"text": "done", "expect": "SECRET"},
    ]
    stage = Hooked(tmp_path / "stage", replies).configure({"BeforeModel": change, "AfterModel": "true"})
    outcome = stage.run("main", {"prompt": "look at a.py"})
    assert outcome.status == "done", outcome.error
    history = outcome.output["history"]
    assert history[0]["content"] == "look at a.py", "the conversation keeps the user's words"
    assert any("a.py" in m["content"] for m in history if m["role"] == "tool")
    first, second = stage.seen("BeforeModel")
    assert [m["role"] for m in first["llm_request"]["messages"]][-1] == "user"
    assert [m["role"] for m in second["llm_request"]["messages"]][-2:] == ["model", "tool"]
    assert second["llm_request"]["messages"][-2]["tool_calls"][0]["name"] == "list_directory"
    assert second["llm_request"]["messages"][-3]["content"] == "look at a.py"
    seen = stage.seen("AfterModel")[-1]["llm_request"]
    assert seen["config"] == {"temperature": 0.25}
    assert "SECRET" in seen["messages"][-1]["content"], "the later hook sees what was really sent"


NO_RESULTS = python(
    'messages = [m for m in told["llm_request"]["messages"] if m["role"] != "tool"]\n'
    'print(json.dumps({"hookSpecificOutput": {"llm_request": {"messages": messages}}}))'
)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"messages": "all"}, "llm_request.messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "role: 'robot'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": []}, "nothing is left to send"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}, "first"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "7"}]}, "can't be added"),
        ({"messages": [{"role": "model", "content": "x", "tool_calls": [{"id": "1"}]}]}, "can't be added"),
        ({"config": {"temperature": "hot"}}, "temperature"),
        ({"config": {"temperature": 9}}, "temperature"),
        ({"model": ""}, "llm_request.model"),
        ({"model": "no such/model:at all"}, "model"),
        (NO_RESULTS, "calls without a result"),
    ],
)
def test_a_change_that_cannot_be_made_is_a_warning(
    change: dict[str, Any] | str, problem: str, tmp_path: Path
) -> None:
    hook = change if isinstance(change, str) else specific(llm_request=change)
    stage = Hooked(tmp_path / "stage", [LOOK, DONE] if change is NO_RESULTS else [DONE])
    outcome = stage.configure({"BeforeModel": hook}).run("main", {"prompt": "go"})
    assert outcome.status == "done"
    (warning,) = of(stage, ErrorEvent)
    assert warning.severity == "warning"
    assert "BeforeModel hook 'my-BeforeModel'" in warning.message
    assert problem in warning.message
    assert "\n" not in warning.message


def test_another_model_answers_this_request_and_the_next_is_the_prompts_own(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"text": "from the other", **LOOK}]))
    stage = Hooked(tmp_path / "stage", [DONE, {"text": "from mine"}])
    hook = once(specific(llm_request={"model": f"script:{other}"}))
    outcome = stage.configure({"BeforeModel": hook}).run("main", {"prompt": "go"})
    assert [m.get("content") for m in outcome.output["history"] if m["role"] == "assistant"] == [
        "from the other",
        "from mine",
    ]


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ({"mode": "NONE"}, []),
        ({"mode": "AUTO", "allowedFunctionNames": ["read_file", "glob"]}, ["glob", "read_file"]),
        ({"mode": "ANY", "allowedFunctionNames": ["read_file", "no_such"]}, ["read_file"]),
    ],
)
def test_hooks_choose_which_tools_are_offered(
    choice: dict[str, Any], offered: list[str], tmp_path: Path
) -> None:
    stage = Hooked(tmp_path / "stage", [DONE])
    stage.configure({"BeforeToolSelection": specific(toolConfig=choice), "AfterModel": "true"})
    assert stage.run("main", {"prompt": "go"}).status == "done"
    assert "run_shell_command" in stage.seen("BeforeToolSelection")[0]["llm_request"]["tools"]
    assert sorted(stage.seen("AfterModel")[0]["llm_request"]["tools"]) == offered
    assert [e.message.rpartition(": ")[2] for e in of(stage, ErrorEvent)] == (
        ["no tool 'no_such' is offered."] if "no_such" in str(choice) else []
    )


# Answers


def test_nothing_of_an_answer_is_shown_before_the_hook_has_answered(tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [{"text": "one two three", "thought": "hm", "chunks": 5}])
    stage.configure({"AfterModel": "true"}).run("main", {"prompt": "go"})
    kinds = [type(e).__name__ for e in stage.events]
    ran = kinds.index("HookRan")
    assert not {"MessageEvent", "Thought"} & set(kinds[:ran])
    assert [e.content for e in of(stage, MessageEvent)] == ["one two three"]
    assert [e.content for e in of(stage, Thought)] == ["hm"]


@pytest.mark.parametrize("word", [BLOCK, STOP])
def test_of_a_refused_answer_nothing_is_shown_kept_or_run(word: str, tmp_path: Path) -> None:
    stage = Hooked(tmp_path / "stage", [{"text": "secret", "tool_calls": LOOK["tool_calls"]}, DONE])
    outcome = stage.configure({"AfterModel": word}).run("main", {"prompt": "go"})
    assert [m["content"] for m in outcome.output["history"]] == ["go"]
    assert of(stage, MessageEvent) == []
    stage.configure({"AfterModel": "true"})
    again = stage.resume(outcome)
    assert (again.status, again.output["response"]) == ("done", DONE["text"])


def test_a_replaced_text_is_what_everybody_reads_and_the_calls_stay(tmp_path: Path) -> None:
    look = call("list_directory", dir_path=".")
    replies = [{"text": "key: 123", "thought": "123", "tool_calls": [{**look, "signature": "c2ln"}]}, DONE]
    hook = once(specific(llm_response={"text": "key: ***"}))
    stage = Hooked(tmp_path / "stage", replies).configure({"AfterModel": hook, "AfterAgent": "true"})
    outcome = stage.run("main", {"prompt": "go"})
    answer = outcome.output["history"][1]
    assert (answer["content"], answer["tool_calls"][0]["signature"]) == ("key: ***", "c2ln")
    assert "thought" not in answer
    assert outcome.output["history"][2]["role"] == "tool"
    assert "123" not in "".join(e.content for e in of(stage, MessageEvent) + of(stage, Thought))
    assert stage.seen("AfterAgent")[0]["prompt_response"].startswith("key: ***")
    assert stage.seen("AfterModel")[0]["llm_response"]["candidates"][0]["content"]["parts"] == ["key: 123"]


# Sub-agents, long conversations


def agent_stage(folder: Path, hook: str) -> Hooked:
    start = {"tool_calls": [call("invoke_agent", agent_name="generalist", prompt="look")]}
    stage = Hooked(folder, [start, says("generalist:0.0", complete(result="fine")), DONE])
    return stage.configure({"BeforeModel": hook, "BeforeAgent": "true", "AfterAgent": "true"})


def test_model_hooks_fire_for_sub_agents_and_name_them_the_others_do_not(tmp_path: Path) -> None:
    stage = agent_stage(tmp_path / "stage", "true")
    outcome = stage.run("main", {"prompt": "go"})
    assert outcome.status == "done", outcome.error
    assert [t.get("agent", "") for t in stage.seen("BeforeModel")] == ["", "generalist:0.0", ""]
    assert (len(stage.seen("BeforeAgent")), len(stage.seen("AfterAgent"))) == (1, 1)


def test_a_hook_that_stops_a_sub_agent_stops_the_run_one_that_blocks_it_only_fails_it(tmp_path: Path) -> None:
    only = 'if [ -n "$INTERLOCK_AGENT" ]; then {}; fi'
    outcome = agent_stage(tmp_path / "stop", only.format(STOP)).run("main", {"prompt": "go"})
    assert (outcome.status, outcome.exit_code) == ("stopped_by_hook", 56), outcome.error
    assert "BeforeModel hook 'my-BeforeModel' stopped the run: enough" in (outcome.error or {})["message"]
    outcome = agent_stage(tmp_path / "block", only.format(BLOCK)).run("main", {"prompt": "go"})
    assert outcome.status == "done"
    answer = next(m for m in outcome.output["history"] if m["role"] == "tool")
    assert "not today" in answer["content"]


def test_what_a_hook_added_to_a_prompt_is_no_request_of_its_own_when_a_long_task_is_compressed(
    tmp_path: Path,
) -> None:
    rounds = [
        m
        for n in range(6)
        for m in (
            {"role": "assistant", "tool_calls": [{"id": f"{n}", "name": "ls", "args": {}}]},
            {"role": "tool", "tool_call_id": f"{n}", "content": "x " * 400},
        )
    ]
    history = [
        {"role": "user", "content": "the task"},
        {"role": "user", "origin": "hook", "content": "<hook_context>Monday</hook_context>"},
        *rounds,
    ]
    stage = Hooked(tmp_path / "stage", COMPRESSOR)
    outcome = stage.run("compress", {"history": history, "token_limit": 1000})
    assert outcome.output["status"] == "compressed"
    assert "the task" in [m.get("content") for m in outcome.output["history"]]
