"""Path tests: scripted replies and decisions → how it ends and which edges were taken, through the real engine.

The last test checks that every declared edge of every pipeline is taken by some scene.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Move, Replies, Stage, answer, answers, approve, cancel, modify, refuse, send_back
from folders import tree
from scripted import call, shell, tools

from interlock.engine import Decision, Outcome
from interlock.engine.diagrams import declared_edges
from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.journal import SqlJournal
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")


def edit(old: str, new: str, file: str = "a.txt") -> dict[str, Any]:
    return call("replace", file_path=file, old_string=old, new_string=new)


def target(snippet: str) -> dict[str, Any]:
    """The reply of the helper that is asked for the text an edit means."""
    return {"role": "edit_target", "text": json.dumps({"corrected_target_snippet": snippet})}


def change_the_file(stage: Stage) -> None:
    (stage.work / "a.txt").write_text("one\ntwo\nsomebody else's line\n")


def crash_after_the_intent(stage: Stage) -> None:
    """Simulate a kill between intent and effect: the row says that it was about to happen."""
    store = Store(stage.folder / "home")
    with closing(store.connect()) as conn:
        (run, request) = conn.execute("select run, request from approvals where answer is null").fetchone()
        transcript = ChainTranscript(SqlChain(conn), store.outputs, run)
        journal = SqlJournal(conn, transcript, store.outputs, run, 1)
        key = CallKey.parse(json.loads(request)["key"].split(":")[0])
        journal.record_intent(key, journal.read_call(key))


@dataclass(frozen=True)
class Scene:
    """One batch: what the model calls, what people decide at each stop, how the run ends."""

    calls: Sequence[dict[str, Any]]
    moves: tuple[Move, ...] = ()
    status: str = "done"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    says: str = ""
    """Appears in the conversation at the end."""
    file: str = "one\ntwo\n"
    helper: tuple[dict[str, Any], ...] = ()
    """A helper's reply."""
    workflow: str = "main"
    meanwhile: Callable[[Stage], None] = lambda stage: None
    """Before anybody decides."""


DONE = {"text": "done"}
READ = call("read_file", file_path="a.txt")
LIST = call("list_directory", dir_path=".")
AGAIN = call("write_file", file_path="a.txt", content="one\ntwo\n")
IN_LINK = call("write_file", file_path="d/workflows/x.yml", content="on: push\n")
QUESTION = call("ask_user", questions=[{"question": "Which colour?"}])
UNO = edit("one", "uno")
LOST = edit("the first line", "uno")
ECHO = shell("/bin/echo ran")
EDITS = {"general": {"defaultApprovalMode": "auto_edit"}}
NO_LISTS = {"tools": {"exclude": ["list_directory"]}}
SHORT = {"role": "summarizer", "text": "numbers up to 5000"}
SCENES: dict[str, Scene] = {
    "reads side by side": Scene([READ, LIST], says="two"),
    "a read and then an edit": Scene([READ, UNO], (approve,), file="uno\ntwo\n"),
    "a file that holds already what is written": Scene([AGAIN], says="exactly this content"),
    "a rejected edit": Scene([UNO], (send_back("not like this"),), "failed", says="not like this"),
    "an edit of a file that isn't there": Scene([edit("one", "uno", "none.txt")], says="none.txt"),
    "an edit that a person changed": Scene([UNO], (modify(new_string="EDITED"),), file="EDITED\ntwo\n"),
    "a cancelled batch": Scene([edit("one", "1"), ECHO], (cancel,), "cancelled"),
    "a file that changed meanwhile": Scene(
        [UNO],
        (approve, approve),
        file="uno\ntwo\nsomebody else's line\n",
        meanwhile=change_the_file,
    ),
    "a command for which another call put a link": Scene(
        [shell("ln -s /etc/passwd l"), shell("cat l")],
        (approve,),
        says="Not run: it was allowed when it was made",
    ),
    "an edit that leads elsewhere by then": Scene(
        [shell("ln -s .github d"), IN_LINK], (approve,), settings=EDITS, says="changes '.github'"
    ),
    "an edit that a helper corrected": Scene([LOST], (approve,), file="uno\ntwo\n", helper=(target("one"),)),
    "an edit that nobody could correct": Scene([LOST], says="isn't in", helper=(target("three"),)),
    "an unknown tool": Scene([call("red_file", file_path="a.txt")], says="read_file"),
    "bad arguments": Scene([call("read_file", path=3)], says="file_path"),
    "a denied tool": Scene([LIST], status="failed", settings=NO_LISTS),
    "a question": Scene([QUESTION], (answer("blue"),), says="blue"),
    "an unknown outcome, done again": Scene(
        [ECHO], (approve, approve), says="ran", meanwhile=crash_after_the_intent
    ),
    "an unknown outcome, left": Scene(
        [ECHO], (approve, refuse), says="Unknown outcome", meanwhile=crash_after_the_intent
    ),
    "a long output": Scene(
        [shell("/usr/bin/seq 1 5000")], (approve,), says="numbers up to 5000", helper=(SHORT,)
    ),
    "a batch alone": Scene([UNO, READ], (approve,), file="uno\ntwo\n", workflow="tools"),
}


def staged(folder: Path, replies: Replies, settings: dict[str, Any] | None = None) -> Stage:
    stage = Stage(folder, replies, settings or {})
    tree(stage.work, dict.fromkeys(("a.txt", "b.txt", "c.txt"), "one\ntwo\n"))
    return stage


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    alone = scene.workflow == "tools"
    replies = [] if alone else [tools(*scene.calls), DONE, *scene.helper]
    stage = staged(folder, replies, scene.settings)
    named = [{"id": str(number), **made} for number, made in enumerate(scene.calls)]
    outcome = stage.run(scene.workflow, {"calls": named} if alone else {"prompt": "go @a.txt"})
    for number, move in enumerate(scene.moves):
        assert (outcome.status, outcome.exit_code) == ("waiting", 75), outcome
        if not number:
            scene.meanwhile(stage)
        outcome = stage.resume(outcome, *move(outcome))
    return stage, outcome


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_it_should(name: str, played: Callable[..., Any]) -> None:
    scene = SCENES[name]
    stage, outcome = played(play, scene)
    assert outcome.status == scene.status, outcome.error
    assert (stage.work / "a.txt").read_text() == scene.file
    assert scene.says in json.dumps(outcome.output)


def test_every_declared_edge_is_taken_by_some_scene(played: Callable[..., Any]) -> None:
    """Covers the graphs of tools; `main` and `turn` are in `test_turning_paths`, others have their own tables."""
    runs = (played(play, scene) for scene in SCENES.values())
    taken = {edge for stage, outcome in runs for edge in stage.edges(outcome)}
    graphs = ("tools", "decide", "execute")
    # Reviews, sub-agents, hooks and servers' questions are in `test_plan`, `test_subagents`,
    # `test_hooks_around_calls` and `mcp_runs/test_input`, modes in `test_task`, texts in `test_modes_and_settings`.
    others = {
        *("parse_xml", "ask_review", "await_review", "take_review", "subagent"),
        *("ask_input", "take_input", "check_mode"),
    }
    others |= {"before_tool", "after_tool", "ask_hook", "await_hook", "notify"}
    declared = {e for e in declared_edges("tools") if e[0] in graphs and others.isdisjoint(e[1:])}
    assert declared - taken == {("tools", "parse", "next_group")}


def test_a_mixed_batch_does_what_was_said_of_each_call(tmp_path: Path) -> None:
    """Approve one, edit one, reject one with a reason; decided in two steps, in processes other than the run's."""
    edits = [UNO, edit("one", "uno", "b.txt"), edit("one", "uno", "c.txt")]
    stage = staged(tmp_path / "stage", [tools(*edits), DONE])
    files = [stage.work / name for name in ("a.txt", "b.txt", "c.txt")]
    outcome = stage.run("main", {"prompt": "go"})
    first, second, third = outcome.pending
    assert "-one\n+uno" in first["preview"]
    changed = {**second["args"], "new_string": "changed by a person"}
    said = Decision(first["id"], "proceed_once"), Decision(second["id"], "modify", args=changed)
    outcome = stage.resume(outcome, *said)
    assert [p["id"] for p in outcome.pending] == [third["id"]]
    assert files[0].read_text() == "one\ntwo\n", "nothing runs before the whole batch is decided"
    outcome = stage.resume(outcome, *send_back("keep c as it is")(outcome))
    assert (outcome.status, outcome.exit_code) == ("done", 0), "one no among three fails nothing"
    (warning,) = outcome.warnings
    assert (
        warning.startswith("A person (") and "refused 'replace'" in warning and "keep c as it is" in warning
    )
    assert outcome.output["response"] == "done"
    texts = [file.read_text() for file in files]
    assert texts == ["uno\ntwo\n", "changed by a person\ntwo\n", "one\ntwo\n"]
    statuses = [m["status"] for m in outcome.output["history"] if m["role"] == "tool"]
    assert statuses == ["success", "success", "error"]
    assert "keep c as it is" in answers(outcome)[2]
