"""matching: matches rules against simple commands: broadly for rules that restrict, narrowly for those that allow."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple, cast

from pydantic import JsonValue

from interlock.services.policy.programs import is_in_program_table, option_synonyms, prefix_spellings
from interlock.services.policy.rule import ADMIN, USER, Pattern, Rule, canonical_tool_name
from interlock.services.policy.task_runners import has_unsafe_assignments, is_task_runner
from interlock.services.shell.model import HARMLESS_VARIABLES, ShellCommand, Word, program_name
from interlock.state.calls import CallView, Risk
from interlock.state.file_names import format_file_name
from interlock.state.text import replace_surrogates
from interlock.state.workspace import PathRefused, Protection, Workspace
from interlock.tools.table import TOOLS


class Match(IntEnum):
    """`MAYBE`: it depends on a value known only at run time."""

    NO = 0
    MAYBE = 1
    YES = 2


def is_rule_allowing_command(rule: Rule, command: ShellCommand, args: Mapping[str, JsonValue]) -> bool:
    """Return whether an allow rule certainly covers this command."""
    if not rule.has_conditions:
        return True
    if (
        rule.only_plain_reading
        or rule.granted_commands
        or rule.granted_line is not None
        or not set(command.assigned_names) <= HARMLESS_VARIABLES
    ):
        return False
    if rule.command_prefixes:
        return any(
            has_prefix(command, p) and not has_unsafe_assignments(command, len(p))
            for p in rule.command_prefixes
        )
    text = shlex.join(command.argv) if command.literal else command.text
    pattern = rule.command_pattern or rule.args_pattern
    if pattern is None or ("=" not in pattern.text and has_unsafe_assignments(command)):
        return False
    return (
        pattern.has_match_at_start(text)
        if rule.command_pattern
        else pattern.is_found_in(to_searchable_json({**args, "command": text}))
    )


def has_prefix(command: ShellCommand, prefix: Sequence[str]) -> bool:
    """Return whether its leading words are known and equal the prefix."""
    size = len(prefix)
    return command.argv[:size] == tuple(prefix) and all(w.literal for w in command.words[:size])


def match_restricting_rule(rule: Rule, command: ShellCommand, args: Mapping[str, JsonValue]) -> Match:
    """Return whether a deny or ask rule covers this command, or might."""
    if not rule.has_conditions:
        return Match.YES
    if rule.command_prefixes:
        return max(
            _match_prefix(command.words, p)
            for prefix in rule.command_prefixes
            for p in prefix_spellings(prefix)
        )
    if rule.command_pattern is not None:
        if any(
            rule.command_pattern.has_match_at_start(text)
            for text in _command_spellings(command.text, command.argv)
        ):
            return Match.YES
        if can_match_past_options(rule.command_pattern, command.argv):
            return Match.MAYBE
        if command.literal:
            return Match.NO
        return (
            Match.MAYBE
            if any(map(rule.command_pattern.can_match_continuation, _known_start_spellings(command)))
            else Match.NO
        )
    return (
        _match_args_pattern(rule.args_pattern, command, args) if rule.args_pattern is not None else Match.NO
    )


def _match_prefix(words: Sequence[Word], prefix: Sequence[str]) -> Match:
    """Return whether the leading words are the prefix; then in the ways in which programs take options and
    subcommands."""
    match = _match_leading_words(words, prefix)
    return Match.MAYBE if match is Match.NO and _can_be_prefix_variant(words, prefix) else match


def _can_be_prefix_variant(words: Sequence[Word], prefix: Sequence[str]) -> bool:
    """Return whether it may be the prefix: options stand elsewhere, together or abbreviated, subcommands are
    abbreviated."""
    if len(prefix) < 2 or not words or program_name(words[0].text) != program_name(prefix[0]):
        return False
    given = [w.text for w in words[1:]]
    options = [text for text in given if text.startswith("-") and text != "-"]
    operands = [text for text in given if not text.startswith("-")]
    wanted = [text for text in prefix[1:] if not text.startswith("-")]
    equal = option_synonyms(tuple(prefix))
    asked = [option for option in prefix[1:] if option.startswith("-")]
    if len(operands) < len(wanted) or not all(_has_option(options, o, equal) for o in asked):
        return False
    pairs = [*zip(operands, wanted, strict=False)]
    if all(text == want for text, want in pairs):
        return len(wanted) < len(prefix) - 1  # it is options that differ
    whole = is_in_program_table(program_name(prefix[0])) or is_task_runner(program_name(prefix[0]))
    return not whole and all(text and want.startswith(text) for text, want in pairs)


def _has_option(options: Sequence[str], wanted: str, synonyms: Mapping[str, str]) -> bool:
    """Return whether an option is given: by itself, abbreviated, among others behind one dash, or by its other
    name."""
    letters = {f"-{letter}" for o in options if not o.startswith("--") for letter in o[1:]}
    names = [o.partition("=")[0] for o in options if o.startswith("--") and len(o) > 3]

    def is_given(option: str) -> bool:
        return option in letters or (option.startswith("--") and any(map(option.startswith, names)))

    each = [wanted] if wanted.startswith("--") else [f"-{letter}" for letter in wanted[1:]]
    return wanted in options or all(is_given(o) or (o in synonyms and is_given(synonyms[o])) for o in each)


def _match_leading_words(words: Sequence[Word], prefix: Sequence[str]) -> Match:
    sure = Match.YES
    for place, want in enumerate(prefix):
        if place >= len(words):
            return Match.NO
        word = words[place]
        if word.may_split:
            return Match.MAYBE
        if not word.literal:
            sure = Match.MAYBE
            if not want.startswith(word.known_start):
                return Match.NO
        # `/bin/rm` and, where file names ignore case, `RM` are `rm`.
        elif word.text != want and (place > 0 or program_name(word.text) != program_name(want)):
            return _match_prefix_past_options(words, prefix, place)
    return sure


def _match_prefix_past_options(words: Sequence[Word], prefix: Sequence[str], place: int) -> Match:
    """Return whether `git -C .. push` may match the prefix `git push`: it is unknown which words are option values."""
    if place == 0 or not words[place].text.startswith("-"):
        return Match.NO
    later = iter(words[place:])
    wanted = prefix[place:]
    return Match.MAYBE if all(any(_can_be_word(w, p) for w in later) for p in wanted) else Match.NO


def _can_be_word(word: Word, wanted: str) -> bool:
    """Return whether a word may be, or define, what is wanted: `hg --config alias.x=push x`."""
    return word.text == wanted or not word.literal or wanted in word.text.split("=")


def can_match_past_options(pattern: Pattern, argv: Sequence[str]) -> bool:
    """Return whether `git -C .. push --force` may match `git push .*`: it is unknown which words are option values."""
    if len(argv) < 3 or not argv[1].startswith("-"):
        return False
    later = (" ".join((program_name(argv[0]), *argv[at:])) for at in range(2, min(len(argv), 12)))
    return any(pattern.has_match_at_start(text) for text in later)


def _known_start_spellings(command: ShellCommand) -> set[str]:
    """Return the known part of the command, up to the first value known only at run time."""
    known = _text_up_to_unknown_word(command.words)
    first, blank, rest = known.partition(" ")
    return {known, first.rsplit("/", 1)[-1] + blank + rest, program_name(first) + blank + rest}


_COMMAND = '"command":"'


def _match_args_pattern(pattern: Pattern, command: ShellCommand, args: Mapping[str, JsonValue]) -> Match:
    if any(
        pattern.is_found_in(to_searchable_json({**args, "command": text}))
        for text in _command_spellings(command.text, command.argv)
    ):
        return Match.YES
    if command.literal:
        return Match.NO
    begun = (
        _COMMAND + json.dumps(known, ensure_ascii=False)[1:-1] for known in _known_start_spellings(command)
    )
    known = pattern.is_limited_to_prefix(_COMMAND) and not any(map(pattern.can_match_continuation, begun))
    return Match.NO if known else Match.MAYBE


@lru_cache(maxsize=64)  # called again for each rule
def _command_spellings(text: str, argv: tuple[str, ...]) -> frozenset[str]:
    """Return the spellings of a command that a pattern may have been written for."""
    if not argv:
        return frozenset({text})
    short = (argv[0].rsplit("/", 1)[-1], *argv[1:])
    folded = (program_name(argv[0]), *argv[1:])
    return frozenset({text, shlex.join(argv), *map(" ".join, (argv, short, folded))})


def _text_up_to_unknown_word(words: Sequence[Word]) -> str:
    known: list[str] = []
    for word in words:
        if not word.literal:
            return " ".join([*known, word.known_start])
        known.append(word.text)
    return " ".join(known)


_PLAN_FILE = "planFile"
_LONGEST_PATH = 4_096
_PATH_WORDS = ("path", "file", "directory", "folder", "source", "destination")
_PATH_NAMES = frozenset({"dir", "cwd"})
_CHANGES: frozenset[Risk] = frozenset({"write", "execute"})


def to_searchable_json(args: Mapping[str, JsonValue]) -> str:
    """Return JSON with sorted keys and a NUL on both sides of each top-level pair, so that a pattern can match a
    whole pair. Empty for a call without arguments, which no pattern matches (as in gemini-cli).

    Empty for a call without arguments, which no pattern matches (as in gemini-cli).
    """
    if not args:
        return ""
    pairs = (f"\0{_to_canonical_json(k)}:{_to_canonical_json(args[k])}\0" for k in sorted(args))
    return replace_surrogates("{" + ",".join(pairs) + "}")


def _to_canonical_json(value: JsonValue) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


class CallTarget(NamedTuple):
    """What a call other than a shell line is about, as far as rules ask."""

    name: str | None = None
    """The file, as tools name it, or the host, with its port; None: unknown."""
    paths: tuple[str, ...] = ()
    """Its file as written and where that leads; empty: unknown."""
    hosts: tuple[str, ...] = ()
    """Of every address in it, without ports."""


UNKNOWN_TARGET = CallTarget()


def is_rule_matching_non_shell_call(rule: Rule, args: Mapping[str, JsonValue], target: CallTarget) -> bool:
    """Return whether a call other than a shell line matches a rule's conditions."""
    if (
        rule.command_prefixes
        or rule.granted_commands
        or not (rule.command_pattern is rule.granted_line is None)
    ):
        return False
    if rule.path_pattern is not None:
        return _meets_all_or_any(rule, rule.path_pattern.matches_path, target.paths)
    if rule.host_pattern is not None:
        return _meets_all_or_any(rule, rule.host_pattern.has_match_at_start, target.hosts)
    if rule.target is not None:
        return rule.target == target.name
    return rule.args_pattern is None or (
        bool(args) and rule.args_pattern.is_found_in(to_searchable_json(args))
    )


def spellings_of_arguments(
    args: Mapping[str, JsonValue], workspace: Workspace
) -> Sequence[Mapping[str, JsonValue]]:
    """Return a call's arguments as written, and, where a path differs from the name of the file that it means, with
    that name."""
    spelled = {**args}
    for name, value in args.items():
        if isinstance(value, str) and is_path_argument_name(name):
            with suppress(PathRefused):  # which the tool reports
                spelled[name] = format_file_name(workspace.find_existing_spelling(value))
    return (args,) if spelled == args else (args, spelled)


def _meets_all_or_any(rule: Rule, is_met: Callable[[str], bool], found: Sequence[str]) -> bool:
    """Return whether all meet the condition of a rule that allows, or any that of one that restricts."""
    return bool(found) and (all(map(is_met, found)) if rule.decision == "allow" else any(map(is_met, found)))


def find_protection_of_changed_file(call: CallView, risk: Risk, workspace: Workspace) -> Protection | None:
    """Return why the model may not write a file that the call would change; None if it may, or no file is changed."""
    if risk not in _CHANGES:
        return None
    if canonical_tool_name(call.name) in TOOLS:
        paths = [
            value
            for name, value in iterate_named_strings("", call.args)
            if is_path_argument_name(name.rpartition(".")[2])
        ]
    else:  # which arguments of a server's tool are paths is unknown
        paths = [
            text
            for text in _iterate_keys_and_strings(call.args)
            if len(text) <= _LONGEST_PATH and "\n" not in text
        ]
    return next((found for path in paths if (found := workspace.find_protection(path))), None)


def _iterate_keys_and_strings(value: object) -> Iterator[str]:
    """Yield every key and string in the arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        yield from (text for item in cast(list[object], value) for text in _iterate_keys_and_strings(item))
        if isinstance(value, dict):
            yield from (
                text
                for item in cast(dict[str, object], value).values()
                for text in _iterate_keys_and_strings(item)
            )


def is_rule_allowing_protected_change(
    rule: Rule, call: CallView, target: CallTarget, protected: Protection
) -> bool:
    """Return whether a user or admin rule allows this very change: by its path, or by a pattern that no longer
    matches once the name in the arguments is replaced."""
    if (
        rule.tier not in (USER, ADMIN)
        or rule.decision != "allow"
        or not is_rule_matching_non_shell_call(rule, call.args, target)
    ):
        return False
    if rule.target is not None:
        return True
    other = "x" + PurePath(protected.part).suffix
    return rule.args_pattern is not None and not rule.args_pattern.is_found_in(
        to_searchable_json(call.args).replace(json.dumps(protected.part, ensure_ascii=False)[1:-1], other)
    )


def iterate_named_strings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) for every string in the arguments."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from iterate_named_strings(name, item)
    elif isinstance(value, dict):
        for key, item in cast(dict[str, object], value).items():
            yield from iterate_named_strings(f"{name}.{key}" if name else key, item)


def is_path_argument_name(name: str) -> bool:
    folded = name.casefold()
    return folded in _PATH_NAMES or any(word in folded for word in _PATH_WORDS)


def replace_plan_file_hint(
    hints: Mapping[str, JsonValue], call: CallView, risk: Risk, mode: str, workspace: Workspace
) -> Mapping[str, JsonValue]:
    """Return the hints with one more if the call writes the run's plan. Only we may set it, never a server."""
    own = {k: v for k, v in hints.items() if k != _PLAN_FILE}
    path = call.args.get("file_path")
    if (
        mode == "plan"
        and risk == "write"
        and isinstance(path, str)
        and workspace.find_plan_file(path) is not None
    ):
        return {**own, _PLAN_FILE: True}
    return own
