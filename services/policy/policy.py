"""policy: decides what is allowed, asked about or denied: rules in tiers, and shell lines part by part."""

import asyncio
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pydantic import JsonValue

from interlock.services.policy.always import (
    LOOSER,
    Table,
    covers,
    save,
    shell_rule,
    tables_of,
    target,
    where_saved,
)
from interlock.services.policy.books import Books
from interlock.services.policy.checkers import CheckerAnswer, SafetyCheckers, lowered
from interlock.services.policy.decision import (
    Explanation,
    PolicyDecision,
    Ruling,
    explanation,
    rule_name,
    unless_widened,
)
from interlock.services.policy.fields import MODE_NAMES
from interlock.services.policy.harmless import lets_through
from interlock.services.policy.matching import meets, names_it, protection, with_plan_file
from interlock.services.policy.reading import Reading, folders_of
from interlock.services.policy.rule import (
    SHIPPED,
    Pattern,
    Scope,
    canonical,
    first,
    liftable,
    names_of,
    rule_args,
    server_of,
)
from interlock.services.policy.shell_decision import decide_line, only_reads
from interlock.services.shell.model import ShellLine
from interlock.services.shell.parse import parse_shell_line
from interlock.state.calls import (
    EDITS_ONLY,
    CallView,
    Choice,
    Risk,
    SavedRules,
    SessionRule,
    ToolError,
    Verdict,
)
from interlock.state.tooling import SHELL, Processes, Reach
from interlock.tools._addresses import describe_private_destination, url_problem

_OPENING = frozenset({"web_fetch", "browser_action"})
"""Tools that connect to the address in their argument `url`, and to no other private one."""
PRIVATE_RULE = "private address"


async def asked_if_private(call: CallView, verdict: Verdict) -> Verdict:
    """Limit a verdict to ask, without an always-choice, if the call's host is private now.

    The tool checks the address again when it connects: one that turns private later wasn't approved.
    """
    url = call.args.get("url")
    if canonical(call.name) not in _OPENING or not isinstance(url, str) or url_problem(url):
        return verdict
    try:
        private = await describe_private_destination(url)
    except ToolError:
        return verdict  # the tool fails for the same reason
    if private is None:
        return verdict
    reason = f"`{call.name}` leads to a private address ({private}), which asks every time."
    changed = {"decision": "ask", "rule": f"{PRIVATE_RULE}: {private}", "reason": reason, "by_checker": True}
    return verdict.model_copy(update={**changed, "session": None})


_NO_RULES: tuple[SessionRule, ...] = ()
_ONCE: tuple[Choice, ...] = ("proceed_once", "modify", "reject", "cancel")
_SAVED: Choice = "proceed_always_and_save"
_EDITS: Choice = "proceed_always_edits"
Annotations = Callable[[str], Mapping[str, JsonValue]]


def _no_annotations(_tool: str) -> Mapping[str, JsonValue]:
    return {}


_ALWAYS: tuple[Choice, ...] = ("proceed_always", "proceed_always_tool", "proceed_always_server", _SAVED)


class RulePolicy:
    """Decides by the rules that hold in a workspace."""

    def __init__(self, books: Books, save_to: Path | None = None) -> None:
        """`save_to`: folder for saved choices, if any."""
        self.started = RulePolicy(books.began) if books.began else None
        self.books, self._workspace = books, books.workspace
        self._save_to = save_to
        self.annotations: Annotations = _no_annotations
        """Returns what is known of a tool besides its risk; for MCP tools, the trusted annotations."""
        self._processes: Processes | None = None

    def run_checkers_with(self, processes: Processes) -> None:
        """Set where external safety checkers run."""
        self._processes = processes
        if self.started is not None:
            self.started.run_checkers_with(processes)

    @cached_property
    def _safety(self) -> SafetyCheckers:
        return SafetyCheckers(self.books.checking, self._workspace, self._processes)

    def check(
        self,
        call: CallView,
        risk: Risk,
        mode: str,
        session: Sequence[SessionRule] = _NO_RULES,
        annotations: Mapping[str, JsonValue] | None = None,
    ) -> Verdict:
        """Decide by the rules; `annotations`: those of an MCP tool."""
        verdict = self._decide(call, risk, mode, session, annotations or {}).verdict()
        if self.started is None or verdict.decision == "deny":
            return verdict
        return unless_widened(verdict, self.started.check(call, risk, mode, session, annotations))

    async def decide(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule] = _NO_RULES
    ) -> Verdict:
        """`by_rules`, followed by the safety checkers; a failing checker denies."""
        verdict = await self.by_rules(call, risk, mode, session)
        hints = self.annotations(call.name)
        verdict = lowered(verdict, await self.checked(call, risk, mode, verdict, hints))
        return await self.unless_private(call, risk, mode, verdict)

    async def by_rules(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule] = _NO_RULES
    ) -> Verdict:
        """`check` with what is known of the tool."""
        hints = self.annotations(call.name)
        if _line(call) is None:
            return self.check(call, risk, mode, session, hints)
        # Git may be asked what it would show, which can take seconds.
        return await asyncio.to_thread(self.check, call, risk, mode, session, hints)

    async def unless_private(self, call: CallView, risk: Risk, mode: str, verdict: Verdict) -> Verdict:
        """Limit the verdict to ask, once, if the call leads to a private address that no rule names."""
        if verdict.decision == "deny" or self.reach(call, risk, mode) == "any":
            return verdict
        return await asked_if_private(call, verdict)

    def reach(self, call: CallView, risk: Risk, mode: str) -> Reach:
        """See `Policy.reach`: all of them in yolo, and where a rule that somebody wrote names the host."""
        if self.started is not None and self.started.reach(call, risk, mode) != "any":
            return "approved"
        if (mode := _decides_as(mode)) == "yolo":
            return "any"
        about = target(call, risk, self._workspace) if risk == "network" else None
        rules = self.books.deciding.about(call, risk, mode, {}) if about is not None else ()
        named = any(r.target == about and r.decision == "allow" and not r.saved for r in rules)
        return "any" if named else "approved"

    async def checked(
        self, call: CallView, risk: Risk, mode: str, verdict: Verdict, annotations: Mapping[str, JsonValue]
    ) -> list[CheckerAnswer]:
        """Run the safety checkers on a call, unless it is denied."""
        before = await self.started.checked(call, risk, mode, verdict, annotations) if self.started else []
        if not self.books.checking.rules or verdict.decision == "deny":
            return before
        mode = _decides_as(mode)
        return before + await self._safety.answers(call, risk, mode, _line(call), annotations)

    def explain(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue] | None = None
    ) -> Explanation:
        """Explain the verdict without session rules, with the parsed parts and every rule considered."""
        decided = self._decide(call, risk, mode, _NO_RULES, annotations or {})
        choices = self.choices(call, risk, decided.verdict())
        rules = (self.narrow(call, risk, c, mode) for c in _ALWAYS if c in choices)
        return explanation(decided, choices, next(rules, None))

    def only_reads(self, call: CallView) -> bool:
        """Whether it is a shell line known to change nothing. May ask git, as `check` and `choices` do."""
        line = _line(call)
        return line is not None and only_reads(call, line, self._workspace)

    def fingerprint(self) -> str:
        """Return a hash of all rules and their scope: equal fingerprints mean equal decisions."""
        rules = (*self.books.deciding.rules, *self.books.checking.rules)
        plain = [[_plain(getattr(rule, field.name)) for field in fields(rule)] for rule in rules]
        began = self.started.fingerprint() if self.started else ""
        whole = repr((plain, self.books.scope.interactive, sorted(self.books.scope.servers), began))
        return sha256(whole.encode()).hexdigest()[:16]

    def choices(
        self, call: CallView, risk: Risk, verdict: Verdict, mode: str = "default"
    ) -> tuple[Choice, ...]:
        """Return the choices offered. An always-choice must be narrow and prevent the next question."""
        mode = "plan" if mode == "plan" else "default"
        if verdict.decision != "ask" or verdict.by_checker:
            return _ONCE
        sparing: list[Choice] = []
        if risk == "write" and mode == "default" and self.check(call, risk, "auto_edit").decision == "allow":
            sparing.append(_EDITS)
        for choice in _ALWAYS:
            rule = self.narrow(call, risk, choice, mode)
            if rule and self.check(call, risk, mode, [rule]).decision == "allow":
                sparing.append(choice)
        return (_ONCE[0], *sparing, *_ONCE[1:])

    def narrow(self, call: CallView, risk: Risk, choice: Choice, mode: str) -> SessionRule | None:
        """Return the session rule of an always-choice; None if it would be a blanket rule, or the mode is unknown."""
        rule = self._narrowed(call, risk, choice, mode)
        if rule is None or choice != _SAVED:
            return rule
        return rule.model_copy(update={"saved": where_saved(self._tables(risk, rule))})

    def _narrowed(self, call: CallView, risk: Risk, choice: Choice, mode: str) -> SessionRule | None:
        mode = _decides_as(mode)
        saves = self._save_to is not None and mode != "plan"  # no rule of a person's extends plan mode
        if mode not in LOOSER or choice not in _ALWAYS or (choice == _SAVED and not saves):
            return None
        server = server_of(call.name, self.books.scope.servers)
        if server is not None and choice != "proceed_always":
            whole = server if choice == "proceed_always_server" else None
            program = self.books.programs.get(server, "")
            return SessionRule(tool=call.name, server=whole, program=program, modes=LOOSER[mode])
        if choice in ("proceed_always_tool", "proceed_always_server"):
            return None
        if (line := _line(call)) is not None:
            folders = folders_of(call, line, self._workspace)
            return shell_rule(call, line, mode, Reading(line, folders, self._workspace))
        about = None if risk == "execute" else target(call, risk, self._workspace)
        return None if about is None else SessionRule(tool=call.name, path=about, modes=LOOSER[mode])

    def save(self, risk: Risk, rule: SessionRule, note: str) -> SavedRules | None:
        return None if self._save_to is None else save(self._save_to, self._tables(risk, rule), note)

    def _tables(self, risk: Risk, rule: SessionRule) -> list[Table]:
        server = server_of(rule.tool, self.books.scope.servers)
        return tables_of(rule, server, risk == "network", self._workspace.root)

    def program_of(self, tool: str) -> str:
        return self.books.programs.get(server_of(tool, self.books.scope.servers) or "", "")

    def wide_prefixes(self) -> Iterator[tuple[str, str]]:
        """Yield (rule, what it lets through) for allow rules that people wrote with command prefixes."""
        for rule in self.books.deciding.rules:
            wide = {shlex.join(p): lets for p in rule.prefixes if (lets := lets_through(p))}
            if wide and rule.decision == "allow" and rule.tier != SHIPPED:
                yield rule_name(rule), "; ".join(f"`{prefix}`: {lets}" for prefix, lets in wide.items())

    def for_agent(self, name: str) -> "RulePolicy":
        """Return the same rules for the calls of a sub-agent."""
        return self._scoped(replace(self.books.scope, agent=name))

    def with_servers(
        self, servers: Iterable[str], annotations: Annotations = _no_annotations
    ) -> "RulePolicy":
        """Return the same rules with these MCP servers connected."""
        own = self._scoped(replace(self.books.scope, servers=frozenset(servers)))
        own.annotations = annotations
        return own

    def _scoped(self, scope: Scope) -> "RulePolicy":
        own = copy(self)
        own.books = self.books.scoped(scope)
        own.__dict__.pop("_safety", None)
        own.started = self.started and self.started._scoped(scope)
        return own

    def _decide(
        self,
        call: CallView,
        risk: Risk,
        mode: str,
        session: Sequence[SessionRule],
        hints: Mapping[str, JsonValue],
    ) -> PolicyDecision:
        told, mode = _WORDS.get(mode, mode), _decides_as(mode)
        hints = with_plan_file(hints, call, risk, mode, self._workspace)
        rules = self.books.deciding.about(call, risk, mode, hints)
        if (line := _line(call)) is not None:
            own = [r for r in session if canonical(r.tool) == canonical(call.name)]
            outcome, parts = decide_line(call, line, rules, mode, own, self._workspace)
            return PolicyDecision(call, risk, told, rules, outcome, line, parts)
        has_targets = any(r.target is not None for r in rules)
        about = target(call, risk, self._workspace) if has_targets else None
        rule = first(rules, lambda r: meets(r, rule_args(call), about))
        outcome = Ruling(rule.decision, "rule", rule) if rule else Ruling("ask", "none")
        protected = None if outcome.decision == "deny" else protection(call, risk, self._workspace)
        named = protected is None or any(names_it(r, call, about, protected) for r in rules)
        by_default = outcome.decision == "allow" or rule is None or rule.tier == SHIPPED
        if protected and not named and by_default:
            outcome = Ruling("ask", "protected", detail=f"changes {protected.part!r} ({protected.what})")
        if outcome.decision == "ask" and liftable(outcome.rule):
            lifted = self._covering(call, risk, mode, session)
            if lifted and (lifted.path or not protected):
                outcome = Ruling("allow", "session", session=lifted)
        return PolicyDecision(call, risk, told, rules, outcome, about=about)

    def _covering(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]
    ) -> SessionRule | None:
        if not session or (risk == "execute" and not self.books.scope.servers):
            return None
        names, server = names_of(call.name, {}), server_of(call.name, self.books.scope.servers)
        about = (
            target(call, risk, self._workspace) if any(r.path and r.tool in names for r in session) else None
        )
        program = self.program_of(call.name)
        return next((r for r in session if covers(r, names, about, mode, server, program)), None)


_WORDS = {**MODE_NAMES, EDITS_ONLY: "default, as only edits are allowed"}
"""How reasons name a mode that has another name."""


def _decides_as(mode: str) -> str:
    """The mode of rules that decides in a mode."""
    return "default" if mode == EDITS_ONLY else MODE_NAMES.get(mode, mode)


def _line(call: CallView) -> ShellLine | None:
    """Parse the line a shell call would run; None for other tools."""
    if canonical(call.name) not in SHELL:
        return None
    command = call.args.get("command")
    return parse_shell_line(command if isinstance(command, str) else "")


def _plain(value: object) -> object:
    """Convert to a representation that is the same in every process."""
    if isinstance(value, Pattern):
        return value.text
    return sorted(value) if isinstance(value, frozenset) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
