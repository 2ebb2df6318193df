"""Skills: listed for the model, read on demand, a project's only where it is trusted."""

import json
from pathlib import Path
from typing import Any

import pytest
from folders import put
from places import Place

from interlock.engine import run_sync

FRONT = "---\nname: {name}\ndescription: How releases are made.\n---\nBump {name}, then tag.\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "place")
    skill(made.work, "theirs")
    skill(made.folder / "user", "mine")
    return made


def skill(base: Path, name: str, text: str = FRONT) -> Path:
    folder = base / ".gemini/skills" / name
    put(folder / "SKILL.md", text.format(name=name))
    return folder


def declared(place: Place, **options: Any) -> str:
    told = place.run("context", {"prompt": "go"}, **options).output
    tools = {tool["name"]: json.dumps(tool) for tool in told["tools"]}
    assert ("## Skills" in told["system"]) == ("activate_skill" in tools)
    return tools.get("activate_skill", "")


def read(place: Place, args: dict[str, Any], **options: Any) -> dict[str, Any]:
    call = {"id": "1", "name": "activate_skill", "args": args}
    outcome = run_sync("tools", {"calls": [call]}, options=place.options(approval_mode="yolo", **options))
    assert outcome.status in ("done", "failed")
    return outcome.output["responses"][0]


def test_the_model_is_told_of_skills_and_a_projects_only_where_it_is_trusted(place: Place) -> None:
    assert "- mine: How releases are made." in declared(place) and "theirs" not in declared(place)
    assert "- theirs: How" in declared(place, skip_trust=True)
    assert declared(Place(place.folder / "bare")) == "", "without skills there is no tool for them"


def test_its_instructions_and_files_are_read_when_the_model_asks(place: Place) -> None:
    folder = place.folder / "user/.gemini/skills/mine"
    put(folder / "refs/steps.md", "1. tag")
    (folder / "out").symlink_to("/etc/hosts")
    told = read(place, {"name": "mine"})
    assert told["status"] == "success"
    assert told["content"].startswith("Bump mine, then tag.")
    assert "refs/steps.md" in told["content"] and "description:" not in told["content"]
    assert read(place, {"name": "mine", "file": "refs/steps.md"})["content"] == "1. tag"
    for bad in ("../../../settings.json", "out", "/etc/hosts", "gone.md", "refs"):
        answer = read(place, {"name": "mine", "file": bad})
        assert (answer["status"], "can't be read" in answer["error"]["message"]) == ("error", True), bad


def test_an_untrusted_projects_skill_cannot_be_read(place: Place) -> None:
    answer = read(place, {"name": "theirs"})
    assert answer["status"] == "error" and "there are mine" in answer["error"]["message"]
    assert read(place, {"name": "theirs"}, skip_trust=True)["status"] == "success"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nname: x\n---\n", "it has no 'description' and no text"),
        ("---\na: &a [*a]\n---\n", "it has no 'description' and no text"),
        ("x" * 256_001, "it is larger than 256,000 bytes"),
    ],
)
def test_a_file_of_no_use_is_one_warning_and_the_others_work(place: Place, text: str, problem: str) -> None:
    skill(place.folder / "user", "broken", text)
    outcome = place.run("context", {"prompt": "go"})
    assert [w for w in outcome.warnings if "SKILL.md was ignored" in w and problem in w]
    assert "- mine: " in declared(place)
