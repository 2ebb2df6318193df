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

from interlock.services.policy.claude_permissions import read_allowed_tools
from interlock.services.policy.decision import (
    Explanation,
    PolicyDecision,
    Ruling,
    build_explanation,
    limit_to_ask_if_initially_stricter,
    rule_display_name,
)
from interlock.services.policy.grant_coverage import describe_args_allowed_by_prefix
from interlock.services.policy.grants import (
    LOOSER,
    Table,
    call_hosts,
    call_paths,
    call_target,
    describe_saved_scope,
    is_covered_by_session_rule,
    save_rules,
    to_rule_tables,
    to_shell_grant,
)
from interlock.services.policy.matching import (
    CallTarget,
    find_protection_of_changed_file,
    is_rule_allowing_protected_change,
    is_rule_matching_non_shell_call,
    replace_plan_file_hint,
    spellings_of_arguments,
)
from interlock.services.policy.plain_reading import LineReading
from interlock.services.policy.rule import (
    SHIPPED,
    Pattern,
    Rule,
    Scope,
    all_tool_names,
    args_for_rules,
    can_grant_override,
    canonical_tool_name,
    find_longest_matching_server,
    first_deciding_rule,
)
from interlock.services.policy.rule_files import MODE_NAMES
from interlock.services.policy.safety_checkers import CheckerAnswer, SafetyCheckers, apply_checker_answers
from interlock.services.policy.shell_decision import decide_shell_line, is_read_only_line
from interlock.services.policy.workspace_rules import WorkspaceRules
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
from interlock.tools.host_addresses import describe_private_destination, url_problem

_OPENING = frozenset({"web_fetch", "browser_action"})
"""Tools that connect to the address in their argument `url`, and to no other private one."""
PRIVATE_RULE = "private address"


async def lower_to_ask_if_host_private(call: CallView, verdict: Verdict) -> Verdict:
    """Return a verdict limited to ask, without an always-choice, if the call's host is private now.

    The tool checks the address again when it connects: one that turns private later wasn't approved.
    """
    url = call.args.get("url")
    if canonical_tool_name(call.name) not in _OPENING or not isinstance(url, str) or url_problem(url):
        return verdict
    try:
        private = await describe_private_destination(url)
    except ToolError:
        return verdict  # the tool fails for the same reason
    if private is None:
        return verdict
    reason = f"`{call.name}` leads to a private address ({private}), which always needs approval."
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

    def __init__(self, workspace_rules: WorkspaceRules, save_to: Path | None = None) -> None:
        """`save_to`: folder for saved choices, if any."""
        self.at_start = RulePolicy(workspace_rules.at_start) if workspace_rules.at_start else None
        self.workspace_rules, self._workspace = workspace_rules, workspace_rules.workspace
        self._save_to = save_to
        self.annotations: Annotations = _no_annotations
        """Returns what is known of a tool besides its risk; for MCP tools, the trusted annotations."""
        self._processes: Processes | None = None

    def set_checker_processes(self, processes: Processes) -> None:
        """Set where external safety checkers run."""
        self._processes = processes
        if self.at_start is not None:
            self.at_start.set_checker_processes(processes)

    @cached_property
    def _safety_checkers(self) -> SafetyCheckers:
        return SafetyCheckers(self.workspace_rules.checking, self._workspace, self._processes)

    def check(
        self,
        call: CallView,
        risk: Risk,
        mode: str,
        session: Sequence[SessionRule] = _NO_RULES,
        annotations: Mapping[str, JsonValue] | None = None,
    ) -> Verdict:
        """Return the verdict by the rules; `annotations`: those of an MCP tool."""
        verdict = self._apply_rules(call, risk, mode, session, annotations or {}).to_verdict()
        if self.at_start is None or verdict.decision == "deny":
            return verdict
        return limit_to_ask_if_initially_stricter(
            verdict, self.at_start.check(call, risk, mode, session, annotations)
        )

    async def decide_by_rules_and_checkers(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule] = _NO_RULES
    ) -> Verdict:
        """Return the verdict by the rules, then by the safety checkers; a failing checker denies."""
        verdict = await self.decide_by_rules(call, risk, mode, session)
        hints = self.annotations(call.name)
        verdict = apply_checker_answers(verdict, await self.ask_checkers(call, risk, mode, verdict, hints))
        return await self.lower_to_ask_if_private(call, risk, mode, verdict)

    async def decide_by_rules(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule] = _NO_RULES
    ) -> Verdict:
        """Return the verdict by the rules, with what is known of the tool."""
        hints = self.annotations(call.name)
        if _parse_shell_call(call) is None:
            return self.check(call, risk, mode, session, hints)
        # Git may be asked what it would show, which can take seconds.
        return await asyncio.to_thread(self.check, call, risk, mode, session, hints)

    async def lower_to_ask_if_private(
        self, call: CallView, risk: Risk, mode: str, verdict: Verdict
    ) -> Verdict:
        """Return the verdict limited to ask, once, if the call leads to a private address that no rule names."""
        if verdict.decision == "deny" or self.allowed_private_network_reach(call, risk, mode) == "any":
            return verdict
        return await lower_to_ask_if_host_private(call, verdict)

    def allowed_private_network_reach(self, call: CallView, risk: Risk, mode: str) -> Reach:
        """Return which addresses a call may reach: all in yolo, and where a rule that somebody wrote names the
        host."""
        if (
            self.at_start is not None
            and self.at_start.allowed_private_network_reach(call, risk, mode) != "any"
        ):
            return "approved"
        if (mode := _to_rule_mode(mode)) == "yolo":
            return "any"
        about = call_target(call, risk, self._workspace) if risk == "network" else None
        rules = (
            self.workspace_rules.deciding.applicable_rules(call, risk, mode, {}) if about is not None else ()
        )
        named = any(r.target == about and r.decision == "allow" and not r.saved for r in rules)
        return "any" if named else "approved"

    async def ask_checkers(
        self, call: CallView, risk: Risk, mode: str, verdict: Verdict, annotations: Mapping[str, JsonValue]
    ) -> list[CheckerAnswer]:
        """Run the safety checkers on a call, unless it is denied; return their answers."""
        before = (
            await self.at_start.ask_checkers(call, risk, mode, verdict, annotations) if self.at_start else []
        )
        if not self.workspace_rules.checking.rules or verdict.decision == "deny":
            return before
        mode = _to_rule_mode(mode)
        return before + await self._safety_checkers.ask_checkers(
            call, risk, mode, _parse_shell_call(call), annotations
        )

    def explain_decision(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue] | None = None
    ) -> Explanation:
        """Return the verdict without session rules, with the parsed parts and every rule considered."""
        decided = self._apply_rules(call, risk, mode, _NO_RULES, annotations or {})
        choices = self.offered_choices(call, risk, decided.to_verdict())
        rules = (self.session_rule_for_choice(call, risk, c, mode) for c in _ALWAYS if c in choices)
        return build_explanation(decided, choices, next(rules, None))

    def is_read_only_command(self, call: CallView) -> bool:
        """Return whether it is a shell line known to change nothing. May ask git, as `check` and `choices` do."""
        line = _parse_shell_call(call)
        return line is not None and is_read_only_line(call, line, self._workspace)

    def rules_fingerprint(self) -> str:
        """Return a hash of all rules and their scope: equal fingerprints mean equal decisions."""
        rules = (*self.workspace_rules.deciding.rules, *self.workspace_rules.checking.rules)
        plain = [[_to_stable_value(getattr(rule, field.name)) for field in fields(rule)] for rule in rules]
        began = self.at_start.rules_fingerprint() if self.at_start else ""
        whole = repr(
            (plain, self.workspace_rules.scope.interactive, sorted(self.workspace_rules.scope.servers), began)
        )
        return sha256(whole.encode()).hexdigest()[:16]

    def offered_choices(
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
            rule = self.session_rule_for_choice(call, risk, choice, mode)
            if rule and self.check(call, risk, mode, [rule]).decision == "allow":
                sparing.append(choice)
        return (_ONCE[0], *sparing, *_ONCE[1:])

    def session_rule_for_choice(
        self, call: CallView, risk: Risk, choice: Choice, mode: str
    ) -> SessionRule | None:
        """Return the session rule of an always-choice; None if it would be a blanket rule, or the mode is unknown."""
        rule = self._to_narrow_session_rule(call, risk, choice, mode)
        if rule is None or choice != _SAVED:
            return rule
        return rule.model_copy(update={"saved": describe_saved_scope(self._to_saved_rule_tables(risk, rule))})

    def _to_narrow_session_rule(
        self, call: CallView, risk: Risk, choice: Choice, mode: str
    ) -> SessionRule | None:
        mode = _to_rule_mode(mode)
        saves = self._save_to is not None and mode != "plan"  # no rule of a person's extends plan mode
        if mode not in LOOSER or choice not in _ALWAYS or (choice == _SAVED and not saves):
            return None
        server = find_longest_matching_server(call.name, self.workspace_rules.scope.servers)
        if server is not None and choice != "proceed_always":
            whole = server if choice == "proceed_always_server" else None
            program = self.workspace_rules.programs.get(server, "")
            return SessionRule(tool=call.name, server=whole, program=program, modes=LOOSER[mode])
        if choice in ("proceed_always_tool", "proceed_always_server"):
            return None
        if (line := _parse_shell_call(call)) is not None:
            return to_shell_grant(call, mode, LineReading.from_call(call, line, self._workspace))
        about = None if risk == "execute" else call_target(call, risk, self._workspace)
        return None if about is None else SessionRule(tool=call.name, path=about, modes=LOOSER[mode])

    def save_rule(self, risk: Risk, rule: SessionRule, note: str) -> SavedRules | None:
        return (
            None
            if self._save_to is None
            else save_rules(self._save_to, self._to_saved_rule_tables(risk, rule), note)
        )

    def _to_saved_rule_tables(self, risk: Risk, rule: SessionRule) -> list[Table]:
        server = find_longest_matching_server(rule.tool, self.workspace_rules.scope.servers)
        return to_rule_tables(rule, server, risk == "network", self._workspace.root)

    def server_fingerprint(self, tool: str) -> str:
        return self.workspace_rules.programs.get(
            find_longest_matching_server(tool, self.workspace_rules.scope.servers) or "", ""
        )

    def describe_permissive_prefix_rules(self) -> Iterator[tuple[str, str]]:
        """Yield (rule, what it lets through) for allow rules that people wrote with command prefixes."""
        for rule in self.workspace_rules.deciding.rules:
            wide = {
                shlex.join(p): lets
                for p in rule.command_prefixes
                if (lets := describe_args_allowed_by_prefix(p))
            }
            if wide and rule.decision == "allow" and rule.tier != SHIPPED:
                yield (
                    rule_display_name(rule),
                    "; ".join(f"`{prefix}`: {lets}" for prefix, lets in wide.items()),
                )

    def for_agent(self, name: str) -> "RulePolicy":
        """Return the same rules for the calls of a sub-agent."""
        return self._with_scope(replace(self.workspace_rules.scope, agent=name))

    def for_servers(self, servers: Iterable[str], annotations: Annotations = _no_annotations) -> "RulePolicy":
        """Return the same rules with these MCP servers connected."""
        own = self._with_scope(replace(self.workspace_rules.scope, servers=frozenset(servers)))
        own.annotations = annotations
        return own

    def with_skill_rules(self, allowed: str) -> "RulePolicy":
        """Return the same rules with what the user's own skills allow: `allowed-tools`, an entry a line.

        Any rule that somebody wrote comes before theirs, and what asks in every mode asks."""
        if not allowed:
            return self
        entries = read_allowed_tools(allowed.splitlines(), self._workspace.root)
        own = copy(self)
        own.workspace_rules = self.workspace_rules.with_rules(one.rule for one in entries if one.rule)
        own.at_start = self.at_start and self.at_start.with_skill_rules(allowed)
        return own

    def _with_scope(self, scope: Scope) -> "RulePolicy":
        own = copy(self)
        own.workspace_rules = self.workspace_rules.with_scope(scope)
        own.__dict__.pop("_safety_checkers", None)
        own.at_start = self.at_start and self.at_start._with_scope(scope)
        return own

    def _apply_rules(
        self,
        call: CallView,
        risk: Risk,
        mode: str,
        session: Sequence[SessionRule],
        hints: Mapping[str, JsonValue],
    ) -> PolicyDecision:
        told, mode = MODE_NAMES.get(mode, mode), _to_rule_mode(mode)
        hints = replace_plan_file_hint(hints, call, risk, mode, self._workspace)
        rules = self.workspace_rules.deciding.applicable_rules(call, risk, mode, hints)
        if (line := _parse_shell_call(call)) is not None:
            own = [r for r in session if canonical_tool_name(r.tool) == canonical_tool_name(call.name)]
            outcome, parts = decide_shell_line(call, line, rules, mode, own, self._workspace)
            return PolicyDecision(call, risk, told, rules, outcome, line, parts)
        about = self._find_target(call, risk, rules)
        ways = spellings_of_arguments(args_for_rules(call), self._workspace)

        def is_matching(rule: Rule) -> bool:
            found = (is_rule_matching_non_shell_call(rule, args, about) for args in ways)
            return all(found) if rule.decision == "allow" else any(found)

        rule = first_deciding_rule(rules, is_matching)
        outcome = Ruling(rule.decision, "rule", rule) if rule else Ruling("ask", "none")
        protected = (
            None
            if outcome.decision == "deny"
            else find_protection_of_changed_file(call, risk, self._workspace)
        )
        named = protected is None or any(
            is_rule_allowing_protected_change(r, call, about, protected) for r in rules
        )
        by_default = outcome.decision == "allow" or rule is None or rule.tier == SHIPPED
        if protected and not named and by_default:
            outcome = Ruling("ask", "protected", detail=f"changes {protected.part!r} ({protected.what})")
        if outcome.decision == "ask" and can_grant_override(outcome.rule):
            lifted = self._find_covering_session_rule(call, risk, mode, session)
            if lifted and (lifted.path or not protected):
                outcome = Ruling("allow", "session", session=lifted)
        return PolicyDecision(call, risk, told, rules, outcome, target=about)

    def _find_target(self, call: CallView, risk: Risk, rules: Sequence[Rule]) -> CallTarget:
        """Return what the call is about, as far as one of the rules asks."""
        workspace = self._workspace
        return CallTarget(
            call_target(call, risk, workspace) if any(r.target is not None for r in rules) else None,
            call_paths(call, workspace) if any(r.path_pattern is not None for r in rules) else (),
            call_hosts(call) if any(r.host_pattern is not None for r in rules) else (),
        )

    def _find_covering_session_rule(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]
    ) -> SessionRule | None:
        if not session or (risk == "execute" and not self.workspace_rules.scope.servers):
            return None
        names, server = (
            all_tool_names(call.name, {}),
            find_longest_matching_server(call.name, self.workspace_rules.scope.servers),
        )
        about = (
            call_target(call, risk, self._workspace)
            if any(r.path and r.tool in names for r in session)
            else None
        )
        program = self.server_fingerprint(call.name)
        return next(
            (r for r in session if is_covered_by_session_rule(r, names, about, mode, server, program)), None
        )


def _to_rule_mode(mode: str) -> str:
    """Return the mode of rules that decides in a mode."""
    return "default" if mode == EDITS_ONLY else MODE_NAMES.get(mode, mode)


def _parse_shell_call(call: CallView) -> ShellLine | None:
    """Return the line that a shell call would run, parsed; None for other tools."""
    if canonical_tool_name(call.name) not in SHELL:
        return None
    command = call.args.get("command")
    return parse_shell_line(command if isinstance(command, str) else "")


def _to_stable_value(value: object) -> object:
    """Return a representation that is the same in every process."""
    if isinstance(value, Pattern):
        return value.text
    return sorted(value) if isinstance(value, frozenset) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
