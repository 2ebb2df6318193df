"""Skills: listed for the model, read on demand, a project's only where it is trusted."""

import asyncio
import json
import os
import re
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from folders import put
from hypothesis import given
from hypothesis import strategies as st
from places import Place
from scripted import call, says, tools

from interlock.engine import Outcome, resume_sync, run_sync
from interlock.engine.driver.run_config import load_run_configuration
from interlock.engine.travel.replay import replay_run
from interlock.services.context.definition_files import list_within_budget
from interlock.services.context.definitions import list_definition_uses
from interlock.services.trust.decisions import record_trust_decision

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


def play(place: Place, prompt: str, *replies: dict[str, Any], **options: Any) -> Outcome:
    script = put(place.folder / "script.json", [*replies, {"text": "done"}])
    given = place.options(model=f"script:{script}", **{"approval_mode": "yolo", **options})
    return run_sync("main", {"prompt": prompt}, options=given)


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


def test_a_skills_file_may_be_a_link_in_its_repository(place: Place) -> None:
    file = put(place.work / "docs/deploy.md", FRONT.format(name="deploy"))
    folder = place.work / ".claude/skills/deploy"
    put(folder / "!`touch bad`.md", "")
    (folder / "SKILL.md").symlink_to(file)
    told = read(place, {"name": "deploy"}, skip_trust=True)["content"]
    assert told.startswith("Bump deploy") and "!`touch bad`.md]" in told and "run them" not in told


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


def test_skills_of_every_program_are_listed_each_once_and_two_of_one_name_apart(place: Place) -> None:
    other = FRONT.replace("Bump", "Tag")
    put(place.work / ".claude/skills/theirs/SKILL.md", other.format(name="theirs"))
    put(place.folder / "user/.agents/skills/theirs/SKILL.md", FRONT.format(name="theirs") + "More.")
    put(place.work / ".github/skills/theirs/SKILL.md", FRONT.format(name="theirs"))  # a copy
    (place.work / ".cursor").mkdir()
    (place.work / ".cursor/skills").symlink_to("../.claude/skills")
    put(place.work / ".codex/skills/tools/deep/SKILL.md", FRONT.format(name="deep"))
    (place.work / ".roo/skills").mkdir(parents=True)
    (place.work / ".roo/skills/out").symlink_to(skill(place.folder / "elsewhere", "out"))
    listed = declared(place, skip_trust=True)
    names = [
        name
        for name in ("theirs", "claude:theirs", "~agents:theirs", "deep", "out")
        if f"- {name}: " in listed
    ]
    assert names == ["theirs", "claude:theirs", "~agents:theirs", "deep"] and listed.count("theirs: How") == 3
    for name, text in (("theirs", "Bump"), ("claude:theirs", "Tag"), ("~agents:theirs", "More.")):
        assert text in read(place, {"name": name}, skip_trust=True)["content"]


def test_front_matter_says_who_may_call_a_skill(place: Place) -> None:
    base = place.folder / "user/.claude/skills"
    put(base / "quiet/SKILL.md", "---\ndescription: a\ndisable-model-invocation: yes\n---\nQuiet.")
    put(base / "hidden/SKILL.md", "---\ndescription: b\nuser-invocable: false\n---\nHidden.")
    listed = declared(place)
    assert "quiet" not in listed and "- hidden: b" in listed
    told = json.dumps(play(place, "/quiet now").output["history"])
    assert "Quiet.\\n\\nThe user typed: /quiet now" in told
    assert "only the model may call it" in (play(place, "/hidden").error or {})["message"]


def test_tools_that_a_skill_forbids_are_refused_until_the_next_prompt(place: Place) -> None:
    base = place.folder / "user/.claude/skills/look"
    put(base / "SKILL.md", "---\ndescription: a\ndisallowed-tools: Write, Bash(rm *)\n---\nLook.")
    write = says("write_file", file_path="made", content="x")
    refusal = "A skill that is followed here forbids `write_file` until the next prompt."
    followed = [says("activate_skill", name="look"), write, {"text": "one"}]
    outcome = play(place, "go", *followed)
    assert refusal in json.dumps(outcome.output) and not (place.work / "made").exists()
    assert refusal in json.dumps(play(place, "/look", write).output) and not (place.work / "made").exists()
    script = put(place.folder / "script.json", [*followed, write, {"text": "two"}])
    options = place.options(model=f"script:{script}", approval_mode="yolo")
    resume_sync(outcome.run, prompt="again", options=options)
    assert (place.work / "made").exists()


def test_what_the_users_own_skill_allows_needs_no_approval_until_the_next_prompt(place: Place) -> None:
    front = "---\ndescription: a\nallowed-tools: Bash(touch made*) Bash Edit(docs/**)\n---\nMake."
    put(place.folder / "user/.claude/skills/make/SKILL.md", front)
    put(place.folder / "user/.claude/commands/make-too.md", front + " !`touch made-first`")
    put(place.work / ".claude/skills/take/SKILL.md", front)
    asks = {"approval_mode": "default", "skip_trust": True, "allowed_tools": ("activate_skill",)}

    def ended(prompt: str, *calls: dict[str, Any], **more: Any) -> tuple[int, set[str]]:
        outcome = play(place, prompt, *calls, **{**asks, **more})
        names = {path.name for path in place.work.rglob("made*")}
        for path in place.work.rglob("made*"):
            path.unlink()
        return outcome.exit_code, names

    touch = says("run_shell_command", command="touch made")
    write = says("write_file", file_path="docs/made.md", content="x")
    assert ended("go", touch) == (75, set())
    assert ended("go", says("activate_skill", name="make"), touch, write) == (0, {"made", "made.md"})
    assert ended("/make", touch) == (0, {"made"})
    assert ended("/make-too", touch) == (0, {"made-first", "made"})
    assert ended("/make", says("run_shell_command", command="touch other")) == (75, set()), "no whole tool"
    assert ended("/make", says("write_file", file_path="AGENTS.md", content="x")) == (75, set())
    assert ended("/take", touch) == (75, set()), "a repository's grants nothing"
    before = play(place, "/make", touch, **asks)
    script = put(place.folder / "script.json", [touch, {"text": "one"}, touch, {"text": "two"}])
    again = resume_sync(before.run, prompt="again", options=place.options(model=f"script:{script}", **asks))
    assert (before.exit_code, again.exit_code) == (0, 75)
    (place.work / "made").unlink()
    rules = place.folder / "user/.interlock/policies/mine.toml"
    put(
        rules,
        '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "touch"\ndecision = "ask_user"\npriority = 1',
    )
    assert ended("/make", touch) == (75, set()), "a rule of theirs that asks comes first"


def test_long_descriptions_are_cut_and_a_tool_finds_the_rest(place: Place) -> None:
    for number in range(60):
        text = f"---\ndescription: number {number} {'x' * 400} ending{number}\n---\nDo."
        put(place.folder / f"user/.claude/skills/s{number}/SKILL.md", text)
    told = place.run("context", {"prompt": "go"}).output
    listed = {tool["name"]: tool["description"] for tool in told["tools"]}
    assert all(f"- s{number}: number {number}" in listed["activate_skill"] for number in range(60))
    assert len(listed["activate_skill"]) < 10_000 and "ending7" not in listed["activate_skill"]
    call = {"id": "1", "name": "find_skills", "args": {"words": "ending7"}}
    found = run_sync("tools", {"calls": [call]}, options=place.options()).output["responses"][0]
    assert found["content"].startswith("- s7: number 7 xxx") and found["content"].endswith("ending7")


def test_in_a_subfolder_the_repositorys_skills_count_if_it_is_trusted(place: Place) -> None:
    (place.work / ".git").mkdir()
    below = copy(place)
    below.work = put(place.work / "apps/web/a.txt", "").parent
    assert "theirs" not in declared(below)
    assert "- theirs: How" in declared(below, skip_trust=True)
    record_trust_decision(below.work, place.folder / "user", trusted=True)
    assert "theirs" not in declared(below)
    record_trust_decision(place.work, place.folder / "user", trusted=True)
    assert "- theirs: How" in declared(below)


@given(lengths=st.lists(st.integers(1, 1_500), max_size=40), budget=st.integers(40, 9_000))
def test_descriptions_keep_to_their_budget_and_each_name_is_there(lengths: list[int], budget: int) -> None:
    described = [(f"s{place}", "x " * (length // 2) + "x") for place, length in enumerate(lengths)]
    lines, is_cut = list_within_budget(described, budget, 1_024)
    assert [line.removeprefix("- ").partition(":")[0] for line in lines] == [name for name, _ in described]
    shown = [line.partition(": ")[2] for line in lines]
    assert sum(map(len, shown)) <= budget
    assert is_cut == (shown != [text for _, text in described])


def test_a_skill_of_a_folder_below_is_named_when_the_model_works_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(
        place.work / "apps/web/.claude/skills/deploy/SKILL.md",
        "---\ndescription: How to deploy.\n---\nPush it.",
    )
    put(place.work / "apps/web/a.txt", "one")
    listed = declared(place, skip_trust=True)
    assert "deploy" not in listed
    look = says("read_file", file_path="apps/web/a.txt")
    line = "- apps/web:deploy (apps/web/.claude/skills/deploy/SKILL.md): How to deploy."
    activate = tools(call("activate_skill", name="apps/web:deploy"), expect=re.escape(line))
    outcome = play(place, "go", look, activate, skip_trust=True)
    assert "Push it." in json.dumps(outcome.output["history"])
    (place.work / "apps/web/.claude/skills/deploy/SKILL.md").write_text("---\ndescription: Other.\n---\n")
    monkeypatch.setenv("HOME", str(place.folder / "user"))
    assert asyncio.run(replay_run(place.folder / "home", outcome.run)).divergence is None
    assert read(place, {"name": "apps/web:deploy"})["status"] == "error", "untrusted"
    outside = read(place, {"name": "../x:deploy"}, skip_trust=True)
    assert "no skill has this name" in outside["error"]["message"]


def test_a_skill_for_some_files_is_named_when_a_call_reads_one(place: Place) -> None:
    front = "---\ndescription: Queries.\npaths: '**/*.sql, db/'\n---\nUse joins."
    put(place.work / ".claude/skills/sql/SKILL.md", front)
    put(place.work / "a.sql", "one")
    listed = declared(place, skip_trust=True)
    assert "Queries" not in listed and "Others are for some files" in listed
    look = says("read_file", file_path="a.sql")
    activate = tools(call("activate_skill", name="sql"), expect="- sql: Queries.")
    assert "Use joins." in json.dumps(play(place, "go", look, activate, skip_trust=True).output["history"])


def test_links_that_multiply_are_followed_once(place: Place) -> None:
    top = place.folder / "user/.claude/skills"
    skill(place.folder / "user", "mine")
    for one in range(12):
        for other in range(12):
            (top / f"d{one}").mkdir(parents=True, exist_ok=True)
            (top / f"d{one}/to{other}").symlink_to(f"../d{other}")
    put(top / "d11/s/SKILL.md", "---\ndescription: d\n---\nDo.")
    os.mkfifo(top / "d3/SKILL.md")
    assert declared(place).count("- s: d") == 1


def test_a_setting_turns_a_kind_off(place: Place) -> None:
    assert "- mine: " in declared(place)
    assert declared(place, overrides={"context": {"read": {"skills": False}}}) == ""
    options = place.options(overrides={"context": {"read": {"skills": False}}})
    folders = load_run_configuration(options, place.work).definition_folders
    (row,) = [
        use.use for use in list_definition_uses(folders) if use.kind == "skills" and use.use.file.in_home
    ]
    assert row.problem == "context.read.skills is false"
