"""rule: one policy rule and its patterns, the calls it applies to, and the rules of all tiers in order."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from pydantic import JsonValue

from interlock.services.files.path_patterns import PathPattern
from interlock.state.calls import ApprovalMode, CallView, Decision, Risk
from interlock.state.names import mcp_tool_prefix
from interlock.state.subagent import INVESTIGATOR
from interlock.state.text import replace_surrogates
from interlock.tools.table import ALIASES, TOOLS

# ---- patterns: regular expressions. RE2 matches in linear time, so none can block the loop

_MEMORY = 1 << 20
"""Maximum bytes of a compiled pattern; larger ones are rejected at load."""
_LONGEST = 2_000
"""Maximum characters of a pattern."""
_RANGE = 100
"""Length of the prefix, in bytes, used to rule out a match."""
_CHOICE = re.compile(r'((?:\(\?s\))?["\w :/-]*)\((["\w :/|-]+)\)(?=["\w :/-])', re.ASCII)
"""A choice of plain words (`(curl|wget) …`) that no following operator makes repeatable or optional."""


_ESCAPE = re.compile(r"\\.", re.DOTALL)


class PatternError(ValueError):
    """An unusable pattern; the text tells people why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression of a rule."""

    text: str
    _match: Callable[[str], Any]
    _search: Callable[[str], Any]
    _ranges: Sequence[tuple[bytes, bytes]]
    """Ranges that contain every text beginning with a match."""

    def has_match_at_start(self, text: str) -> bool:
        text = replace_surrogates(text)
        begun = text.encode()
        # Bytes are compared in a twentieth of the time that a match takes, and rule out most.
        possible = any(least <= begun <= most for least, most in self._ranges)
        return possible and self._match(text) is not None

    def can_match_continuation(self, prefix: str) -> bool:
        """Return whether a text beginning with `prefix` might begin with a match: False only if provably impossible."""
        begun = replace_surrogates(prefix).encode()
        return any(least[: len(begun)] <= begun <= most for least, most in self._ranges)

    def is_limited_to_prefix(self, prefix: str) -> bool:
        """Return whether everything it matches begins with this text."""
        return all(end.startswith(prefix.encode()) for one in self._ranges for end in one)

    def is_found_in(self, text: str) -> bool:
        return self._search(replace_surrogates(text)) is not None


@cache
def _load_re2() -> tuple[Any, Any]:
    try:
        import re2  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise PatternError("google-re2 isn't installed; run: pip install google-re2") from error
    module = cast(Any, re2)
    options = module.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return module, options


def compile_pattern(text: str) -> Pattern:
    """Return a pattern compiled. Raise `PatternError`: RE2 has no back-references or look-around.

    `docs/internals.md#foreign-patterns`.
    """
    if len(text) > _LONGEST:
        raise PatternError(f"pattern of {len(text)} characters, expected at most {_LONGEST}")
    module, options = _load_re2()
    try:
        compiled = module.compile(text, options)
    except module.error as error:
        detail = error.args[0] if error.args else ""
        reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(
            f"pattern {text!r}: {reason} (RE2 syntax: no look-around, no back-references)"
        ) from None
    choice = _CHOICE.match(text)
    ways = [f"{choice[1]}({way}){text[choice.end() :]}" for way in choice[2].split("|")] if choice else [text]
    return Pattern(text, compiled.match, compiled.search, [_possible_match_range(way) for way in ways])


def _possible_match_range(text: str) -> tuple[bytes, bytes]:
    """Return the range of texts that begin with a match, including what follows it: a final `\\B` depends on that."""
    module, options = _load_re2()
    if "\\Q" in text:  # what looks like an escape may be text
        return b"", b"\xff"
    # RE2 takes the text behind a `\b` for a letter or digit: without it the range is at least as wide.
    text = _ESCAPE.sub(lambda m: "(?:)" if m[0] in ("\\b", "\\B") else m[0], text)
    try:
        return module.compile(f"^(?:{text})(?s:.*)", options).possiblematchrange(_RANGE)
    except module.error:  # too large
        return b"", b"\xff"


# ---- rules

SHIPPED, EXTENSION, WORKSPACE, USER, ADMIN = 1, 2, 3, 4, 5
"""Tiers (`docs/internals.md#policy`): a higher one decides first, regardless of priorities."""
TIER_NAMES = dict(enumerate(("built-in", "extension", "workspace", "user", "admin"), SHIPPED))


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks a call that the rules allow."""

    name: str
    config: Mapping[str, JsonValue]
    command: str | None = None
    """A bash command line; None for the built-in `allowed-path`."""
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It decides a call that meets all of its conditions, unless a higher-ranking one does."""

    source: str
    """`FILE:LINE`, or the setting it comes from."""
    tools: tuple[str, ...]
    """Exact names, `*`, `mcp_*` or `mcp_SERVER_*`."""
    decision: Decision
    tier: int
    priority: int | float
    """0–999."""
    modes: frozenset[ApprovalMode] = frozenset()
    """Empty: every mode."""
    command_prefixes: tuple[tuple[str, ...], ...] = ()
    """Alternatives for the leading words of a shell command."""
    command_pattern: Pattern | None = None
    """Matched at the beginning of a shell command."""
    granted_commands: tuple[tuple[str, ...], ...] = ()
    """Saved grants: commands that were shown, and what the table lists beside them (`grant_coverage.py`)."""
    granted_line: str | None = None
    """A saved grant: exactly this shell line."""
    saved: bool = False
    """It was granted at a question; nobody wrote it."""
    only_plain_reading: bool = False
    """Applies to commands that only read, with plain arguments inside the workspace (`plain_reading.py`)."""
    args_pattern: Pattern | None = None
    """Searched in the arguments as JSON."""
    allow_redirection: bool = False
    deny_message: str | None = None
    target: str | None = None
    """The file, as tools name it, or the host that a call must be about."""
    path_pattern: PathPattern | None = None
    """Matches every path of a call that it allows, or one of a call that it restricts."""
    host_pattern: Pattern | None = None
    """Likewise for the hosts of a call."""
    workspace: str | None = None
    """Real path of the only workspace it applies to."""
    annotations: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    server: str | None = None
    server_fingerprint: str | None = None
    """Fingerprint of the only program or address that `server` may stand for."""
    subagent: str | None = None
    interactive: bool | None = None
    lifts_no_standing_question: bool = False
    """It comes from another program's file of a repository: what asks in every mode asks whatever it allows."""
    load_problem: str | None = None
    """Set if it replaces an unusable rule: the problem."""
    lowers_to_ask: bool = False
    """It turns a lower-ranking allow into an ask, and weakens no deny."""

    checker: Checker | None = None
    """Set if it doesn't decide, but selects the calls for a checker."""

    @property
    def rank(self) -> float:
        return self.tier + self.priority / 1000

    @property
    def has_conditions(self) -> bool:
        """Whether it has a condition on the arguments."""
        return (
            self.only_plain_reading
            or bool(self.command_prefixes or self.granted_commands)
            or not (self.command_pattern is self.args_pattern is self.target is self.granted_line is None)
            or not (self.path_pattern is self.host_pattern is None)
        )


SESSION_RANK = 3.95
"""Rank of always-choices (gemini-cli): above it, rules of the user and the admin."""


def can_grant_override(rule: Rule | None) -> bool:
    """Return whether an always-choice can override this rule's ask."""
    return rule is None or rule.rank < SESSION_RANK


@dataclass(frozen=True, slots=True)
class Scope:
    """The origin of the calls."""

    agent: str = ""
    """Name of the sub-agent; empty for the main agent."""
    interactive: bool = False
    servers: frozenset[str] = frozenset()
    """Connected MCP servers: by tool name alone, `a` with tool `b_c` looks like `a_b` with tool `c`."""


ANYBODY = Scope()
"""The main agent, without a terminal and without servers."""


def find_longest_matching_server(tool: str, servers: frozenset[str]) -> str | None:
    """Return the MCP server a tool belongs to: the longest matching name."""
    fitting = [s for s in servers if tool.startswith(mcp_tool_prefix(s))]
    return max(fitting, key=len, default=None)


def _is_applicable(
    rule: Rule, names: frozenset[str], mode: str, annotations: Mapping[str, JsonValue], scope: Scope
) -> bool:
    """Return whether the rule applies to this tool, arguments aside. `names`: the tool's name and its aliases."""
    return (
        (not rule.modes or mode in rule.modes)
        and rule.subagent in (None, scope.agent)
        and rule.interactive in (None, scope.interactive)
        and all(k in annotations and annotations[k] == v for k, v in rule.annotations.items())
        and _is_server_matched(rule, names, scope)
        and any(_is_tool_name_matched(p, n) for p in rule.tools for n in names)
    )


def _is_tool_name_matched(pattern: str, name: str) -> bool:
    if pattern == "*" or pattern == name:
        return True
    return pattern.startswith("mcp_") and pattern.endswith("_*") and name.startswith(pattern[:-1])


def _is_server_matched(rule: Rule, names: frozenset[str], scope: Scope) -> bool:
    if rule.server is None or rule.server in {
        find_longest_matching_server(name, scope.servers) for name in names
    }:
        return True
    # A tool's name doesn't identify an unknown server: rules that restrict apply all the same.
    return rule.decision != "allow" and any(n.startswith(mcp_tool_prefix(rule.server)) for n in names)


_AGENT = "invoke_agent"


def canonical_tool_name(name: str) -> str:
    """Return our name of a tool's alias, also of Claude Code's for a server's tool, or for all of a server's."""
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return f"{mcp_tool_prefix(server)}{tool or '*'}" if server else "mcp_*"
    return ALIASES.get(name, name)


def called_agent(tool: str, args: Mapping[str, JsonValue]) -> str | None:
    name = args.get("agent_name")
    if canonical_tool_name(tool) == _AGENT and isinstance(name, str):
        return name
    return INVESTIGATOR if tool == INVESTIGATOR else None


def all_tool_names(tool: str, args: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return the names by which a call can be denied, asked about or hooked."""
    own = canonical_tool_name(tool)
    aliases = {alias for alias, name in ALIASES.items() if name == own}
    if tool.startswith("mcp_"):  # the task loop calls a server's tools by these
        aliases.add("access_mcp_resource" if tool.endswith("_read_resource") else "use_mcp_tool")
        aliases.update(_claude_code_names(tool))
    agent = called_agent(tool, args)
    return frozenset({tool, own, *aliases, *([agent] if agent else [])})


def _claude_code_names(tool: str) -> Iterator[str]:
    """Yield `mcp__SERVER__TOOL`, for each place where the server's name may end: hooks look for these."""
    parts = tool.split("_")[1:]
    for end in range(1, len(parts)):
        yield f"mcp__{'_'.join(parts[:end])}__{'_'.join(parts[end:])}"


def args_for_rules(call: CallView) -> Mapping[str, JsonValue]:
    """Return the arguments as rules see them, including the agent of a tool that starts a fixed one."""
    return {**call.args, "agent_name": INVESTIGATOR} if call.name == INVESTIGATOR else call.args


STRICTNESS: Mapping[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
_INERT: frozenset[Risk] = frozenset({"question", "state"})
_MODE_TOOLS = frozenset({"enter_plan_mode", "exit_plan_mode", _AGENT})
"""Only the mode determines whether these may be called at all."""


class RuleBook:
    """Rules, highest rank first; at equal rank the stricter first, then in the given order."""

    def __init__(self, rules: Iterable[Rule], scope: Scope) -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (-r.rank, -STRICTNESS[r.decision])))
        self._scope = scope
        self._known: dict[tuple[str, str | None, Risk, str], tuple[Rule, ...]] = {}

    def applicable_rules(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        """Return the rules that apply to a call, arguments aside, highest rank first."""
        if annotations:
            return self._select_rules(call, risk, mode, annotations)
        key = (call.name, called_agent(call.name, call.args), risk, mode)
        if key not in self._known:
            self._known[key] = self._select_rules(call, risk, mode, annotations)
        return self._known[key]

    def _select_rules(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        own, every = (
            frozenset({call.name, canonical_tool_name(call.name)}),
            all_tool_names(call.name, call.args),
        )
        # A rule against an agent by name in the arguments also restricts the tool that starts only it.
        agent = called_agent(call.name, call.args)
        agents = every | {_AGENT} if agent is not None else every
        allowing = own | {agent} if agent is not None and agent not in {*TOOLS, *ALIASES} else own
        hints = {"readOnlyHint": risk == "read", **annotations, "risk": risk}
        counted: list[Rule] = []
        for rule in self.rules:
            # Allowing a tool doesn't allow an agent of that name; restricting one restricts all its aliases.
            names = (
                allowing if rule.decision == "allow" else agents if rule.args_pattern is not None else every
            )
            if _is_applicable(rule, names, mode, hints, self._scope) and (
                now := _adjust_rule_to_mode(rule, risk, mode)
            ):
                counted.append(now)
        shipped = [r.decision for r in counted if r.tier == SHIPPED]
        if own & _MODE_TOOLS and "deny" in shipped:
            # If the mode excludes the tool, no rule can allow it.
            return tuple(r for r in counted if r.decision == "deny" or r.tier == SHIPPED)
        return tuple(counted)


def _adjust_rule_to_mode(rule: Rule, risk: Risk, mode: str) -> Rule | None:
    """Return the rule as it applies in this mode, or None."""
    if rule.load_problem is not None:
        return None if risk in _INERT else rule
    if mode != "plan" or rule.tier == SHIPPED or rule.decision == "deny":
        return rule
    # Plan mode is fixed: no extension, workspace, user or admin can extend it.
    return replace(rule, lowers_to_ask=True) if rule.decision == "ask" else None


def first_deciding_rule(rules: Iterable[Rule], is_met: Callable[[Rule], bool]) -> Rule | None:
    """Return the first rule that is met; a rule that only lowers stands in for an allow below it."""
    lowering: Rule | None = None
    for rule in rules:
        if not is_met(rule):
            continue
        if not rule.lowers_to_ask:
            return lowering if lowering is not None and rule.decision == "allow" else rule
        lowering = lowering or rule
    return lowering
