"""task_runners: what task runners run: several targets are several commands, whatever options stand between them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from pydantic import BaseModel, Field

from interlock.services.policy.grant_coverage import (
    SETS,
    NameSet,
    find_grant_row,
    is_harmless_variable_setting,
)
from interlock.services.policy.plain_reading import load_command_table
from interlock.services.policy.programs import canonical_spellings, is_valueless_flag, resolve_command
from interlock.services.shell.commands import LANGUAGES, canonical_program_name
from interlock.services.shell.danger import UNKNOWN
from interlock.services.shell.model import ShellCommand, Word, literal_word, program_name
from interlock.services.shell.parse import parse_command_words

_BEGINNING = re.compile(r"[a-z0-9:]*")
"""Of an abbreviated target: `dP` may be `deployProduction`."""

_MOST = 100
"""Targets, and commands within commands: what is beyond isn't looked at, and counts as anything."""
ANYTHING = ShellCommand("…", (Word("…", False, "", True, True, depends_on_environment=True),))

_CLUSTER = re.compile(r"-([A-Za-z]{2,}.*)", re.DOTALL)
_OPTION = re.compile(r"^-[A-Z]")


class Runner(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """A program that runs targets; fields as `commands.toml` explains them."""

    programs: NameSet
    forms: tuple[str, ...]
    takes: NameSet = frozenset()
    sub: NameSet = frozenset()
    bare: bool = False
    alone: dict[str, str] = Field(default_factory=dict[str, str])
    select: NameSet = frozenset()
    many: bool = False
    first: bool = False
    sets: NameSet = frozenset()
    short: bool = False
    files: NameSet = frozenset()
    cluster: bool = False

    def read_option(self, words: Sequence[Word], at: int, found: "RunnerTargets") -> int:
        """Read the option at a place; return where to go on."""
        text = words[at].text
        name, sign, value = text.partition("=")
        if self.cluster and (letters := _CLUSTER.fullmatch(text)):
            return self._read_option_cluster(letters[1], words, at, found)
        if text in self.files or (sign and name in self.files):
            found.files.append(value if sign else words[at + 1].text if at + 1 < len(words) else "")
        elif text[:2] in self.files and not text.startswith("--"):
            found.files.append(text[2:])
        if text in self.select or self._is_abbreviated_select_option(text):
            return self._read_selected_targets(words, at + 1, found)
        if sign and name in self.select:
            found.add_targets(at, value, f"{name}=")
        elif text[:2] in self.select and not text.startswith("--"):
            found.add_targets(at, text[2:], text[:2])
        elif text in self.sets:
            found.settings.append(at + 1)
            return at + 2
        elif any(text.startswith(option) for option in self.sets):
            found.settings.append(at)
        return at + 2 if text in self.takes else at + 1

    def _is_abbreviated_select_option(self, text: str) -> bool:
        """Return whether it is the beginning of a long option that selects targets."""
        return len(text) > 3 and text.startswith("--") and any(o.startswith(text) for o in self.select)

    def _read_option_cluster(
        self, letters: str, words: Sequence[Word], at: int, found: "RunnerTargets"
    ) -> int:
        """Read letters behind one dash, the last of which may have a value."""
        for place, letter in enumerate(letters):
            name, value = f"-{letter}", letters[place + 1 :]
            if name in self.select:
                if value:
                    found.add_targets(at, value, f"-{letters[: place + 1]}")
                    return at + 1
                return self._read_selected_targets(words, at + 1, found)
            if name in self.takes:
                if name in self.files:
                    found.files.append(value or (words[at + 1].text if at + 1 < len(words) else ""))
                return at + 1 if value else at + 2
        return at + 1

    def _read_selected_targets(self, words: Sequence[Word], at: int, found: "RunnerTargets") -> int:
        while at < len(words) and not words[at].known_start.startswith("-"):
            found.add_targets(at, words[at].text)
            at += 1
            if not self.many:
                break
        return at

    def read_operand(self, words: Sequence[Word], at: int, found: "RunnerTargets") -> bool:
        """Read the operand at a place; return whether what follows are arguments of a target."""
        text = words[at].text
        if self.sub and not found.subcommand_seen:
            found.subcommand_seen = True
            if text in self.sub:
                return False
            if text in self.alone or self.bare:
                found.add_targets(at, self.alone.get(text, text))
            return not self._can_be_option_value(words, at)
        if self.select or (text.isdecimal() and not self.first):
            return False
        if SETS.fullmatch(text) and not self.first:
            found.settings.append(at)
        else:
            found.add_targets(at, text)
        return self.first and not self._can_be_option_value(words, at)

    def _can_be_option_value(self, words: Sequence[Word], at: int) -> bool:
        """Return whether a word may belong to the option before it: `npm run --cache x deploy`."""
        before = words[at - 1]
        plain = not before.known_start.startswith("-") or before.text == "--" or "=" in before.text
        return not (
            plain
            or is_valueless_flag(program_name(words[0].text), before.text)
            or words[at - 2].text in self.takes
        )


@dataclass(slots=True)
class RunnerTargets:
    """The targets and variables of one command."""

    runner: Runner
    targets: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Place, target, and what stands before it in the same word."""
    settings: list[int] = field(default_factory=list[int])
    subcommand_seen: bool = False
    files: list[str] = field(default_factory=list[str])
    """Files that say what the targets are."""

    def add_targets(self, at: int, text: str, prefix: str = "") -> None:
        names = text.split(",") if self.runner.select else [text]
        self.targets += [(at, name, prefix) for name in names if name]


@cache
def _load_executor_operand_counts() -> dict[tuple[str, ...], int]:
    """Return programs that run another, with the operands in front of that."""
    return {
        tuple(name.split()): row.get("after", 0)
        for row in load_command_table()["exec"]
        for name in row["run"]
    }


@cache
def _load_runners() -> dict[str, Runner]:
    return {
        p: one for one in map(Runner.model_validate, load_command_table()["runner"]) for p in one.programs
    }


def is_task_runner(program: str) -> bool:
    """Return whether it runs targets, whose names a project chooses."""
    return program in _load_runners()


def parse_runner_targets(command: ShellCommand) -> RunnerTargets | None:
    """Return what the command runs, if its program is a task runner."""
    words = command.words
    runner = _load_runners().get(program_name(words[0].text)) if words and words[0].literal else None
    if runner is None:
        return None
    found, at = RunnerTargets(runner), 1
    while at < len(words):
        if words[at].text == "--" and (runner.select or (runner.first and found.targets)):
            break
        if not words[at].literal or words[at].text == "--":
            at += 1
        elif words[at].text.startswith("-"):
            at = runner.read_option(words, at, found)
        elif runner.read_operand(words, at, found):
            break
        else:
            at += 1
    return found


def split_by_target(command: ShellCommand, prefixes: Sequence[Sequence[str]] = ()) -> Sequence[ShellCommand]:
    """Return one command for each target. `prefixes`: those of allow rules, which may name several at once."""
    found = parse_runner_targets(command)
    if (
        found is None
        or len(found.targets) < 2
        or any(_is_prefix_naming_all_targets(found, command, p) for p in prefixes)
    ):
        return (command,)
    if len(found.targets) > _MOST:
        return (replace(command, opaque=f"it has more than {_MOST} targets"),)
    return [_single_target_command(command, found, number) for number in range(len(found.targets))]


def _is_prefix_naming_all_targets(found: RunnerTargets, command: ShellCommand, prefix: Sequence[str]) -> bool:
    return command.argv[: len(prefix)] == tuple(prefix) and all(
        at < len(prefix) for at, _, _ in found.targets
    )


def _single_target_command(command: ShellCommand, found: RunnerTargets, number: int) -> ShellCommand:
    own, name, before = found.targets[number]
    others = {at for at, _, _ in found.targets} - {own}
    words = tuple(
        literal_word(before + name) if at == own else word
        for at, word in enumerate(command.words)
        if at not in others
    )
    return replace(command, words=words, text=" ".join(w.text for w in words))


def can_run_command_in_arguments(command: ShellCommand) -> bool:
    """Return whether it may run a command that stands among its arguments, behind options or in one word: `npx -c
    'x y'`."""
    if not command.words or find_grant_row(command.argv) is not None:
        return False
    program, later = program_name(command.words[0].text), command.argv[1:]
    return any(
        row[0] == program and _is_subsequence(row[1:], later) for row in _load_executor_operand_counts()
    )


def _is_subsequence(wanted: Sequence[str], words: Sequence[str]) -> bool:
    remaining = iter(words)
    return all(name in remaining for name in wanted)


def expand_to_plain_commands(command: ShellCommand, folders: Sequence[str]) -> Iterator[ShellCommand]:
    """Yield the plain commands that run each target: rules that restrict one of them meet it."""
    own = [command, *canonical_spellings(command, folders)]
    inner = [one for each in own for one in _inner_commands(each)]
    inner += [other for one in inner for other in canonical_spellings(one, folders)]
    yield from (*own[1:], *inner)
    for one in (*own, *inner):
        yield from _target_commands(one)


def unresolved_programs(command: ShellCommand, folders: Sequence[str]) -> frozenset[str]:
    """Return the programs of which it may be any command: `git p`, `make -f -`, or one of these behind `uv run`."""
    own = [command, *canonical_spellings(command, folders)]
    each = [*own, *(one for each in own for one in _inner_commands(each))]
    known = ((one, resolve_command(one, folders)) for one in each if one.words)
    programs = {found.program for one, found in known if found.unclear or has_unclear_targets(one)}
    return frozenset(programs.union(*map(_programs_run_by_runner, programs)))


def _programs_run_by_runner(program: str) -> Iterator[str]:
    """Yield the programs whose targets a runner runs: `run-s` runs npm's."""
    if (runner := _load_runners().get(program)) is not None:
        yield from (form.split()[0] for form in runner.forms if not form.startswith("@"))


def _inner_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    """Yield the commands that it may run, and those that they may run."""
    pending, seen = [0], {0}
    while pending:
        at = pending.pop()
        starts = {at + start for start in _inner_command_starts(command.words[at:])} - seen
        seen |= starts
        pending += starts
        yield from (_to_inner_command(command.words[start:]) for start in sorted(starts))
        if len(seen) > _MOST:
            yield ANYTHING
            return


def find_inner_danger(command: ShellCommand) -> str | None:
    """Return a clause saying what is dangerous about a command that it may run: `uv run pytest -p x`."""
    inner = (one for behind in _inner_commands(command) for one in parse_command_words(behind.words))
    return next((c.danger for c in inner if c.danger and c.danger != UNKNOWN), None)


def _target_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    found = parse_runner_targets(command)
    if found and len(found.targets) > _MOST:
        yield ANYTHING
        return
    for _, name, _ in found.targets if found else ():
        for form in found.runner.forms if found else ():
            lead = form.replace("@", program_name(command.words[0].text)).removesuffix("{}").split()
            for target in _target_name_variants(name):
                yield _to_target_command(lead, literal_word(target))
            if found and found.runner.short and (known := _BEGINNING.match(name.rpartition(":")[2])):
                yield _to_target_command(lead, Word(name, False, known[0]))


_ARGUMENTS = re.compile(r"(\[.*\]|\(.*\)|-\d[\d.]*)$", re.DOTALL)
_PLAIN_NAME = re.compile(r"[\w./:@+-]+")


def _target_name_variants(target: str) -> Sequence[str]:
    """Return a target's names: without its folder, its arguments (`x[y]`, `x(y=1)`) and the group that it is in."""
    bare = _ARGUMENTS.sub("", target)
    known = [name for one in (target, bare) for name in (one, one.rpartition(":")[2], one.rpartition("/")[2])]
    return [*dict.fromkeys(filter(None, known))]


def has_unclear_targets(command: ShellCommand) -> bool:
    """Return whether its targets aren't all known: patterns of names, or names in a file that isn't the project's."""
    found = parse_runner_targets(command)
    if found is None:
        return False
    odd = any(_PLAIN_NAME.fullmatch(_ARGUMENTS.sub("", name)) is None for _, name, _ in found.targets)
    given = (command.words[at].text for at in found.settings if at < len(command.words))
    return odd or any(map(_is_dynamic_input_path, found.files)) or any(text.startswith(".") for text in given)


def _is_dynamic_input_path(path: str) -> bool:
    return path in ("", "-") or path.startswith(("/dev/", "/proc/", "<(", "$", "`"))


def _inner_command_starts(command: tuple[Word, ...]) -> Sequence[int]:
    """Return where the command that `uv run make deploy` runs may begin: behind options, of which the last may have
    a value, or behind `--`."""
    words = tuple(word.text for word in command)
    size = next((n for n in (3, 2, 1) if words[:n] in _load_executor_operand_counts()), 0)
    after = _load_executor_operand_counts().get(words[:size], 0)
    operands = [at for at in range(size, len(words)) if not words[at].startswith("-")]
    first = operands[after : after + (1 if operands[:1] == [size] else 2)] if size else []
    behind = [words.index("--") + 1] if size and "--" in words[:-1] else []
    return list(dict.fromkeys((*first, *behind)))


def _to_inner_command(words: tuple[Word, ...]) -> ShellCommand:
    text, program = " ".join(w.text for w in words), canonical_program_name(words[0].text)
    return ShellCommand(text, words, code=program in LANGUAGES)


def _to_target_command(lead: Sequence[str], target: Word) -> ShellCommand:
    words = (*map(literal_word, lead), target)
    return ShellCommand(" ".join(w.text for w in words), words)


def has_unsafe_assignments(command: ShellCommand, skipped_words: int = 0) -> bool:
    """Return whether it sets variables that may name programs, behind its first `skipped_words` words."""
    found = parse_runner_targets(command)
    if found is None:
        return False
    row = find_grant_row(command.argv)
    variables = row[1].variables if row else frozenset[str]()
    words = [command.words[at] for at in found.settings if skipped_words <= at < len(command.words)]
    return not all(
        w.literal and is_harmless_variable_setting(_OPTION.sub("", w.text), variables) for w in words
    )
