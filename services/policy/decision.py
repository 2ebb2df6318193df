"""decision: the decision on a call or its parts: the deciding rule and the reason, in sentences for people."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from pydantic import JsonValue

from interlock.services.policy.grant_coverage import describe_args_allowed_by_prefix
from interlock.services.policy.matching import (
    UNKNOWN_TARGET,
    CallTarget,
    Match,
    has_prefix,
    is_rule_allowing_command,
    is_rule_matching_non_shell_call,
    match_restricting_rule,
)
from interlock.services.policy.rule import SHIPPED, TIER_NAMES, Rule, can_grant_override
from interlock.services.shell.model import ShellCommand, ShellLine
from interlock.state.calls import (
    EDITS_ONLY,
    CallView,
    Choice,
    Decision,
    Risk,
    SessionRule,
    ShellPart,
    Verdict,
)
from interlock.state.messages import Frozen

Cause = Literal[
    "rule",
    "session",
    "none",
    "danger",
    "opaque",
    "redirection",
    "elsewhere",
    "hidden",
    "protected",
    "private",
]
"""`none`: no rule matched. `hidden`: a deny or ask rule may apply to what is only known at run time. `protected`: it
would change files that the program trusts. `private`: it would show a file that tools may not read."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision on a plain call, or on one command of a shell line."""

    decision: Decision
    cause: Cause
    rule: Rule | None = None
    """The deciding rule; for danger, opaque, redirection and elsewhere, the allow rule that was overridden."""
    session: SessionRule | None = None
    detail: str = ""
    """What the danger is, or why the command is opaque."""

    def lower_to_ask(self, cause: Cause, detail: str) -> "Ruling":
        """Return a copy lowered to ask."""
        return replace(self, decision="ask", cause=cause, detail=detail)

    @property
    def deciding_rule_name(self) -> str:
        """The deciding rule, with file and line if it has them."""
        match self.cause:
            case "danger":
                return f"dangerous form: {self.detail}"
            case "opaque" | "redirection" | "elsewhere":
                return self.cause
            case "protected" | "private":
                return f"{self.cause}: {self.detail}"
            case _:
                pass
        if self.session is not None:
            return f"session: {_describe_session_rule(self.session)}"
        return rule_display_name(self.rule) if self.rule else "no rule"


@dataclass(frozen=True, slots=True)
class PartRuling:
    """The decision on one command of a shell line."""

    command: ShellCommand
    ruling: Ruling
    only_reads: bool = False
    """It only reads, with plain arguments inside the workspace."""


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision on a call; `line` and `parts` are for shell."""

    call: CallView
    risk: Risk
    mode: str
    """As people name it, or `EDITS_ONLY`."""
    rules: Sequence[Rule]
    ruling: Ruling
    line: ShellLine | None = None
    parts: Sequence[PartRuling] = ()
    target: CallTarget = UNKNOWN_TARGET
    """The file or hosts, if a rule needs them."""

    def to_verdict(self) -> Verdict:
        outcome, mode = self.ruling, "default" if self.mode == EDITS_ONLY else self.mode
        if self.line is None:
            reason = _explain_call(self.call.name, self.risk, mode, outcome)
        elif self.mode == EDITS_ONLY and outcome.cause == "redirection" and not outcome.detail:
            reason = _REDIRECTION_IS_NO_EDIT
        else:
            reason = _explain_line(mode, outcome, self.parts)
        own = outcome.rule.deny_message if outcome.rule else None
        return Verdict(
            decision=outcome.decision,
            rule=outcome.deciding_rule_name,
            reason=reason,
            deny_message=own or reason if outcome.decision == "deny" else None,
            session=outcome.session,
            parts=tuple(
                ShellPart(text=p.command.text, decision=p.ruling.decision, reason=_explain_part(mode, p))
                for p in self.parts
            ),
        )


def limit_to_ask_if_initially_stricter(current: Verdict, initial: Verdict) -> Verdict:
    """Return the verdict, limited to ask if the rules at the start of the run were stricter."""
    if initial.decision == "allow" or initial.decision == current.decision:
        return current
    word = _VERB[initial.decision]
    reason = f"{current.reason} When this run began, it was {word}: {initial.reason}"
    return current.model_copy(
        update={"decision": "ask", "reason": reason, "session": None, "parts": initial.parts or current.parts}
    )


# ---- sentences

_DOES = {
    "read": "reads",
    "write": "changes files",
    "execute": "runs commands",
    "network": "reaches the network",
    "question": "asks you",
    "state": "changes only the run itself",
}
_HARMLESS = ("read", "question", "state")
"""These change nothing outside the run."""
_KIND = {"write": "edit", "execute": "command", "network": "network access"}
_VERB = {"allow": "allowed", "ask": "held for approval", "deny": "denied"}
_SHOWN = 100
"""Maximum characters of a command in a reason; the request shows all of it."""
_REDIRECTION = "Rules allow every command of this line, but it {}."
_REDIRECTS = "redirects input or output"
_REDIRECTION_IS_NO_EDIT = _REDIRECTION.format(f"{_REDIRECTS}, which “all edits” doesn't allow")


def rule_display_name(rule: Rule) -> str:
    """Return how people are told of a rule: its tier and source."""
    if rule.source.startswith(("settings ", "hook ", "agent ")):
        return rule.source
    if rule.tier == SHIPPED:  # nobody changes its file; a mode is what its reader can change
        return f"built-in rule for {next(iter(rule.modes))} mode" if len(rule.modes) == 1 else "built-in rule"
    return _rule_name_with_source(rule)


def _rule_name_with_source(rule: Rule) -> str:
    return f"{TIER_NAMES[rule.tier]} rule {rule.source}"


def _describe_session_rule(rule: SessionRule) -> str:
    if rule.commands or rule.line:
        return rule.line or " | ".join(rule.commands)
    return " ".join(x for x in (rule.tool, rule.path or rule.server) if x)


def _explain_user_rule(subject: str, outcome: Ruling) -> str | None:
    """Return why an always-choice or a user-written rule decides so; None if another one does."""
    rule = outcome.rule
    if outcome.session is not None:
        return f"An earlier decision in this run allows {subject}: {_describe_session_rule(outcome.session)}."
    if rule is None or (rule.load_problem is None and rule.tier == SHIPPED):
        return None
    name = rule_display_name(rule)
    if rule.load_problem is not None:
        why = f"{name[:1].upper()}{name[1:]} can't be used ({rule.load_problem})"
        return f"{why}, so {subject} needs approval until you repair it."
    message = (rule.deny_message or "").rstrip(".") if outcome.decision == "deny" else ""
    return f"{subject} is {_VERB[outcome.decision]} by {name}{f': {message}' if message else ''}."


def _explain_call(tool: str, risk: Risk, mode: str, outcome: Ruling) -> str:
    """Return why a call that is no shell line is decided so."""
    if outcome.cause == "protected":
        return f"`{tool}` {outcome.detail}, which always needs approval."
    if reason := _explain_user_rule(f"`{tool}`", outcome):
        return reason
    if outcome.rule is None:
        return f"No rule allows `{tool}`."
    does = f"`{tool}` {_DOES[risk]}"
    if outcome.decision == "deny" and risk in _HARMLESS:
        return f"Mode {mode} has no tool `{tool}`."
    if outcome.decision == "deny":
        return f"{does}, which mode {mode} doesn't allow."
    if outcome.decision == "ask":
        return f"No rule allows this {_KIND[risk]}." if risk in _KIND else f"No rule allows `{tool}`."
    return (
        f"{does}, which is allowed in every mode."
        if risk in _HARMLESS
        else f"{does}, which mode {mode} allows."
    )


def _explain_part(mode: str, part: PartRuling) -> str:
    outcome, text, rule = part.ruling, _quote_shortened_command(part.command.text), part.ruling.rule
    uncovered = outcome.decision == "ask" and (
        rule is None or (rule.tier == SHIPPED and outcome.cause == "rule")
    )
    danger = outcome.detail if outcome.cause == "danger" else part.command.danger if uncovered else None
    if danger:
        return f"{text} {danger}, which always needs approval."
    match outcome.cause:
        case "opaque":
            return f"Interlock can't tell all that {text} runs: {outcome.detail}."
        case "private":
            return f"{text} {outcome.detail}, which always needs approval."
        case "elsewhere":
            return f"Rules allow {text} in the workspace's root folder, but the line {outcome.detail}."
        case "hidden" if rule is not None:
            return (
                f"The {rule_display_name(rule)} may apply to {text}: what it runs is known only when it runs."
            )
        case _:
            pass
    if reason := _explain_user_rule(text, outcome):
        return reason
    if rule is not None and rule.only_plain_reading:
        return f"{text} only reads inside the workspace, which needs no approval (setting tools.readingCommands)."
    if outcome.decision == "allow":
        return f"{text}: mode {mode} allows every command."
    denied = outcome.decision == "deny"
    return f"Mode {mode} doesn't allow {text}." if denied else f"No rule allows {text}."


def _explain_line(mode: str, outcome: Ruling, parts: Sequence[PartRuling]) -> str:
    """Return why a shell line is decided so: by the deciding part, or by the line as a whole."""
    rule, detail = outcome.rule, outcome.detail
    if outcome.cause == "protected":
        return f"The line {detail}, which always needs approval."
    if outcome.cause == "redirection":
        return _REDIRECTION.format(detail or _REDIRECTS)
    if outcome.cause == "private" and not any(p.ruling.cause == "private" for p in parts):
        return f"The line {outcome.detail}, which always needs approval."
    same = (outcome.decision, outcome.cause)
    deciding = [p for p in parts if (p.ruling.decision, p.ruling.cause) == same]
    if outcome.cause == "opaque" and not deciding:
        return f"Interlock can't tell all that this line runs: {detail}."
    if outcome.cause == "hidden" and not deciding and rule is not None:
        return f"Interlock can't tell all that this line runs ({detail}); the {rule_display_name(rule)} may apply."
    alike = [p for p in deciding if p.ruling.rule is rule]
    uncovered = outcome.cause == "none" or (
        outcome.cause == "rule" and rule is not None and rule.tier == SHIPPED
    )
    if outcome.decision == "ask" and uncovered and len(alike) > 1:
        names = ", ".join(_quote_shortened_command(p.command.text) for p in alike[:3]) + (
            ", …" if len(alike) > 3 else ""
        )
        return f"No rule allows {len(alike)} of {len(parts)} commands: {names}."
    return _explain_part(mode, deciding[0])


def _quote_shortened_command(text: str) -> str:
    short = " ".join(text.split())
    return f"`{short if len(short) <= _SHOWN else short[:_SHOWN] + '…'}`"


_DANGER = "It {}, which always needs approval."
_HIDDEN = "Interlock can't tell all that it runs{}, so it always needs approval."


def _explain_missing_always_choice(decided: PolicyDecision) -> str:
    """Return why no always-choice fits the call or would prevent the next question."""
    if decided.ruling.decision == "deny":
        return "No decision in a run lifts a deny."
    asking = [o for o in (decided.ruling, *(p.ruling for p in decided.parts)) if o.decision == "ask"]
    if why := next((why for o in asking if (why := _explain_asking_despite_grant(o)) is not None), None):
        return why
    # Reasons that no rule was tested against, as none allowed the rest.
    if decided.line is not None and decided.line.opaque is not None:
        return _HIDDEN.format(f" ({decided.line.opaque})")
    if danger := next((p.command.danger for p in decided.parts if p.command.danger), None):
        return _DANGER.format(danger)
    return "It isn't about one command, one file, one host or one MCP tool or server."


def _explain_asking_despite_grant(outcome: Ruling) -> str | None:
    rule, detail = outcome.rule, outcome.detail
    match outcome.cause:
        case "danger":
            return _DANGER.format(detail)
        case "opaque" | "hidden":
            return _HIDDEN.format(f" ({detail})" if detail else "")
        case "elsewhere":
            return (
                f"It {detail}; rules apply in the workspace's root folder only, so it always needs approval."
            )
        case "redirection" | "protected" if detail:
            return f"It {detail}, which always needs approval."
        case _:
            pass
    if rule is not None and rule.load_problem is not None:
        why = f"{rule_display_name(rule)} can't be used ({rule.load_problem})"
        return f"{why}; until you repair it, the call needs approval every time."
    if rule is not None and not can_grant_override(rule):
        return f"No decision in a run overrides the {rule_display_name(rule)}."
    return None


# ---- for `interlock policy check`


class ConsideredRule(Frozen):
    """A rule about the tool, and whether it matched."""

    rule: str
    decision: Decision
    rank: float
    """Tier + priority / 1000; the highest matching rule decides."""
    met: Literal["yes", "no", "maybe"]
    """Whether any part matched the rule's conditions on arguments; `maybe`: only known at run time."""


class ExplainedPart(ShellPart):
    """One simple command, and how it was parsed."""

    argv: tuple[str, ...]
    rule: str
    danger: str | None = None
    opaque: str | None = None
    lets: str | None = None
    """What the prefix of the rule that allows it lets through besides."""


class Explanation(Frozen):
    """Decision, deciding rule, and for shell the verdict on each part."""

    tool: str
    risk: Risk
    mode: str
    verdict: Verdict
    parts: tuple[ExplainedPart, ...] = ()
    unseen: str | None = None
    """Shell: why the parts don't include everything that the line would run."""
    redirects: tuple[str, ...] = ()
    """Shell: each redirection, as `write out.txt`."""
    choices: tuple[Choice, ...] = ()
    """What a person could answer; empty if no one is asked."""
    always: SessionRule | None = None
    """The rule that an always-choice would create."""
    covers: str = ""
    """What it would cover, in words."""
    not_always: str | None = None
    """Why there is no always-choice, for an ask or a deny."""
    considered: tuple[ConsideredRule, ...]
    """Highest rank first."""


def build_explanation(
    decided: PolicyDecision, choices: tuple[Choice, ...], always: SessionRule | None
) -> Explanation:
    line, decision, verdict = decided.line, decided.ruling.decision, decided.to_verdict()
    unspared = decision == "deny" or (decision == "ask" and always is None)
    redirects = line.redirects if line else ()
    return Explanation(
        tool=decided.call.name,
        risk=decided.risk,
        mode=decided.mode,
        verdict=verdict,
        parts=tuple(map(_to_explained_part, verdict.parts, decided.parts)),
        unseen=line.opaque if line else None,
        redirects=tuple(f"{r.kind} {r.target.text}" if r.target else r.kind for r in redirects),
        choices=choices if decision == "ask" else (),
        always=always,
        covers=always.scope_text if always else "",
        not_always=_explain_missing_always_choice(decided) if unspared else None,
        considered=tuple(_to_considered_rule(rule, decided) for rule in decided.rules),
    )


def _to_explained_part(shown: ShellPart, part: PartRuling) -> ExplainedPart:
    c = part.command
    more = {
        "argv": c.argv,
        "rule": _deciding_rule_name_with_source(part.ruling),
        "danger": c.danger or c.sets,
        "opaque": c.opaque,
        "lets": _describe_extra_prefix_args(part),
    }
    return ExplainedPart.model_validate({**shown.model_dump(), **more})


def _deciding_rule_name_with_source(ruling: Ruling) -> str:
    """The deciding rule as the list of considered rules names it."""
    name, rule = ruling.deciding_rule_name, ruling.rule
    return _rule_name_with_source(rule) if rule is not None and name == rule_display_name(rule) else name


def _describe_extra_prefix_args(part: PartRuling) -> str | None:
    rule = part.ruling.rule
    if rule is None or rule.decision != "allow":
        return None
    met = [p for p in rule.command_prefixes if has_prefix(part.command, p)]
    through = describe_args_allowed_by_prefix(max(met, key=len)) if met else ""
    return f"{shlex.join(max(met, key=len))} …: {through}" if through else None


def _is_rule_allowing_part(rule: Rule, part: PartRuling, args: Mapping[str, JsonValue]) -> bool:
    if rule.granted_commands or rule.granted_line is not None:
        return part.ruling.rule is rule
    return part.only_reads if rule.only_plain_reading else is_rule_allowing_command(rule, part.command, args)


def _to_considered_rule(rule: Rule, decided: PolicyDecision) -> ConsideredRule:
    args, parts = decided.call.args, decided.parts
    if decided.line is None:
        found = [Match.YES] if is_rule_matching_non_shell_call(rule, args, decided.target) else []
    elif rule.decision == "allow":
        found = [Match.YES for p in parts if _is_rule_allowing_part(rule, p, args)]
    else:
        found = [match_restricting_rule(rule, p.command, args) for p in parts]
    word = cast(Literal["yes", "no", "maybe"], max(found, default=Match.NO).name.lower())
    return ConsideredRule(rule=_rule_name_with_source(rule), decision=rule.decision, rank=rule.rank, met=word)
