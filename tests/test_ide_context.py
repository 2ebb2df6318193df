"""The user's open files in an editor: sent once, then only changes, and again in full after a compression."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from places import Place

from interlock.engine import resume_sync, run_sync
from interlock.services.context.workspace_context import read_ide_state
from interlock.state.errors import ConfigError

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")


def shown(file: Path, *paths: str, selection: str = "", active: bool = True) -> None:
    """Write the editor's open files, the newest first."""
    files: list[dict[str, Any]] = [
        {"path": p, "timestamp": 100 - i, "isActive": active and i == 0} for i, p in enumerate(paths)
    ]
    if files:
        files[0] |= {"cursor": {"line": 3, "character": 1}, "selectedText": selection}
    file.write_text(json.dumps({"workspaceState": {"openFiles": files, "isTrusted": True}}))


def told(fake: FakeGemini) -> list[list[str]]:
    """The texts about the editor in each request."""
    return [
        [p["text"] for c in r.contents for p in c["parts"] if "editor" in p.get("text", "")]
        for r in fake.requests
    ]


def test_it_is_told_in_full_then_what_changed_and_nothing_twice(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    place, file = Place(tmp_path / "place"), tmp_path / "ide.json"
    fake_gemini.play({"default": {"text": "fine"}})
    shown(file, "/w/a.py", "/w/b.py", selection="x = 1")
    settings = {"model": {"skipNextSpeakerCheck": True}, "ide": {"contextFile": str(file)}}
    given = place.options(fake_gemini.env, overrides=settings)
    first_run = run_sync("main", {"prompt": "go"}, options=given)
    run = first_run.run
    resume_sync(run, prompt="more", options=given)
    shown(file, "/w/c.py", "/w/b.py")
    resume_sync(run, prompt="more", options=given)
    file.write_text("no JSON")
    heard: list[Any] = []
    assert resume_sync(run, prompt="more", options=given, renderers=[heard.append]).status == "done"
    first, second, third, last = told(fake_gemini)
    assert len(first) == 1 and '"selection": "x = 1"' in first[0] and '"/w/b.py"' in first[0]
    assert second == first
    assert third[0] == first[0] and len(third) == 2 and last == third
    change = json.loads(third[1].partition("\n")[2])
    assert (change["opened"], change["closed"]) == (["/w/c.py"], ["/w/a.py"])
    assert change["active"]["path"] == "/w/c.py"
    assert "It is ignored" in next(e.message for e in heard if e.type == "error")
    edges = [("mask_tool_outputs", "ide_context"), ("ide_context", "check_context")]
    assert {("turn", *edge) for edge in edges} <= place.taken(first_run)


def test_only_the_newest_ten_are_told_and_a_long_selection_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "ide.json"
    shown(file, *(f"/w/{i}.py" for i in range(12)), selection="x" * 20_000)
    found = read_ide_state(file)
    assert found["open"] == [f"/w/{i}.py" for i in range(10)]
    assert len(found["active"]["selection"]) == 16_384 + len("… [cut]")
    shown(file, "/w/a.py", active=False)
    assert read_ide_state(file) == {"open": ["/w/a.py"], "active": {}}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"openFiles": 1}', '{"openFiles": [{"path": 1}]}', "[" * 100_000]
)
def test_a_file_of_no_use_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "ide.json").write_text(text)
    with pytest.raises(ConfigError, match=r"ide.json' can't be used .*It is ignored\.$"):
        read_ide_state(tmp_path / "ide.json")


def test_it_is_a_part_of_the_opening_that_can_be_turned_off_and_that_an_input_may_give(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    place, file = Place(tmp_path / "place"), tmp_path / "ide.json"
    given = {"workspaceState": {"openFiles": [{"path": "/w/given.py", "timestamp": 1}]}}
    built = place.run("context", {"prompt": "go", "ide": given}).output
    [opening, _] = built["messages"]
    sections = [part["section"] for part in opening["content"]]
    assert sections == ["environment", "directory", "ide"] and built["tokens"]["ide"] > 0
    off = place.run("context", {"prompt": "go", "ide": given, "parts": {"ide": False}}).output
    assert "given.py" not in json.dumps(off)
    shown(file, "/w/file.py")
    overrides = {"model": {"skipNextSpeakerCheck": True}, "ide": {"contextFile": str(file)}}
    assert "/w/file.py" in json.dumps(
        place.run("context", {"prompt": "go", "ide": given}, overrides=overrides).output
    )
    fake_gemini.play({"default": {"text": "fine"}})
    options = place.options(fake_gemini.env, overrides={"model": {"skipNextSpeakerCheck": True}})
    run = run_sync("main", {"prompt": "go", "ide": given}, options=options).run
    resume_sync(run, prompt="more", options=options)
    first, second = told(fake_gemini)
    assert first == second and len(first) == 1 and "/w/given.py" in first[0]
    assert "/w/given.py" in json.dumps(fake_gemini.requests[0].contents[0])
    run_sync("turn", {"request": "go", "ide": given}, options=options)
    assert "/w/given.py" in json.dumps(fake_gemini.requests[2].contents)


def test_an_input_of_no_use_is_one_line_and_left_out(tmp_path: Path) -> None:
    place, heard = Place(tmp_path / "place"), list[Any]()
    given = {"prompt": "go", "ide": {"openFiles": 3}}
    assert run_sync("context", given, options=place.options(), renderers=[heard.append]).status == "done"
    [line] = [e.message for e in heard if e.type == "error"]
    assert line.startswith("The IDE's context of the input can't be used") and line.endswith("It is ignored.")
