"""targets: what task runners run: several targets are several commands, whatever options stand between them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from interlock.services.policy.harmless import SETS, harmless_setting, row_of
from interlock.services.policy.reading import document
from interlock.services.shell.commands import LANGUAGES
from interlock.services.shell.danger import UNKNOWN
from interlock.services.shell.model import ShellCommand, Word, literal, program_of
from interlock.services.shell.parse import commands_in

Names = Annotated[frozenset[str], BeforeValidator(lambda v: frozenset(v.split()))]
_BEGINNING = re.compile(r"[a-z0-9:]*")
"""Of an abbreviated target: `dP` may be `deployProduction`."""

_MOST = 100
"""Targets, and commands within commands: what is beyond isn't looked at, and counts as anything."""
_ANYTHING = ShellCommand("…", (Word("…", False, "", True, True, foreign=True),))

_OPTION = re.compile(r"^-[A-Z]")


class Runner(BaseModel, extra="forbid", frozen=True):
    """A program that runs targets; fields as `commands.toml` explains them."""

    programs: Names
    forms: tuple[str, ...]
    takes: Names = frozenset()
    sub: Names = frozenset()
    bare: bool = False
    alone: dict[str, str] = Field(default_factory=dict[str, str])
    select: Names = frozenset()
    many: bool = False
    first: bool = False
    sets: Names = frozenset()
    short: bool = False

    def option(self, words: Sequence[Word], at: int, found: "Targets") -> int:
        """Read the option at a place; return where to go on."""
        text = words[at].text
        name, sign, value = text.partition("=")
        if text in self.select:
            return self._selected(words, at + 1, found)
        if sign and name in self.select:
            found.add(at, value, f"{name}=")
        elif text[:2] in self.select and not text.startswith("--"):
            found.add(at, text[2:], text[:2])
        elif text in self.sets:
            found.settings.append(at + 1)
            return at + 2
        elif any(text.startswith(option) for option in self.sets):
            found.settings.append(at)
        return at + 2 if text in self.takes else at + 1

    def _selected(self, words: Sequence[Word], at: int, found: "Targets") -> int:
        while at < len(words) and not words[at].lead.startswith("-"):
            found.add(at, words[at].text)
            at += 1
            if not self.many:
                break
        return at

    def operand(self, words: Sequence[Word], at: int, found: "Targets") -> bool:
        """Read the operand at a place; return whether what follows are arguments of a target."""
        text = words[at].text
        if self.sub and not found.begun:
            found.begun = True
            if text in self.sub:
                return False
            if text in self.alone or self.bare:
                found.add(at, self.alone.get(text, text))
            return True
        if self.select or (text.isdecimal() and not self.first):
            return False
        if SETS.fullmatch(text) and not self.first:
            found.settings.append(at)
        else:
            found.add(at, text)
        return self.first


@dataclass(slots=True)
class Targets:
    """The targets and variables of one command."""

    runner: Runner
    named: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Place, target, and what stands before it in the same word."""
    settings: list[int] = field(default_factory=list[int])
    begun: bool = False

    def add(self, at: int, text: str, before: str = "") -> None:
        names = text.split(",") if self.runner.select else [text]
        self.named += [(at, name, before) for name in names if name]


@cache
def _executors() -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(name.split()) for row in document()["exec"] for name in row["run"])


@cache
def _runners() -> dict[str, Runner]:
    return {p: one for one in map(Runner.model_validate, document()["runner"]) for p in one.programs}


def targets_of(command: ShellCommand) -> Targets | None:
    """Return what the command runs, if its program is a task runner."""
    words = command.words
    runner = _runners().get(program_of(words[0].text)) if words and words[0].literal else None
    if runner is None:
        return None
    found, at = Targets(runner), 1
    while at < len(words):
        if words[at].text == "--" and (runner.first or runner.select):
            break
        if not words[at].literal or words[at].text == "--":
            at += 1
        elif words[at].text.startswith("-"):
            at = runner.option(words, at, found)
        elif runner.operand(words, at, found):
            break
        else:
            at += 1
    return found


def several(command: ShellCommand, prefixes: Sequence[Sequence[str]] = ()) -> Sequence[ShellCommand]:
    """Return one command for each target. `prefixes`: those of allow rules, which may name several at once."""
    found = targets_of(command)
    if found is None or len(found.named) < 2 or any(_names_all(found, command, p) for p in prefixes):
        return (command,)
    if len(found.named) > _MOST:
        return (replace(command, opaque=f"it has more than {_MOST} targets"),)
    return [_alone(command, found, number) for number in range(len(found.named))]


def _names_all(found: Targets, command: ShellCommand, prefix: Sequence[str]) -> bool:
    return command.argv[: len(prefix)] == tuple(prefix) and all(at < len(prefix) for at, _, _ in found.named)


def _alone(command: ShellCommand, found: Targets, number: int) -> ShellCommand:
    own, name, before = found.named[number]
    others = {at for at, _, _ in found.named} - {own}
    words = tuple(
        literal(before + name) if at == own else word
        for at, word in enumerate(command.words)
        if at not in others
    )
    return replace(command, words=words, text=" ".join(w.text for w in words))


def runs_others(command: ShellCommand) -> bool:
    """Whether it may run a command that stands among its arguments, behind options or in one word: `npx -c 'x y'`."""
    if not command.words or row_of(command.argv) is not None:
        return False
    program, later = program_of(command.words[0].text), command.argv[1:]
    return any(row[0] == program and _in_order(row[1:], later) for row in _executors())


def _in_order(wanted: Sequence[str], words: Sequence[str]) -> bool:
    remaining = iter(words)
    return all(name in remaining for name in wanted)


def spellings(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the plain commands that run each target: rules that restrict one of them meet it."""
    inner = list(_behind(command))
    yield from inner
    for one in (command, *inner):
        yield from _targets(one)


def _behind(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the commands that it may run, and those that they may run."""
    pending, seen = [0], {0}
    while pending:
        at = pending.pop()
        starts = {at + start for start in _starts(command.words[at:])} - seen
        seen |= starts
        pending += starts
        yield from (_inner(command.words[start:]) for start in sorted(starts))
        if len(seen) > _MOST:
            yield _ANYTHING
            return


def danger_behind(command: ShellCommand) -> str | None:
    """Return a clause saying what is dangerous about a command that it may run: `uv run pytest -p x`."""
    inner = (one for behind in _behind(command) for one in commands_in(behind.words))
    return next((c.danger for c in inner if c.danger and c.danger != UNKNOWN), None)


def _targets(command: ShellCommand) -> Iterator[ShellCommand]:
    found = targets_of(command)
    if found and len(found.named) > _MOST:
        yield _ANYTHING
        return
    for _, name, _ in found.named if found else ():
        for form in found.runner.forms if found else ():
            lead = form.replace("@", program_of(command.words[0].text)).removesuffix("{}").split()
            for target in dict.fromkeys((name, name.rpartition(":")[2])):
                yield _spelled(lead, literal(target))
            if found and found.runner.short and (known := _BEGINNING.match(name.rpartition(":")[2])):
                yield _spelled(lead, Word(name, False, known[0]))


def _starts(command: tuple[Word, ...]) -> Sequence[int]:
    """Where the command that `uv run make deploy` runs may begin: behind options, of which the last may have a value,
    or behind `--`."""
    words = tuple(word.text for word in command)
    size = next((n for n in (3, 2, 1) if words[:n] in _executors()), 0)
    operands = [at for at in range(size, len(words)) if not words[at].startswith("-")]
    first = operands[: 1 if operands[:1] == [size] else 2] if size else []
    behind = [words.index("--") + 1] if size and "--" in words[:-1] else []
    return list(dict.fromkeys((*first, *behind)))


def _inner(words: tuple[Word, ...]) -> ShellCommand:
    text, program = " ".join(w.text for w in words), program_of(words[0].text)
    return ShellCommand(text, words, code=program in LANGUAGES)


def _spelled(lead: Sequence[str], target: Word) -> ShellCommand:
    words = (*map(literal, lead), target)
    return ShellCommand(" ".join(w.text for w in words), words)


def sets_more(command: ShellCommand, known: int = 0) -> bool:
    """Whether it sets variables that may name programs, behind its first `known` words."""
    found = targets_of(command)
    if found is None:
        return False
    row = row_of(command.argv)
    variables = row[1].variables if row else frozenset[str]()
    words = [command.words[at] for at in found.settings if known <= at < len(command.words)]
    return not all(w.literal and harmless_setting(_OPTION.sub("", w.text), variables) for w in words)
