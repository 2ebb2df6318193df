"""books: the rules that hold in a workspace. What decides by them (`policy.py`) is imported with a run's first call."""

import os
from collections.abc import Collection, Mapping, Sequence

from interlock.services.policy.fields import Problem, settings_rules
from interlock.services.policy.load import about_nothing, shipped_rules
from interlock.services.policy.rule import Rule, RuleBook, Scope
from interlock.state.settings import Settings
from interlock.state.workspace import Workspace


class Books:
    """The given rules that are about this workspace, those from settings, and the shipped ones."""

    def __init__(
        self,
        rules: Sequence[Rule],
        settings: Settings,
        workspace: Workspace,
        scope: Scope,
        programs: Mapping[str, str],
    ) -> None:
        """`programs`: MCP server → fingerprint of its definition."""
        from_settings, self.problems = settings_rules(settings)
        here = str(workspace.root)
        mine = [
            rule
            for rule in rules
            if (rule.workspace is None or os.path.realpath(rule.workspace) == here)
            and rule.program in (None, programs.get(rule.server or ""))
        ]
        deciding = [r for r in mine if r.checker is None]
        shipped = [r for r in shipped_rules() if settings.tools.reading_commands or not r.reading]
        self.deciding = RuleBook([*deciding, *from_settings, *shipped], scope)
        self.checking = RuleBook([r for r in mine if r.checker is not None], scope)

    def idle(self, agents: Collection[str], servers: Collection[str]) -> list[Problem]:
        """Report rules that match no call, given the `agents` and `servers` available here."""
        return list(about_nothing((*self.deciding.rules, *self.checking.rules), agents, servers))
