"""safety_checkers: safety checkers run on calls that the rules allow, by rank; the strictest answer wins."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

from pydantic import BaseModel, JsonValue, ValidationError

from interlock.services.policy.decision import rule_display_name
from interlock.services.policy.matching import (
    UNKNOWN_TARGET,
    Match,
    is_path_argument_name,
    is_rule_matching_non_shell_call,
    iterate_named_strings,
    match_restricting_rule,
    to_searchable_json,
)
from interlock.services.policy.rule import STRICTNESS, Checker, Rule, RuleBook
from interlock.services.shell.model import ShellCommand, ShellLine
from interlock.state.calls import CallView, Decision, Risk, Verdict
from interlock.state.messages import Frozen
from interlock.state.tooling import ProcessEnd, Processes
from interlock.state.workspace import PathRefused, Workspace

_PROTOCOL = "1.0.0"
_LONGEST = 20_000
"""Maximum characters of an answer."""
_QUIET = 'exec bash -c "$1" 2>/dev/null'
"""stderr is for the checker's author; only stdout is the answer."""


class CheckerAnswer(Frozen):
    """A checker's answer."""

    rule: str
    decision: Decision
    reason: str


class _Answer(BaseModel, defer_build=True):
    """Output of an external checker (gemini-cli's protocol)."""

    decision: Literal["allow", "deny", "ask", "ask_user"]
    reason: str | None = None
    error: str | None = None


def apply_checker_answers(verdict: Verdict, answers: Sequence[CheckerAnswer]) -> Verdict:
    """Return the verdict with the checkers' answers, which can only make it stricter."""
    strict = max(answers, key=lambda s: STRICTNESS[s.decision], default=None)
    if strict is None or strict.decision == "allow":
        return verdict
    by_rules = f" {verdict.reason}" if verdict.decision == "ask" and strict.decision == "ask" else ""
    return verdict.model_copy(
        update={
            "decision": strict.decision,
            "rule": strict.rule,
            "reason": f"{strict.reason}{by_rules}",
            "deny_message": strict.reason if strict.decision == "deny" else None,
            "session": None,
            "by_checker": True,
        }
    )


def _parse_checker_result(checker: Checker, ended: ProcessEnd) -> tuple[Decision, str]:
    """Return a checker's decision and reason. Raise `ValueError` saying what is wrong with its result."""
    if ended.how == "lost":
        return (
            "ask",
            f"The supervisor of the safety checker {checker.name} was killed: what it says is unknown.",
        )
    if ended.how != "exited":
        took = f" after {checker.timeout_s:g} s" if ended.how == "timeout" else ""
        raise ValueError(f"it was ended ({ended.how}{took})")
    if ended.exit_code != 0:
        raise ValueError(f"exit code {ended.exit_code if ended.signal is None else ended.signal}")
    try:
        answer = _Answer.model_validate_json(ended.output.strip())
    except ValidationError:
        raise ValueError('it didn\'t print {"decision": "allow" | "ask_user" | "deny", "reason"?}') from None
    if answer.error is not None:
        raise ValueError(answer.error)
    decision: Decision = "ask" if answer.decision in ("ask", "ask_user") else answer.decision
    verb = {"ask": "asks", "deny": "denies it", "allow": "lets it pass"}[decision]
    why = f": {answer.reason}" if answer.reason else "."
    return decision, f"The safety checker {checker.name} {verb}{why}"


def _decide_by_allowed_paths(checker: Checker, call: CallView, workspace: Workspace) -> tuple[Decision, str]:
    for name, path in _path_arguments(checker, call.args):
        try:
            workspace.resolve_readable(path)
        except PathRefused as refused:
            return "deny", f"The safety checker {checker.name} denies {name!r}: {refused}"
    return "allow", f"The safety checker {checker.name} lets it pass."


def _path_arguments(checker: Checker, args: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield (argument, value) for arguments that are paths by name, also in lists and objects."""
    included = cast(list[str], checker.config.get("included_args", []))
    excluded = cast(list[str], checker.config.get("excluded_args", []))
    for name, value in iterate_named_strings("", args):
        word = name.rpartition(".")[2]
        if word in excluded or name in excluded:
            continue
        if word in included or name in included or is_path_argument_name(word):
            yield name, value


_KEPT = 64
"""Maximum cached answers: a call is evaluated when it arrives and again when a person is asked."""


class SafetyCheckers:
    def __init__(self, book: RuleBook, workspace: Workspace, processes: Processes | None) -> None:
        """`processes`: runs external checkers."""
        self._book, self._workspace, self._processes = book, workspace, processes
        self._answers: dict[tuple[str, ...], list[CheckerAnswer]] = {}

    async def ask_checkers(
        self, call: CallView, risk: Risk, mode: str, line: ShellLine | None, hints: Mapping[str, JsonValue]
    ) -> list[CheckerAnswer]:
        """Return the checkers' answers for a call; `line` is set for shell calls."""
        about = self._book.applicable_rules(call, risk, mode, hints)
        wanted = [r for r in about if _is_checker_applicable(r, call, line)]
        if not wanted:
            return []
        key = (call.id, call.name, mode, to_searchable_json(call.args))
        if key not in self._answers:
            while len(self._answers) >= _KEPT:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = await self._run_checkers_until_denied(wanted, call)
        return self._answers[key]

    async def _run_checkers_until_denied(self, rules: Sequence[Rule], call: CallView) -> list[CheckerAnswer]:
        """Run the checkers in order until one denies; return their answers. A failing checker denies."""
        found: list[CheckerAnswer] = []
        for rule, checker in ((r, r.checker) for r in rules if r.checker is not None):
            if checker.command is None:
                decision, reason = _decide_by_allowed_paths(checker, call, self._workspace)
            else:
                decision, reason = await self._run_external_checker(checker, checker.command, call)
            name = f"safety checker {checker.name} ({rule_display_name(rule)})"
            found.append(CheckerAnswer(rule=name, decision=decision, reason=reason))
            if decision == "deny":
                break
        return found

    async def _run_external_checker(
        self, checker: Checker, command: str, call: CallView
    ) -> tuple[Decision, str]:
        if self._processes is None:
            return "deny", f"The safety checker {checker.name} can't be run here."
        root, roots = self._workspace.root, self._workspace.roots
        question = {
            "protocolVersion": _PROTOCOL,
            "toolCall": {"name": call.name, "args": call.args},
            "context": {"environment": {"cwd": str(root), "workspaces": [str(r) for r in roots]}},
            "config": dict(checker.config),
        }
        ended = await self._processes.run(
            ["bash", "-c", _QUIET, "checker", command],
            cwd=root,
            timeout_s=checker.timeout_s,
            limit_chars=_LONGEST,
            stdin=json.dumps(question, ensure_ascii=False).encode("utf-8", "replace"),
        )
        try:
            return _parse_checker_result(checker, ended)
        except ValueError as error:
            return "deny", f"The safety checker {checker.name} failed: {error}."


def _is_checker_applicable(rule: Rule, call: CallView, line: ShellLine | None) -> bool:
    """Return whether a checker applies; if in doubt it does, as it can only make a decision stricter."""
    if line is None:
        return is_rule_matching_non_shell_call(rule, call.args, UNKNOWN_TARGET)
    if not rule.has_conditions or line.opaque is not None:
        return True
    commands = (*line.commands, *line.commands_needing_rule, ShellCommand(line.text, ()))
    return any(match_restricting_rule(rule, command, call.args) is not Match.NO for command in commands)
