"""from_settings: the rules that `tools.exclude`, `confirmationRequired`, `allowed` and `core` stand for, and those of
MCP servers: `mcp.excluded`, `mcp.allowed`, and `mcpServers` that are trusted."""

import re
from collections.abc import Iterable, Iterator

from interlock.services.policy.load import Problem, stand_in
from interlock.services.policy.names import canonical
from interlock.services.policy.rule import USER, Rule
from interlock.services.policy.rulebook import SHELL_TOOLS, usable_tool_name, words
from interlock.state.calls import ApprovalMode, Decision, Risk
from interlock.state.settings import Settings

_EXCLUDED, _CONFIRMED, _ALLOWED, _CORE, _NOT_CORE = 400, 350, 300, 250, 240
_SERVER_EXCLUDED, _SERVER_TRUSTED, _SERVER_ALLOWED = 900, 200, 100
"""Priorities within the user tier (gemini-cli: 4.4, 4.35, 4.3, 4.25, 4.24; servers 4.9, 4.2, 4.1)."""
_OUTSIDE: tuple[Risk, ...] = ("read", "write", "execute", "network")
"""What `tools.core` keeps to its list; questions and what only changes the run go on."""
_OPEN_MODES: frozenset[ApprovalMode] = frozenset({"default", "auto_edit", "yolo"})
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


def settings_rules(settings: Settings) -> tuple[list[Rule], list[Problem]]:
    """An entry that can't be read allows nothing; where it was to deny or to ask, everything asks."""
    tools = settings.tools
    read = [
        _entries("tools.exclude", tools.exclude, "deny", _EXCLUDED),
        _entries("tools.confirmationRequired", tools.confirmation_required, "ask", _CONFIRMED),
        _entries("tools.allowed", tools.allowed, "allow", _ALLOWED),
        _entries("tools.core", tools.core, "allow", _CORE),
    ]
    rules = [rule for found, _ in read for rule in found]
    rules += [*(_not_core() if tools.core else []), *_servers(settings)]
    return rules, [problem for _, wrong in read for problem in wrong]


def _servers(settings: Settings) -> Iterator[Rule]:
    for name in settings.mcp.excluded:
        yield _server("mcp.excluded", name, "deny", _SERVER_EXCLUDED)
    for name, server in settings.mcp_servers.items():
        if server.trust:
            yield _server("mcpServers", name, "allow", _SERVER_TRUSTED)
    for name in settings.mcp.allowed:
        yield _server("mcp.allowed", name, "allow", _SERVER_ALLOWED)


def _server(setting: str, name: str, decision: Decision, priority: int) -> Rule:
    source = f"settings {setting} {name!r}"
    return Rule(source=source, tools=("*",), server=name, decision=decision, tier=USER, priority=priority)


def _not_core() -> list[Rule]:
    """Plan mode has a list of its own."""
    return [
        Rule(
            source="settings tools.core",
            tools=("*",),
            decision="deny",
            tier=USER,
            priority=_NOT_CORE,
            modes=_OPEN_MODES,
            annotations={"risk": risk},
            deny_message="Only the tools that the setting tools.core names may be used.",
        )
        for risk in _OUTSIDE
    ]


def _entries(
    setting: str, entries: Iterable[str], decision: Decision, priority: int
) -> tuple[list[Rule], list[Problem]]:
    rules: list[Rule] = []
    problems: list[Problem] = []
    for entry in entries:
        source = f"settings {setting} {entry!r}"
        try:
            rules.append(_rule(entry, source, decision, priority))
        except ValueError as error:
            effect = "it allows nothing" if decision == "allow" else "everything asks until it is right"
            problems.append(Problem(source, str(error), effect))
            if decision != "allow":
                rules.append(stand_in(source, USER, ("*",), str(error)))
    return rules, problems


def _rule(entry: str, source: str, decision: Decision, priority: int) -> Rule:
    narrowed = _CALL.fullmatch(entry.strip())
    name = narrowed[1] if narrowed else entry.strip()
    name = canonical(name)
    prefix = narrowed[2].strip() if narrowed else ""
    if not usable_tool_name(name):
        raise ValueError(f"{name!r} is no tool's name")
    if prefix and name not in SHELL_TOOLS:
        raise ValueError("only run_shell_command(…) can be narrowed by a command prefix")
    return Rule(
        source=source,
        tools=(name,),
        decision=decision,
        tier=USER,
        priority=priority,
        prefixes=(words(prefix),) if prefix else (),
    )
