"""names: the names under which a tool, an agent or a server is known to rules, and rules that are about nothing."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches

from pydantic import JsonValue

from interlock.services.policy.rule import SHIPPED, Rule
from interlock.state.calls import CallView
from interlock.state.subagent import INVESTIGATOR
from interlock.state.tool_names import ELSEWHERE, OTHER_NAMES
from interlock.tools import TOOLS

_ALIASES = {**OTHER_NAMES, **{alias: tool.name for tool in TOOLS.values() for alias in tool.aliases}}
_AGENT = "invoke_agent"
_RISKS = frozenset({"read", "write", "execute", "network", "question", "state"})
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "*"})
_QUIET = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
"""Escapes and classes, where `^` and `$` are characters."""
_ANCHOR_WITHIN = re.compile(r"[^(|^]\^|\$[^)|$]")


def canonical(name: str) -> str:
    """Our own name of a tool."""
    return _ALIASES.get(name, name)


def agent_of(tool: str, args: Mapping[str, JsonValue]) -> str | None:
    """The agent that a call starts."""
    name = args.get("agent_name")
    if canonical(tool) == _AGENT and isinstance(name, str):
        return name
    return INVESTIGATOR if tool == INVESTIGATOR else None


def names_of(tool: str, args: Mapping[str, JsonValue]) -> frozenset[str]:
    """The names under which what a call does can be denied, asked about or hooked."""
    own = canonical(tool)
    aliases = {alias for alias, name in _ALIASES.items() if name == own}
    agent = agent_of(tool, args)
    return frozenset({tool, own, *aliases, *([agent] if agent else [])})


def rule_args(call: CallView) -> Mapping[str, JsonValue]:
    """The arguments as rules see them: a tool that starts one agent has it among them."""
    return {**call.args, "agent_name": INVESTIGATOR} if call.name == INVESTIGATOR else call.args


def of_server(tool: str, server: str | None) -> tuple[str, ...]:
    """A rule's tool name as calls have it: with `mcpName` the tool may be named as its server names it."""
    own = canonical(tool)
    if server is None or tool == "*" or tool.startswith("mcp_"):
        return (own,)
    return (f"mcp_{server}_{tool}",)


def about_nothing(
    rules: Iterable[Rule], agents: Collection[str], servers: Collection[str]
) -> Iterator[tuple[Rule, str]]:
    """Rules that no call can meet, each with why. A name may be known in another folder: that is said, not refused."""
    tools = {*TOOLS, *_ALIASES, *ELSEWHERE, *agents, "*"}
    for rule in rules:
        if rule.tier == SHIPPED or rule.broken is not None:
            continue
        problem = _unknown(rule, tools, agents, servers) or _unmeetable(rule)
        if problem:
            yield rule, problem


def _unknown(rule: Rule, tools: set[str], agents: Collection[str], servers: Collection[str]) -> str | None:
    for name in rule.tools:
        if name not in tools and not name.startswith("mcp_"):
            return f"there is no tool {name!r}{_near(name, tools)}"
    if rule.subagent is not None and rule.subagent not in agents:
        return f"there is no agent {rule.subagent!r}{_near(rule.subagent, agents)}"
    if rule.server is not None and servers and rule.server not in servers:
        return f"there is no MCP server {rule.server!r}{_near(rule.server, servers)}"
    risk = rule.annotations.get("risk", "read")
    return (
        None if risk in _RISKS else f"there is no risk {risk!r}; expected one of {', '.join(sorted(_RISKS))}"
    )


def _near(name: str, known: Collection[str]) -> str:
    found = get_close_matches(name, known, 1, 0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def _unmeetable(rule: Rule) -> str | None:
    for prefix in rule.prefixes:
        if odd := next((word for word in prefix if word in _OPERATORS or word.endswith(";")), None):
            return f"commandPrefix is compared word by word with one command, and no command has the word {odd!r}"
    for field, pattern in (("commandRegex", rule.command), ("argsPattern", rule.args)):
        if pattern is not None and (why := _never(field, pattern.text)):
            return f"{field} {pattern.text!r} can't match: {why}"
    if [*rule.modes] == ["plan"] and rule.decision == "allow":
        return "what plan mode may do is fixed; a rule can only restrict it"
    return None


def _never(field: str, text: str) -> str | None:
    quiet = _QUIET.sub("x", text)
    if _ANCHOR_WITHIN.search(quiet.removeprefix("^").removesuffix("$")):
        return "'^' and '$' stand for the beginning and the end"
    if field == "commandRegex":
        return (
            "a command begins with its program, not with a blank" if text.lstrip("^")[:1].isspace() else None
        )
    if text.startswith("^") and not re.match(r"\^+(\\?\{|\[|\(|\.|\\|$)", text):
        return 'the arguments begin with {, as JSON: write "name":"value" without ^'
    return None
