"""`interlock agents`, `interlock modes`, and `--mode` on the command line."""

import json
from pathlib import Path

import pytest
from commands import Run

_OWN = '{"customModes": [{"slug": "docs", "name": "Docs", "roleDefinition": "R", "groups": ["read"]}]}'


@pytest.fixture
def modes(run: Run) -> Path:
    """A project's own modes."""
    Path(".roomodes").write_text(_OWN)
    return Path(".roomodes")


def test_agents_are_listed_a_projects_own_only_where_it_is_trusted(run: Run) -> None:
    (folder := Path(".gemini/agents")).mkdir(parents=True)
    (folder / "tester.md").write_text("---\nname: tester\ndescription: Tests it. And more.\n---\nTest.\n")
    (folder / "odd.md").write_text("nothing")
    plain, shown = run("agents"), run("agents", "--skip-trust")
    assert (plain.code, "codebase_investigator" in plain.out, "tester" in plain.out) == (0, True, False)
    assert "isn't trusted, so these were ignored: .gemini/agents" in plain.err
    assert "Tests it\n" in shown.out
    assert "odd.md was ignored" in shown.err
    assert run("agents", "--skip-trust", "--json").json[-1]["name"] == "tester"


def test_an_agents_tools_have_other_programs_names_too_and_one_that_there_isnt_is_told_of(
    run: Run, home: Path
) -> None:
    (folder := home / ".interlock/agents").mkdir(parents=True)
    tools = "search_file_content, Read, write_to_file, wirte_file, mcp_x_y"
    (folder / "h.md").write_text(f"---\ndescription: Helps.\ntools: {tools}\n---\nHelp.\n")
    calls = {
        "grep_search": {"pattern": "x"},
        "read_file": {"file_path": "a"},
        "write_file": {"file_path": "a", "content": "x"},
    }
    asked = [{"tool": tool, "agent": "h", "args": args} for tool, args in calls.items()]
    shown = run("policy", "check", "--batch", "-", "--json", stdin="\n".join(map(json.dumps, asked)))
    said = [line["decision"] for line in shown.events]
    assert said == ["allow", "allow", "deny"], "`write_to_file` is a tool of its own"
    assert "names 'wirte_file', no tool here. Did you mean 'write_file'?" in shown.err


def test_modes_are_listed_a_projects_own_only_where_it_is_trusted(run: Run, modes: Path) -> None:
    listed = run("modes")
    plain = listed.out
    assert "isn't trusted, so these were ignored: .roomodes." in listed.err
    assert "docs" not in plain and "read, edit (\\.md$), browser, mcp" in plain
    shown = run("modes", "--skip-trust", "--json").json
    assert (shown[-1]["slug"], shown[-1]["source"], len(shown)) == ("docs", "project", 6)
    modes.write_text("- no")
    assert "was ignored as a whole: expected a mapping" in run("modes", "--skip-trust").err


def test_a_mode_that_only_an_untrusted_folder_has_says_so(run: Run, modes: Path) -> None:
    refused = run("run", "system-prompt", "--mode", "docs")
    assert (refused.code, "Mode 'docs' stands only in .roomodes, which was ignored" in refused.err) == (
        55,
        True,
    )
    told = run("run", "system-prompt", "--mode", "docs", "--skip-trust")
    assert (told.code, told.json["sections"][1]["text"]) == (0, "R")
    assert run("run", "system-prompt", "--mode", "cod").code == 42
