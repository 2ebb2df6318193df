"""Processors: users' own nodes around prompts, turns and tools: run, drawn, and only where they are trusted."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from places import Place

from interlock.engine import resume_sync, run_sync
from interlock.engine.diagrams import render_diagram
from interlock.engine.driver.run_config import prepare_run
from interlock.engine.driver.run_definition import add_user_processors
from interlock.engine.read import list_step_rows
from interlock.engine.read.run_path import build_run_path
from interlock.graphs import load_pipeline
from interlock.state.errors import ConfigError, RunError

FILE = """
from interlock.workflow import Deps, Message, Runtime, node

@node(reads=("head",), writes=("head",))
async def note(state, runtime: Runtime[Deps]):
    message = Message(role="user", origin="context", content="[a note of mine]")
    return {"head": runtime.context.transcript.append(state["head"], [message])}

@node(reads=("head",))
async def look(state, runtime: Runtime[Deps]):
    return {}

PROCESSORS = {
    "before_prompt": [look],
    "before_model": [note, look],
    "after_model": [look],
    "before_tool": look,
    "after_tool": [look, "compress"],
}
"""
PLACED = {
    *("before_prompt_look", "before_model_note", "before_model_look", "after_model_look", "before_tool_look"),
    *("after_tool_look", "after_tool_compress"),
}
KEY = {"GEMINI_API_KEY": "none"}
SETTINGS = {"processors": ["mine.py"], "model": {"skipNextSpeakerCheck": True}}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "place")
    (made.work / "mine.py").write_text(FILE)
    return made


def drawn(place: Place, **options: Any) -> str:
    prepared = prepare_run(place.options(overrides=SETTINGS, **options), needs_model=False)
    return str(render_diagram(add_user_processors(load_pipeline("main"), prepared)))


def test_each_stands_at_its_place_runs_there_and_is_drawn(place: Place, fake_gemini: FakeGemini) -> None:
    read = {"calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]}
    fake_gemini.play({"replies": [read, {"text": "done"}]})
    options = place.options(fake_gemini.env, overrides=SETTINGS, skip_trust=True)
    outcome = run_sync("main", {"prompt": "go"}, options=options)
    assert outcome.status == "done", outcome.error
    rows = list_step_rows(place.folder / "home", outcome.run)
    ran = [row["node"] for row in rows if row["workflow"] == "main"]
    turn = ["before_model_note", "before_model_look", "after_model_look"]
    batch = ["before_tool_look", "after_tool_look"]
    taken = [name for name in ran if name in PLACED]
    assert taken == ["before_prompt_look", *turn, *batch, *turn]
    first, second = (json.dumps(request.contents) for request in fake_gemini.requests)
    assert (first.count("[a note of mine]"), second.count("[a note of mine]")) == (1, 2)
    text = drawn(place, skip_trust=True)
    assert {name for name in PLACED if name in text} == PLACED
    assert "before_model_note --> before_model_look" in text
    path = build_run_path(list_step_rows(place.folder / "home", outcome.run), "done")
    marked = str(
        render_diagram(add_user_processors(load_pipeline("main"), prepare_run(options, False)), path=path)
    )
    assert "before_tool_look" in marked
    assert "after_tool_compress" in {row["namespace"].rpartition("|")[2].partition(":")[0] for row in rows}


def test_a_projects_file_counts_only_where_it_is_trusted(place: Place, fake_gemini: FakeGemini) -> None:
    fake_gemini.play({"replies": [{"text": "done"}]})
    outcome = run_sync("main", {"prompt": "go"}, options=place.options(fake_gemini.env, overrides=SETTINGS))
    assert outcome.status == "done" and "a note of mine" not in json.dumps(fake_gemini.requests[0].contents)
    assert not [name for name in PLACED if name in drawn(place)]


def test_nobody_may_change_the_file_unasked(place: Place) -> None:
    call = {"id": "1", "name": "write_file", "args": {"file_path": "mine.py", "content": "x"}}
    options = place.options(approval_mode="yolo", overrides=SETTINGS, skip_trust=True)
    assert run_sync("tools", {"calls": [call]}, options=options).status == "waiting"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x = (", 1, "SyntaxError"),
        ("import nothing_like_it", 1, "ModuleNotFoundError"),
        ("", 1, "there is no PROCESSORS"),
        ("\nPROCESSORS = 3", 2, "PROCESSORS is 3"),
        ("\n\nPROCESSORS = {'before_lunch': []}", 3, "unknown place 'before_lunch'"),
        ("PROCESSORS = {'before_model': [print]}", 1, "isn't a function under @node"),
        ("PROCESSORS = {'before_model': ['compress']}", 1, "'compress' may stand at after_tool"),
    ],
)
def test_a_file_of_no_use_is_one_line_with_its_place(
    place: Place, text: str, line: int, problem: str
) -> None:
    (place.work / "mine.py").write_text(text)
    with pytest.raises(ConfigError) as caught:
        run_sync("main", {"prompt": "go"}, options=place.options(KEY, overrides=SETTINGS, skip_trust=True))
    told = str(caught.value)
    assert told.startswith(f"{place.work / 'mine.py'}:{line}: ") and problem in told and "\n" not in told


def test_a_node_that_the_state_does_not_fit_is_refused_before_anything_runs(place: Place) -> None:
    (place.work / "mine.py").write_text(FILE.replace('reads=("head",)', 'reads=("haed",)'))
    with pytest.raises(ConfigError, match="haed"):
        run_sync("main", {"prompt": "go"}, options=place.options(KEY, overrides=SETTINGS, skip_trust=True))


def test_a_run_that_stands_before_a_processor_that_is_gone_is_refused_by_its_name(
    place: Place, fake_gemini: FakeGemini
) -> None:
    (place.work / "mine.py").write_text(FILE.replace("return {}", "raise RuntimeError('stop here')"))
    fake_gemini.play({"default": {"text": "done"}})
    options = place.options(fake_gemini.env, overrides=SETTINGS, skip_trust=True)
    outcome = run_sync("main", {"prompt": "go"}, options=options)
    assert outcome.status == "failed"
    (place.work / "mine.py").write_text(FILE.replace('"before_prompt": [look],', ""))
    with pytest.raises(RunError, match="before_prompt_look"):
        resume_sync(outcome.run, options=options)
    (place.work / "mine.py").write_text(FILE)
    assert resume_sync(outcome.run, options=options).status == "done"


def test_the_task_loop_has_them_too_where_it_has_the_place(place: Place, fake_gemini: FakeGemini) -> None:
    done = {"calls": [{"name": "attempt_completion", "args": {"result": "It is done."}}]}
    fake_gemini.play({"replies": [done]})
    options = place.options(fake_gemini.env, overrides=SETTINGS, skip_trust=True)
    outcome = run_sync("task", {"prompt": "go"}, options=options)
    assert outcome.status == "done", outcome.error
    ran = [
        row["node"] for row in list_step_rows(place.folder / "home", outcome.run) if row["workflow"] == "task"
    ]
    turn = ["before_model_note", "before_model_look", "after_model_look"]
    assert [name for name in ran if name in PLACED] == [*turn, "before_tool_look", "after_tool_look"]
    assert "[a note of mine]" in json.dumps(fake_gemini.requests[0].contents)


def test_an_installed_package_brings_them_by_an_entry_point(
    place: Place, fake_gemini: FakeGemini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(version: str, target: str) -> None:
        about = tmp_path / version / "theirs-1.dist-info"
        about.mkdir(parents=True)
        (about.parent / "theirs_of_the_test.py").write_text(FILE)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
        (about / "entry_points.txt").write_text(
            f"[interlock.processors]\ntheirs = theirs_of_the_test:{target}\n"
        )
        monkeypatch.syspath_prepend(str(about.parent))

    install("one", "PROCESSORS")
    fake_gemini.play({"replies": [{"text": "done"}]})
    options = place.options(fake_gemini.env, overrides={"model": SETTINGS["model"]})
    assert run_sync("main", {"prompt": "go"}, options=options).status == "done"
    assert "[a note of mine]" in json.dumps(fake_gemini.requests[0].contents)
    install("two", "NOTHING")
    with pytest.raises(
        ConfigError, match=r"theirs_of_the_test:NOTHING of interlock\.processors: AttributeError"
    ):
        run_sync("main", {"prompt": "go"}, options=options)
