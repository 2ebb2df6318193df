"""workspace_rules: the rules that apply in a workspace, and those of them that no call can match.

What decides by them (`policy.py`) is imported with a run's first call.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from types import MappingProxyType
from typing import get_args

from interlock.services.policy.rule import ANYBODY, SHIPPED, Rule, RuleBook, Scope
from interlock.services.policy.rule_files import load_shipped_rules
from interlock.services.policy.rule_schema import RuleProblem, rules_from_settings
from interlock.state.calls import Risk
from interlock.state.names import ELSEWHERE
from interlock.state.settings import Settings
from interlock.state.workspace import Workspace
from interlock.tools.table import ALIASES, TOOLS

_NO_PROGRAMS: Mapping[str, str] = MappingProxyType({})
_RISKS: frozenset[str] = frozenset(get_args(Risk))
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "*"})
_QUIET = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
"""Escapes and character classes, where `^` and `$` are literal."""
_ANCHOR_WITHIN = re.compile(r"[^(|^]\^|\$[^)|$]")
_ARGS_START = re.compile(r"\^+(\\?\{|\[|\(|\.|\\|$)")


class WorkspaceRules:
    """The given rules that are about this workspace, those from settings, and the shipped ones."""

    def __init__(
        self,
        rules: Sequence[Rule],
        settings: Settings,
        workspace: Workspace,
        scope: Scope = ANYBODY,
        programs: Mapping[str, str] = _NO_PROGRAMS,
        began: "WorkspaceRules | None" = None,
    ) -> None:
        """`programs`: MCP server → fingerprint of its definition.

        `began`: the rules at the start of the run, if they have changed since: the stricter decision applies.
        """
        self.workspace, self.scope, self.programs, self.at_start = workspace, scope, programs, began
        from_settings, self.problems = rules_from_settings(settings)
        here = str(workspace.root)
        mine = [
            rule
            for rule in rules
            if (rule.workspace is None or os.path.realpath(rule.workspace) == here)
            and rule.program in (None, programs.get(rule.server or ""))
        ]
        deciding = [r for r in mine if r.checker is None]
        shipped = [r for r in load_shipped_rules() if settings.tools.reading_commands or not r.reading]
        self.deciding = RuleBook([*deciding, *from_settings, *shipped], scope)
        self.checking = RuleBook([r for r in mine if r.checker is not None], scope)

    def without_workspace(self) -> "WorkspaceRules":
        """Return the same rules for `in_workspace` alone: whoever keeps them keeps no folder open."""
        own = copy(self)
        del own.workspace
        return own

    def in_workspace(self, workspace: Workspace) -> "WorkspaceRules":
        """Return the same rules for a workspace with the same root."""
        own = copy(self)
        own.workspace = workspace
        return own

    def for_origin(self, scope: Scope) -> "WorkspaceRules":
        """Return the same rules for calls of another origin."""
        own = copy(self)
        own.scope = scope
        own.deciding, own.checking = (RuleBook(b.rules, scope) for b in (self.deciding, self.checking))
        return own

    def find_unmatchable_rules(
        self, agents: Collection[str], servers: Collection[str]
    ) -> Iterator[RuleProblem]:
        """Yield rules that match no call, given the `agents` and `servers` available here: no error, as names may
        exist in another folder."""
        tools = {*TOOLS, *ALIASES, *ELSEWHERE, *agents, "*"}
        for rule in (*self.deciding.rules, *self.checking.rules):
            if rule.tier == SHIPPED or rule.broken is not None:
                continue
            if why := _unknown_name_problem(rule, tools, agents, servers) or _unmatchable_condition_problem(
                rule
            ):
                yield RuleProblem(rule.source, why, "it never counts here")


def _unknown_name_problem(
    rule: Rule, tools: set[str], agents: Collection[str], servers: Collection[str]
) -> str | None:
    for name in rule.tools:
        if name not in tools and not name.startswith("mcp_"):
            return f"unknown tool {name!r}{_did_you_mean(name, tools)}"
    if rule.subagent is not None and rule.subagent not in agents:
        return f"unknown agent {rule.subagent!r}{_did_you_mean(rule.subagent, agents)}"
    if rule.server is not None and servers and rule.server not in servers:
        return f"unknown MCP server {rule.server!r}{_did_you_mean(rule.server, servers)}"
    if (risk := rule.annotations.get("risk", "read")) not in _RISKS:
        return f"unknown risk {risk!r}; expected one of {', '.join(sorted(_RISKS))}"
    return None


def _did_you_mean(name: str, known: Collection[str]) -> str:
    found = get_close_matches(name, known, 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def _unmatchable_condition_problem(rule: Rule) -> str | None:
    for prefix in rule.prefixes:
        if odd := next((word for word in prefix if word in _OPERATORS or word.endswith(";")), None):
            return f"commandPrefix is compared word by word with one command, and no command has the word {odd!r}"
    for name, pattern in (("commandRegex", rule.command), ("argsPattern", rule.args)):
        if pattern is not None and (why := _never_matching_reason(name, pattern.text)):
            return f"{name} {pattern.text!r} can't match: {why}"
    if [*rule.modes] == ["plan"] and rule.decision == "allow":
        return "what plan mode may do is fixed; a rule can only restrict it"
    return None


def _never_matching_reason(field: str, text: str) -> str | None:
    quiet = _QUIET.sub("x", text)
    if _ANCHOR_WITHIN.search(quiet.removeprefix("^").removesuffix("$")):
        return "'^' and '$' stand for the beginning and the end"
    if field == "commandRegex" and text.lstrip("^")[:1].isspace():
        return "a command begins with its program, not with a blank"
    if field == "argsPattern" and text.startswith("^") and not _ARGS_START.match(text):
        return 'the arguments begin with {, as JSON: write "name":"value" without ^'
    return None
