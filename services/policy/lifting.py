"""lifting: why no always-choice of a session takes the place of an ask, for the person who is asked again."""

from interlock.services.policy.decided import PolicyDecision
from interlock.services.policy.outcome import Outcome
from interlock.services.policy.sentences import rule_name
from interlock.services.policy.session import liftable

_NARROW = "It can't be narrowed to leading words of a command, one file, one host or one MCP tool or server."

_DANGER = "A dangerous form is asked about each time: it {}."
_HIDDEN = "What it runs is only known when it runs{}, so it is asked about each time."


def unliftable(decided: PolicyDecision) -> str | None:
    """One sentence; null where an always-choice can spare the next question, or nobody is asked."""
    asking = [p.outcome for p in decided.parts if p.outcome.decision == "ask"]
    outcomes = [decided.outcome, *asking]
    if decided.outcome.decision == "deny":
        return "No session rule lifts a deny."
    return next((why for o in outcomes if o.decision == "ask" and (why := _why(o)) is not None), None)


def unnarrowed(decided: PolicyDecision) -> str:
    """The same, for a call that no always-choice fits."""
    return unliftable(decided) or _unseen(decided) or _NARROW


def _unseen(decided: PolicyDecision) -> str | None:
    """What no rule was asked to forgive, because none allowed the rest."""
    if decided.line is not None and decided.line.opaque is not None:
        return _HIDDEN.format(f" ({decided.line.opaque})")
    dangers = (p.command.danger for p in decided.parts if p.command.danger)
    return next((_DANGER.format(d) for d in dangers), None)


def _why(outcome: Outcome) -> str | None:
    rule = outcome.rule
    if outcome.cause == "danger":
        return _DANGER.format(outcome.detail)
    if outcome.cause in ("opaque", "hidden"):
        return _HIDDEN.format(f" ({outcome.detail})" if outcome.detail else "")
    if outcome.cause == "elsewhere":
        return f"It {outcome.detail}; rules count for the workspace's own folder, so it is asked about each time."
    if outcome.cause in ("redirection", "protected") and outcome.detail:
        return f"It {outcome.detail}, which is asked about each time."
    if rule is not None and rule.broken is not None:
        return f"{rule_name(rule)} can't be used ({rule.broken}); until it is right, it asks each time."
    if rule is not None and not liftable(rule):
        return f"{rule_name(rule)} stands above what a session's rule may allow."
    return None
