"""Path tests of `edit`: inputs and scripted helpers → how it ends, the file's content, which edges were taken."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_runs.stage import Replies, Stage, approve, untaken
from folders import put, tree
from scripted import call, shell, tools

from interlock.engine import Outcome
from interlock.services.models.chat import ChatModels
from interlock.state.events import ErrorEvent

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

BEFORE = "def total(items):\n    result = sum(items)\n    return result\n"


def target(snippet: str) -> dict[str, Any]:
    return {"role": "edit_target", "text": json.dumps({"corrected_target_snippet": snippet})}


def fixer(search: str = "", replace: str = "", *, done: bool = False, **more: Any) -> dict[str, Any]:
    answer = {"search": search, "replace": replace, "explanation": "it was off", "noChangesRequired": done}
    return {"role": "edit_fixer", "text": json.dumps(answer), **more}


LOST = "for each thing in things: total += thing.price"


@dataclass(frozen=True)
class Scene:
    """One edit of `a.py`, or of given content."""

    new: str
    old: str = LOST
    replies: Replies = field(default_factory=list[dict[str, Any]])
    ends: str = "applied"
    """The status, and the code of an error."""
    after: str = BEFORE
    says: str = ""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    file: str = "a.py"


NOTHING = target("nowhere in this file")
ROWS = yaml.load(Path(__file__).with_name("edits.yaml").read_text(), yaml.CSafeLoader)
SCENES = {name: Scene(**row) for name, row in ROWS.items()}


def helper(reply: dict[str, Any]) -> dict[str, Any]:
    """A helper's reply, which a row of the table may shorten."""
    match reply:
        case {"target": str(snippet), **more}:
            return {**target(snippet), **more}
        case {"fixer": list(change)}:
            return fixer(*change, done=not change)
        case _:
            return reply


def staged(folder: Path, replies: Replies) -> Stage:
    stage = Stage(folder, replies)
    tree(stage.work, {"a.py": BEFORE, "a.json": '{"a": 1}\n', "a.bin": b"\0"})
    return stage


def text_of(stage: Stage) -> str:
    return (stage.work / "a.py").read_text()


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = staged(folder, [helper(reply) for reply in scene.replies])
    given = {"old_string": scene.old, "new_string": scene.new, "instruction": "count", **scene.more}
    given |= {"file_path": scene.file} if scene.file else {}
    return stage, stage.run("edit", given, approval_mode="auto_edit")


@pytest.mark.parametrize("name", SCENES)
def test_an_edit_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    stage, outcome = played(play, scene)
    output = outcome.output
    assert f"{output['status']} {output.get('error', {}).get('code', '')}".strip() == scene.ends, outcome
    assert outcome.exit_code == (1 if output["status"] == "failed" else 0)
    assert scene.says in json.dumps(output)
    path = stage.work / scene.file
    text = (path.read_text() if path.exists() else "") if scene.file else output["new_content"]
    assert text == scene.after
    if scene.ends in ("applied", "created"):
        assert output["new_content"] == scene.after
        assert output["diff"].startswith("--- ")
    left = {p.name for p in stage.work.rglob("*")} - {"a.py", "a.json", "a.bin", "b", "new.py"}
    assert left == set()


@dataclass(frozen=True)
class Asked:
    """One edit in a mode that doesn't simply make it, and what the person says."""

    mode: str
    answers: tuple[str, ...]
    ends: tuple[str, int] = ("failed", 56)
    after: str = BEFORE
    rule: str = ""
    meanwhile: str = ""
    """The file's text while a request waits."""


DENY = '[[rule]]\ntoolName = "replace"\ndecision = "deny"\npriority = 1\n'
MADE = BEFORE.replace("sum(items)", "0")
TWICE = ("proceed_once", "proceed_once")
ASKED = [
    Asked("default", ("proceed_once",), ("applied", 0), MADE),
    Asked("default", ("reject",)),
    Asked("default", ("cancel",)),
    Asked("plan", ()),
    Asked("yolo", (), rule=DENY),
    Asked("default", TWICE, ("applied", 0), "# new\n" + MADE, meanwhile="# new\n" + BEFORE),
]
EDIT = {"file_path": "a.py", "old_string": LOST, "new_string": "    result = 0"}


def answered(scene: Asked, folder: Path) -> tuple[Stage, Outcome]:
    stage = staged(folder, [target("    result = sum(items)")] * 2)
    put(stage.options.user_home / ".interlock/policies/rules.toml", scene.rule)
    outcome = stage.run("edit", {**EDIT, "instruction": "count"}, approval_mode=scene.mode)
    for choice in scene.answers:
        assert outcome.status == "waiting" and text_of(stage) != MADE
        put(stage.work / "a.py", scene.meanwhile or BEFORE)
        outcome = stage.resume(outcome, *approve(outcome, choice))
    return stage, outcome


@pytest.mark.parametrize("scene", ASKED)
def test_an_edit_by_itself_obeys_rules_and_modes(scene: Asked, played: Callable[..., Any]) -> None:
    stage, outcome = played(answered, scene)
    assert (outcome.output["status"], outcome.exit_code) == scene.ends
    assert text_of(stage) == scene.after


def test_every_declared_edge_is_taken_by_some_scene(played: Callable[..., Any]) -> None:
    runs = [played(play, scene) for scene in SCENES.values()] + [played(answered, ask) for ask in ASKED]
    assert untaken("edit", runs) == set()


def test_the_checkpoints_of_a_large_edit_hold_no_text(tmp_path: Path) -> None:
    text = "".join(f"line {number} of many\n" for number in range(5_000))
    replies = [NOTHING, fixer("line 77 of many", "z" * 9_000)]
    scene = Scene("y" * 9_000, "line 40 of manny\n" * 9, replies, more={"content": text}, file="")
    stage, outcome = play(scene, tmp_path)
    assert outcome.output["new_content"] == text.replace("line 77 of many", "z" * 9_000)
    ((largest,),) = stage.rows("select max(length(checkpoint)) from checkpoints")
    assert largest <= 8_192


def test_the_fixer_hears_the_error_the_instruction_and_the_text(tmp_path: Path) -> None:
    expect = r"<instruction>\ncount\n.*<search>\nfor each thing.*isn't in 'a\.py'.*return result\n"
    scene = Scene("x", replies=[NOTHING, fixer("sum(items)", "0", expect=expect)])
    _, outcome = play(scene, tmp_path)
    assert outcome.output["status"] == "applied", outcome.error


def test_a_slow_helper_is_given_up_and_the_first_error_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.nodes.edit.FIXER_TIMEOUT_S", 0.1)
    slow = [{**target("sum"), "delay_s": 60}, fixer("sum", "x", delay_s=60)]
    _, outcome = play(Scene("x", replies=slow), tmp_path)
    assert outcome.output["error"]["code"] == "no_occurrence"


def test_a_silent_helper_is_told_with_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.nodes.edit.FIXER_TIMEOUT_S", 0.3)
    monkeypatch.setitem(ChatModels.__init__.__kwdefaults__, "stall_s", 0.4)
    stage, _ = play(Scene("x", replies=[NOTHING, fixer("sum", "x", delay_s=60)]), tmp_path)
    told = [event.message for event in stage.events if isinstance(event, ErrorEvent)]
    assert [text.partition("; ")[2] for text in told] == ["it is given up after 0.3 s."] * 2


# --- inside `tools` ---------------------------------------------------------------------------------------------------

COMMAND = shell("echo created by the command > a.py")


def replace(**args: Any) -> dict[str, Any]:
    return call("replace", **{**EDIT, **args})


def batch(
    folder: Path, replies: Replies, *calls: dict[str, Any], mode: str = "default"
) -> tuple[Stage, Outcome, list[str]]:
    """Run these calls, and approve what is asked; also the previews."""
    stage, previews = staged(folder, replies), list[str]()
    given = {"calls": [{"id": str(i), **call} for i, call in enumerate(calls)], "approval_mode": mode}
    outcome = stage.run("tools", given)
    if outcome.status == "waiting":
        previews += [request["preview"] for request in outcome.pending]
        outcome = stage.resume(outcome, *approve(outcome))
    return stage, outcome, previews


def test_an_edit_that_is_there_already_is_a_success_without_a_write(tmp_path: Path) -> None:
    there = replace(new_string="    result = sum(items)")
    stage, outcome, _ = batch(tmp_path, [NOTHING, fixer(done=True)], there)
    (response,) = outcome.output["responses"]
    assert response["status"] == "success"
    assert "stands in the file already" in response["content"]
    assert text_of(stage) == BEFORE


def test_a_correction_is_made_on_what_the_earlier_calls_leave(tmp_path: Path) -> None:
    first = replace(old_string="sum(items)", new_string="len(items)")
    stage, _, previews = batch(tmp_path, [target("    result = len(items)")], first, replace())
    assert "-    result = len(items)\n+    result = 0" in previews[1]
    assert text_of(stage) == BEFORE.replace("sum(items)", "0")


def test_what_nobody_was_asked_about_is_not_written_though_a_command_makes_it_possible(
    tmp_path: Path,
) -> None:
    """The edit couldn't be shown when it was decided; after the command it could be made."""
    stage, outcome, previews = batch(tmp_path, [], COMMAND, replace(old_string="created by the command"))
    assert (len(previews), text_of(stage)) == (1, "created by the command\n")
    assert [r["status"] for r in outcome.output["responses"]] == ["success", "error"]
    assert "make the call again by itself" in outcome.output["responses"][1]["content"]


def test_where_edits_are_allowed_no_helper_guesses_what_a_command_will_leave(tmp_path: Path) -> None:
    later = replace(old_string="created by the command", new_string="edited")
    stage, outcome, _ = batch(tmp_path, [], COMMAND, later, mode="yolo")
    assert [r["status"] for r in outcome.output["responses"]] == ["success", "success"]
    assert text_of(stage) == "edited\n"


@pytest.mark.parametrize(
    ("text", "old", "found"),
    [
        ("a = 1\n", "a = 1", "exact"),
        ("a = “x”\n", 'a = "x"', "typography"),
        ("    a = 1\n    b = 2\n", "a = 1\nb = 2\n", "whitespace"),
        ('print("x")\n', 'print(\\"x\\")', "unescape"),
    ],
)
def test_history_names_what_found_the_place(tmp_path: Path, text: str, old: str, found: str) -> None:
    """An edit of the loop, and the workflow of its own: each says which strategy, and which correction."""
    edit = {"file_path": "e.py", "old_string": old, "new_string": "c = 3"}
    stage = Stage(tmp_path, [tools(call("replace", **edit)), {"text": "done"}])
    (stage.work / "e.py").write_text(text)
    outcome = stage.run("edit", edit, approval_mode="yolo")
    (stage.work / "e.py").write_text(text)
    for run in (outcome.run, stage.run("main", {"prompt": "go @e.py"}, approval_mode="yolo").run):
        reasons = [row["reason"] for row in stage.rows("select reason from steps where run = $1", run)]
        assert any(found in reason for reason in reasons if reason), reasons
