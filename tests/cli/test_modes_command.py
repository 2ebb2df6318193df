"""`interlock modes`, and `--mode` on the command line."""

import json
from pathlib import Path

import pytest

from interlock.cli.main import main

_OWN = '{"customModes": [{"slug": "docs", "name": "Docs", "roleDefinition": "R", "groups": ["read"]}]}'


@pytest.fixture
def work(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".roomodes").write_text(_OWN)
    return tmp_path


def test_modes_are_listed_a_projects_own_only_where_it_is_trusted(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["modes"]) == 0
    assert "docs" not in (plain := capsys.readouterr().out)
    assert "read, edit (\\.md$), browser, mcp" in plain
    assert main(["modes", "--skip-trust", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown[-1]["slug"], shown[-1]["source"], len(shown)) == ("docs", "project", 6)
    (work / ".roomodes").write_text("- no")
    assert main(["modes", "--skip-trust"]) == 0
    assert "was ignored as a whole: expected a mapping" in capsys.readouterr().err


def test_a_mode_that_only_an_untrusted_folder_has_says_so(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "system-prompt", "--mode", "docs"]) == 55
    assert "Mode 'docs' stands only in .roomodes, which was ignored" in capsys.readouterr().err
    assert main(["run", "system-prompt", "--mode", "docs", "--skip-trust"]) == 0
    assert json.loads(capsys.readouterr().out)["sections"][1]["text"] == "R"
    assert main(["run", "system-prompt", "--mode", "cod"]) == 42
