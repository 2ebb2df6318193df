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
