"""safety: the safety checkers of a policy: which are asked about a call, and what the decision comes to."""

from collections.abc import Mapping

from pydantic import JsonValue

from interlock.services.policy.arguments import meets, searchable
from interlock.services.policy.checkers import Said, ask_checkers
from interlock.services.policy.matching import Match, restricts
from interlock.services.policy.rule import Rule
from interlock.services.policy.rulebook import RuleBook
from interlock.services.shell.model import ShellCommand, ShellLine
from interlock.state.calls import CallView, Risk
from interlock.state.tooling import Processes, Workspace

_KEPT = 64
"""Answers that are kept: the same call is decided on when it comes and when a person is asked about it."""


class SafetyCheckers:
    """Asked after the rules."""

    def __init__(self, book: RuleBook, workspace: Workspace) -> None:
        self.book = book
        self.processes: Processes | None = None
        self._workspace = workspace
        self._said: dict[tuple[str, ...], list[Said]] = {}

    async def said(
        self, call: CallView, risk: Risk, mode: str, line: ShellLine | None, hints: Mapping[str, JsonValue]
    ) -> list[Said]:
        """`line`: the call's, where it is a shell call."""
        about = self.book.about(call, risk, mode, hints)
        wanted = [r for r in about if _concerns(r, call, line)]
        if not wanted:
            return []
        key = (call.id, call.name, mode, searchable(call.args))
        if key not in self._said:
            while len(self._said) >= _KEPT:
                del self._said[next(iter(self._said))]
            self._said[key] = await ask_checkers(wanted, call, self._workspace, self.processes)
        return self._said[key]


def _concerns(rule: Rule, call: CallView, line: ShellLine | None) -> bool:
    """In doubt it does: a checker can only make a decision stricter."""
    if line is None:
        return meets(rule, call.args, None)
    if not rule.narrows or line.opaque is not None:
        return True
    commands = (*line.commands, *line.effective, ShellCommand(line.text, ()))
    return any(restricts(rule, command, call.args) is not Match.NO for command in commands)
