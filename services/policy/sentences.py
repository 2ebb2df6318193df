"""sentences: why a call is asked about, denied or allowed, for the person who decides."""

from collections.abc import Sequence

from interlock.services.policy.outcome import Outcome, PartOutcome
from interlock.services.policy.rule import TIER_NAMES, Rule
from interlock.services.policy.rulebook import harmless
from interlock.state.calls import Decision, Risk, SessionRule

_DOES = {
    "read": "reads",
    "write": "changes files",
    "execute": "runs commands",
    "network": "reaches the network",
    "question": "asks you",
    "state": "changes only the run itself",
}
_KIND = {"write": "edits", "execute": "commands", "network": "network calls"}
_VERB = {"allow": "allowed", "ask": "asked about", "deny": "denied"}
_SHOWN = 100
"""Characters of a command in a reason; the request shows all of it."""


def named(outcome: Outcome) -> str:
    """The deciding rule, with its file and line where it has one."""
    if outcome.cause == "danger":
        return f"dangerous form: {outcome.detail}"
    if outcome.cause in ("opaque", "redirection", "elsewhere"):
        return outcome.cause
    if outcome.cause == "protected":
        return f"protected: {outcome.detail}"
    if outcome.session is not None:
        return f"session: {_session(outcome.session)}"
    return rule_name(outcome.rule) if outcome.rule else "no rule"


def rule_name(rule: Rule) -> str:
    if rule.source.startswith("settings "):
        return rule.source
    return f"{TIER_NAMES.get(rule.tier, str(rule.tier))} rule {rule.source}"


def _session(rule: SessionRule) -> str:
    if rule.command_prefixes:
        return " | ".join(rule.command_prefixes)
    return " ".join(x for x in (rule.tool, rule.path or rule.server) if x)


def plain(tool: str, risk: Risk, mode: str, outcome: Outcome) -> str:
    """The reason of a decision on a call that is no shell line."""
    rule = outcome.rule
    if outcome.cause == "protected":
        return f"`{tool}` {outcome.detail}, which is asked about in every mode."
    if outcome.session is not None:
        return f"`{tool}` is allowed for the rest of this session: {_session(outcome.session)}."
    if rule is None:
        return f"`{tool}` isn't covered by a rule; what no rule covers asks in mode {mode}."
    if rule.broken is not None:
        return (
            f"{_capital(rule_name(rule))} can't be used ({rule.broken}), so `{tool}` asks until it is right."
        )
    if rule.tier == 1:
        return _shipped(tool, risk, mode, outcome.decision)
    return f"`{tool}` is {_VERB[outcome.decision]} by {rule_name(rule)}{_said(rule, outcome.decision)}."


def _shipped(tool: str, risk: Risk, mode: str, decision: Decision) -> str:
    does = f"`{tool}` {_DOES[risk]}"
    if decision == "deny" and harmless(risk):
        return f"`{tool}` isn't among the tools of mode {mode}."
    if decision == "deny":
        return f"{does}, which mode {mode} does not allow."
    if decision == "ask":
        return f"{does} and isn't covered by a rule; {_KIND.get(risk, 'such calls')} ask in mode {mode}."
    if harmless(risk):
        return f"{does}, which is allowed in every mode."
    return f"{does}, which mode {mode} allows."


def part(mode: str, part: PartOutcome) -> str:
    """The reason of a decision on one command."""
    outcome, text = part.outcome, _quoted(part.command.text)
    rule = outcome.rule
    if outcome.cause == "danger":
        return f"{text} {outcome.detail}; that asks even where a rule allows it."
    if outcome.cause == "opaque":
        return f"{text} can't be seen through: {outcome.detail}."
    if outcome.cause == "elsewhere":
        return f"{text} is allowed in the workspace's own folder, but the line {outcome.detail}."
    if outcome.cause == "hidden" and rule is not None:
        return f"{text} may be what {rule_name(rule)} is about; what it runs is only known when it runs."
    if outcome.session is not None:
        return f"{text} is allowed for the rest of this session: {_session(outcome.session)}."
    if rule is not None and rule.broken is not None:
        return f"{_capital(rule_name(rule))} can't be used ({rule.broken}), so {text} asks until it is right."
    if rule is not None and rule.tier > 1:
        return f"{text} is {_VERB[outcome.decision]} by {rule_name(rule)}{_said(rule, outcome.decision)}."
    if rule is not None and rule.reading:
        return (
            f"{text} only reads inside the workspace, which needs no asking (setting tools.readingCommands)."
        )
    if outcome.decision == "allow":
        return f"{text}: mode {mode} allows every command."
    verb = "are denied" if outcome.decision == "deny" else "ask"
    return f"{text} isn't covered by a rule; shell commands {verb} in mode {mode}."


def line(mode: str, outcome: Outcome, parts: Sequence[PartOutcome]) -> str:
    """The reason of a decision on a shell line: that of the part which decided, or of the line as a whole."""
    if outcome.cause == "protected":
        return f"The line {outcome.detail}, which is asked about in every mode."
    if outcome.cause == "redirection":
        if outcome.detail:
            return f"Every command is allowed, but the line {outcome.detail}."
        return f"Every command is allowed, but the line redirects input or output, which asks in mode {mode}."
    deciding = [
        p for p in parts if p.outcome.decision == outcome.decision and p.outcome.cause == outcome.cause
    ]
    if outcome.cause == "opaque" and not deciding:
        return f"What this line runs can't be seen in full: {outcome.detail}."
    if outcome.cause == "hidden" and not deciding and outcome.rule is not None:
        about = rule_name(outcome.rule)
        return f"What this line runs can't be seen in full ({outcome.detail}); {about} may be about it."
    alike = [p for p in deciding if p.outcome.rule is outcome.rule]
    if outcome.decision == "ask" and _uncovered(outcome) and len(alike) > 1:
        names = ", ".join(_quoted(p.command.text) for p in alike[:3]) + (", …" if len(alike) > 3 else "")
        count = f"{len(alike)} of {len(parts)} commands"
        return f"{count} aren't covered by a rule: {names}; shell commands ask in mode {mode}."
    return part(mode, deciding[0])


def _uncovered(outcome: Outcome) -> bool:
    return outcome.cause == "none" or (
        outcome.cause == "rule" and outcome.rule is not None and outcome.rule.tier == 1
    )


def _quoted(text: str) -> str:
    short = " ".join(text.split())
    return f"`{short if len(short) <= _SHOWN else short[:_SHOWN] + '…'}`"


def _said(rule: Rule, decision: Decision) -> str:
    message = (rule.deny_message or "").rstrip(".") if decision == "deny" else ""
    return f": {message}" if message else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
