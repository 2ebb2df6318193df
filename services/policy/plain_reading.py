"""plain_reading: finds where a shell line runs and which commands only read there, as the shipped rule allows.

Only listed options pass (`commands.toml`). Paths are limited to what the file tools may read.
"""

import os
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from interlock.services.files.ignore import find_shared_git_directory
from interlock.services.files.protected import is_private_name
from interlock.services.policy.git import (
    can_git_show_private_file,
    is_git_output_free_of_private_files,
    is_git_printing_file_contents,
    is_inert_repository,
    user_git_exclude_files,
)
from interlock.services.shell.commands import Options
from interlock.services.shell.model import (
    ShellCommand,
    ShellLine,
    Word,
    literal_word,
    program_name,
    to_name_set,
)
from interlock.state.calls import CallView
from interlock.state.workspace import PathRefused, Workspace


@cache
def load_command_table() -> Mapping[str, Any]:
    """Return what `commands.toml` holds."""
    return tomllib.loads(Path(__file__).with_name("commands.toml").read_text())


@dataclass(frozen=True, slots=True)
class ReaderOptions(Options):
    """The options that a program may have, and the kind of its operands."""

    operands: Literal["paths", "pattern", "lines", "text", "format", "none"] = "paths"
    """`pattern`: a pattern followed by paths; `lines`: which lines, as sed is told (`1,20p`), followed by paths;
    `format`: date's, `+%F`."""
    most: int = 1_000


@cache
def load_reader_options(table: Literal["reader", "git_reader"]) -> Mapping[str, ReaderOptions]:
    """Return the options of each program, or subcommand of git."""
    return {
        name: ReaderOptions(**row)
        for several, row in load_command_table()[table].items()
        for name in several.split()
    }


_FIND_FLAGS = to_name_set(
    "-print -print0 -ls -empty -not -o -or -a -and -prune -depth -mount -xdev ( ) ! -true -false"
)
_FIND_VALUES = to_name_set(
    "-name -iname -printf -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -ctime -regex"
    " -iregex -perm -user -group"
)
_PRINTERS = to_name_set("echo printf seq")
"""They print their words: no variable may stand there, whose value is none of the model's business."""
_QUESTIONS = to_name_set("command test [ wait")
_MOVES = frozenset({"cd", "pushd", "popd"})
_FOLDER_ARGS = ("dir_path", "directory", "cwd")
_MOST_ENTRIES = 2_000
"""Maximum files checked when deciding whether a folder can be searched as a whole."""
_MOST_MATCHES = 200
_GLOB = re.compile(r"[\w./*?+,@%-]+", re.ASCII)
_LINES = re.compile(r"(\d+|\$)(,(\d+|\$))?p(;\s*\d+q)?")
_OF_GLOBS = frozenset("*?[{")
_OPTION_GLOB = re.compile(r"--[a-z-]+=[\w./*?+,@%-]+", re.ASCII)
_REVISION = re.compile(r"[\w./~^@{}:,+=%-]+", re.ASCII)


_TYPES = to_name_set("c cpp css go h html java js json kotlin md py python ruby rust swift toml ts yaml")
"""ripgrep's types that no private file is of."""
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_LARGEST = 100_000
"""Bytes of an ignore file; a larger one may bring everything back."""


@dataclass(frozen=True, slots=True)
class _IgnoreExceptions:
    """The hidden and ignored files that ripgrep searches all the same: those named by globs, types and ignore files."""

    last: list[str]
    """The last parts of the globs; folders above don't matter."""

    @classmethod
    def from_ripgrep_options(cls, options: Mapping[str, Sequence[str]]) -> "_IgnoreExceptions":
        globs = [g for name in ("g", "glob") for g in options.get(name, ()) if not g.startswith("!")]
        types = {t for name in ("t", "type") for t in options.get(name, ())}
        return cls([*map(_last_glob_part, globs), *(["*"] if types - _TYPES else [])])

    def add_exceptions_in_folder(self, folder: str) -> None:
        """Add what the ignore files of a folder bring back, also its repository's own."""
        for name in _IGNORE_FILES:
            self.add_exceptions_in_file(os.path.join(folder, name))  # noqa: PTH118 - of os.walk
        if os.path.lexists(os.path.join(folder, ".git")):  # noqa: PTH118 - of os.walk
            self.add_exceptions_in_file(find_shared_git_directory(folder) / "info/exclude")

    def add_exceptions_in_file(self, path: str | Path) -> None:
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - of os.walk
            text = file.read(_LARGEST + 1)
            lines = text.decode("utf-8-sig", "replace").splitlines() if len(text) <= _LARGEST else ["!*"]
            self.last.extend(_last_glob_part(line[1:]) for line in lines if line.startswith("!"))

    def is_searched(self, name: str) -> bool:
        return any(fnmatchcase(name, last) for last in self.last)


def _last_glob_part(glob: str) -> str:
    last = glob.rstrip().rstrip("/").rpartition("/")[2]
    return "*" if set(last) & set("{[\\") else last


def _is_skipped_by_bash_glob(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether bash passes over a path that Python finds: its patterns meet no dot at a name's beginning."""
    return any(name[0] == "." and part[0] != "." for name, part in zip(names, pattern, strict=True))


def _cd_target(command: ShellCommand) -> str | None:
    """Return the target of `cd FOLDER`, or None if it isn't plain."""
    words = command.words
    if len(words) != 2 or words[0].text != "cd" or not words[1].literal:
        return None
    target = words[1].text
    # bash takes `link/..` for the folder that holds the link, the system for the one above where it leads.
    climbs = ".." in target.lstrip("./").split("/")
    return None if target == "" or target.startswith("-") or climbs else target


def resolve_readable_or_none(path: str, workspace: Workspace) -> Path | None:
    """Return the real path, or None if it is outside the workspace or kept from tools."""
    try:
        return workspace.resolve_readable(path)
    except PathRefused:
        return None


@dataclass(frozen=True, slots=True)
class LineReading:
    """Where the commands of one line may run, and which of them are plain reading there."""

    line: ShellLine
    workspace: Workspace
    folders: tuple[str, ...]
    """Every folder that may be current, as paths for the workspace; empty if unknown or outside of it."""
    elsewhere_clause: str | None = None
    """A clause saying what takes the line out of the workspace's own folder, for which rules are, if anything does."""
    begins_in_root: bool = True
    """Whether the line begins in the workspace's own folder."""
    accepted_paths: frozenset[str] = frozenset()
    """Paths that a person was shown and granted."""

    @classmethod
    def from_call(cls, call: CallView, line: ShellLine, workspace: Workspace) -> "LineReading":
        """Find out where a line may run, by the call's folder argument and at most one plain `cd`."""
        start = next((v for k in _FOLDER_ARGS if isinstance(v := call.args.get(k), str)), ".")
        own = start == "." or resolve_readable_or_none(start, workspace) == workspace.root
        bases, clauses = [start], [] if own else [f"runs in {start!r}"]
        moves = [c for c in line.commands if c.words and program_name(c.words[0].text) in _MOVES]
        for command in moves:
            target = _cd_target(command)
            clauses += [f"changes its folder ({command.text})"]
            leads_further = (  # each time that it runs
                target is not None
                and command.may_repeat
                and not (posixpath.isabs(target) or posixpath.normpath(target) == ".")
            )
            if target is None or len(moves) > 1 or leads_further:
                return cls(line, workspace, (), clauses[0], own)
            bases.append(posixpath.join(start, target))
            if bases[-1] == "." or resolve_readable_or_none(bases[-1], workspace) == workspace.root:
                clauses.pop()
        inside = all(resolve_readable_or_none(base, workspace) is not None for base in bases)
        return cls(line, workspace, tuple(bases) if inside else (), next(iter(clauses), None), own)

    @property
    def folders_or_root(self) -> tuple[str, ...]:
        """The folders that may be current; the workspace's own if they aren't known."""
        return self.folders or (".",)

    def with_command_paths_accepted(self, argv: Sequence[str]) -> "LineReading":
        """Return a copy that accepts the paths of this command, wherever they lead; not for a search."""
        reader = load_reader_options("reader").get(argv[0])
        parsed = (
            reader.parse_words(map(literal_word, argv[1:])) if reader and reader.operands == "paths" else None
        )
        return self if parsed is None else replace(self, accepted_paths=frozenset(w.text for w in parsed[1]))

    @property
    def is_allowed_without_rule(self) -> bool:
        """Whether the line only asks for something that needs no rule: `command -v node`, `[ -n "$x" ]`, `wait`."""
        line = self.line
        asks = any(c.words and c.words[0].text in _QUESTIONS for c in line.commands)
        return asks and not (line.commands_needing_rule or line.opaque or line.assigns or line.file_redirects)

    def is_folder(self, path: str) -> bool:
        """Return whether it is a folder, wherever the line may run."""
        places = [os.path.join(self.workspace.root, base, path) for base in self.folders]  # noqa: PTH118 - texts of a line, many
        return bool(places) and all(map(os.path.isdir, places))

    def is_plain_read_command(self, command: ShellCommand) -> bool:
        """Return whether the command only reads files in the workspace that tools may read."""
        if (
            not command.words
            or command.assigned_names
            or command.opaque
            or command.danger
            or not self.folders
        ):
            return False
        if self.line.spawns_in_loop:
            return False  # as many processes as the loop has turns
        program = command.words[0].text
        if not command.words[0].literal or is_program_from_project(program, self):
            return False
        read = (r.target for r in self.line.redirects if r.kind == "read" and r.target is not None)
        if not all(self.is_readable_path_word(word) for word in read):
            return False
        words = [*map(self._make_unmatched_pattern_literal, command.words[1:])]
        if program == "git":
            return self._is_plain_git_read(words)
        if program == "find":
            return self._is_plain_find_read(words)
        if program in _PRINTERS:
            return _has_bounded_output(program, words) and all(
                not w.depends_on_environment or self.is_readable_path_word(w) for w in words
            )
        reader = load_reader_options("reader").get(program)
        return reader is not None and self._has_plain_read_arguments(program, reader, words)

    def _has_plain_read_arguments(self, program: str, reader: ReaderOptions, words: Sequence[Word]) -> bool:
        parsed = reader.parse_words(words)
        if parsed is None:
            return False
        flags, operands = parsed
        match reader.operands:
            case "none":
                return not operands
            case "text":
                return not any(w.depends_on_environment for w in operands)
            case "format":
                return all(w.literal and w.text.startswith("+") for w in operands)
            case "pattern" if not flags.keys() & {"e", "files"}:
                if not operands or not operands[0].literal:
                    return False
                operands = operands[1:]
            case "lines":
                if not operands or not operands[0].literal or not _LINES.fullmatch(operands[0].text):
                    return False
                operands = operands[1:]
            case _:
                pass
        if len(operands) > reader.most or not all(self.is_readable_path_word(word) for word in operands):
            return False
        recurses = reader.operands == "pattern" and bool(flags.keys() & {"r", "recursive"})
        searches = program in ("rg", "diff") or recurses
        shown = _IgnoreExceptions.from_ripgrep_options(flags) if program == "rg" else None
        tops = [w.text for w in operands] or ["."]
        return not searches or self._can_search_folders(tops, shown, follows_links=program == "diff")

    def is_readable_path_word(self, word: Word) -> bool:
        """Return whether it is a path inside in every possible folder; globs are expanded now, quoted or not."""
        if word.text == "-" or (
            word.literal and (word.text == "/dev/null" or word.text in self.accepted_paths)
        ):
            return True
        if word.literal and (not set(word.text) & _OF_GLOBS or self._is_existing_path(word.text)):
            return self._is_readable_path(word.text)
        # A quoted pattern is one for programs that expand it themselves: `prettier '*.json'`.
        if word.may_start_differently or not _GLOB.fullmatch(word.text) or word.text.startswith("-"):
            return False
        found = [*self._expand_pattern(word.text, hidden=word.literal)]
        return 0 < len(found) < _MOST_MATCHES and all(map(self._is_readable_path, found))

    def _make_unmatched_pattern_literal(self, word: Word) -> Word:
        """Return an option's pattern as what it is to bash if no file has such a name: `--include=*.py`."""
        if word.literal or word.may_start_differently or not _OPTION_GLOB.fullmatch(word.text):
            return word
        roots = (self.workspace.root / base for base in self.folders)
        return word if any(True for root in roots for _ in root.glob(word.text)) else literal_word(word.text)

    def _is_existing_path(self, path: str) -> bool:
        """Return whether something of that very name is there: `app/[id]/page.tsx`."""
        return all(os.path.lexists(os.path.join(self.workspace.root, b, path)) for b in self.folders)  # noqa: PTH118 - texts of a line, many

    def _expand_pattern(self, pattern: str, *, hidden: bool) -> Iterator[str]:
        """Yield what stands in the command once the pattern is expanded. `hidden`: by the program itself, which may
        take names with a dot, too."""
        parts = pattern.split("/")
        # `**` is `*` in bash and something else in Python; `.*` is `..`, too, in an older bash.
        if posixpath.isabs(pattern) or any("**" in part or part[:2] in ("..", ".*", ".?") for part in parts):
            yield ".."
            return
        wanted = [part for part in parts if part not in ("", ".")]
        for base in self.folders:
            folder = self.workspace.root / base
            for count, match in enumerate(folder.glob(pattern)):
                names = match.relative_to(folder).parts
                if count > _MOST_MATCHES or (names and names[0].startswith("-")):
                    yield ".."
                elif hidden or not _is_skipped_by_bash_glob(names, wanted):
                    yield "/".join(names)

    def _is_readable_path(self, path: str) -> bool:
        if path.startswith(("~", "@", "file:", ":")):  # git's `:(glob)` and `:/` are patterns
            return False
        return all(
            resolve_readable_or_none(posixpath.join(base, path), self.workspace) for base in self.folders
        )

    def _can_search_folders(
        self, folders: Sequence[str], exceptions: "_IgnoreExceptions | None", *, follows_links: bool
    ) -> bool:
        """Return whether nothing in the folders is kept from tools.

        `exceptions`: what ripgrep doesn't skip as usual; None: another program, which skips nothing.
        `follows_links`: it opens what a link leads to.
        """
        pending = [str(self.workspace.root / posixpath.join(b, f)) for b in self.folders for f in folders]
        if exceptions:
            for file in user_git_exclude_files():
                exceptions.add_exceptions_in_file(file)
            for above in {a for top in pending for a in Path(top).parents}:
                exceptions.add_exceptions_in_folder(str(above))
        seen = 0
        while pending:
            top = pending.pop()
            if not os.path.isdir(top):  # noqa: PTH112 - Path.is_dir raises for names that are too long
                continue
            if exceptions:
                exceptions.add_exceptions_in_folder(top)
            with os.scandir(top) as entries:
                for entry in entries:
                    seen += 1
                    skipped = exceptions is not None and not exceptions.is_searched(entry.name)
                    if skipped and entry.name.startswith("."):
                        continue
                    if seen > _MOST_ENTRIES or is_private_name(entry.name):
                        return False
                    if entry.is_symlink():
                        if follows_links and not self._is_readable_path(entry.path):
                            return False
                        continue
                    folder, path = entry.is_dir(), Path(entry.path)
                    if self.workspace.is_ignored(path):
                        if not skipped or self.workspace.is_ignored(path, git=False):
                            return False
                    elif folder:
                        pending.append(entry.path)
                    elif entry.stat().st_nlink > 1 and not self._is_readable_path(entry.path):
                        return False  # a hard link to a private file
        return True

    def _is_plain_find_read(self, words: Sequence[Word]) -> bool:
        if not all(w.literal for w in words):
            return False
        remaining, starts = iter(words), True
        for word in remaining:
            starts = starts and not word.text.startswith(("-", "(", "!"))
            if starts:
                known = self.is_readable_path_word(word)
            elif word.text in _FIND_VALUES:
                known = next(remaining, None) is not None
            else:
                known = word.text in _FIND_FLAGS
            if not known:
                return False
        return True

    def _is_plain_git_read(self, words: Sequence[Word]) -> bool:
        words = words[1:] if words and words[0].text == "--no-pager" else words
        reader = load_reader_options("git_reader").get(words[0].text) if words else None
        parsed = reader.parse_words(words[1:]) if reader is not None else None
        if reader is None or parsed is None or not all(w.literal for w in words):
            return False
        options, operands = parsed[0], [w.text for w in parsed[1]]
        if reader.operands == "text":
            known = operands == ["list"]
        else:
            known = (
                not operands if reader.operands == "none" else all(map(self._is_allowed_revision, operands))
            )
        ranges = (value.rpartition(":")[2] for value in options.get("L", ()))
        if not known or not all(map(self._is_readable_path, ranges)):
            return False
        texts = is_git_printing_file_contents(words[0].text, [*options])
        compared = len(operands) if words[0].text == "diff" else 0
        folders = [self.workspace.root / base for base in self.folders]
        plain = all(
            is_inert_repository(f) and is_git_output_free_of_private_files(f, texts, compared)
            for f in folders
        )
        asked = [w.text for w in words]
        return plain and not (
            texts and any(can_git_show_private_file(f, asked, self._is_hidden_by_user) for f in folders)
        )

    def is_git_showing_private_file(self, command: ShellCommand) -> bool:
        """Return whether a git command that this table reads shows a private file of the history."""
        words = [w for w in command.words[1:] if w.text != "--no-pager"]
        reader = load_reader_options("git_reader").get(words[0].text) if words else None
        parsed = reader.parse_words(words[1:]) if reader is not None else None
        if (
            parsed is None
            or not command.literal
            or not is_git_printing_file_contents(words[0].text, [*parsed[0]])
        ):
            return False
        asked, folders = [w.text for w in words], [self.workspace.root / b for b in self.folders]
        return any(can_git_show_private_file(folder, asked, self._is_hidden_by_user) for folder in folders)

    def expand_pattern_word(self, word: Word) -> Sequence[str]:
        """Return the paths that a word may mean now: what a pattern of file names matches, else its text."""
        if (
            word.literal
            or word.may_start_differently
            or not _GLOB.fullmatch(word.text)
            or word.text.startswith("-")
        ):
            return (word.text,)
        return (word.text, *islice(self._expand_pattern(word.text, hidden=True), _MOST_MATCHES))

    def _is_hidden_by_user(self, path: str) -> bool:
        """Return whether the user's ignore files keep a path, relative to the repository, from tools."""
        return any(self.workspace.is_ignored(root / path, git=False) for root in self.workspace.roots)

    def _is_allowed_revision(self, text: str) -> bool:
        """Return whether it is a revision, a path, or both: `HEAD~2:src/a.py`."""
        parts = [p for side in text.split("..") for p in side.split(":")]
        return _REVISION.fullmatch(text) is not None and all(
            self._is_readable_path(p) for p in parts if p.strip(".")
        )


_WIDTH = re.compile(r"%[-+ #0]*(?:\d{4,}|\d*\.\d{4,}|[\d.]*\*)")
"""printf's field of a thousand blanks or more, or of as many as an argument says."""
_MOST_NUMBERS = 100_000


def _has_bounded_output(program: str, words: Sequence[Word]) -> bool:
    """Return whether it prints little more than its words: `$(seq 1 1e10)` fills bash's memory."""
    if program == "printf":
        return not words or _WIDTH.search(words[0].text) is None
    if program != "seq":
        return True
    numbers = [w.text for w in words if not re.match(r"-[^\d.]", w.text)]
    if not all(re.fullmatch(r"-?\d{1,15}", number) for number in numbers):
        return False
    ends = [int(number) for number in numbers]
    step = ends[1] if len(ends) > 2 else 1
    return (
        abs(ends[-1] - ends[0]) <= _MOST_NUMBERS * abs(step) if len(ends) > 1 else sum(ends) <= _MOST_NUMBERS
    )


def is_program_from_project(program: str, reading: LineReading) -> bool:
    """Return whether the project supplies a program of that name through a PATH folder of its own."""
    own = _project_folders_on_path(os.environ.get("PATH", ""), tuple(map(str, reading.workspace.roots)))
    here = [str(reading.workspace.root / base) for base in reading.folders_or_root] if own else ()
    return any(os.path.lexists(os.path.join(base, folder, program)) for folder in own for base in here)  # noqa: PTH118 - texts of a line, many


@lru_cache(maxsize=8)
def _project_folders_on_path(path: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the PATH folders in the workspace, or relative to the current folder."""
    own: list[str] = []
    for folder in path.split(os.pathsep):
        real = Path(os.path.realpath(folder))
        if not os.path.isabs(folder) or any(real.is_relative_to(root) for root in roots):  # noqa: PTH117 - texts of a line, many
            own.append(folder)
    return tuple(own)
