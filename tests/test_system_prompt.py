"""The task loop's system prompt: each section appears under its conditions, and describes what exists."""

import json
import re
from typing import Any

import pytest
from folders import put, tree
from places import Place

from interlock.engine import run_sync
from interlock.engine.diagrams import render_diagram
from interlock.engine.read import list_steps
from interlock.nodes.system_sections import MAIN, SMALL, SMALL_TASK, TASK
from interlock.state.text import estimate_tokens
from interlock.tools.table import TOOLS

MODES = ("architect", "code", "ask", "debug", "orchestrator")
WHATS = ("mcp", "search", "browser", "diff")
ORDER = (
    *("role", "markdown", "tool_use", "native", "xml", "tools", "guidelines", "guidelines_search", "mcp"),
    *(
        "capabilities",
        "capabilities_mcp",
        "modes",
        "rules",
        "mandates",
        "system",
        "objective",
        "instructions",
    ),
)
"""Sections with a fixed place."""


def task(place: Place, given: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return place.run("system-prompt", {"flavour": "task", "mode": "code", **(given or {})}, **options).output


def sections(told: dict[str, Any]) -> dict[str, str]:
    return {s["name"]: s["text"] for s in told["sections"]}


def table() -> list[tuple[str, str, dict[str, bool]]]:
    """Each protocol in each mode, with all features and with none; in one mode with each alone, too."""
    every = [dict.fromkeys(WHATS, True), *({what: what == one for what in WHATS} for one in ("", *WHATS))]
    some = {mode: every if mode == "code" else every[:2] for mode in MODES}
    return [(protocol, mode, has) for protocol in ("native", "xml") for mode in MODES for has in some[mode]]


def test_sections_come_and_go_with_protocol_mode_and_what_there_is(place: Place) -> None:
    for protocol, mode, has in table():
        told = sections(task(place, {"protocol": protocol, "mode": mode, "has": has}))
        xml, can_edit, can_run = (
            protocol == "xml",
            mode in ("architect", "code", "debug"),
            mode in ("code", "debug"),
        )
        expected = {
            **dict.fromkeys(("role", "markdown", "tool_use", "guidelines", "capabilities", "modes"), True),
            **dict.fromkeys(("rules", "mandates", "results", "data", "system", "objective"), True),
            **dict.fromkeys(("xml", "tools"), xml),
            "native": not xml,
            **dict.fromkeys(("mcp", "capabilities_mcp"), has["mcp"]),
            "guidelines_search": has["search"],
            "capabilities_browser": has["browser"],
            "rules_diff": has["diff"],
            **dict.fromkeys(("rules_edits", "changes"), can_edit),
            "commands": can_run,
            "rules_files": mode == "architect",
            "instructions": False,
        }
        assert {name: name in told for name in expected} == expected, (protocol, mode, has)
        assert [name for name in told if name in ORDER] == [name for name in ORDER if name in told]
        if xml:
            shown = {line[3:] for line in told["tools"].splitlines() if line.startswith("## ")}
            assert ("run_shell_command" in shown, "write_file" in shown) == (can_run, can_edit)


def test_the_catalogue_says_of_every_tool_what_its_argument_model_says(place: Place) -> None:
    told = sections(task(place, {"protocol": "xml"}))["tools"]
    for name, tool in TOOLS.items():
        if f"## {name}\n" not in told:
            continue
        text = told.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert tool.description.partition("\n")[0] in text
        declared = tool.args.model_json_schema()["properties"]
        for field, info in tool.args.model_fields.items():
            if (info.alias or field) not in declared:
                continue
            listed = [line for line in text.splitlines() if line.startswith(f"- {info.alias or field} (")]
            assert listed, (name, field)
            line = listed[0]
            assert ", required)" in line if info.is_required() else ", required)" not in line
            assert (info.description or "") in text.replace("\n  ", "\n")
            assert (f"<{info.alias or field}>…" in text) == info.is_required()
    assert "## read_file\n" in told


def test_what_doesnt_depend_on_the_workspace_has_at_most_4000_tokens(place: Place) -> None:
    (place.work / ".git").mkdir()
    whole = dict.fromkeys(WHATS, True)
    told = sections(task(place, {"mode": "code", "has": whole}))
    assert sum(map(estimate_tokens, told.values())) <= 4_000


def test_the_same_inputs_give_the_same_bytes(place: Place) -> None:
    (place.work / ".roo/rules").mkdir(parents=True)
    for name in ("b.md", "A.md", "c"):
        (place.work / f".roo/rules/{name}").write_text(name)
    first, second = (task(place, {"protocol": "xml"}) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_a_model_that_is_called_by_text_is_told_how_in_the_main_loop_too(place: Place) -> None:
    xml = sections(place.run("system-prompt", {"protocol": "xml"}).output)
    native = sections(place.run("system-prompt", {}).output)
    assert xml.keys() - native.keys() == {"xml", "tools"} and native.keys() <= xml.keys()


def test_instructions_stand_in_order_language_user_mode_rules(place: Place) -> None:
    work, home = place.work, place.folder / "user"
    (work / ".roomodes").write_text(
        json.dumps({"customModes": [{"slug": "docs", "name": "Docs", "roleDefinition": "You write docs. All of them.",
                                     "groups": ["read"], "customInstructions": "In plain words."}]})
    )  # fmt: skip
    files = {
        home / ".roo/rules-docs/1.md": "mine for docs",
        work / ".roo/rules-docs/2.md": "theirs for docs",
        work / ".rooignore": "secret/",
        work / "AGENTS.md": "agents",
        home / ".roo/rules/z.md": "mine for all",
        work / ".roo/rules/a.md": "theirs for all",
        work / ".roorules": "never: there are folders",
    }
    for file, text in files.items():
        put(file, text)
    settings = {"context": {"language": "Deutsch", "instructions": "Be exact."}}
    told = sections(task(place, {"mode": "docs"}, skip_trust=True, overrides=settings))
    assert "You write docs." in told["role"] and "- Docs (`docs`): You write docs" in told["modes"]
    text = told["instructions"]
    expected = ["Deutsch", "Be exact.", "In plain words.", "mine for docs", "theirs for docs", "secret/"]
    expected += ["AGENTS.md\n\nagents", "mine for all", "theirs for all"]
    at = [text.index(part) for part in expected]
    assert at == sorted(at) and "never" not in text
    assert "~/.roo/rules-docs/1.md" in text and " .roo/rules/a.md" in text
    assert "instructions" in sections(task(place, {"mode": "code"}))


def test_a_file_in_place_of_the_prompt_leaves_role_and_instructions(place: Place) -> None:
    tree(place.work, {".roo/system-prompt-code": "{{mode}} in {{workspace}}", "AGENTS.md": "agents"})
    whole = task(place, skip_trust=True)
    told, why = sections(whole), {section["name"]: section["why"] for section in whole["sections"]}
    assert [*told] == ["role", "replacement", "instructions"]
    assert told["replacement"] == f"code in {place.work}"
    assert why["role"] == "always" and why["replacement"].startswith("replaces the others: ")
    assert whole["left_out"]["rules"] == "replaced" and "role" not in whole["left_out"]
    assert "rules" in sections(task(place))


def test_agents_md_stands_once_in_a_task_and_among_memory_files_otherwise(place: Place) -> None:
    tree(place.work, {"AGENTS.md": "agents say so", "GEMINI.md": "gemini says so"})
    unread = place.run("context", {"prompt": "go"}).output
    assert all("agents say so" not in json.dumps(told) for told in (unread, task(place)))
    main = place.run("context", {"prompt": "go"}, skip_trust=True).output
    assert json.dumps(main).count("agents say so") == 1 and "agents say so" not in main["system"]
    off = {"context": {"useAgentRules": False}}
    assert "agents say so" in sections(task(place, skip_trust=True))["instructions"]
    assert "instructions" not in sections(task(place, overrides=off, skip_trust=True))


def test_rule_files_are_nothing_that_a_model_may_change(place: Place) -> None:
    for name in (".roorules", ".clinerules-code", "AGENT.md", ".roo/rules/a.md"):
        call = {"id": "1", "name": "write_file", "args": {"file_path": name, "content": "obey"}}
        options = place.options(approval_mode="yolo")
        outcome = run_sync("tools", {"calls": [call]}, options=options)
        assert outcome.status == "waiting", name


@pytest.mark.parametrize(
    ("workflow", "given", "stand", "out"),
    [
        ("system-prompt", {}, {"native": "native calls", "role": "always"}, {"xml": "needs calls as tags"}),
        ("system-prompt", {"mode": "ask"}, {"markdown": "always"}, {"rules_edits": "needs an edit tool"}),
        ("system-prompt", {"has": {"diff": False}}, {}, {"rules_diff": "needs apply_diff", "instructions": "needs instructions or rule files"}),  # noqa: E501
        ("main", {"prompt": "go"}, {"edits": ""}, {"git": "needs a git repository", "skills": "needs activate_skill"}),
    ],
)  # fmt: skip
def test_output_and_history_say_of_each_section_why_it_stands_or_not(
    place: Place, workflow: str, given: dict[str, Any], stand: dict[str, str], out: dict[str, str]
) -> None:
    if workflow == "main":
        scripted = put(place.folder / "replies.json", [{"text": "done"}])
        run = place.run(workflow, given, model=f"script:{scripted}").run
    else:
        outcome = place.run(workflow, {"flavour": "task", "mode": "code", **given})
        told, run = outcome.output, outcome.run
        assert {s["name"]: s["why"] for s in told["sections"] if s["name"] in stand} == stand
        assert {name: told["left_out"].get(name) for name in out} == out
    reason = next(step.reason for step in list_steps(place.folder / "home", run) if step.node == "assemble")
    within, _, without = reason.partition("; out: ")
    assert {*stand} <= {*within.removeprefix("in: ").split(", ")}
    assert all(f"{name} ({why})" in without for name, why in out.items()), reason


@pytest.mark.parametrize(
    ("flavour", "node", "stand"),
    [
        ("main", "gather_small_main", ["small", "small_answer"]),
        ("task", "gather_small_task", ["small", "small_task"]),
    ],
)
def test_a_small_prompt_is_gathered_in_a_node_of_its_own(
    place: Place, flavour: str, node: str, stand: list[str]
) -> None:
    small = {"model": {"promptProfile": "small"}}
    outcome = place.run("system-prompt", {"flavour": flavour}, overrides=small)
    assert [section["name"] for section in outcome.output["sections"]] == stand
    assert outcome.output["left_out"]["appended"] == "needs --append-system-prompt"
    assert node in [step.node for step in list_steps(place.folder / "home", outcome.run)]


def test_the_diagram_draws_every_section_as_a_branch_behind_its_condition() -> None:
    drawn = str(render_diagram("system-prompt"))
    texts = dict(re.findall(r'(\w+)(?:\[|\{\{)"(.*)"', drawn))
    branches = re.findall(r"(\w+_if\d+) -\.-> (\w+)", drawn)
    found = {
        (texts[when], name) for when, then in branches for name in re.findall(r"\d+\. (\w+)", texts[then])
    }
    tables = {"main": MAIN, "task": TASK, "small_main": SMALL, "small_task": SMALL_TASK}
    assert found == {
        (section.conditions_text, section.name) for table in tables.values() for section in table
    }
    for name, table in tables.items():
        of_it = [texts[then] for when, then in branches if re.fullmatch(rf"gather_{name}_if\d+", when)]
        numbered = sorted(re.findall(r"(\d+)\. (\w+)", " ".join(of_it)), key=lambda one: int(one[0]))
        assert [section for _, section in numbered] == [section.name for section in table]
    assert ("a command tool and a git repository", "git") in found
