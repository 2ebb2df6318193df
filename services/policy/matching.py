"""matching: whether a rule's conditions meet a simple command: wide for what restricts, narrow for what allows."""

import json
import shlex
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache

from pydantic import JsonValue

from interlock.services.policy.arguments import searchable
from interlock.services.policy.patterns import Pattern
from interlock.services.policy.rule import Rule
from interlock.services.shell.model import ShellCommand, Word
from interlock.services.shell.variables import HARMLESS_VARIABLES


class Match(IntEnum):
    """`MAYBE`: it depends on a value that only running would show."""

    NO = 0
    MAYBE = 1
    YES = 2


def allows(rule: Rule, command: ShellCommand, args: Mapping[str, JsonValue]) -> bool:
    """Whether an allow rule is about this command, for certain."""
    if not rule.narrows:
        return True
    if rule.reading or not set(command.assigns) <= HARMLESS_VARIABLES:
        return False
    if rule.prefixes:
        return any(begins(command, prefix) for prefix in rule.prefixes)
    text = shlex.join(command.argv) if command.literal else command.text
    if rule.command is not None:
        return rule.command.starts(text)
    return rule.args is not None and rule.args.found(searchable({**args, "command": text}))


def begins(command: ShellCommand, prefix: Sequence[str]) -> bool:
    """Its leading words are known, and are these."""
    if not command.words or command.words[0].text != prefix[0]:
        return False
    lead = command.words[: len(prefix)]
    return len(lead) == len(prefix) and all(
        w.literal and w.text == p for w, p in zip(lead, prefix, strict=True)
    )


def restricts(rule: Rule, command: ShellCommand, args: Mapping[str, JsonValue]) -> Match:
    """Whether a deny or ask rule is about this command, or might be."""
    if not rule.narrows:
        return Match.YES
    if rule.prefixes:
        return max(_prefix(command.words, prefix) for prefix in rule.prefixes)
    if rule.command is not None:
        return _regex(rule.command, command)
    return _args(rule.args, command, args) if rule.args is not None else Match.NO


def _prefix(words: Sequence[Word], prefix: Sequence[str]) -> Match:
    sure = Match.YES
    for place, want in enumerate(prefix):
        if place >= len(words):
            return Match.NO
        word = words[place]
        if word.splits:
            return Match.MAYBE
        if not word.literal:
            sure = Match.MAYBE
            if not want.startswith(word.lead):
                return Match.NO
        elif not _same(word.text, want, place):
            return _behind_options(words, prefix, place)
    return sure


def _same(text: str, want: str, place: int) -> bool:
    if text == want:
        return True
    # `/bin/rm` and, where file names ignore case, `RM` are `rm`.
    return place == 0 and program(text) == program(want)


def _behind_options(words: Sequence[Word], prefix: Sequence[str], place: int) -> Match:
    """`git -C .. push` for the prefix `git push`: which words are an option's value isn't known here."""
    if place == 0 or not words[place].text.startswith("-"):
        return Match.NO
    later = iter(words[place:])
    wanted = prefix[place:]
    return Match.MAYBE if all(any(w.text == p or not w.literal for w in later) for p in wanted) else Match.NO


@lru_cache(maxsize=1_000)
def program(text: str) -> str:
    """A program's name without its folder, in lower case."""
    return text.rsplit("/", 1)[-1].lower()


def _regex(pattern: Pattern, command: ShellCommand) -> Match:
    if any(pattern.starts(text) for text in spellings(command)):
        return Match.YES
    if _past_options(pattern, command.argv):
        return Match.MAYBE
    if command.literal:
        return Match.NO
    return Match.MAYBE if any(map(pattern.may_start, _beginnings(command))) else Match.NO


def _past_options(pattern: Pattern, argv: Sequence[str]) -> bool:
    """`git -C .. push --force` for the pattern `git push .*`: which words are an option's value isn't known here."""
    if len(argv) < 3 or not argv[1].startswith("-"):
        return False
    later = (" ".join((program(argv[0]), *argv[at:])) for at in range(2, min(len(argv), 12)))
    return any(pattern.starts(text) for text in later)


def _beginnings(command: ShellCommand) -> set[str]:
    """What is known of it, up to the first value that only running would show."""
    known = _known(command.words)
    first, blank, rest = known.partition(" ")
    return {known, first.rsplit("/", 1)[-1] + blank + rest, program(first) + blank + rest}


def _args(pattern: Pattern, command: ShellCommand, args: Mapping[str, JsonValue]) -> Match:
    if any(pattern.found(searchable({**args, "command": text})) for text in spellings(command)):
        return Match.YES
    if command.literal:
        return Match.NO
    begun = (_COMMAND + json.dumps(known, ensure_ascii=False)[1:-1] for known in _beginnings(command))
    known = pattern.leads_with(_COMMAND) and not any(map(pattern.may_start, begun))
    return Match.NO if known else Match.MAYBE


_COMMAND = '"command":"'


def spellings(command: ShellCommand) -> frozenset[str]:
    """The ways to write the same command that a pattern may have been meant for."""
    return _spellings(command.text, command.argv)


@lru_cache(maxsize=64)  # each rule asks anew
def _spellings(text: str, argv: tuple[str, ...]) -> frozenset[str]:
    if not argv:
        return frozenset({text})
    short = (argv[0].rsplit("/", 1)[-1], *argv[1:])
    spelled = {
        text,
        " ".join(argv),
        shlex.join(argv),
        " ".join(short),
        " ".join((program(argv[0]), *argv[1:])),
    }
    return frozenset(spelled)


def _known(words: Sequence[Word]) -> str:
    known: list[str] = []
    for word in words:
        if not word.literal:
            return " ".join([*known, word.lead])
        known.append(word.text)
    return " ".join(known)
