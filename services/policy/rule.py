"""rule: one rule of the policy, and which calls it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from interlock.services.policy.patterns import Pattern
from interlock.state.calls import ApprovalMode, Decision, Risk

SHIPPED, EXTENSION, WORKSPACE, USER, ADMIN = 1, 2, 3, 4, 5
"""Tiers (`pipelines.md` §4, Policy): a higher one decides first, whatever the priorities."""
TIER_NAMES = {
    SHIPPED: "shipped",
    EXTENSION: "extension",
    WORKSPACE: "workspace",
    USER: "user",
    ADMIN: "admin",
}


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

    def names_all_of(self, argv: tuple[str, ...]) -> bool:
        """It is for exactly these words."""
        return argv in self.prefixes

    @property
    def rank(self) -> float:
        return self.tier + self.priority / 1000

    @property
    def narrows(self) -> bool:
        """It has a condition on the arguments."""
        return self.reading or bool(self.prefixes) or not (self.command is self.args is self.target is None)


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


def about(
    rule: Rule, names: frozenset[str], mode: str, annotations: Mapping[str, JsonValue], scope: Scope
) -> bool:
    """Whether the rule is about this tool, arguments aside. `names`: the tool's name and its aliases."""
    if rule.modes and mode not in rule.modes:
        return False
    if rule.subagent is not None and rule.subagent != scope.agent:
        return False
    if rule.interactive is not None and rule.interactive != scope.interactive:
        return False
    if any(k not in annotations or annotations[k] != v for k, v in rule.annotations.items()):
        return False
    return _serves(rule, names, scope) and any(_names(p, n) for p in rule.tools for n in names)


def _names(pattern: str, name: str) -> bool:
    if pattern == "*" or pattern == name:
        return True
    return pattern.startswith("mcp_") and pattern.endswith("_*") and name.startswith(pattern[:-1])


def _serves(rule: Rule, names: frozenset[str], scope: Scope) -> bool:
    if rule.server is None:
        return True
    owners = {server_of(name, scope.servers) for name in names}
    if rule.decision == "allow":
        return rule.server in owners
    # A server that isn't known can't be told by its tool's name: what restricts is about it all the same.
    return rule.server in owners or any(n.startswith(f"mcp_{rule.server}_") for n in names)


def annotations_of(risk: Risk, more: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """What `toolAnnotations` is compared with: the risk that the house gives the tool, and what its server says."""
    return {"readOnlyHint": risk == "read", **more, "risk": risk}
