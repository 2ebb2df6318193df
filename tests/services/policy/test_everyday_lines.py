"""Everyday commands of developers' agents ask no more often than before, and an always covers what is expected."""

import subprocess
from pathlib import Path

import pytest
import yaml

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.load import load_rules
from interlock.services.policy.policy import RulePolicy
from interlock.state.calls import CallView
from interlock.state.settings import Settings

HERE = Path(__file__).parent
LINES: dict[str, list[list[str]]] = yaml.safe_load((HERE / "everyday_lines.yaml").read_text())
FILES = "a.txt b.txt src/app.py src/a.py src/b.py README.md package.json tests/test_app.py data.csv names.txt data.txt"
MODES = ("default", "auto_edit", "plan", "yolo")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[RulePolicy]:
    """Under the shipped rules, and under those of a developer."""
    root = tmp_path_factory.mktemp("everyday")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("node_modules\n*.log\n")
    for name in (*FILES.split(), "app.log", "node_modules/.bin/eslint"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("foo\n")
    rules, problems = load_rules([(HERE / "shell_lines_rules.toml", 4)])
    assert problems == []
    return [RulePolicy(r, Settings.model_validate({}), FolderWorkspace(root)) for r in ([], rules)]


def call(line: str) -> CallView:
    return CallView(id="1", name="run_shell_command", args={"command": line})


@pytest.mark.parametrize("verdicts", LINES)
def test_an_everyday_line_gets_its_verdicts(policies: list[RulePolicy], verdicts: str) -> None:
    wrong: list[str] = []
    for line, *_ in LINES[verdicts]:
        decided = [p.check(call(line), "execute", m).decision for p in policies for m in MODES]
        got = "".join({"allow": "a", "ask": "k", "deny": "d"}[d] for d in decided)
        if got != verdicts.replace(" ", ""):
            wrong.append(f"{line!r}: {got}")
    assert not wrong, "\n".join(wrong)


def test_an_always_covers_what_it_is_expected_to(policies: list[RulePolicy]) -> None:
    shipped, wrong = policies[0], list[str]()
    for line, *expected in (entry for lines in LINES.values() for entry in lines):
        choices = shipped.choices(call(line), "execute", shipped.check(call(line), "execute", "default"))
        rule = shipped.narrow(call(line), "execute", "proceed_always", "default")
        covers = ""
        if rule and "proceed_always" in choices:
            each = zip(rule.commands, rule.also, strict=True)
            covers = "the line" if rule.line else " | ".join(c + (" +" if also else "") for c, also in each)
        if [covers] != (expected or [""]):
            wrong.append(f"{line!r}: {covers!r}, expected {expected}")
    assert not wrong, "\n".join(wrong)
