"""`compress` alone: scripted replies → how it ends, what is kept, and that every edge was taken."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, untaken
from patience import interrupted_at_a_delay

from interlock.engine import Outcome
from interlock.prompts import load_prompt

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

RULES = {"role": "system", "content": "Never touch prod."}
MEMORY = {"role": "user", "origin": "context", "content": "GEMINI.md: tabs, not spaces."}


def snapshot(goal: str, **sections: str) -> str:
    inner = "".join(f"<{k}>{v}</{k}>" for k, v in {"overall_goal": goal, **sections}.items())
    return f"<scratchpad>secret musings</scratchpad><state_snapshot>{inner}</state_snapshot>"


def compressor(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "compressor", "text": text, **more}


def talk(rounds: int, size: int = 400) -> list[dict[str, Any]]:
    """Repeatedly a request, rounds of one call each, and an answer."""
    history: list[dict[str, Any]] = []
    for i in range(rounds):
        history += [
            {"role": "user", "content": f"request {i}"},
            {
                "role": "assistant",
                "tool_calls": [{"id": f"{i}.0", "name": "read_file", "args": {"file_path": "a"}}],
            },
            {"role": "tool", "tool_call_id": f"{i}.0", "name": "read_file", "content": f"{i} " + "x" * size},
            {"role": "assistant", "content": f"answer {i}"},
        ]
    return history


@dataclass(frozen=True)
class Scene:
    """One compression: the model's replies, and the expected result."""

    replies: Replies
    status: str
    history: list[dict[str, Any]] = field(default_factory=lambda: [RULES, MEMORY, *talk(10)])
    input: dict[str, Any] = field(default_factory=lambda: {"token_limit": 1000, "last_prompt_tokens": 600})
    exit_code: int = 0
    cancel_first: bool = False
    """Stopped while the compressor answers, then resumed."""


GOOD = [compressor(snapshot("draft")), compressor(snapshot("ship it"))]
HUGE = [RULES, {"role": "user", "content": "go"}]
for n in range(5):
    HUGE += [
        {
            "role": "assistant",
            "tool_calls": [{"id": f"{n}.0", "name": "run_shell_command", "args": {"command": "c"}}],
        },
        {
            "role": "tool",
            "tool_call_id": f"{n}.0",
            "name": "run_shell_command",
            "content": "\n".join(f"{n} line {i} {'z' * 40}" for i in range(2000)) if n else "small",
        },
    ]

SCENES = {
    "below the threshold": Scene([], "noop", input={"token_limit": 1000, "last_prompt_tokens": 499}),
    "at the threshold": Scene(GOOD, "compressed", input={"token_limit": 1000, "last_prompt_tokens": 500}),
    "estimated": Scene(GOOD, "compressed", input={"token_limit": 1000}),
    "forced": Scene(GOOD, "compressed", input={"token_limit": 10**6, "force": True}),
    "forced, and a failure that isn't remembered": Scene(
        [compressor("no")] * 2, "failed_empty", input={"token_limit": 10**6, "force": True}, exit_code=1
    ),
    "nothing to compress, forced": Scene([], "noop", [], {"token_limit": 10, "force": True}),
    "one exchange": Scene([], "noop", [RULES, {"role": "user", "content": "a" * 4000}]),
    "an empty answer": Scene([compressor("")], "failed_empty", exit_code=1),
    "a model that fails": Scene(
        [{"role": "compressor", "error": {"status": 400}}], "failed_empty", exit_code=1
    ),
    "two answers without a snapshot": Scene(
        [compressor("no"), compressor("never")], "failed_empty", exit_code=1
    ),
    "a check that fails leaves the draft": Scene(
        [compressor(snapshot("ship it")), {"role": "compressor", "error": {"status": 400}}], "compressed"
    ),
    "a check that breaks it leaves the draft": Scene(
        [compressor(snapshot("ship it")), compressor("I changed my mind.")], "compressed"
    ),
    "a draft that the check repairs": Scene(
        [compressor("forgot the XML"), compressor(snapshot("ship it"), expect="can't be used")], "compressed"
    ),
    "larger than before": Scene(
        [compressor(snapshot("g", key_knowledge="k" * 40_000))] * 2, "failed_inflated", exit_code=1
    ),
    "failed before": Scene(
        [], "noop", input={"token_limit": 1000, "last_prompt_tokens": 600, "failed_at_tokens": 600}
    ),
    "failed before, grown by a tenth": Scene(
        GOOD, "compressed", input={"token_limit": 1000, "last_prompt_tokens": 660, "failed_at_tokens": 600}
    ),
    "failed before, old outputs": Scene(
        [],
        "truncated",
        HUGE,
        {"token_limit": 100_000, "last_prompt_tokens": 60_000, "failed_at_tokens": 60_000},
    ),
    "no summary, and no room": Scene(
        [compressor("")], "truncated", input={"token_limit": 1000, "last_prompt_tokens": 901}
    ),
    "no room, although it failed before": Scene(
        GOOD, "compressed", input={"token_limit": 1000, "last_prompt_tokens": 901, "failed_at_tokens": 900}
    ),
    "cancelled while it was written": Scene(
        [compressor(snapshot("draft"), delay_s=20), compressor(snapshot("ship it"))],
        "compressed",
        cancel_first=True,
    ),
    "cancelled while it was checked": Scene(
        [compressor(snapshot("draft")), compressor(snapshot("ship it"), delay_s=20)],
        "compressed",
        cancel_first=True,
    ),
}


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(folder, scene.replies)
    with interrupted_at_a_delay():
        outcome = stage.run("compress", {**scene.input, "history": scene.history})
    if scene.cancel_first:
        assert outcome.status == "cancelled"
        stage.write([{k: v for k, v in reply.items() if k != "delay_s"} for reply in scene.replies])
        outcome = stage.resume(outcome)
    return stage, outcome


@pytest.mark.parametrize("name", SCENES)
def test_it_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    _, outcome = played(play, scene)
    assert outcome.output.get("status") == scene.status, outcome.error
    assert outcome.exit_code == scene.exit_code
    history = outcome.output["history"]
    calls = [c["id"] for m in history for c in m.get("tool_calls", ())]
    assert [m["tool_call_id"] for m in history if m["role"] == "tool"] == calls
    if scene.status == "compressed":
        assert outcome.output["tokens_after"] <= outcome.output["tokens_before"]
        assert "ship it" in outcome.output["snapshot"]
        assert history[:2] == [RULES, MEMORY], "the opening is there word for word"
        assert history[2]["origin"] == "snapshot" and outcome.output["snapshot"] in text_of(history[2])
        assert history[3]["role"] == "assistant" and history[4]["role"] == "user"
        assert history[4:] == scene.history[-len(history[4:]) :], "the rest is there word for word"
        assert "secret musings" not in json.dumps(history)
    elif scene.status != "truncated":
        assert history == scene.history
    if scene.status.startswith("failed"):
        assert outcome.output.get("failed_at_tokens") == (None if scene.input.get("force") else 600)
    if scene.status == "compressed":
        left = scene.input.get("last_prompt_tokens") or outcome.output["tokens_before"]
        left += outcome.output["tokens_after"] - outcome.output["tokens_before"]
        still_long = left >= scene.input["token_limit"] / 2
        assert outcome.output.get("failed_at_tokens") == (left if still_long else None)


def text_of(message: dict[str, Any]) -> str:
    parts = message["content"]
    return parts if isinstance(parts, str) else "".join(part["text"] for part in parts)


def called(name: str, answer: str, status: str = "success", /, **args: Any) -> list[dict[str, Any]]:
    call = {"id": f"{name}.{answer}", "name": name, "args": args}
    answered = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": answer, "status": status}
    return [{"role": "assistant", "tool_calls": [call]}, answered]


def test_what_a_person_said_outlives_two_compressions_whose_summaries_forgot_it(tmp_path: Path) -> None:
    """So do rejections, skills in use and the memory files of sub-directories; nudges are nobody's words."""
    rejection = load_prompt("run/call_rejected").render(feedback="not even once")
    memory = {"type": "text", "text": "web: no jQuery\n", "section": "memory:web/GEMINI.md"}
    history = [
        *(RULES, MEMORY, {"role": "user", "content": "Never touch the API.\nReally."}),
        *called("run_shell_command", rejection, "error", command="rm -rf build"),
        *called("activate_skill", "Release notes are rhymes.", name="notes"),
        {"role": "user", "origin": "context", "content": [memory]},
        *({"role": "assistant", "content": "fine"}, {"role": "user", "content": "z" * 1_800}),
        *talk(5),
    ]
    for folder in (tmp_path / "one", tmp_path / "two"):
        given = {"history": [*history, *talk(5)], "token_limit": 100_000, "force": True}
        history = Stage(folder, GOOD).run("compress", given).output["history"]
        told = text_of(next(m for m in history if m.get("origin") == "snapshot"))
        assert "\n- Never touch the API.\n  Really.\n" in told
        assert '\n- run_shell_command {"command": "rm -rf build"}: not even once\n' in told
        assert f"\n- {'z' * 500} […] {'z' * 500}\n" in told
        assert "\n- notes\n" in told
        assert "rhymes" not in json.dumps(history)
        assert [text_of(m) for m in history[:3]][2].endswith("web: no jQuery\n"), "now in the opening"
    assert told.count("Never touch") == told.count("request 0") == 1


def test_of_many_words_the_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    said = [{"role": "user", "content": f"number {n} {'x' * 400}"} for n in range(20)]
    history = [m for one in said for m in (one, {"role": "assistant", "content": "y" * 300})]
    given = {"history": history, "token_limit": 8_000, "force": True}
    outcome = Stage(tmp_path / "stage", GOOD).run("compress", given)
    told = text_of(outcome.output["history"][0])
    assert [n for n in range(20) if f"number {n} " in told] == [0, 13, 14]


def test_what_is_dropped_without_a_summary_leaves_the_words_and_the_calls(
    played: Callable[..., Any],
) -> None:
    _, outcome = played(play, SCENES["no summary, and no room"])
    history = outcome.output["history"]
    assert history[:2] == [RULES, MEMORY]
    told = text_of(history[2])
    assert "there is no summary" in told
    assert '\n- read_file {"file_path": "a"}\n' in told
    assert "\n- request 0\n" in told
    assert history[4:] == SCENES["no summary, and no room"].history[-len(history[4:]) :]


def test_an_output_that_fills_a_small_window_is_shortened(tmp_path: Path) -> None:
    given = {"history": HUGE, "token_limit": 40_000, "last_prompt_tokens": 10_000}
    outcome = Stage(tmp_path / "stage", GOOD).run("compress", given)
    assert outcome.output["status"] == "compressed"
    answers = [m["content"] for m in outcome.output["history"] if m["role"] == "tool"]
    assert answers and all("read it in parts" in text for text in answers if text != "small")


def test_every_edge_is_taken_by_some_scene(played: Callable[..., Any]) -> None:
    assert untaken("compress", [played(play, scene) for scene in SCENES.values()]) == set()


def test_older_outputs_are_in_files_and_end_with_their_last_lines(played: Callable[..., Any]) -> None:
    _, outcome = played(play, SCENES["failed before, old outputs"])
    answers = [m for m in outcome.output["history"] if m["role"] == "tool"]
    whole = [m for m in HUGE if m["role"] == "tool"]
    # 2,000 lines of 52 characters are 26,000 tokens: one output fits into 50,000, and a small one.
    assert [answers[0], answers[-1]] == [whole[0], whole[-1]]
    for answer, full in zip(answers[1:-1], whole[1:-1], strict=True):
        lines = answer["content"].splitlines()
        assert lines[1:] == full["content"].splitlines()[-30:]
        path = re.search(r"in (/\S+\.txt):", lines[0])
        assert path and Path(path[1]).read_text() == full["content"]
    assert outcome.output["tokens_after"] < outcome.output["tokens_before"] / 3


def test_the_command_prints_what_was_dropped(
    played: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.cli.catalog import execute_command

    stage, outcome = played(play, SCENES["at the threshold"])
    monkeypatch.setenv("INTERLOCK_HOME", str(stage.folder / "home"))
    assert execute_command("show", [outcome.run, "--dropped"]) == 0
    printed = capsys.readouterr().out
    assert "removed, 1 of 1" in printed and "user: request 0\n" in printed and "x" * 400 in printed
    assert "request 9" not in printed, "what was kept was not dropped"
    assert execute_command("show", [outcome.run, "--verify"]) == 0
    capsys.readouterr()
    assert execute_command("show", [outcome.run, "--dropped", "--json"]) == 0
    (gone,) = json.loads(capsys.readouterr().out)["dropped"]
    assert gone[0] == {"role": "user", "content": "request 0"}
