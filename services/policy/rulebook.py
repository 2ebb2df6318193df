"""rulebook: all rules by rank, and those that are about a tool, a risk and a mode."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from interlock.services.policy.names import agent_of, canonical, names_of
from interlock.services.policy.rule import SHIPPED, Rule, Scope, about, annotations_of
from interlock.state.calls import CallView, Risk

_STRICTNESS = {"deny": 0, "ask": 1, "allow": 2}
_HARMLESS: frozenset[Risk] = frozenset({"read", "question", "state"})
_INERT: frozenset[Risk] = frozenset({"question", "state"})
_MODE_TOOLS = frozenset({"enter_plan_mode", "exit_plan_mode", "invoke_agent"})
"""Whether they may be called at all depends on the mode alone."""


class RuleBook:
    """Rules, highest rank first; at equal rank the stricter first, then in the order given."""

    def __init__(self, rules: Iterable[Rule], scope: Scope) -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (-r.rank, _STRICTNESS[r.decision])))
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
        hints = annotations_of(risk, annotations)
        fitting = (
            # What allows a name allows no agent of that name; what restricts one restricts all that it stands for.
            r
            for r in self.rules
            if about(r, own if r.decision == "allow" else every | _through(r, call), mode, hints, self._scope)
        )
        counted = tuple(c for r in fitting if (c := _counted(r, risk, mode)) is not None)
        shipped = [r.decision for r in counted if r.tier == SHIPPED]
        if own & _MODE_TOOLS and "deny" in shipped:
            # Where the mode has no place for it, no rule makes one.
            return tuple(r for r in counted if r.decision == "deny" or r.tier == SHIPPED)
        return counted


def _through(rule: Rule, call: CallView) -> frozenset[str]:
    """A rule against one agent by its name among the arguments is against the tool that starts just that one, too."""
    one = rule.args is not None and agent_of(call.name, call.args) is not None
    return frozenset({"invoke_agent"}) if one else frozenset()


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
