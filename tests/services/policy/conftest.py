"""Fixtures of the policy's tests: a workspace, policies from rule text, calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule import ANYBODY, Scope
from interlock.services.policy.rule_files import RuleProblem, load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings

Make = Callable[..., tuple[RulePolicy, list[RuleProblem]]]


@pytest.fixture
def workspace(tmp_path: Path) -> FolderWorkspace:
    (tmp_path / "work" / "src").mkdir(parents=True)
    return FolderWorkspace(tmp_path / "work")


@pytest.fixture
def make(tmp_path: Path, workspace: FolderWorkspace) -> Make:
    """`make(user="…", admin="…", settings={…})` → the policy and its files' problems.

    Leaves out the shipped rule for reading commands, so that `ls` asks unless a rule of the test allows it.
    """
    tiers = {"extension": 2, "workspace": 3, "user": 4, "admin": 5}

    def build(*, settings: dict | None = None, scope: Scope = ANYBODY, **texts: str) -> tuple:
        files = []
        for name, text in texts.items():
            path = tmp_path / f"{name}.toml"
            path.write_text(text)
            files.append((path, tiers[name]))
        rules, problems = load_rules(files)
        given = settings or {}
        tools = {"readingCommands": False, **given.get("tools", {})}
        own = Settings.model_validate({**given, "tools": tools})
        policy = RulePolicy(WorkspaceRules(rules, own, workspace, scope))
        return policy, [*problems, *policy.workspace_rules.problems]

    return build


@pytest.fixture
def call() -> Callable[..., CallView]:
    return lambda name, **args: CallView(id="1", name=name, args=args)


@pytest.fixture
def shell() -> Callable[[str], CallView]:
    return lambda line: CallView(id="1", name="run_shell_command", args={"command": line})
