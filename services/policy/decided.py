"""decided: a decision with what it was made from, and the verdict that it comes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.services.policy import sentences
from interlock.services.policy.outcome import Outcome, PartOutcome
from interlock.services.policy.rule import Rule
from interlock.services.shell.model import ShellLine
from interlock.state.calls import CallView, Risk, ShellPart, Verdict


@dataclass(frozen=True, slots=True)
class Decided:
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
