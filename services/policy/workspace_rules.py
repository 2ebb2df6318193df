"""workspace_rules: the rules that apply in a workspace, those that settings make, and those that no call can match.

What decides by them (`policy.py`) is imported with a run's first call.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from types import MappingProxyType
from typing import get_args

from interlock.services.policy.claude_permissions import is_claude_rule
from interlock.services.policy.rule import (
    ANYBODY,
    SHIPPED,
    USER,
    Rule,
    RuleBook,
    Scope,
    canonical_tool_name,
)
from interlock.services.policy.rule_files import (
    RuleProblem,
    build_fallback_ask_rule,
    is_valid_tool_name_pattern,
    load_shipped_rules,
    split_command_words,
)
from interlock.state.calls import ApprovalMode, Decision, Risk
from interlock.state.names import ELSEWHERE, mcp_tool_name
from interlock.state.settings import Settings
from interlock.state.tooling import SHELL
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
        at_start: "WorkspaceRules | None" = None,
    ) -> None:
        """`programs`: MCP server → fingerprint of its definition.

        `at_start`: the rules at the start of the run, if they have changed since: the stricter decision applies.
        """
        self.workspace, self.scope, self.programs, self.at_start = workspace, scope, programs, at_start
        from_settings, self.problems = rules_from_settings(settings)
        here = str(workspace.root)
        mine = [
            rule
            for rule in rules
            if (rule.workspace is None or os.path.realpath(rule.workspace) == here)
            and rule.server_fingerprint in (None, programs.get(rule.server or ""))
        ]
        deciding = [r for r in mine if r.checker is None]
        shipped = [
            r for r in load_shipped_rules() if settings.tools.reading_commands or not r.only_plain_reading
        ]
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

    def with_scope(self, scope: Scope) -> "WorkspaceRules":
        """Return the same rules for calls of another origin."""
        own = copy(self)
        own.scope = scope
        own.deciding, own.checking = (RuleBook(b.rules, scope) for b in (self.deciding, self.checking))
        return own

    def with_rules(self, rules: Iterable[Rule]) -> "WorkspaceRules":
        """Return these rules and further ones that decide."""
        own = copy(self)
        own.deciding = RuleBook([*self.deciding.rules, *rules], self.scope)
        return own

    def find_unmatchable_rules(
        self, agents: Collection[str], servers: Collection[str]
    ) -> Iterator[RuleProblem]:
        """Yield rules that match no call, given the `agents` and `servers` available here: no error, as names may
        exist in another folder."""
        tools = {*TOOLS, *ALIASES, *ELSEWHERE, *agents, "*"}
        for rule in (*self.deciding.rules, *self.checking.rules):
            # Claude Code's settings may be about what isn't here.
            if rule.tier == SHIPPED or rule.load_problem is not None or is_claude_rule(rule):
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
    for prefix in rule.command_prefixes:
        if odd := next((word for word in prefix if word in _OPERATORS or word.endswith(";")), None):
            return f"commandPrefix is compared word by word with one command, and no command has the word {odd!r}"
    for name, pattern in (("commandRegex", rule.command_pattern), ("argsPattern", rule.args_pattern)):
        if pattern is not None and (why := _unmatchable_pattern_problem(name, pattern.text)):
            return f"{name} {pattern.text!r} can't match: {why}"
    if [*rule.modes] == ["plan"] and rule.decision == "allow":
        return "what plan mode may do is fixed; a rule can only restrict it"
    return None


def _unmatchable_pattern_problem(field: str, text: str) -> str | None:
    quiet = _QUIET.sub("x", text)
    if _ANCHOR_WITHIN.search(quiet.removeprefix("^").removesuffix("$")):
        return "'^' and '$' stand for the beginning and the end"
    if field == "commandRegex" and text.lstrip("^")[:1].isspace():
        return "a command begins with its program, not with a blank"
    if field == "argsPattern" and text.startswith("^") and not _ARGS_START.match(text):
        return 'the arguments begin with {, as JSON: write "name":"value" without ^'
    return None


# ---- rules that settings make

_OUTSIDE: tuple[Risk, ...] = ("read", "write", "execute", "network")
"""Risks restricted by `tools.core`; questions and changes to the run itself are always allowed."""
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


def rules_from_settings(settings: Settings) -> tuple[list[Rule], list[RuleProblem]]:
    """Return the rules that settings make. An unreadable allow entry allows nothing; if it was to deny or ask,
    everything asks. Priorities, here and below, are gemini-cli's within the user tier: 400 is its 4.4.

    Priorities, here and below, are gemini-cli's within the user tier: 400 is its 4.4.
    """
    tools = settings.tools
    lists: tuple[tuple[str, Iterable[str], Decision, int], ...] = (
        ("tools.exclude", tools.exclude, "deny", 400),
        ("tools.confirmationRequired", tools.confirmation_required, "ask", 350),
        ("tools.allowed", tools.allowed, "allow", 300),
        ("tools.core", tools.core, "allow", 250),
    )
    rules: list[Rule] = []
    problems: list[RuleProblem] = []
    for setting, entries, decision, priority in lists:
        for entry in entries:
            source = f"settings {setting} {entry!r}"
            try:
                rules.append(_rule_from_settings_entry(entry, source, decision, priority))
            except ValueError as error:
                effect = "it allows nothing" if decision == "allow" else "everything asks until it is right"
                problems.append(RuleProblem(source, str(error), effect))
                if decision != "allow":
                    rules.append(build_fallback_ask_rule(source, USER, ("*",), str(error)))
    more = (
        *(_deny_rules_for_unlisted_tools() if tools.core else ()),
        *_server_rules(settings),
        *auto_approval_rules(settings),
    )
    return [*rules, *more], problems


def _rule_from_settings_entry(entry: str, source: str, decision: Decision, priority: int) -> Rule:
    """Return the rule of one entry in settings. Raise `ValueError`."""
    narrowed = _CALL.fullmatch(entry.strip())
    name = canonical_tool_name(narrowed[1] if narrowed else entry.strip())
    prefix = narrowed[2].strip() if narrowed else ""
    if not is_valid_tool_name_pattern(name):
        raise ValueError(f"{name!r} isn't a tool's name")
    if prefix and name not in SHELL:
        raise ValueError("only run_shell_command(…) can be narrowed by a command prefix")
    prefixes = (split_command_words("commandPrefix", prefix),) if prefix else ()
    return Rule(source, (name,), decision, USER, priority, command_prefixes=prefixes)


def _deny_rules_for_unlisted_tools() -> Iterator[Rule]:
    """Yield rules that deny what `tools.core` doesn't name; plan mode is exempt: it has its own list."""
    for risk in _OUTSIDE:
        yield Rule(
            source="settings tools.core",
            tools=("*",),
            decision="deny",
            tier=USER,
            priority=240,
            modes=frozenset({"default", "auto_edit", "yolo"}),
            annotations={"risk": risk},
            deny_message="Only the tools that the setting tools.core names may be used.",
        )


def _server_rules(settings: Settings) -> Iterator[Rule]:
    trusted = [name for name, server in settings.mcp_servers.items() if server.trust]
    lists: tuple[tuple[str, Iterable[str], Decision, int], ...] = (
        ("mcp.excluded", settings.mcp.excluded, "deny", 900),
        ("mcpServers", trusted, "allow", 200),
        ("mcp.allowed", settings.mcp.allowed, "allow", 100),
    )
    for setting, names, decision, priority in lists:
        for name in names:
            yield Rule(f"settings {setting} {name!r}", ("*",), decision, USER, priority, server=name)
    for name, server in settings.mcp_servers.items() if settings.task.auto_approval else ():
        if tools := tuple(mcp_tool_name(name, tool) for tool in server.always_allow):
            yield Rule(f"settings mcpServers.{name}.alwaysAllow", tools, "allow", USER, 200, server=name)


# ---- the task loop's auto-approval (Roo Code's names)

_PRIORITY = 300
"""Same as `tools.allowed`."""
_WRITING = ("write_to_file", "apply_diff", "insert_content", "generate_image")
_LONGEST = 90
_MODES: frozenset[ApprovalMode] = frozenset({"default", "auto_edit"})


def auto_approval_rules(settings: Settings) -> Iterator[Rule]:
    """Yield rules for the task loop's own tools. The longest matching command prefix wins; of equal ones, the
    denial."""
    task = settings.task
    if not task.auto_approval:
        return
    switches = (
        ("alwaysAllowWrite", task.allow_write, _WRITING),
        ("alwaysAllowBrowser", task.allow_browser, ("browser_action",)),
        ("alwaysAllowModeSwitch", task.allow_mode_switch, ("switch_mode",)),
        ("alwaysAllowSubtasks", task.allow_subtasks, ("new_task",)),
        (
            "alwaysAllowMcp",
            task.allow_mcp,
            tuple(mcp_tool_name(n, "read_resource") for n in settings.mcp_servers),
        ),
    )
    yield from (_auto_approval_rule(name, tools, "allow") for name, on, tools in switches if on and tools)
    if task.allow_execute:
        yield from _command_prefix_rules("allowedCommands", task.allowed_commands, "allow", 0)
    yield from _command_prefix_rules("deniedCommands", task.denied_commands, "deny", 0.5)


def _auto_approval_rule(
    name: str, tools: tuple[str, ...], decision: Decision, prefix: str = "", priority_offset: float = 0
) -> Rule:
    return Rule(
        source=f"settings task.{name}",
        tools=tools,
        decision=decision,
        tier=USER,
        priority=_PRIORITY + priority_offset,
        modes=_MODES if decision == "allow" else frozenset(),
        command_prefixes=((*prefix.split(),),) if prefix else (),
    )


def _command_prefix_rules(
    name: str, prefixes: Iterable[str], decision: Decision, priority_offset: float
) -> Iterator[Rule]:
    for text in (beginning.strip() for beginning in prefixes):
        prefix, length = ("", 0) if text == "*" else (text, min(len(text), _LONGEST))
        if text:
            yield _auto_approval_rule(
                f"{name} {text!r}", ("execute_command",), decision, prefix, length + priority_offset
            )
