"""shell_decision: what the rules say of a shell line: each simple command by itself, the strictest wins."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from interlock.services.policy.always import covering, liftable
from interlock.services.policy.decided import PolicyDecision
from interlock.services.policy.folders import Folders
from interlock.services.policy.matching import Match, allows, restricts
from interlock.services.policy.outcome import Outcome, PartOutcome
from interlock.services.policy.prefixes import works_alike_everywhere
from interlock.services.policy.reading import Reading
from interlock.services.policy.rule import Rule
from interlock.services.policy.sentences import rule_name
from interlock.services.shell.model import ShellCommand, ShellLine
from interlock.state.calls import CallView, SessionRule

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
    return unliftable(decided) or _unseen_lifting(decided) or _NARROW


def _unseen_lifting(decided: PolicyDecision) -> str | None:
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


_ORDER = {"allow": 0, "ask": 1, "deny": 2}
_QUOTES = re.compile(r"[\"'`\\,]+")
_WORD = re.compile(r"[\w./@%+-]+")
_FREE_REDIRECTION = ("auto_edit", "yolo")


@dataclass(frozen=True, slots=True)
class LineCheck:
    """What a decision on a line is made from."""

    call: CallView
    line: ShellLine
    rules: Sequence[Rule]
    """About the shell tool, highest rank first."""
    mode: str
    session: Sequence[SessionRule]
    """About the shell tool."""
    folders: Folders
    reading: Reading
    escape: str | None = None
    """Where a redirection would write outside of what tools may write; null: nowhere."""
    protected: str | None = None
    """What a redirection would change that the program goes by; null: nothing."""


def decide_line(check: LineCheck) -> tuple[Outcome, list[PartOutcome]]:
    """The decision on the line, and on each part that a rule must allow or that a rule refuses."""
    parts = [_part(check, c) for c in check.line.effective or (_bare(check.line),)]
    parts += _refused(check)
    worst = max((p.outcome for p in parts), key=lambda o: _ORDER[o.decision])
    return _lowered(check, worst, parts), parts


def _bare(line: ShellLine) -> ShellCommand:
    """Stands for a line without a command that needs leave, such as `> file`: only rules for all commands meet it."""
    return ShellCommand(line.text, (), opaque=line.opaque)


def _part(check: LineCheck, command: ShellCommand) -> PartOutcome:
    plain = any(r.reading for r in check.rules) and check.reading.plain(command)
    return PartOutcome(command, _judged(check, command, plain), plain)


def _judged(check: LineCheck, command: ShellCommand, plain: bool) -> Outcome:
    outcome = _by_rules(check, command, plain)
    if outcome.decision == "ask":
        rule = covering(command, outcome.rule, check.session, check.mode, check.line)
        outcome = Outcome("allow", "session", session=rule) if rule else outcome
    if outcome.decision != "allow" or check.mode == "yolo":
        return outcome
    exact = outcome.rule is not None and command.literal and outcome.rule.names_all_of(command.argv)
    if command.danger and not (exact and not command.assigns):
        return replace(outcome, decision="ask", cause="danger", detail=command.danger)
    if command.opaque:
        return replace(outcome, decision="ask", cause="opaque", detail=command.opaque)
    away = check.folders.elsewhere
    if away is not None and not plain and not _holds_elsewhere(check, command):
        return replace(outcome, decision="ask", cause="elsewhere", detail=away)
    return outcome


def _holds_elsewhere(check: LineCheck, command: ShellCommand) -> bool:
    """Whether a rule for the workspace's own folder counts in one below it, too."""
    if not check.folders.bases or not command.words:
        return False
    program = command.words[0].text  # git would read the settings of a repository that lies there
    return program == "cd" or (program != "git" and works_alike_everywhere(shlex.quote(program)))


def _by_rules(check: LineCheck, command: ShellCommand, plain: bool) -> Outcome:
    lowered: Outcome | None = None
    for rule in check.rules:
        if rule.decision == "allow":
            if (rule.reading and plain) or allows(rule, command, check.call.args):
                return lowered or Outcome("allow", "rule", rule)
            continue
        match = _restricts(rule, command, check)
        if match is Match.YES and not rule.lowers:
            return Outcome(rule.decision, "rule", rule)
        # A rule that may be about this counts like one that only lowers.
        if match is not Match.NO:
            lowered = lowered or Outcome("ask", "rule" if match is Match.YES else "hidden", rule)
    return lowered or Outcome("ask", "none")


def _restricts(rule: Rule, command: ShellCommand, check: LineCheck) -> Match:
    match = restricts(rule, command, check.call.args)
    return Match.MAYBE if match is Match.NO and command.code and _named(rule, command) else match


def _named(rule: Rule, command: ShellCommand) -> bool:
    """The program text among the arguments names what the rule is against: `awk 'BEGIN{system("rm -rf /")}'`."""
    text = _QUOTES.sub(" ", " ".join(command.argv))
    if rule.command is not None:
        return any(rule.command.starts(text[place.start() :]) for place in islice(_WORD.finditer(text), 500))
    said = _WORD.findall(text)
    return any(
        tuple(said[at : at + len(prefix)]) == prefix for prefix in rule.prefixes for at in range(len(said))
    )


def _refused(check: LineCheck) -> list[PartOutcome]:
    """Wrappers (`timeout …`) and the line as a whole need no rule's leave, but a rule may be against them."""
    whole = ShellCommand(check.line.text, ())
    found: list[PartOutcome] = []
    for command in (*(c for c in check.line.commands if c.transparent), whole):
        outcome = _against(check, command)
        if outcome is not None:
            found.append(PartOutcome(command, outcome))
    return found


def _against(check: LineCheck, command: ShellCommand) -> Outcome | None:
    for rule in check.rules:
        if not rule.narrows:
            continue
        if rule.decision == "allow":
            if command.words and allows(rule, command, check.call.args):
                return None
            continue
        match = _restricts(rule, command, check)
        if match is Match.YES:
            return Outcome(rule.decision, "rule", rule)
        if match is Match.MAYBE:
            return Outcome("ask", "hidden", rule)
    return None


def _lowered(check: LineCheck, outcome: Outcome, parts: Sequence[PartOutcome]) -> Outcome:
    """What holds for the line as a whole and makes an allow an ask."""
    if outcome.decision != "allow":
        return outcome
    if check.protected is not None:
        return replace(outcome, decision="ask", cause="protected", detail=check.protected)
    if check.line.opaque is not None:
        return _unseen(check, outcome)
    if check.mode == "yolo" or not check.line.redirects:
        return outcome
    if check.escape is not None:
        return replace(outcome, decision="ask", cause="redirection", detail=check.escape)
    if check.mode in _FREE_REDIRECTION or all(_redirects(p.outcome) for p in parts):
        return outcome
    return replace(outcome, decision="ask", cause="redirection", detail="")


def _redirects(outcome: Outcome) -> bool:
    if outcome.session is not None:
        return outcome.session.redirection
    return outcome.rule is not None and outcome.rule.allow_redirection


def _unseen(check: LineCheck, outcome: Outcome) -> Outcome:
    """Only yolo lets a line pass that can't be seen through, and not past a rule that may be about it."""
    detail = check.line.opaque or ""
    if check.mode != "yolo":
        return replace(outcome, decision="ask", cause="opaque", detail=detail)
    rank = outcome.rule.rank if outcome.rule else 0
    against = next((r for r in check.rules if r.narrows and r.decision != "allow" and r.rank > rank), None)
    return outcome if against is None else Outcome("ask", "hidden", against, detail=detail)
