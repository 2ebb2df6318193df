"""rule: one rule of the policy and its patterns, which calls it is about, and the rules of all tiers in their order."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from pydantic import JsonValue

from interlock.state.calls import ApprovalMode, CallView, Decision, Risk
from interlock.state.names import OTHER_NAMES
from interlock.state.subagent import INVESTIGATOR
from interlock.state.text import clean
from interlock.tools.table import TOOLS

# ---- patterns: regular expressions. RE2 matches in linear time: none can hold the loop

_MEMORY = 1 << 20
"""Bytes that one compiled pattern may take; a larger one is refused at load."""
_LONGEST = 2_000
"""Characters of a pattern."""
_RANGE = 100
"""Bytes of a text by which it is known not to match."""
_CHOICE = re.compile(r'((?:\(\?s\))?["\w :/-]*)\((["\w :/|-]+)\)(?=["\w :/-])', re.ASCII)
"""Plain words to choose from (`(curl|wget) …`), which nothing that follows repeats or leaves out."""


class PatternError(ValueError):
    """A pattern that can't be used; the text says why, for people."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    text: str
    _match: Callable[[str], Any]
    _search: Callable[[str], Any]
    _ranges: Sequence[tuple[bytes, bytes]]
    """Every text that begins with a match lies in one of these."""

    def starts(self, text: str) -> bool:
        return self._match(clean(text)) is not None

    def may_start(self, known: str) -> bool:
        """Whether a text that begins with `known` might begin with a match: false only where the engine proves it."""
        begun = clean(known).encode()
        return any(least[: len(begun)] <= begun <= most for least, most in self._ranges)

    def leads_with(self, text: str) -> bool:
        """All that it matches begins so."""
        return all(end.startswith(text.encode()) for one in self._ranges for end in one)

    def found(self, text: str) -> bool:
        return self._search(clean(text)) is not None


@cache
def _engine() -> tuple[Any, Any]:
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
    """Raises `PatternError`: back-references and look-around are not in RE2's language."""
    if len(text) > _LONGEST:
        raise PatternError(f"pattern of {len(text)} characters, expected at most {_LONGEST}")
    module, options = _engine()
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
    return Pattern(text, compiled.match, compiled.search, [_range(way) for way in ways])


def _range(text: str) -> tuple[bytes, bytes]:
    """Of what follows a match, too: an assertion at its end (`\\B`) looks at that."""
    module, options = _engine()
    try:
        return module.compile(f"^(?:{text})(?s:.*)", options).possiblematchrange(_RANGE)
    except module.error:  # an open `\\Q`
        return b"", b"\xff"


# ---- rules

SHIPPED, EXTENSION, WORKSPACE, USER, ADMIN = 1, 2, 3, 4, 5
"""Tiers (`pipelines.md` §4, Policy): a higher one decides first, whatever the priorities."""
TIER_NAMES = dict(enumerate(("shipped", "extension", "workspace", "user", "admin"), SHIPPED))


@dataclass(frozen=True, slots=True)
class Checker:
    """Looks at a call that the rules let pass."""

    name: str
    config: Mapping[str, JsonValue]
    command: str | None = None
    """A line for bash; null: `allowed-path`, which is built in."""
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It decides a call that meets all of its conditions, unless a higher rank does first."""

    source: str
    """`FILE:LINE`, or the setting that it stands for."""
    tools: tuple[str, ...]
    """Exact names, `*`, `mcp_*` or `mcp_SERVER_*`."""
    decision: Decision
    tier: int
    priority: int | float
    """0–999."""
    modes: frozenset[ApprovalMode] = frozenset()
    """Empty: every mode."""
    prefixes: tuple[tuple[str, ...], ...] = ()
    """Leading words of a shell command, any of them."""
    command: Pattern | None = None
    """Matched at the beginning of a shell command."""
    reading: bool = False
    """About commands that only read, with plain arguments inside the workspace (`reading.py`)."""
    args: Pattern | None = None
    """Searched in the arguments as JSON."""
    allow_redirection: bool = False
    deny_message: str | None = None
    target: str | None = None
    """The file as tools name it, or the host, that a call must be about."""
    workspace: str | None = None
    """Real path of the only workspace that it is about."""
    annotations: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    server: str | None = None
    subagent: str | None = None
    interactive: bool | None = None
    broken: str | None = None
    """Set when it stands in for a rule that can't be used: the problem."""
    lowers: bool = False
    """It makes an allow below it an ask, and weakens no deny."""

    checker: Checker | None = None
    """Set: it doesn't decide, it says which calls the checker is asked about."""

    @property
    def rank(self) -> float:
        return self.tier + self.priority / 1000

    @property
    def narrows(self) -> bool:
        """It has a condition on the arguments."""
        return self.reading or bool(self.prefixes) or not (self.command is self.args is self.target is None)


SESSION_RANK = 3.95
"""Where always-choices stand among the rules (gemini-cli): a user's or an admin's rule goes before them."""


def liftable(rule: Rule | None) -> bool:
    """Whether an always-choice can take the place of this rule's ask."""
    return rule is None or rule.rank < SESSION_RANK


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose calls these are."""

    agent: str = ""
    """Name of the sub-agent; empty for the main agent."""
    interactive: bool = False
    servers: frozenset[str] = frozenset()
    """Connected MCP servers: tool names alone can't tell `a` with tool `b_c` from `a_b` with tool `c`."""


def server_of(tool: str, servers: frozenset[str]) -> str | None:
    """The MCP server that a tool belongs to: the longest known name that fits."""
    fitting = [s for s in servers if tool.startswith(f"mcp_{s}_")]
    return max(fitting, key=len, default=None)


def _about(
    rule: Rule, names: frozenset[str], mode: str, annotations: Mapping[str, JsonValue], scope: Scope
) -> bool:
    """Whether the rule is about this tool, arguments aside. `names`: the tool's name and its aliases."""
    return (
        (not rule.modes or mode in rule.modes)
        and rule.subagent in (None, scope.agent)
        and rule.interactive in (None, scope.interactive)
        and all(k in annotations and annotations[k] == v for k, v in rule.annotations.items())
        and _serves(rule, names, scope)
        and any(_names(p, n) for p in rule.tools for n in names)
    )


def _names(pattern: str, name: str) -> bool:
    if pattern == "*" or pattern == name:
        return True
    return pattern.startswith("mcp_") and pattern.endswith("_*") and name.startswith(pattern[:-1])


def _serves(rule: Rule, names: frozenset[str], scope: Scope) -> bool:
    if rule.server is None or rule.server in {server_of(name, scope.servers) for name in names}:
        return True
    # A server that isn't known can't be told by its tool's name: what restricts is about it all the same.
    return rule.decision != "allow" and any(n.startswith(f"mcp_{rule.server}_") for n in names)


ALIASES = {**OTHER_NAMES, **{alias: tool.name for tool in TOOLS.values() for alias in tool.aliases}}
SHELL_TOOLS = frozenset({"run_shell_command", "execute_command"})
"""Tools whose argument `command` is a line of bash."""
_AGENT = "invoke_agent"


def canonical(name: str) -> str:
    """Our own name of a tool."""
    return ALIASES.get(name, name)


def agent_of(tool: str, args: Mapping[str, JsonValue]) -> str | None:
    """The agent that a call starts."""
    name = args.get("agent_name")
    if canonical(tool) == _AGENT and isinstance(name, str):
        return name
    return INVESTIGATOR if tool == INVESTIGATOR else None


def names_of(tool: str, args: Mapping[str, JsonValue]) -> frozenset[str]:
    """The names under which what a call does can be denied, asked about or hooked."""
    own = canonical(tool)
    aliases = {alias for alias, name in ALIASES.items() if name == own}
    agent = agent_of(tool, args)
    return frozenset({tool, own, *aliases, *([agent] if agent else [])})


def rule_args(call: CallView) -> Mapping[str, JsonValue]:
    """The arguments as rules see them: a tool that starts one agent has it among them."""
    return {**call.args, "agent_name": INVESTIGATOR} if call.name == INVESTIGATOR else call.args


STRICTNESS: Mapping[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
_INERT: frozenset[Risk] = frozenset({"question", "state"})
_MODE_TOOLS = frozenset({"enter_plan_mode", "exit_plan_mode", _AGENT})
"""Whether they may be called at all depends on the mode alone."""


class RuleBook:
    """Rules, highest rank first; at equal rank the stricter first, then in the order given."""

    def __init__(self, rules: Iterable[Rule], scope: Scope) -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (-r.rank, -STRICTNESS[r.decision])))
        self._scope = scope
        self._known: dict[tuple[str, str | None, Risk, str], tuple[Rule, ...]] = {}

    def about(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        """The rules about a call, arguments aside, highest rank first."""
        if annotations:
            return self._select(call, risk, mode, annotations)
        key = (call.name, agent_of(call.name, call.args), risk, mode)
        if key not in self._known:
            self._known[key] = self._select(call, risk, mode, annotations)
        return self._known[key]

    def _select(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        own, every = frozenset({call.name, canonical(call.name)}), names_of(call.name, call.args)
        # A rule against one agent by its name among the arguments is against the tool that starts just that one, too.
        agents = every | {_AGENT} if agent_of(call.name, call.args) is not None else every
        hints = {"readOnlyHint": risk == "read", **annotations, "risk": risk}
        counted: list[Rule] = []
        for rule in self.rules:
            # What allows a name allows no agent of that name; what restricts one restricts all that it stands for.
            names = own if rule.decision == "allow" else agents if rule.args is not None else every
            if _about(rule, names, mode, hints, self._scope) and (now := _counted(rule, risk, mode)):
                counted.append(now)
        shipped = [r.decision for r in counted if r.tier == SHIPPED]
        if own & _MODE_TOOLS and "deny" in shipped:
            # Where the mode has no place for it, no rule makes one.
            return tuple(r for r in counted if r.decision == "deny" or r.tier == SHIPPED)
        return tuple(counted)


def _counted(rule: Rule, risk: Risk, mode: str) -> Rule | None:
    """The rule as it counts for such calls; None: it doesn't."""
    if rule.broken is not None:
        return None if risk in _INERT else rule
    if mode != "plan" or rule.tier == SHIPPED or rule.decision == "deny":
        return rule
    # What plan mode may do is said once: no extension, workspace, user or admin can add to it.
    return replace(rule, lowers=True) if rule.decision == "ask" else None


def first(rules: Iterable[Rule], met: Callable[[Rule], bool]) -> Rule | None:
    """The deciding rule."""
    lowering: Rule | None = None
    for rule in rules:
        if not met(rule):
            continue
        if not rule.lowers:
            return lowering if lowering is not None and rule.decision == "allow" else rule
        lowering = lowering or rule
    return lowering
