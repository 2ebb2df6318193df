"""policy: what may run, what is asked about, what is denied: rules in tiers, and shell lines part by part."""

from collections.abc import Sequence
from pathlib import Path

from interlock.services.policy.decision import Explanation
from interlock.services.policy.fields import Problem
from interlock.services.policy.load import load_rules, shipped_rules
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule import Rule, Scope
from interlock.state.settings import Settings
from interlock.state.tooling import Workspace


def workspace_policy(
    settings: Settings,
    workspace: Workspace,
    files: Sequence[tuple[Path, int]] = (),
    scope: Scope | None = None,
    save_to: Path | None = None,
) -> RulePolicy:
    """The policy of a workspace; `files` with their tiers. What is wrong with them is in its `problems`."""
    rules, problems = load_rules(files)
    policy = RulePolicy(rules, settings, workspace, scope=scope, save_to=save_to)
    policy.problems = [*problems, *policy.problems]
    return policy


__all__ = [
    "Explanation",
    "Problem",
    "Rule",
    "RulePolicy",
    "Scope",
    "load_rules",
    "shipped_rules",
    "workspace_policy",
]
