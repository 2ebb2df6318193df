"""Path tests of `context` and `system-prompt`, and their promise: the same inputs give the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from places import Place

from interlock.engine import resume_sync, run_sync
from interlock.engine.diagrams import declared_edges
from interlock.state.errors import InputError
from interlock.state.text import estimate_tokens

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

ASKED = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]


def test_every_declared_edge_is_taken_by_some_scene(place: Place) -> None:
    (place.work / "own.md").write_text("my own words")
    system = [{"role": "system", "content": "older words"}]
    small = {"overrides": {"model": {"promptProfile": "small"}}}
    scenes: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("context", {"prompt": "go", "history": ASKED}, {}),
        ("context", {"prompt": "go", "history": [*system, *ASKED]}, {}),
        ("context", {"prompt": "go", "parts": {"system-prompt": False}}, {}),
        ("context", {"prompt": "go"}, {"env": {"GEMINI_SYSTEM_MD": "own.md"}}),
        ("system-prompt", {}, {}),
        ("system-prompt", {"flavour": "task"}, {}),
        ("system-prompt", {}, small),
        ("system-prompt", {"flavour": "task"}, small),
    ]
    taken = {e for name, given, options in scenes for e in place.taken(place.run(name, given, **options))}
    assert declared_edges("context") - taken == set()


def test_a_part_that_is_turned_off_is_not_there(place: Place) -> None:
    (place.work / "GEMINI.md").write_text("be brief")
    whole = place.run("context", {"prompt": "go on", "history": ASKED}, skip_trust=True).output
    assert [f["path"] for f in whole["files"]] == ["GEMINI.md"]
    assert "be brief" in json.dumps(whole["messages"][0])
    off = ("history", "environment", "directory", "system-prompt", "memory", "tool_declarations")
    asked = {"prompt": "go on", "history": ASKED}
    bare = place.run("context", {**asked, "parts": dict.fromkeys(off, False)}, skip_trust=True).output
    assert (bare["system"], bare["tools"], bare["files"]) == ("", [], [])
    assert [m["content"] for m in bare["messages"]] == ["go on"]
    for part in off:
        tokens = place.run("context", {**asked, "parts": {part: False}}, skip_trust=True).output["tokens"]
        assert {name for name, count in tokens.items() if count} == set(whole["tokens"]) - {part, "at_files"}


def test_the_prompt_is_short_and_says_what_it_is_made_of(place: Place) -> None:
    told = place.run("system-prompt", {}).output
    assert told["source"] == "generated"
    assert "\n\n".join(s["text"] for s in told["sections"]) == told["text"]
    assert all(s["tokens"] == estimate_tokens(s["text"]) for s in told["sections"])
    assert 1_000 < told["tokens"] <= 4_000


def test_what_changed_is_told_by_section(place: Place) -> None:
    first = place.run("system-prompt", {}).output
    marks = {s["name"]: s["fingerprint"] for s in first["sections"]}
    again = place.run("system-prompt", {"previous": marks}).output
    assert (again["changed"], again["text"]) == ([], first["text"])
    (place.work / ".git").mkdir()
    more = place.run("system-prompt", {"previous": {**marks, "gone": "x"}}).output
    assert more["changed"] == ["git", "gone"]


def test_requests_of_a_run_share_every_byte_up_to_what_is_new_and_runs_their_prompt_and_tools(
    tmp_path: Path, fake_gemini: FakeGemini
) -> None:
    read = {"calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]}
    fake_gemini.play({"replies": [read, {"text": "one"}, {"text": "two"}] * 2})
    settings = {"model": {"skipNextSpeakerCheck": True}}
    for name in ("first", "second"):
        place = Place(tmp_path / name)
        given = place.options(fake_gemini.env, overrides=settings)
        outcome = run_sync("main", {"prompt": "go"}, options=given)
        assert resume_sync(outcome.run, prompt="more", options=given).status == "done"
    first, second = fake_gemini.requests[:3], fake_gemini.requests[3:]
    for earlier, later in ((first[0], first[1]), (first[1], first[2])):
        for key in ("systemInstruction", "tools"):
            assert json.dumps(earlier.body[key]) == json.dumps(later.body[key])
        before, after = json.dumps(earlier.contents)[:-1], json.dumps(later.contents)
        assert after.startswith(before)
    for key in ("systemInstruction", "tools"):
        assert json.dumps(first[0].body[key]) == json.dumps(second[0].body[key])


def test_a_system_prompt_that_changed_between_prompts_is_sent_anew_and_told(
    place: Place, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play({"default": {"text": "fine"}})
    given = place.options(fake_gemini.env, overrides={"model": {"skipNextSpeakerCheck": True}})
    outcome = run_sync("main", {"prompt": "go"}, options=given)
    (place.work / ".git").mkdir()
    told: list[Any] = []
    resume_sync(outcome.run, prompt="more", options=given, renderers=[told.append])
    assert [e.sections for e in told if e.type == "system_prompt_changed"] == [["git"]]
    first, second = (json.dumps(r.body["systemInstruction"]) for r in fake_gemini.requests)
    assert ("# Git" in first, "# Git" in second) == (False, True)
    assert fake_gemini.requests[1].contents[0] == fake_gemini.requests[0].contents[0]


def test_a_mode_says_what_it_is_for_and_leaves_out_what_it_may_not_do(place: Place) -> None:
    def names(mode: str) -> set[str]:
        return {s["name"] for s in place.run("system-prompt", {"mode": mode}).output["sections"]}

    code, ask, architect = names("code"), names("ask"), names("architect")
    assert "mode" in code & ask & architect
    assert {"edits", "commands", "changes"} <= code
    assert {"edits", "commands", "changes", "sandbox_none"}.isdisjoint(ask)
    assert ("edits" in architect, "commands" in architect) == (True, False)
    assert "Find out what is there" in place.run("system-prompt", {"mode": "architect"}).output["text"]
    with pytest.raises(
        InputError, match=r"no mode 'cod'\. Did you mean 'code'\? Expected one of architect, code"
    ):
        place.run("system-prompt", {"mode": "cod"})


def test_a_projects_prompt_of_a_mode_counts_only_where_it_is_trusted(place: Place) -> None:
    (place.work / ".roo").mkdir()
    (place.work / ".roo/system-prompt-ask").write_text("In {{workspace}}: {{mode}}, {{shell}}, {{unknown}}.")
    assert place.run("system-prompt", {"mode": "ask"}).output["source"] == "generated"
    told = place.run("system-prompt", {"mode": "ask"}, skip_trust=True).output
    assert told["source"].endswith("system-prompt-ask")
    assert [s["name"] for s in told["sections"]] == ["mode", "replacement"]
    assert told["sections"][1]["text"] == f"In {place.work}: ask, bash, {{{{unknown}}}}."
    assert place.run("system-prompt", {"mode": "code"}, skip_trust=True).output["source"] == "generated"
