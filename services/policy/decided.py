"""decided: a decision with what it was made from, and the verdict that it comes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.services.policy import sentences
from interlock.services.policy.outcome import Outcome, PartOutcome
from interlock.services.policy.rule import Rule
from interlock.services.shell.model import ShellLine
from interlock.state.calls import CallView, Risk, ShellPart, Verdict


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision on a call; `line` and `parts` are for shell."""

    call: CallView
    risk: Risk
    mode: str
    rules: Sequence[Rule]
    outcome: Outcome
    line: ShellLine | None = None
    parts: Sequence[PartOutcome] = ()
    about: str | None = None
    """The file or host, where a rule asks for it."""

    def verdict(self) -> Verdict:
        reason = self._reason()
        return Verdict(
            decision=self.outcome.decision,
            rule=sentences.named(self.outcome),
            reason=reason,
            deny_message=self._deny_message(reason),
            session=self.outcome.session,
            parts=tuple(
                ShellPart(
                    text=p.command.text, decision=p.outcome.decision, reason=sentences.part(self.mode, p)
                )
                for p in self.parts
            ),
        )

    def _reason(self) -> str:
        if self.line is None:
            return sentences.plain(self.call.name, self.risk, self.mode, self.outcome)
        return sentences.line(self.mode, self.outcome, self.parts)

    def _deny_message(self, reason: str) -> str | None:
        if self.outcome.decision != "deny":
            return None
        own = self.outcome.rule.deny_message if self.outcome.rule else None
        return own or reason


def unless_widened(now: Verdict, then: Verdict) -> Verdict:
    """The verdict, which is at most to ask where the rules that a run began with were stricter."""
    if then.decision == "allow" or then.decision == now.decision:
        return now
    word = {"ask": "asked about", "deny": "denied"}[then.decision]
    reason = f"{now.reason} When this run began, it was {word}: {then.reason}"
    return now.model_copy(
        update={"decision": "ask", "reason": reason, "session": None, "parts": then.parts or now.parts}
    )
