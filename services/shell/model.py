"""model: what is known of a shell line: its words, simple commands and redirections; which variables it may set."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

_MOST_COMMANDS = 300
_MOST_WORDS = 8_000
"""Keep one decision below 100 ms."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """Quoting resolved when `literal`; else as it was written."""
    literal: bool = True
    """Its value is known: no expansion, glob, brace or tilde takes part in it."""
    lead: str = ""
    """The known beginning of its value; all of it when `literal`."""
    splits: bool = False
    """May become several words, or none (unquoted expansion, brace, glob)."""
    wild: bool = False
    """May become words that don't begin with `lead`."""

    @property
    def may_be_option(self) -> bool:
        """Its value isn't known, and may begin with a dash."""
        return not self.literal and (self.wild or self.lead == "" or self.lead.startswith("-"))


def names(text: str) -> frozenset[str]:
    """A set of names, written as text."""
    return frozenset(text.split())


@lru_cache(maxsize=1_000)
def program_of(text: str) -> str:
    """A program's name without its folder; in lower case, since file names may ignore it (`SUDO` on macOS)."""
    return text.rsplit("/", 1)[-1].lower()


def literal(text: str) -> Word:
    return Word(text, True, text)


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection. `duplicate` is `2>&1` and the like; `text` is a here-document or here-string."""

    kind: Literal["read", "write", "duplicate", "text"]
    target: Word | None


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command that the line may run."""

    text: str
    """As it was written; for what a wrapper runs, the words joined."""
    words: tuple[Word, ...]
    """Program and arguments; without assignments and redirections."""
    assigns: tuple[str, ...] = ()
    """Names of variables that are set for this command only."""
    danger: str | None = None
    """Why it asks even where a rule allows it: a clause without a full stop."""
    opaque: str | None = None
    """Why it can't be seen through."""
    code: bool = False
    """Its arguments may hold commands in a language that isn't looked into: `python -c`, `git -c alias.x=!…`."""
    transparent: bool = False
    """Harmless by itself: it only runs other commands of the list (`timeout`), or does nothing (`true`)."""

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)

    @property
    def literal(self) -> bool:
        """Every argument is known."""
        return all(word.literal for word in self.words)


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A whole line: every simple command in it, at any depth, in the order in which they were met."""

    text: str
    commands: tuple[ShellCommand, ...]
    redirects: tuple[Redirect, ...]
    assigns: tuple[str, ...]
    """Names of variables that the line sets for what comes after."""
    opaque: str | None
    """Why not everything that the line would run is in `commands`; null: it is."""

    @property
    def danger(self) -> str | None:
        return next((c.danger for c in self.commands if c.danger), None)

    @property
    def effective(self) -> tuple[ShellCommand, ...]:
        """The commands that a rule must allow."""
        return tuple(c for c in self.commands if not c.transparent)


class TooMuch(Exception):  # noqa: N818 - not an error: the line is looked into no further
    """Text: why."""


@dataclass(slots=True)
class Found:
    """What was found so far, while a line, and what its `bash -c` holds, is walked."""

    look_into: "Callable[[str, Found], None]"
    depth: int = 0
    commands: list[ShellCommand] = field(default_factory=list[ShellCommand])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    assigns: list[str] = field(default_factory=list[str])
    opaque: str | None = None
    words: int = 0

    def blur(self, why: str) -> None:
        """Not everything that would run is known; the first reason is kept."""
        self.opaque = self.opaque or why

    def add(self, command: ShellCommand) -> None:
        if len(self.commands) >= _MOST_COMMANDS:
            raise TooMuch(f"it has more than {_MOST_COMMANDS} commands")
        self.commands.append(command)
        if command.opaque:
            self.blur(command.opaque)

    def deeper(self, script: str) -> None:
        """Look into the line that a command runs."""
        self.depth += 1
        self.look_into(script, self)
        self.depth -= 1

    def count(self) -> None:
        self.words += 1
        if self.words > _MOST_WORDS:
            raise TooMuch(f"it has more than {_MOST_WORDS} words")


# ---- variables

HARMLESS_VARIABLES = names(
    "CI NO_COLOR FORCE_COLOR CLICOLOR TERM COLUMNS LINES LANG LC_ALL LC_CTYPE TZ NODE_ENV RAILS_ENV DEBUG VERBOSE"
    " PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG SOURCE_DATE_EPOCH"
)
"""Set before a command they leave what it does as it is, so that a rule for the command still holds."""
_OWN = re.compile(r"(?!histchars$)[a-z][a-z0-9]*", re.ASCII)
"""Names that people give variables of a line; bash and programs have none such, but for that one."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READS_ANEW = re.compile(r"BASH\w*|POSIXLY_CORRECT|SHELLOPTS|IFS|ENV|GIT_CONFIG\w*")
"""Bash or git reads the rest in another way, or more files, whatever the value."""
_PLAIN_VALUE = re.compile(r"\d*")


def assignment_problem(name: str, value: str) -> str | None:
    """Why an assignment may run more than can be seen, as a clause. `value`: as written.

    Bash evaluates the value of some variables as arithmetic (`BASHPID`, `RANDOM`), where `a[$(…)]` runs a command,
    and of others as a command line; a number is neither.
    """
    if name in HARMLESS_VARIABLES or _OWN.fullmatch(name):
        return "an array isn't understood" if value.startswith("(") else None
    if _NAME.fullmatch(name) is None or _READS_ANEW.fullmatch(name) or not _PLAIN_VALUE.fullmatch(value):
        return f"sets {name[:60]}, whose value bash or another program may evaluate"
    return None


def sets_clause(name: str) -> str | None:
    """What is dangerous about setting it for other commands, as a clause."""
    if name in HARMLESS_VARIABLES or _OWN.fullmatch(name):
        return None
    return f"sets {name[:60]}, which may change what commands do"
