"""`interlock agents`."""

import json
from pathlib import Path

import pytest

from interlock.cli.main import main


def test_agents_are_listed_a_projects_own_only_where_it_is_trusted(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / ".gemini/agents").mkdir(parents=True)
    (folder / "tester.md").write_text("---\nname: tester\ndescription: Tests it. And more.\n---\nTest.\n")
    (folder / "odd.md").write_text("nothing")
    assert main(["agents"]) == 0
    plain = capsys.readouterr()
    assert "codebase_investigator" in plain.out
    assert "tester" not in plain.out
    assert main(["agents", "--skip-trust"]) == 0
    shown = capsys.readouterr()
    assert "Tests it\n" in shown.out
    assert "odd.md was ignored" in shown.err
    assert main(["agents", "--skip-trust", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["name"] == "tester"


def test_an_agents_tools_have_other_programs_names_too_and_one_that_there_isnt_is_told_of(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder := home / ".interlock/agents").mkdir(parents=True)
    tools = "search_file_content, Read, write_to_file, wirte_file, mcp_x_y"
    (folder / "h.md").write_text(f"---\ndescription: Helps.\ntools: {tools}\n---\nHelp.\n")
    calls = {
        "grep_search": {"pattern": "x"},
        "read_file": {"file_path": "a"},
        "write_file": {"file_path": "a", "content": "x"},
    }
    asked = [{"tool": tool, "agent": "h", "args": args} for tool, args in calls.items()]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    assert main(["policy", "check", "--batch", "asked.jsonl", "--json"]) == 0
    shown = capsys.readouterr()
    said = [json.loads(line)["decision"] for line in shown.out.splitlines()]
    assert said == ["allow", "allow", "deny"], "`write_to_file` is a tool of its own"
    assert "names 'wirte_file', no tool here. Did you mean 'write_file'?" in shown.err
