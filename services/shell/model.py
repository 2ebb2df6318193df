"""model: a parsed shell line: its words, simple commands and redirections, and which variables it may set."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

_MOST_COMMANDS = 300
_MOST_WORDS = 8_000
"""Together they keep one decision below 100 ms."""
_MOST_EXPANDED = 1_000_000
"""Characters: as many as in `{1..150000}`."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, as far as it is known without running anything."""

    text: str
    """Unquoted if `literal`; otherwise as written."""
    literal: bool = True
    """Its value is known: it has no expansion, glob, brace or tilde."""
    known_start: str = ""
    """The known beginning of its value; all of it if `literal`."""
    may_split: bool = False
    """May become several words, or none (unquoted expansion, brace, glob)."""
    may_start_differently: bool = False
    """May become words that don't begin with `lead`."""
    depends_on_environment: bool = False
    """Depends on variables or names of files, not only on the line and on what its commands print."""

    @property
    def may_be_option(self) -> bool:
        """Whether its value is unknown and may begin with a dash."""
        return not self.literal and (
            self.may_start_differently or self.known_start == "" or self.known_start.startswith("-")
        )


def to_name_set(text: str) -> frozenset[str]:
    """Split text into a set of names."""
    return frozenset(text.split())


@lru_cache(maxsize=1_000)
def program_name(text: str) -> str:
    """Return a program's name without folder, in lower case, as file systems may ignore case (`SUDO` on macOS), and
    without the ending that Windows, and Linux in it, takes for granted."""
    return text.rsplit("/", 1)[-1].lower().removesuffix(".exe")


_VERSION = re.compile(r"-?\d[\d.]*[a-z]?(-[\w-]+)?$", re.ASCII)


@lru_cache(maxsize=1_000)
def strip_version(program: str) -> str:
    """Return the name that a program has without a version: `python` for `python3.11`, `perl` for `perl5.36-x86_64`."""
    return _VERSION.sub("", program)


def literal_word(text: str) -> Word:
    return Word(text, True, text)


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection. `duplicate` is `2>&1` and the like; `text` is a here-document or here-string."""

    kind: Literal["read", "write", "duplicate", "text"]
    target: Word | None
    text: str | None = None
    """The text of a here-document or here-string, as far as it is known."""

    @property
    def is_without_file(self) -> bool:
        """Whether it only joins or closes descriptors, or leads to /dev/null: `2>&1`, `>/dev/null`."""
        nowhere = self.target is not None and self.target.literal and self.target.text == "/dev/null"
        return self.kind == "duplicate" or nowhere


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command that the line may run."""

    text: str
    """As written; for a command run by a wrapper, the joined words."""
    words: tuple[Word, ...]
    """Program and arguments, without assignments and redirections."""
    assigned_names: tuple[str, ...] = ()
    """Names of variables set for this command only."""
    danger: str | None = None
    """Why it asks even where a rule allows it: a clause without a full stop."""
    sets: str | None = None
    """Which variable it is given that may change what it does: a clause. It asks, too, but for a grant of the line."""
    opaque: str | None = None
    """Why it is opaque."""
    only_sources_file: bool = False
    """It is opaque only because it runs a file that it names (`source FILE`): a grant of the line covers that."""
    code: bool = False
    """Its arguments may contain commands in a language that isn't parsed: `python -c`, `git -c alias.x=!…`."""
    needs_no_rule: bool = False
    """Harmless by itself: it only runs other listed commands (`timeout`), or does nothing (`true`)."""
    may_read_pipe: bool = False
    """A pipe stands somewhere before it on the line, so it may read what another command writes."""
    may_repeat: bool = False
    """It stands in a loop or function, so one shell may run it several times."""
    argv: tuple[str, ...] = field(init=False, repr=False, compare=False)
    literal: bool = field(init=False, repr=False, compare=False)
    """Whether every argument is known."""

    def __post_init__(self) -> None:
        # Computed once: each rule asks for them.
        object.__setattr__(self, "argv", tuple([word.text for word in self.words]))
        object.__setattr__(self, "literal", all(word.literal for word in self.words))


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A whole line: every simple command in it, at any depth, in order."""

    text: str
    commands: tuple[ShellCommand, ...]
    redirects: tuple[Redirect, ...]
    assigns: tuple[str, ...]
    """Names of variables that the line sets for later commands."""
    opaque: str | None
    """Why `commands` may not include everything that the line would run; None if it does."""
    hidden: bool
    """It may run more than `commands` and the files that these source."""
    spawns_in_loop: bool = False
    """A loop starts commands without waiting for them."""
    values: tuple[tuple[str, Word], ...] = ()
    """Values that the line gives to variables, by their names."""
    partly_unparsed: bool = False
    """Not all of it was parsed: it is too long, too deep, or holds characters that people and bash read differently."""

    @property
    def file_redirects(self) -> tuple[Redirect, ...]:
        """The redirections that count: from or to a file, or of a text."""
        return tuple(r for r in self.redirects if not r.is_without_file)

    @property
    def commands_needing_rule(self) -> tuple[ShellCommand, ...]:
        """The commands that a rule must allow."""
        return tuple(c for c in self.commands if not c.needs_no_rule)


class LineTooComplex(Exception):  # noqa: N818 - not an error: the line is looked into no further
    """Stops the analysis; the text says why."""


@dataclass(slots=True)
class LineFindings:
    """Collects findings while a line, and any line its `bash -c` runs, is parsed."""

    parse_into: "Callable[[str, LineFindings], None]"
    depth: int = 0
    commands: list[ShellCommand] = field(default_factory=list[ShellCommand])
    redirects: list[Redirect] = field(default_factory=list[Redirect])
    assigns: list[str] = field(default_factory=list[str])
    values: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    opaque: str | None = None
    hidden: bool = False
    words: int = 0
    piped: bool = False
    """A pipe was read."""
    partly_unparsed: bool = False
    may_repeat: bool = False
    """The command that is being read stands in a loop or function of its shell."""
    spawns_in_loop: bool = False
    """A loop starts commands in the background."""
    expanded: int = 0
    """Characters that braces expand to, so far."""

    def mark_opaque(self, why: str, *, hidden: bool = True) -> None:
        """Record that not everything that would run is known; the first reason is kept."""
        self.opaque, self.hidden = self.opaque or why, self.hidden or hidden

    def add_command(self, command: ShellCommand) -> None:
        if len(self.commands) >= _MOST_COMMANDS:
            raise LineTooComplex(f"it has more than {_MOST_COMMANDS} commands")
        self.commands.append(replace(command, may_read_pipe=self.piped, may_repeat=self.may_repeat))
        if command.opaque:
            self.mark_opaque(command.opaque, hidden=not command.only_sources_file)

    def parse_inner_line(self, script: str) -> None:
        """Parse the line that a command runs, in a shell of its own."""
        outer, self.may_repeat = self.may_repeat, False
        self.depth += 1
        self.parse_into(script, self)
        self.depth -= 1
        self.may_repeat = outer

    def count_word_against_limit(self) -> None:
        """Count a word. Raise `LineTooComplex` if there are too many."""
        self.words += 1
        if self.words > _MOST_WORDS:
            raise LineTooComplex(f"it has more than {_MOST_WORDS} words")

    def count_expansion_against_limit(self, characters: int) -> None:
        """Count what braces make of a word; bash holds all of it in memory at once."""
        self.expanded += characters
        if self.expanded > _MOST_EXPANDED:
            self.mark_opaque(f"its braces expand to more than {_MOST_EXPANDED} characters", hidden=False)


# ---- variables

HARMLESS_VARIABLES = to_name_set(
    "CI NO_COLOR FORCE_COLOR CLICOLOR TERM COLUMNS LINES LANG LC_ALL LC_CTYPE TZ NODE_ENV RAILS_ENV DEBUG VERBOSE"
    " PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG SOURCE_DATE_EPOCH"
)
"""Setting these doesn't change what a command does, so a rule for the command still applies."""
STAGES = to_name_set("NODE_ENV RAILS_ENV")
"""These say on what it does it: `RAILS_ENV=production rake db:reset`. A rule for the command applies on a machine of
one's own only, and a grant is for the line as it was shown."""
_OF_PROGRAMS = to_name_set(
    "PYTHONPATH PYTHONWARNINGS PYTEST_ADDOPTS DJANGO_SETTINGS_MODULE FLASK_APP NODE_OPTIONS NODE_PATH GOFLAGS GOOS"
    " GOARCH GOPATH RUSTFLAGS CARGO_TERM_COLOR CARGO_TARGET_DIR JAVA_HOME JAVA_TOOL_OPTIONS JAVA_OPTS MAVEN_OPTS"
    " GRADLE_OPTS MIX_ENV RACK_ENV APP_ENV CFLAGS CXXFLAGS LDFLAGS LOG_LEVEL"
)
"""Bash evaluates none of these; programs do what they say."""
_OWN_STAGE = re.compile(r"""["']?(test|testing|ci|dev|development|local)["']?""")
_OWN = re.compile(r"(?!histchars$)[a-z][a-z0-9]*", re.ASCII)
"""Names people give to variables in a line; bash and programs use none of these, except the one excluded."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READS_ANEW = re.compile(r"BASH\w*|POSIXLY_CORRECT|SHELLOPTS|IFS|ENV|GIT_CONFIG\w*")
"""These make bash or git interpret the rest differently or read more files, whatever the value."""
_PLAIN_VALUE = re.compile(r"\d*")
_LOCALES = to_name_set("LANG LC_ALL LC_CTYPE")
_KNOWN_LOCALE = re.compile(r"(C|POSIX|\w+\.(UTF-?8|utf-?8))?", re.ASCII)
"""In another one, bash may read two bytes of the rest as one character: `\"é\\"` in Shift JIS."""


def assignment_problem(name: str, value: str) -> str | None:
    """Return a clause saying why an assignment may run hidden code, or None. `value`: as written.

    Bash evaluates some variables as arithmetic (`BASHPID`, `RANDOM`), where `a[$(…)]` runs a command, and others as a
    command line; a number is safe in both.
    """
    if name in _LOCALES and not _KNOWN_LOCALE.fullmatch(value.strip("'\"")):
        return f"sets {name}, by which bash may read the rest otherwise"
    if name in HARMLESS_VARIABLES or name in _OF_PROGRAMS or _OWN.fullmatch(name):
        return "an array isn't understood" if value.startswith("(") else None
    if _NAME.fullmatch(name) is None or _READS_ANEW.fullmatch(name) or not _PLAIN_VALUE.fullmatch(value):
        return f"sets {name[:60]}, whose value bash or another program may evaluate"
    return None


def assignment_label(name: str, value: str) -> str:
    """Return what a rule must know of an assignment: the name, and another stage's value with it."""
    return f"{name}={value}" if name in STAGES and not _OWN_STAGE.fullmatch(value) else name


def describe_variable_danger(name: str) -> str | None:
    """Return a clause saying why setting it for other commands is dangerous, or None."""
    if name.partition("=")[0] in HARMLESS_VARIABLES or _OWN.fullmatch(name):
        return None
    return f"sets {name[:60]}, which may change what commands do"
