"""`init`: writes the memory file after exploring, shows it first, never overwrites one; every edge of the graph."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Move, Replies, Stage, approve, call, cancel, modify, refuse, send_back, untaken
from commands import execute
from folders import put, tree
from scripted import says, tools

from interlock.engine import Outcome

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

TEXT = "# Demo\n\nOne module.\n"
READ = call("read_file", file_path="a.py")
WRITE = call("write_file", file_path="GEMINI.md", content=TEXT)
SAID = {"text": "It holds the module."}


@dataclass(frozen=True)
class Scene:
    """One `init` run."""

    replies: Replies
    moves: tuple[Move, ...] = (approve,)
    status: str = "done"
    exit_code: int = 0
    files: dict[str, str] = field(default_factory=lambda: {"GEMINI.md": TEXT})
    before: dict[str, str] = field(default_factory=lambda: {"a.py": "def f(): pass\n"})
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    mode: str = "default"
    limits: dict[str, Any] = field(default_factory=dict[str, Any])


AGENTS = {"AGENTS.md": "# Old\n\nBe brief.\n", "a.py": "x = 1\n"}
REPLACE = call(
    "replace", file_path="AGENTS.md", old_string="Be brief.", new_string="Be brief.\n\nOne module."
)
MONOREPO = {
    "package.json": '{"workspaces": ["packages/*"]}',
    "packages/web/package.json": '{"name": "web"}',
    "packages/web/AGENTS.md": "Web rules.",
    "packages/api/go.mod": "module api\n",
}
SCENES = {
    "written": Scene([tools(READ), tools(WRITE, expect="def f"), SAID]),
    "asked about though everything is allowed": Scene([tools(WRITE), SAID], mode="yolo"),
    "one that stands is made better, under its own name": Scene(
        [tools(REPLACE, expect="keep what is right in it"), SAID],
        files={"AGENTS.md": "# Old\n\nBe brief.\n\nOne module.\n"},
        before=AGENTS,
    ),
    "one that stands and is good": Scene(
        [{"text": "Nothing to change."}], (), "unchanged", files=AGENTS, before=AGENTS
    ),
    "under a name that was asked for": Scene(
        [tools(call("write_file", file_path="AGENTS.md", content=TEXT), expect="`AGENTS.md`"), SAID],
        files={"AGENTS.md": TEXT},
        given={"file": "AGENTS.md"},
    ),
    "a hint": Scene(
        [tools(WRITE, expect="The user adds: name the owners"), SAID], given={"hint": "name the owners"}
    ),
    "a monorepo": Scene([tools(WRITE, expect="packages/"), SAID], before=MONOREPO),
    "sent back with a reason": Scene(
        [tools(WRITE), tools(WRITE, expect="name the tests"), SAID], (send_back("name the tests"), approve)
    ),
    "edited by the person": Scene(
        [tools(WRITE), SAID], (modify(content="# Mine\n"),), files={"GEMINI.md": "# Mine\n"}
    ),
    "refused": Scene([tools(WRITE), {"text": "Then not."}], (refuse,), "failed", 56, files={}),
    "cancelled": Scene([tools(WRITE)], (cancel,), "cancelled", 130, files={}),
    "a model that stops is reminded": Scene(
        [{"text": "I'd say…"}, tools(WRITE, expect="isn't written yet"), SAID]
    ),
    "a model that never writes": Scene([{"text": "no"}] * 3, (), "failed", 1, files={}),
    "code stays as it is": Scene(
        [
            says("write_file", file_path="a.py", content=""),
            tools(call("run_shell_command", command="rm a.py"), expect="architect"),
            tools(WRITE, expect="architect"),
            SAID,
        ],
        files={"GEMINI.md": TEXT, "a.py": "def f(): pass\n"},
        mode="yolo",
    ),
    "an empty folder": Scene([], (), "failed", 1, files={}, before={}),
    "a loop is named": Scene([*[says("glob", pattern="*")] * 5, tools(WRITE), SAID]),
    "a limit of turns": Scene([tools(READ)], (), "failed", 53, files={}, limits={"max_turns": 1}),
}


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(folder, scene.replies, limits=scene.limits)
    (stage.work / "a.py").unlink()
    tree(stage.work, scene.before)
    outcome = stage.run("init", scene.given, approval_mode=scene.mode)
    for move in scene.moves:
        assert (outcome.status, outcome.exit_code) == ("waiting", 75), outcome
        assert not (scene.files.keys() & {"GEMINI.md"}) or not (stage.work / "GEMINI.md").exists()
        outcome = stage.resume(outcome, *move(outcome))
    return stage, outcome


@pytest.mark.parametrize("name", SCENES)
def test_it_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    stage, outcome = played(play, scene)
    assert (outcome.status, outcome.exit_code) == (scene.status, scene.exit_code), outcome
    found = {str(p.relative_to(stage.work)): p.read_text() for p in stage.work.rglob("*") if p.is_file()}
    assert found == {**scene.before, **scene.files}


def test_every_edge_of_init_is_taken(played: Callable[..., Any]) -> None:
    assert untaken("init", [played(play, scene) for scene in SCENES.values()]) == set()


def test_what_stands_is_shown_as_a_diff_and_what_it_says_is_the_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", [tools(REPLACE), {"text": "It now names the module."}])
    (stage.work / "AGENTS.md").write_text(AGENTS["AGENTS.md"])
    outcome = stage.run("init", {})
    assert (
        "+One module." in outcome.pending[0]["preview"]
        and "-" not in outcome.pending[0]["preview"].splitlines()[3:]
    )
    outcome = stage.resume(outcome, *approve(outcome))
    assert outcome.output == {"status": "done", "file": "AGENTS.md", "response": "It now names the module."}


def test_the_command_is_the_workflow_by_a_short_name(tmp_path: Path, home: Path) -> None:
    """In a folder without git, and with the name set by the user."""
    put(home / ".interlock" / "settings.json", {"context": {"fileName": "CONTEXT.md"}})
    work = tmp_path / "work"
    put(work / "a.py", "x = 1\n")
    replies = [tools(call("write_file", file_path="CONTEXT.md", content=TEXT), expect="owners"), SAID]
    put(tmp_path / "replies.json", replies)
    parked = execute(work, "init", "name the owners", "-m", "script:../replies.json", "-y")
    assert parked.returncode == 75 and "+One module." in parked.stderr
    assert not (work / "CONTEXT.md").exists()
    done = execute(work, "resume", "latest", "--approve", "1")
    assert done.returncode == 0 and json.loads(done.stdout)["file"] == "CONTEXT.md"
    assert (work / "CONTEXT.md").read_text() == TEXT
    wrong = execute(work, "init", "--file", "../x.md", "-m", "script:../replies.json")
    assert wrong.returncode == 42 and "'../x.md' isn't one of" in wrong.stderr
