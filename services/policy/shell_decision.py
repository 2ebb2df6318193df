"""shell_decision: applies the rules to a shell line: each simple command by itself; the strictest decision wins."""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, product
from typing import NamedTuple

from pydantic import JsonValue

from interlock.services.files.path_patterns import PathPattern
from interlock.services.policy.changed_files import (
    describe_trusted_change_in_unparsed_line,
    describe_trusted_file_change,
    join_unless_absolute_or_home,
    possible_locations,
    possible_redirection_paths,
)
from interlock.services.policy.decision import PartRuling, Ruling
from interlock.services.policy.grant_coverage import (
    find_grant_row,
    has_only_literals_and_path_globs,
    is_read_only_program,
    is_safe_for_trusted_files,
)
from interlock.services.policy.grants import find_covering_grant, is_command_granted
from interlock.services.policy.inline_scripts import (
    find_inline_script_commands,
    find_inline_stdin_texts,
    is_running_inline_script,
)
from interlock.services.policy.matching import (
    Match,
    can_match_past_options,
    is_rule_allowing_command,
    match_restricting_rule,
)
from interlock.services.policy.plain_reading import LineReading, is_program_from_project
from interlock.services.policy.private_files import (
    describe_private_name_in_unparsed_line,
    describe_shown_private_file,
    possible_word_values,
)
from interlock.services.policy.programs import (
    describe_program_copying,
    find_restricted_program_files,
    is_program_named_in,
    resolve_copied_programs,
)
from interlock.services.policy.rule import SHIPPED, STRICTNESS, Pattern, Rule
from interlock.services.policy.task_runners import (
    ANYTHING,
    can_run_command_in_arguments,
    expand_to_plain_commands,
    find_inner_danger,
    has_unsafe_assignments,
    split_by_target,
    unresolved_programs,
)
from interlock.services.policy.unpacked_files import UNSEEN_PATCH, describe_patched_trusted_file
from interlock.services.shell.commands import SHELLS, canonical_program_name
from interlock.services.shell.danger import INDIFFERENT, UNKNOWN
from interlock.services.shell.model import ShellCommand, ShellLine, Word, literal_word, program_name
from interlock.services.shell.parse import parse_command_words
from interlock.state.calls import CallView, SessionRule
from interlock.state.file_names import quote_name
from interlock.state.workspace import PathRefused, Workspace

_QUOTES = re.compile(r"[\"'`\\,]+")
_JOINS = re.compile(r"[\"']\s*(?:\+|\.\.?|~)\s*[\"']")
"""Between two texts that a program makes one: `"git" + " push"`."""
_GLUED = re.compile(r"(?<!\S)-(?:[A-Za-z]*?m|[A-Za-z](?=\w+\s))(?=\w)")
"""An option whose value stands in the same word: `-mpytest`, `-O'git push'`."""
_WORD = re.compile(r"[\w./@%+-]+")
_PARTS = re.compile("[=,:;]")
_MOST_LETTERS = 32
_MOST_SHELLS, _MOST_BEHIND = 4, 50
"""Shells behind an unknown program that are looked behind, and words behind each."""
_MOST_BETWEEN = 9
"""Options and their values that may stand between two words of a rule's prefix, and one."""
_MOST_WORDS = 500
"""Of program text, in which a rule looks for what it restricts."""
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_FREE_REDIRECTION = ("auto_edit", "yolo")


def decide_shell_line(
    call: CallView,
    line: ShellLine,
    rules: Sequence[Rule],
    mode: str,
    session: Sequence[SessionRule],
    workspace: Workspace,
) -> tuple[Ruling, list[PartRuling]]:
    """Return the decision on the line, and on each part that needs a rule's permission or that a rule refuses.

    `rules` and `session` are those for the shell tool, rules with the highest rank first.
    """
    reading = LineReading.from_call(call, line, workspace)
    check = _LineDecider(call, rules, mode, session, reading)
    reads = any(r.only_plain_reading for r in rules)
    # For a line of nothing that needs a rule, such as `> file` or `true`: only rules for all commands match it.
    bare = ShellCommand(line.text, (), opaque=line.opaque)
    parts: list[PartRuling] = []
    allowed = [prefix for r in rules if r.decision == "allow" for prefix in r.command_prefixes]
    for command in chain.from_iterable(
        split_by_target(c, allowed) for c in line.commands_needing_rule or (bare,)
    ):
        plain = reads and (
            reading.is_plain_read_command(command) or (command is bare and reading.is_allowed_without_rule)
        )
        parts.append(PartRuling(command, check.decide_command(command, plain), plain))
    # Wrappers (`timeout …`), a target by its other names and the line as a whole need no permission, but a rule may
    # refuse them.
    wrappers = (c for c in line.commands if c.needs_no_rule)
    spelled = check.equivalent_commands() if check.has_restrictions else ()
    for command in dict.fromkeys(
        chain(wrappers, find_inline_script_commands(line), spelled, [ShellCommand(line.text, ())])
    ):
        if (outcome := check.find_restricting_ruling(command)) is not None:
            parts.append(PartRuling(command, outcome))
    parts += check.rulings_on_program_copying()
    parts += check.rulings_on_denied_redirections()
    worst = max((p.ruling for p in parts), key=lambda o: STRICTNESS[o.decision])
    return (check.lower_for_whole_line(worst, parts) if worst.decision == "allow" else worst), parts


def is_read_only_line(call: CallView, line: ShellLine, workspace: Workspace) -> bool:
    """Return whether a line is fully understood and does only plain reading."""
    reading = LineReading.from_call(call, line, workspace)
    writes = any(r.kind == "write" for r in line.file_redirects)
    return not (line.opaque or line.assigns or writes) and all(
        map(reading.is_plain_read_command, line.commands_needing_rule)
    )


@dataclass(frozen=True)
class _LineDecider:
    """Decides one shell line, command by command."""

    call: CallView
    rules: Sequence[Rule]
    mode: str
    session: Sequence[SessionRule]
    reading: LineReading

    @property
    def has_restrictions(self) -> bool:
        """Whether a rule denies or asks about some commands only."""
        return any(rule.has_conditions and rule.decision != "allow" for rule in self.rules)

    @property
    def folder_paths(self) -> Sequence[str]:
        return [str(self.reading.workspace.root / base) for base in self.reading.folders]

    @cached_property
    def restricted_programs(self) -> Mapping[str, str]:
        """The programs that rules deny or ask about, and their files."""
        return find_restricted_program_files(self.rules)

    def equivalent_commands(self) -> Iterator[ShellCommand]:
        """Yield what each command may be besides, by its spelling or as a copy of a program."""
        fed, folders = (
            find_inline_script_commands(self.reading.line),
            self.folder_paths or [str(self.reading.workspace.root)],
        )
        every = (*self.reading.line.commands, *fed)
        copied = [
            one
            for command in every
            for one in resolve_copied_programs(command, self.restricted_programs, folders)
        ]
        for one in (*self.reading.line.commands_needing_rule, *fed, *copied):
            yield from expand_to_plain_commands(one, self.folder_paths)
        yield from copied

    def rulings_on_program_copying(self) -> Iterator[PartRuling]:
        """Yield a question for each command that copies a program which a rule denies or asks about."""
        for command in (
            (*self.reading.line.commands, *find_inline_script_commands(self.reading.line))
            if self.has_restrictions
            else ()
        ):
            if clause := describe_program_copying(command, self.restricted_programs, self.reading):
                yield PartRuling(command, Ruling("ask", "danger", detail=clause))

    def decide_command(self, command: ShellCommand, only_reads: bool) -> Ruling:
        outcome = self._decide_by_rules(command, only_reads)
        if outcome.decision == "ask":
            rule = find_covering_grant(self.session, command, outcome.rule, self.mode, self.reading)
            outcome = Ruling("allow", "session", session=rule) if rule else outcome
        if outcome.decision == "allow" and self.mode == "yolo":
            return self._lower_if_showing_private_file(
                command, self._lower_if_changing_trusted_file(command, outcome)
            )
        if outcome.decision != "allow":
            return outcome
        exact = outcome.rule is not None and command.literal and command.argv in outcome.rule.command_prefixes
        away = self.reading.elsewhere_clause
        whole = (
            command.sets or away or command.only_sources_file or None
        ) is not None and self._is_line_granted()
        named = command.danger == UNKNOWN and has_only_literals_and_path_globs(command, self.reading)
        danger = (None if named else command.danger) or (None if whole else command.sets)
        danger = danger or find_inner_danger(command)
        if danger and not (exact and not command.assigned_names):
            return outcome.lower_to_ask("danger", danger)
        if command.opaque and not (command.only_sources_file and whole):
            return outcome.lower_to_ask("opaque", command.opaque)
        if not (only_reads or exact) and (touched := self._describe_possible_trusted_change(command)):
            return outcome.lower_to_ask("danger", touched)
        here = only_reads or (whole and self.reading.begins_in_root and self.reading.folders)
        if away is not None and not here and not self._is_allowed_in_other_folder(command, outcome):
            return outcome.lower_to_ask("elsewhere", away)
        return outcome if only_reads else self._lower_if_repository_allows_showing_private(command, outcome)

    def _lower_if_repository_allows_showing_private(self, command: ShellCommand, outcome: Ruling) -> Ruling:
        """Return an allow of a repository's file lowered to an ask for what shows a private file."""
        if outcome.rule is None or not outcome.rule.lifts_no_standing_question:
            return outcome
        return self._lower_if_showing_private_file(command, self._lower_if_reading_private_input(outcome))

    def _lower_if_changing_trusted_file(self, command: ShellCommand, outcome: Ruling) -> Ruling:
        """Return the mode's allow lowered to an ask for what changes a file that the program trusts."""
        if not _has_standing_questions(outcome):
            return outcome
        patched = describe_patched_trusted_file(command, self.reading)
        clause = describe_trusted_file_change(command, self.reading) or (
            patched if patched != UNSEEN_PATCH else None
        )
        return outcome.lower_to_ask("danger", clause) if clause else outcome

    def _lower_if_showing_private_file(self, command: ShellCommand, outcome: Ruling) -> Ruling:
        """Return the mode's allow lowered to an ask for what shows a private file, unless somebody granted this."""
        if outcome.decision != "allow" or not _has_standing_questions(outcome):
            return outcome
        clause = describe_shown_private_file(command, self.reading)
        granted = clause and (
            self._is_line_granted()
            or find_covering_grant(self.session, command, None, self.mode, self.reading)
        )
        return outcome.lower_to_ask("private", clause) if clause and not granted else outcome

    def _describe_possible_trusted_change(self, command: ShellCommand) -> str | None:
        """Return a clause about a file that the program trusts among the arguments of a command that may change
        files."""
        if is_safe_for_trusted_files(command.argv):
            return None
        for word in command.words[1:]:
            for path, base in product(_possible_paths_in_argument(word.text), self.reading.folders_or_root):
                if found := self.reading.workspace.find_protection(join_unless_absolute_or_home(base, path)):
                    return f"may change {found.part!r} ({found.what})"
        patched = describe_patched_trusted_file(command, self.reading)
        return patched or describe_trusted_file_change(command, self.reading)

    def _is_allowed_in_other_folder(self, command: ShellCommand, outcome: Ruling) -> bool:
        """Return whether a rule for the workspace's folder applies below it too; not for git, which reads settings
        there, and not a grant: another folder makes another command of it."""
        if outcome.session is not None or (outcome.rule is not None and _is_saved_grant_rule(outcome.rule)):
            return False
        return bool(self.reading.folders) and is_read_only_program(command.argv)

    def _decide_by_rules(self, command: ShellCommand, only_reads: bool, *, is_in_line: bool = True) -> Ruling:
        """Return the ruling by the rules alone.

        `is_in_line`: the command stands in the line; else it is another spelling of one that does.
        """
        lowered: Ruling | None = None
        hides = _HiddenCommands.from_command(
            command,
            self.folder_paths if self.has_restrictions and is_in_line else None,
            self.reading.line,
        )
        for rule in self.rules:
            if rule.decision == "allow":
                known = command.words or not rule.has_conditions
                if (rule.only_plain_reading and only_reads) or (
                    known and self._is_allowed_by_rule(rule, command)
                ):
                    return lowered or Ruling("allow", "rule", rule)
                continue
            match = match_restricting_rule(rule, command, self.call.args)
            if rule.path_pattern is not None and self._may_name_path(rule.path_pattern, command, rule):
                match = Match.MAYBE
            if match is Match.NO and hides.can_include_restricted_command(rule, command, self.call.args):
                match = Match.MAYBE
            if match is Match.YES and not rule.lowers_to_ask:
                return Ruling(rule.decision, "rule", rule)
            # A rule that may apply counts like one that only lowers.
            if match is not Match.NO:
                lowered = lowered or Ruling("ask", "rule" if match is Match.YES else "hidden", rule)
        return lowered or Ruling("ask", "none")

    def _may_name_path(self, pattern: PathPattern, command: ShellCommand, rule: Rule) -> bool:
        """Return whether a command may change, or for a rule about reading may show, a file that a pattern matches."""
        if "write_file" in rule.tools and is_safe_for_trusted_files(command.argv):
            return False
        root = self.reading.workspace.root
        named = (
            text
            for word in command.words[1:]
            for text in ((word.text,) if word.literal else possible_word_values(word, self.reading))
        )
        paths = (
            os.path.normpath(root / base / path)
            for text in named
            for path in _possible_paths_in_argument(text)
            for base in self.reading.folders_or_root
        )
        return any(pattern.matches_path(one) for path in paths for one in (path, os.path.realpath(path)))

    def rulings_on_denied_redirections(self) -> Iterator[PartRuling]:
        """Yield a question for each rule about files that a redirection may write to."""
        targets = [
            r.target for r in self.reading.line.redirects if r.kind == "write" and r.target is not None
        ]
        for rule in self.rules:
            if targets and rule.path_pattern is not None and rule.decision != "allow":
                written = ShellCommand(self.reading.line.text, (literal_word("tee"), *targets))
                if self._may_name_path(rule.path_pattern, written, rule):
                    yield PartRuling(written, Ruling("ask", "hidden", rule))

    def _is_allowed_by_rule(self, rule: Rule, command: ShellCommand) -> bool:
        if _is_saved_grant_rule(rule):
            return is_command_granted(rule.granted_commands, rule.granted_line, command, self.reading)
        return is_rule_allowing_command(rule, command, self.call.args)

    def find_restricting_ruling(self, command: ShellCommand) -> Ruling | None:
        """Return the refusal, by a rule with a condition, of something that needs no permission."""
        narrow = replace(self, rules=[r for r in self.rules if r.has_conditions])
        outcome = narrow._decide_by_rules(command, only_reads=False, is_in_line=False)
        return None if outcome.decision == "allow" or outcome.cause == "none" else outcome

    def lower_for_whole_line(self, outcome: Ruling, parts: Sequence[PartRuling]) -> Ruling:
        """Return an allow lowered to an ask for reasons that concern the line as a whole."""
        line = self.reading.line
        sourced = not line.hidden and self._is_line_granted()
        opaque = (None if sourced else line.opaque) or self._describe_project_wrapper()
        protected = describe_protected_redirection(self.reading) or describe_trusted_change_in_unparsed_line(
            self.reading
        )
        if (
            protected := protected
            or (self.mode == "yolo" and describe_private_name_in_unparsed_line(self.reading))
            or None
        ):
            return outcome.lower_to_ask("protected", protected)
        if opaque is not None and self.mode != "yolo":
            return outcome.lower_to_ask("opaque", opaque)
        if opaque is not None:
            # Only yolo allows an opaque line, and not against a rule that may apply to it.
            rank = outcome.rule.rank if outcome.rule else 0
            narrow = (r for r in self.rules if r.has_conditions and r.decision != "allow" and r.rank > rank)
            against = next(narrow, None)
            if against is not None:
                return Ruling("ask", "hidden", against, detail=opaque)
            return self._lower_if_inline_script_risky(outcome)
        if self.mode == "yolo":
            return self._lower_if_inline_script_risky(self._lower_if_reading_private_input(outcome))
        if not line.file_redirects:
            return outcome
        if away := describe_forbidden_redirection(self.reading):
            return outcome.lower_to_ask("redirection", away)
        allowed = self.mode in _FREE_REDIRECTION or all(
            _is_redirection_allowed_by_rule(p.ruling) for p in parts
        )
        free = allowed or self._has_only_reads(parts) or self._is_line_granted()
        return outcome if free else outcome.lower_to_ask("redirection", "")

    def _lower_if_inline_script_risky(self, outcome: Ruling) -> Ruling:
        """Return an allow lowered to an ask for what a text of the line makes a shell change."""
        for command in find_inline_script_commands(self.reading.line):
            lowered = self._lower_if_showing_private_file(
                command, self._lower_if_changing_trusted_file(command, outcome)
            )
            if lowered.decision != "allow":
                return outcome.lower_to_ask("protected", lowered.detail)
        return outcome

    def _lower_if_reading_private_input(self, outcome: Ruling) -> Ruling:
        read = [
            r.target for r in self.reading.line.file_redirects if r.kind == "read" and r.target is not None
        ]
        shown = ShellCommand(self.reading.line.text, (literal_word("cat"), *read)) if read else None
        return self._lower_if_showing_private_file(shown, outcome) if shown else outcome

    def _has_only_reads(self, parts: Sequence[PartRuling]) -> bool:
        """Return whether all redirections are of files that plain reading commands may read."""
        return all(r.kind == "read" for r in self.reading.line.file_redirects) and all(
            p.only_reads for p in parts
        )

    def _is_line_granted(self) -> bool:
        """Return whether somebody granted this very line: with its redirections, folder and variables."""
        own = any(
            r.line == self.reading.line.text and (not r.modes or self.mode in r.modes) for r in self.session
        )
        return own or any(
            r.decision == "allow" and r.granted_line == self.reading.line.text for r in self.rules
        )

    def _describe_project_wrapper(self) -> str | None:
        """Return a clause about a wrapper that needs no rule, if it is the project's."""
        wrappers = (c.words[0].text for c in self.reading.line.commands if c.needs_no_rule and c.words)
        own = next((w for w in wrappers if is_program_from_project(w, self.reading)), None)
        return own and f"the project supplies {own!r} itself"


def _has_standing_questions(outcome: Ruling) -> bool:
    """Return whether the rule that allows, a mode's or a repository's, leaves what asks in every mode to a person."""
    rule = outcome.rule
    return rule is not None and (rule.tier == SHIPPED or rule.lifts_no_standing_question)


def _is_saved_grant_rule(rule: Rule) -> bool:
    return bool(rule.granted_commands) or rule.granted_line is not None


def _possible_paths_in_argument(text: str) -> set[str]:
    """Return what an argument may name as a file: itself, its parts (`--out=x`, `-Wl,-o,x`), and what follows an
    option's letters (`-ox`, `-qox`)."""
    letters = range(2, min(len(text), _MOST_LETTERS)) if text.startswith("-") and text[1:2] != "-" else ()
    return {text, text.partition("=")[2], *_PARTS.split(text), *(text[at:] for at in letters)} - {""}


def _is_redirection_allowed_by_rule(outcome: Ruling) -> bool:
    return outcome.rule is not None and outcome.rule.allow_redirection


class _HiddenCommands(NamedTuple):
    """How a command may run others that its words don't begin with; the same for every rule."""

    words: bool
    """As a program that may run what stands behind it; not one that is known."""
    shells: tuple[ShellCommand, ...]
    """Behind a shell that such a program may run: `prlimit sh -c 'git push'`."""
    code: bool
    """In program text."""
    texts: tuple[ShellCommand, ...]
    """In text that the line gives it to read."""
    programs: frozenset[str]
    """As a command of theirs that can't be resolved."""

    @classmethod
    def from_command(
        cls, command: ShellCommand, folders: Sequence[str] | None, line: ShellLine
    ) -> "_HiddenCommands":
        """Return how a command may run others. `folders`: where it may run; None: no rule asks."""
        words = command.argv
        known = not words or words[0] == "git" or program_name(words[0]) in INDIFFERENT
        unknown = not known and find_grant_row(words) is None
        return cls(
            unknown,
            tuple(_shell_commands_in_arguments(command)) if unknown and folders is not None else (),
            command.code
            or has_unsafe_assignments(command)
            or can_run_command_in_arguments(command)
            or is_running_inline_script(command, line),
            tuple(ShellCommand(text, (literal_word(text),)) for text in find_inline_stdin_texts(line))
            if folders is not None
            else (),
            frozenset() if folders is None else unresolved_programs(command, folders),
        )

    def can_include_restricted_command(
        self, rule: Rule, command: ShellCommand, args: Mapping[str, JsonValue]
    ) -> bool:
        if self.words and _can_rule_match_arguments(rule, command):
            return True
        if self.code and any(_can_rule_match_code(rule, one) for one in (command, *self.texts)):
            return True
        if any(match_restricting_rule(rule, one, args) is not Match.NO for one in self.shells):
            return True
        patterns = [
            pattern.text for pattern in (rule.command_pattern, rule.args_pattern) if pattern is not None
        ]
        texts = [*patterns, *(prefix[0] for prefix in rule.command_prefixes if prefix)]
        return any(is_program_named_in(texts, program) for program in self.programs)


def _shell_commands_in_arguments(command: ShellCommand) -> Iterator[ShellCommand]:
    words = command.words
    shells = [
        at
        for at, word in enumerate(words)
        if at and word.literal and canonical_program_name(word.text) in SHELLS
    ]
    for at in shells[:_MOST_SHELLS]:
        yield from parse_command_words(words[at : at + _MOST_BEHIND])
    if len(shells) > _MOST_SHELLS:
        yield ANYTHING


def _can_rule_match_arguments(rule: Rule, command: ShellCommand) -> bool:
    """Return whether several words that the rule restricts stand behind the program: `strange-wrapper git -C .
    push`."""
    words = command.argv
    if rule.command_pattern is not None:
        return any(
            _is_multiword_match(rule.command_pattern, words[at : at + _MOST_BEHIND])
            for at in range(1, min(len(words), _MOST_WORDS))
        )
    return any(
        _is_prefix_at(p, words, at)
        for p in rule.command_prefixes
        if len(p) > 1
        for at in range(1, len(words))
    )


def _is_multiword_match(pattern: Pattern, words: Sequence[str]) -> bool:
    """Return whether a pattern meets several words at the beginning, with or without options between."""
    whole = pattern.has_match_at_start(" ".join(words)) or can_match_past_options(pattern, words)
    return whole and not pattern.has_match_at_start(words[0])


def _can_rule_match_code(rule: Rule, command: ShellCommand) -> bool:
    """Return whether program text in the arguments names what the rule restricts: `awk 'BEGIN{system("rm -rf
    /")}'`."""
    text = _QUOTES.sub(" ", _JOINS.sub("", " ".join(command.argv)))
    text = f"{text} {_GLUED.sub(' ', text)}"
    words = tuple(_WORD.findall(text))
    if rule.command_pattern is not None:
        begins = (text[place.start() :] for place in islice(_WORD.finditer(text), _MOST_WORDS))
        later = (words[at : at + _MOST_BEHIND] for at in range(min(len(words), _MOST_WORDS)))
        return any(map(rule.command_pattern.has_match_at_start, begins)) or any(
            can_match_past_options(rule.command_pattern, w) for w in later
        )
    return any(_is_prefix_at(p, words, at) for p in rule.command_prefixes for at in range(len(words)))


def _is_prefix_at(prefix: Sequence[str], words: Sequence[str], at: int) -> bool:
    """Return whether the prefix stands at a place, whatever options with their values stand between its words."""
    if not prefix or program_name(words[at]) != program_name(prefix[0]):
        return False
    at += 1
    for wanted in prefix[1:]:
        end = min(len(words), at + _MOST_BETWEEN)
        while at < end and words[at] != wanted and words[at].startswith("-"):
            is_value = at + 1 < len(words) and not words[at + 1].startswith("-") and words[at + 1] != wanted
            at += 2 if is_value else 1
        if at >= end or words[at] != wanted:
            return False
        at += 1
    return True


# ---- redirections


def describe_protected_redirection(reading: LineReading) -> str | None:
    """Return a clause about a redirection that writes to a protected file, or None."""
    for target in (r.target for r in reading.line.redirects if r.kind == "write" and r.target is not None):
        for path in possible_redirection_paths(target, reading):
            found = next(
                filter(None, map(reading.workspace.find_protection, possible_locations(path, reading))), None
            )
            if found is not None:
                return f"writes to {quote_name(path)} ({found.what})"
    return None


def describe_forbidden_redirection(reading: LineReading) -> str | None:
    """Return a clause about a redirection that writes where tools may not or opens a connection, or None."""
    targets = [(r.kind, r.target) for r in reading.line.redirects if r.target is not None]
    net = next((t.text for _, t in targets if t.known_start.startswith(_NETWORK)), None)
    if net is not None:
        return f"opens a network connection ({net})"
    problems = (_describe_redirection_problem(t, reading) for kind, t in targets if kind == "write")
    return next((p for p in problems if p), None)


def _describe_redirection_problem(target: Word, reading: LineReading) -> str | None:
    if not target.literal:
        return f"writes to a file that is only known when it runs ({target.text})"
    if target.text in _NOWHERE:
        return None
    if len(reading.folders) != 1 and not posixpath.isabs(target.text):
        return f"changes its folder before it writes to {target.text!r}"
    try:
        reading.workspace.resolve_writable(posixpath.join(*reading.folders, target.text))
    except PathRefused as refused:
        return f"writes to {target.text!r}: {str(refused).rstrip('.')}"
    return None
