"""Generated blocks match the code, and a stale one is detected."""

import json
import re
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from interlock.cli.version import VERSION
from interlock.engine.diagrams import render_diagram
from interlock.graphs import PIPELINES
from interlock.tools.table import TOOLS

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import generated as docs  # noqa: E402 - no part of the package


def page(*names: str) -> str:
    return "before\n" + "".join(f"<!-- generated: {n} -->\nold\n<!-- end -->\nbetween\n" for n in names)


def test_the_command_fills_stale_blocks_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (path := tmp_path / "README.md").write_text(page("pipelines", "tools", "help", "diagram turn"))
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "README.md has a stale block. Run: make diagrams\n"
    assert docs.main(["--write"]) == 0
    assert capsys.readouterr().out == "README.md\n"
    assert docs.main(["--check"]) == docs.main(["--write"]) == 0
    assert capsys.readouterr() == ("", "")
    assert docs.main([]) == 2
    text = path.read_text()
    assert text.startswith("before\n<!-- generated: pipelines -->\n| Workflow")
    assert text.count("\n<!-- end -->\nbetween\n") == 4
    assert "old" not in text.split("\n")
    for name, what in PIPELINES.items():
        assert f"| `{name}` | {what} | [diagram](../diagrams/{name}.mmd) |\n" in text
    for name in TOOLS:
        assert f"| `{name}` | " in text
    assert f"```mermaid\n{render_diagram('turn')!s}```\n" in text
    assert "```text\nInterlock: a coding agent" in text


def test_the_script_and_the_program_that_pages_show_work(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("models.md", "headless.md")]
    (script,) = re.findall(r"<<'YAML'\n(.*?)YAML\n", texts[0], re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", texts[1], re.DOTALL)
    (tmp_path / "replies.yaml").write_text(script)
    (tmp_path / "test_it.py").write_text(
        "import unittest\nclass T(unittest.TestCase):\n  def test(self): self.fail()\n"
    )
    (home / ".interlock").mkdir()
    model = {"name": f"script:{tmp_path / 'replies.yaml'}", "retryDelayScale": 0}
    (home / ".interlock" / "settings.json").write_text(json.dumps({"model": model}))
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith(" done 0")
    assert rest == ["The test fails because …"]


def test_the_registry_entry_names_this_release_and_a_script_that_it_has() -> None:
    (folder,) = (ROOT / "docs/registry").iterdir()
    entry = json.loads((folder / "agent.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert entry["distribution"]["uvx"] == {
        "package": f"{project['name']}=={entry['version']}",
        "args": ["acp"],
    }
    assert entry["version"] == VERSION and entry["license"] == project["license"]
    assert project["name"] in project["scripts"] and entry["id"] == folder.name
    icon = ElementTree.parse(folder / "icon.svg").getroot()
    assert (icon.get("width"), icon.get("height")) == ("16", "16")
    colours = {one.get(how) for one in icon.iter() for how in ("fill", "stroke")}
    assert colours == {"none", "currentColor", None}, "it takes the editor's colour"


TASKS = {
    "permissions.md": "interlock show latest --calls",
    "permissions.md#what-needs-approval": "`plan`",
    "permissions.md#allow-a-command": "--allowed-tools",
    "permissions.md#write-a-rule": "tests?/",
    "permissions.md#sandbox": "interlock -s",
    "permissions.md#secrets": "[redacted:",
    "headless.md#name-a-command-that-must-succeed": "--check",
    "headless.md#be-notified": "webhook",
    "travel.md#undo": "interlock undo latest",
    "travel.md#fork-and-rewind": "interlock rewind latest",
    "page.md#who-may-do-what": "--trusted-proxy",
    "audit.md": "interlock audit log",
    "session.md": "interlock -c",
    "session.md#memory": "AGENTS.md",
    "troubleshooting.md#a-run-stopped": "interlock resume latest",
    "troubleshooting.md#exit-codes": "| 75 |",
    "models.md#start-with-the-key-you-have": "ANTHROPIC_API_KEY",
    "models.md#local-and-small-models": "openai:",
    "costs.md#what-a-run-costs": "interlock runs",
    "costs.md#a-budget": "--max-budget-usd",
    "costs.md#how-long-runs-are-kept": "interlock store prune",
    "worktrees.md": "--worktree",
    "mcp.md": "interlock mcp add",
    "langgraph.md": "interlock run agent.py:graph",
}
"""Where `docs/README.md` leads with a question, and what its answer must show."""


@pytest.mark.parametrize("link", TASKS)
def test_each_question_is_answered_within_forty_lines_two_clicks_from_readme(link: str) -> None:
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()
    assert f"({link})" in (ROOT / "docs" / "README.md").read_text()
    name, _, section = link.partition("#")
    lines = (ROOT / "docs" / name).read_text().splitlines()
    titles = [re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in lines]
    begin = titles.index(section) if section else 0
    assert TASKS[link] in "\n".join(lines[begin : begin + 40])
