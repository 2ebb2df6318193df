"""rulebook: all rules by rank, and those that are about a tool, a risk and a mode."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from interlock.services.policy.rule import SHIPPED, Rule, Scope, about, annotations_of
from interlock.state.calls import Risk

_STRICTNESS = {"deny": 0, "ask": 1, "allow": 2}
_HARMLESS: frozenset[Risk] = frozenset({"read", "question", "state"})
_INERT: frozenset[Risk] = frozenset({"question", "state"})
_MODE_TOOLS = frozenset({"enter_plan_mode", "exit_plan_mode", "invoke_agent"})
"""Whether they may be called at all depends on the mode alone."""


class RuleBook:
    """Rules, highest rank first; at equal rank the stricter first, then in the order given."""

    def __init__(self, rules: Iterable[Rule], scope: Scope, aliases: Mapping[str, str]) -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (-r.rank, _STRICTNESS[r.decision])))
        self._scope = scope
        self._aliases = aliases
        self._known: dict[tuple[str, Risk, str], tuple[Rule, ...]] = {}

    def names(self, tool: str) -> frozenset[str]:
        """The tool's name and the one that it is an alias of."""
        return frozenset({tool, self._aliases.get(tool, tool)})

    def about(
        self, tool: str, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        """The rules about a tool, arguments aside, highest rank first."""
        if annotations:
            return self._select(tool, risk, mode, annotations)
        key = (tool, risk, mode)
        if key not in self._known:
            self._known[key] = self._select(tool, risk, mode, annotations)
        return self._known[key]

    def _select(
        self, tool: str, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        names, hints = self.names(tool), annotations_of(risk, annotations)
        fitting = (r for r in self.rules if about(r, names, mode, hints, self._scope))
        counted = tuple(c for r in fitting if (c := _counted(r, risk, mode)) is not None)
        shipped = [r.decision for r in counted if r.tier == SHIPPED]
        if names & _MODE_TOOLS and "deny" in shipped:
            # Where the mode has no place for it, no rule makes one.
            return tuple(r for r in counted if r.decision == "deny" or r.tier == SHIPPED)
        return counted


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


def harmless(risk: Risk) -> bool:
    """It changes nothing outside the run."""
    return risk in _HARMLESS
