"""`summarize` alone: one output → what the model gets, and where the full output is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, untaken
from patience import interrupted_at_a_delay

from interlock.engine import Outcome

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

LONG = "\n".join(f"test_{i} passed in 0.{i} s" for i in range(1000))
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: no'
MIXED = f"{LONG[:12_000]}\n{TRACE}\nnpm WARN old\n{LONG[:12_000]}\nExit Code: 1"
GOOD = {"role": "summarizer", "text": "All 1,000 tests passed."}


@dataclass(frozen=True)
class Scene:
    replies: Replies
    status: str
    text: str = LONG
    tool: str = "run_shell_command"
    max_tokens: int = 2000
    says: tuple[str, ...] = ()
    cancel_first: bool = False
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


def by_settings(tool: str = "run_shell_command", **how: Any) -> dict[str, Any]:
    return {"model": {"summarizeToolOutput": {tool: how}}}


SCENES = {
    "short": Scene([], "unchanged", "ok\n"),
    "at the limit": Scene([], "unchanged", "x" * 8000),
    "long": Scene([GOOD], "summarized", says=("All 1,000 tests passed.",)),
    "one over the limit": Scene([GOOD], "summarized", "x" * 8004, says=("All 1,000",)),
    "a model that fails": Scene(
        [{"role": "summarizer", "error": {"status": 400}}], "truncated", says=("test_0 ", "test_999 ")
    ),
    "a blank summary": Scene([{"role": "summarizer", "text": " \n"}], "truncated", says=("test_999 ",)),
    "a summary that is longer": Scene([{"role": "summarizer", "text": "s" * 50_000}], "truncated"),
    "no replies at all": Scene([], "truncated"),
    "a summary without the trace": Scene(
        [GOOD],
        "summarized",
        MIXED,
        says=(f"<error>\n{TRACE}\n</error>", "<warning>\nnpm WARN old", "Exit Code: 1"),
    ),
    "a truncation around a trace": Scene(
        [],
        "truncated",
        MIXED,
        says=(f"<error>\n{TRACE}\n</error>", "<warning>\nnpm WARN old", "Exit Code: 1"),
    ),
    "a small limit": Scene([GOOD], "summarized", "word " * 200, max_tokens=50),
    "truncated by settings": Scene(
        [],
        "truncated",
        "x" * 50_000,
        settings=by_settings(how="truncate"),
    ),
    "short enough for the limit of the settings": Scene(
        [],
        "unchanged",
        settings={**by_settings(how="truncate"), "tools": {"truncateToolOutputThreshold": 100_000}},
    ),
    "a file that was read, whatever settings say": Scene(
        [], "unchanged", tool="read_file", settings=by_settings("read_file", tokenBudget=10)
    ),
    "a search": Scene([], "unchanged", tool="grep_search"),
    "a page": Scene([GOOD], "summarized", tool="web_fetch"),
    "cancelled while it was written": Scene([{**GOOD, "delay_s": 20}], "summarized", cancel_first=True),
}


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(folder, scene.replies, scene.settings)
    given: dict[str, Any] = {"tool": scene.tool, "text": scene.text, "max_output_tokens": scene.max_tokens}
    with interrupted_at_a_delay():
        outcome = stage.run("summarize", given)
    if scene.cancel_first:
        assert outcome.status == "cancelled"
        stage.write([GOOD])
        outcome = stage.resume(outcome)
    return stage, outcome


@pytest.mark.parametrize("name", SCENES)
def test_it_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    _, outcome = played(play, scene)
    output = outcome.output
    assert output["status"] == scene.status, outcome.error
    assert outcome.exit_code == 0
    if scene.status == "unchanged":
        assert output == {"status": "unchanged", "text": scene.text}
        return
    assert Path(output["saved_to"]).read_text() == scene.text, "nothing is lost"
    assert output["saved_to"] in output["text"], "and the result says where it is"
    assert len(output["text"]) < len(scene.text)
    for said in scene.says:
        assert said in output["text"]


def test_every_edge_is_taken_by_some_scene(played: Callable[..., Any]) -> None:
    assert untaken("summarize", [played(play, scene) for scene in SCENES.values()]) == set()


def test_truncation_keeps_a_fifth_of_the_beginning_and_the_rest_of_the_end(tmp_path: Path) -> None:
    text = "a" * 20_000 + "b" * 30_000
    given = {"tool": "web_fetch", "text": text, "max_output_tokens": 2500}
    outcome = Stage(tmp_path / "s", []).run("summarize", given)
    head, middle, tail = outcome.output["text"].split("\n")
    assert (head, tail) == ("a" * 2000, "b" * 8000)
    assert "40,000 characters left out" in middle


def test_the_conversation_is_the_context_of_a_summary(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "which tests are slow?"},
        *[{"role": "assistant", "content": f"step {i}"} for i in range(20)],
    ]
    replies = [
        {**GOOD, "expect": "user: which tests are slow.*step 19.*The output of `run_shell_command`.*test_999"}
    ]
    given = {"tool": "run_shell_command", "text": LONG, "history": history}
    outcome = Stage(tmp_path / "s", replies).run("summarize", given)
    assert outcome.output["status"] == "summarized"
