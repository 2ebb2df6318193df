"""explain: a decision with everything that led to it, for `interlock policy check`."""

from typing import Literal

from interlock.services.policy import sentences
from interlock.services.policy.decided import PolicyDecision
from interlock.services.policy.matching import Match, allows, meets, restricts
from interlock.services.policy.outcome import PartOutcome
from interlock.services.policy.rule import Rule
from interlock.services.policy.shell_decision import unnarrowed
from interlock.services.shell.model import Redirect
from interlock.state.calls import Choice, Decision, Risk, SessionRule, ShellPart, Verdict
from interlock.state.messages import Frozen


class Considered(Frozen):
    """A rule that is about the tool, and what became of it."""

    rule: str
    decision: Decision
    rank: float
    """Tier + priority / 1000; the highest that meets the call decides."""
    met: Literal["yes", "no", "maybe"]
    """Whether its conditions on the arguments were met by any part; `maybe`: only running would show."""


class ExplainedPart(ShellPart):
    """One simple command, and how it was understood."""

    argv: tuple[str, ...]
    rule: str
    danger: str | None = None
    opaque: str | None = None


class Explanation(Frozen):
    """Decision, deciding rule, and for shell the verdict of each part."""

    tool: str
    risk: Risk
    mode: str
    verdict: Verdict
    parts: tuple[ExplainedPart, ...] = ()
    unseen: str | None = None
    """Shell: why not everything that the line would run is among the parts."""
    redirects: tuple[str, ...] = ()
    """Shell: each redirection, as `write out.txt`."""
    choices: tuple[Choice, ...] = ()
    """What a person could answer; empty when nobody is asked."""
    always: SessionRule | None = None
    """What an always-choice would stand for."""
    not_always: str | None = None
    """Why there is no always-choice, for an ask or a deny."""
    considered: tuple[Considered, ...]
    """Highest rank first."""


def explanation(
    decided: PolicyDecision, choices: tuple[Choice, ...], always: SessionRule | None
) -> Explanation:
    line, asked = decided.line, decided.outcome.decision == "ask"
    refused = decided.outcome.decision == "deny"
    return Explanation(
        tool=decided.call.name,
        risk=decided.risk,
        mode=decided.mode,
        verdict=decided.verdict(),
        parts=tuple(_part(decided.mode, p) for p in decided.parts),
        unseen=line.opaque if line else None,
        redirects=tuple(_redirect(r) for r in line.redirects) if line else (),
        choices=choices if asked else (),
        always=always,
        not_always=unnarrowed(decided) if refused or (asked and always is None) else None,
        considered=tuple(_considered(rule, decided) for rule in decided.rules),
    )


def _part(mode: str, part: PartOutcome) -> ExplainedPart:
    command = part.command
    return ExplainedPart(
        text=command.text,
        decision=part.outcome.decision,
        reason=sentences.part(mode, part),
        argv=command.argv,
        rule=sentences.named(part.outcome),
        danger=command.danger,
        opaque=command.opaque,
    )


def _redirect(redirect: Redirect) -> str:
    return f"{redirect.kind} {redirect.target.text}" if redirect.target else redirect.kind


def _considered(rule: Rule, decided: PolicyDecision) -> Considered:
    if decided.line is None:
        met = Match.YES if meets(rule, decided.call.args, decided.about) else Match.NO
    else:
        met = max((_met(rule, p, decided) for p in decided.parts), default=Match.NO)
    words = {Match.NO: "no", Match.MAYBE: "maybe", Match.YES: "yes"}
    return Considered.model_validate(
        {"rule": sentences.rule_name(rule), "decision": rule.decision, "rank": rule.rank, "met": words[met]}
    )


def _met(rule: Rule, part: PartOutcome, decided: PolicyDecision) -> Match:
    if rule.decision == "allow":
        met = part.plain if rule.reading else allows(rule, part.command, decided.call.args)
        return Match.YES if met else Match.NO
    return restricts(rule, part.command, decided.call.args)
