"""A session's hooks run around every workflow that a user starts; a run without them pays nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from places import Place

from interlock.engine import Options, Outcome, resume_sync, run_sync
from interlock.engine.diagrams import declared_or_taken_edges, render_diagram
from interlock.engine.read import list_step_rows
from interlock.engine.read.run_path import RunPath, build_run_path
from interlock.graphs import PIPELINES, load_pipeline

CONTEXT = """echo '{"hookSpecificOutput": {"additionalContext": "be brief"}}'"""


class Stage(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "script.json").write_text(json.dumps([{"text": t} for t in ("first", "second", "third")]))

    def hooked(self, **hooks: str) -> Options:
        settings = {event: [{"hooks": [{"command": f"cat >> ../log; {c}"}]}] for event, c in hooks.items()}
        overrides = {"hooks": settings, "model": {"skipNextSpeakerCheck": True}}
        return self.options(model=f"script:{self.folder / 'script.json'}", overrides=overrides)

    @property
    def heard(self) -> list[tuple[str, str]]:
        log = self.folder / "log"
        text = log.read_text().replace("}{", "}\n{") if log.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [(e["hook_event_name"], e.get("source") or e.get("reason")) for e in found]

    def path(self, run: str) -> RunPath:
        return build_run_path(list_step_rows(self.folder / "home", run), "done")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def talk(outcome: Outcome) -> list[tuple[str, str]]:
    return [(m.get("origin") or m["role"], m["content"]) for m in outcome.output["history"]]


def test_a_session_starts_with_its_first_prompt_and_goes_on_with_the_next(stage: Stage) -> None:
    options = stage.hooked(SessionStart=CONTEXT, SessionEnd="true")
    first = run_sync("main", {"prompt": "p"}, options=options)
    assert (first.status, first.output["response"]) == ("done", "first")
    assert [who for who, _ in talk(first)] == ["hook", "person", "assistant"]
    assert "be brief" in talk(first)[0][1]
    second = resume_sync(first.run, prompt="q", options=options)
    assert second.output["response"] == "second"
    ends = ("SessionEnd", "exit")
    assert stage.heard == [("SessionStart", "startup"), ends, ("SessionStart", "resume"), ends]


def test_a_workflow_without_a_conversation_has_a_session_too(stage: Stage) -> None:
    given = {"file_path": "a.txt", "old_string": "one", "new_string": "uno", "instruction": "translate"}
    outcome = run_sync("edit", given, options=stage.hooked(SessionStart=CONTEXT, SessionEnd="true"))
    assert outcome.status in ("applied", "waiting"), outcome.error
    assert stage.heard[0] == ("SessionStart", "startup")


def test_a_session_that_a_hook_refuses_does_not_run_until_it_is_resumed_and_allowed(stage: Stage) -> None:
    """One that fails refuses nothing."""
    failing = run_sync("main", {"prompt": "p"}, options=stage.hooked(SessionStart="false"))
    assert failing.status == "done"
    refuses = stage.hooked(SessionStart="echo no >&2; exit 2")
    refused = run_sync("main", {"prompt": "p"}, options=refuses)
    assert refused.error and (refused.exit_code, refused.error["type"]) == (56, "blocked_by_hook")
    assert "no" in refused.error["message"]
    assert resume_sync(refused.run, options=refuses).exit_code == 56
    assert len(stage.heard) == 3
    allowed = resume_sync(refused.run, options=stage.hooked(SessionStart="true"))
    assert (allowed.status, allowed.output["response"]) == ("done", "first")


def test_a_run_is_told_anew_with_each_prompt_which_events_have_hooks(stage: Stage) -> None:
    first = run_sync("main", {"prompt": "p"}, options=stage.hooked(SessionEnd="true"))
    second = resume_sync(first.run, prompt="q", options=stage.hooked())
    assert second.status == "done"
    assert stage.heard == [("SessionEnd", "exit")]
    third = resume_sync(first.run, prompt="r", options=stage.hooked(SessionEnd="true"))
    assert third.output["response"] == "third"
    assert stage.heard == [("SessionEnd", "exit")] * 2


def test_a_runs_picture_shows_its_session_only_where_there_was_one(stage: Stage) -> None:
    plain = run_sync("main", {"prompt": "p"}, options=stage.hooked())
    hooked = run_sync("main", {"prompt": "p"}, options=stage.hooked(SessionStart="true", SessionEnd="true"))
    assert b"session" not in str(render_diagram("main", "dot", 1, stage.path(plain.run))).encode()
    shown: Any = render_diagram("main", "dot", 1, stage.path(hooked.run))
    assert "session_start" in shown
    taken = {
        (a, b) for _, a, b in declared_or_taken_edges(load_pipeline("main").compile(), stage.path(hooked.run))
    }
    assert {
        ("__start__", "session_start"),
        ("session_start", "open_prompt"),
        ("session_end", "__end__"),
    } <= taken


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", PIPELINES)
def test_every_way_to_the_end_has_one_through_the_sessions_end(name: str) -> None:
    plain = {
        (a, b) for _, a, b in declared_or_taken_edges(load_pipeline(name).build().compile()) if _ == name
    }
    root = {(a, b) for _, a, b in declared_or_taken_edges(load_pipeline(name).compile()) if _ == name}
    before_end = {a for a, b in plain if b == "__end__"}
    assert {a for a, b in root if b == "session_end"} == before_end | {"await_session"}
    assert plain <= root
