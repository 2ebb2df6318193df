"""memory: the user's and the project's instruction files for the model, Roo Code's rule files, and the file of a system
prompt of one's own."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from interlock.services.config.settings import FOLDERS
from interlock.services.files.filesystem import UnreadableError, is_file, read_truncated_text
from interlock.services.files.protected import RULES, find_private_name, resolve_links, to_absolute_path
from interlock.services.files.stamps import path_exists, real_path
from interlock.state.context import AGENT_FILES, IGNORE_FILE, RuleFile
from interlock.state.file_names import format_file_name
from interlock.state.text import replace_surrogates
from interlock.state.workspace import PathRefused, Workspace

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


MAX_DEPTH = 5
"""Maximum nesting of imports (gemini-cli: 5)."""
_REFERENCE = re.compile(r"(?<![^\s(])@([^\s@`<>\"'()\[\]|*]+)")
_TICKS = re.compile(r"`+")


@dataclass
class ImportExpansion:
    """State while one memory file and its imports are expanded."""

    roots: tuple[Path, ...]
    """Real paths of the directories that the file and its imports must stay in."""
    left: int
    """Bytes that may still be read."""
    seen: set[Path] = field(default_factory=set[Path])

    def expand_file(self, file: Path, depth: int = 0) -> str:
        """Return the file with its imports expanded. Raises `UnreadableError` for the file, never for an import."""
        real, root = resolve_readable_in_roots(file, self.roots)
        if real in self.seen:
            raise UnreadableError("already included above")
        text = read_truncated_text(real, max(self.left, 0), root)
        self.left -= len(text.encode())
        self.seen.add(real)
        pieces: list[str] = []
        end = 0
        for start, stop, target in find_import_targets(text):
            pieces += [text[end:start], self._expand_import(file.parent, target, depth + 1)]
            end = stop
        return "".join([*pieces, text[end:]])

    def _expand_import(self, folder: Path, target: str, depth: int) -> str:
        """Return the text that replaces `@target`."""
        try:
            if depth > MAX_DEPTH:
                raise UnreadableError(f"imports nest deeper than {MAX_DEPTH}")
            if self.left <= 0:
                raise UnreadableError("the memory file and its imports are too large")
            text = self.expand_file(folder / target, depth)
        except UnreadableError as error:
            # A bare word that names no file is an ordinary mention.
            mention = "/" not in target and "." not in target
            return f"@{target}" if mention else f"@{target} <!-- not imported: {error} -->"
        return f"\n<!-- from {target} -->\n{text.strip()}\n<!-- end of {target} -->\n"


def resolve_readable_in_roots(file: Path, roots: Sequence[Path]) -> tuple[Path, Path]:
    """Return the real path of a file and the real root in `roots` that contains it. Raises `UnreadableError`."""
    try:
        real = real_path(file)
    except (OSError, ValueError):
        raise UnreadableError("not a usable path") from None
    if os.path.islink(real):  # noqa: PTH114 - to itself; a name too long for a link is said when it is opened
        raise UnreadableError("not a usable path")
    root = next((r for r in roots if real.is_relative_to(r)), None)
    if root is None:
        raise UnreadableError("outside the project")
    # Files that tools may not read can't be imported either.
    if find_private_name(real.relative_to(root).parts):
        raise UnreadableError("may hold secrets")
    return real, root


def find_import_targets(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, target) for each `@target` at the start of a word, outside code and HTML comments."""
    if "@" not in text:
        return
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for token in _markdown_parser().parse(text):
        if token.type != "inline" or token.map is None:
            continue
        first, last = token.map
        block = "\n".join(lines[first:last])
        for match in _REFERENCE.finditer(blank_code_spans(block)):
            target = match[1].rstrip(".,;:!?")
            if target:
                start = starts[first] + match.start()
                yield start, start + 1 + len(target), target


def blank_code_spans(block: str) -> str:
    """Replace code spans with blanks, in linear time."""
    runs = [(m.start(), m.end()) for m in _TICKS.finditer(block)]
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[index][1] - runs[index][0], []).append(index)
    pieces: list[str] = []
    end = index = 0
    while index < len(runs):
        start, stop = runs[index]
        same = later[stop - start]
        while same and same[-1] <= index:
            same.pop()
        escaped = start > 0 and block[start - 1] == "\\"
        if same and not escaped:
            close = same[-1]
            pieces += [block[end:start], " " * (runs[close][1] - start)]
            end = runs[close][1]
            index = close
        index += 1
    return "".join([*pieces, block[end:]])


@cache
def _markdown_parser() -> "MarkdownIt":
    # Imported lazily: most memory files import nothing.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


_PROBLEM = re.compile(r"(@\S+ )?<!-- (not (?:read|imported): .*?) -->|^\[(Cut here: .*?)\]$", re.MULTILINE)


def first_omission_note(text: str) -> str:
    """Return the first omission noted in a memory file's text, or an empty string."""
    found = _PROBLEM.search(text)
    return f"{found[1] or ''}{found[2] or found[3]}" if found else ""


FILE_LIMIT = 64 * 1024
"""Maximum bytes of one memory file with its imports (about 16,000 tokens)."""
TOTAL_LIMIT = 256 * 1024
"""Maximum bytes of all memory files together."""


@dataclass(frozen=True)
class MemoryFile:
    """One memory file with its imports expanded; if it can't be read, `text` is an HTML comment saying why."""

    path: Path
    level: Literal["global", "project"]
    text: str
    sources: frozenset[Path] = frozenset()
    """The real paths of the file and its imports."""


def load_all_memory_files(*, roots: Sequence[Path], home: Path, names: Sequence[str]) -> list[MemoryFile]:
    """Load global files, then each root's from its git root down (nearest last); each real file only once."""
    seen: set[Path] = set()
    found: list[MemoryFile] = []
    left = TOTAL_LIMIT
    for path, top, level in _candidate_memory_files(roots, home, names):
        real = real_path(path)
        if real in seen or not is_file(real):
            continue
        seen.add(real)
        # Users may link anything into their own folder; a project's link must not lead outside the project.
        allowed = (top, real.parent) if level == "global" else (top,)
        imports = ImportExpansion(allowed, min(FILE_LIMIT, left))
        text = _read_with_imports_or_note(path, imports)
        left -= len(text.encode())
        if text:
            found.append(MemoryFile(path, level, text, frozenset(imports.seen)))
    return found


def find_memory_files_down_to(path: str, workspace: Workspace, names: Sequence[str]) -> Iterator[Path]:
    """Yield memory files below a workspace root, down to `path`; the root's own are already loaded."""
    try:
        real = resolve_links(to_absolute_path(path, workspace.root))
        root = next((r for r in workspace.roots if real.is_relative_to(r)), real)
        way = accumulate(real.relative_to(root).parts, os.path.join, initial=str(root))
        tried = (os.path.join(folder, name) for folder in islice(way, 1, None) for name in names)  # noqa: PTH118 - each call that names a file pays for it
        found = [Path(file) for file in tried if os.path.isfile(file)]  # noqa: PTH113 - as above
        if found and workspace.resolve_readable(path) != real:  # asked only then: most folders have none
            return
    except PathRefused:
        return
    yield from (file for file in found if not workspace.is_ignored(file))


def read_memory_file_with_imports(file: Path, import_roots: Sequence[Path]) -> str:
    """Read one file with its imports, which must stay in the workspace."""
    return _read_with_imports_or_note(file, ImportExpansion(tuple(import_roots), FILE_LIMIT))


def find_git_root(directory: Path) -> Path | None:
    """Return the nearest directory, from this one upward, that contains `.git` (a directory or a file)."""
    return next((d for d in (directory, *directory.parents) if path_exists(d / ".git")), None)


def _candidate_memory_files(
    roots: Sequence[Path], home: Path, names: Sequence[str]
) -> Iterator[tuple[Path, Path, Literal["global", "project"]]]:
    for folder in FOLDERS:
        for name in names:
            yield home / folder / name, real_path(home / folder), "global"
    for root in roots:
        top = find_git_root(root) or root
        way = [d for d in (root, *root.parents) if d.is_relative_to(top)]
        for directory in reversed(way):
            for name in names:
                yield directory / name, real_path(top), "project"


def _read_with_imports_or_note(path: Path, expansion: ImportExpansion) -> str:
    if expansion.left <= 0:
        return f"<!-- not read: the memory files before it hold {TOTAL_LIMIT:,} bytes already -->"
    try:
        return expansion.expand_file(path).strip()
    except UnreadableError as error:
        return f"<!-- not read: {error} -->"


_DEEPEST = 5
_MOST = 500
"""Maximum number of files considered per folder."""
_NO_RULES = (
    *(".ds_store", ".bak", ".cache", ".crdownload", ".db", ".dmp", ".dump", ".eslintcache", ".lock", ".log"),
    *(".old", ".part", ".partial", ".pyc", ".pyo", ".stackdump", ".swo", ".swp", ".temp", ".tmp"),
    "thumbs.db",
)
"""Suffixes of files that editors and systems leave behind (Roo Code: the same)."""


def load_rule_files(root: Path, home: Path, mode: str, *, use_agent_files: bool = True) -> list[RuleFile]:
    """Load rules in the order shown to the model: the mode's, the ignore file, AGENTS.md, those for all modes."""
    files = [
        *(load_rules_of_folders_or_single_file(f"-{mode}", root, home) if mode else ()),
        *_read_rule_files_until_non_empty(root, (IGNORE_FILE,)),
        *_read_rule_files_until_non_empty(root, AGENT_FILES if use_agent_files else ()),
        *load_rules_of_folders_or_single_file("", root, home),
    ]
    left = TOTAL_LIMIT
    kept: list[RuleFile] = []
    for file in files:
        if len(file.text.encode()) > left:
            why = f"the rule files before it hold {TOTAL_LIMIT:,} bytes already"
            file = RuleFile(file.shown, "", why)
        left -= len(file.text.encode())
        kept.append(file)
    return kept


def load_rules_of_folders_or_single_file(suffix: str, root: Path, home: Path) -> list[RuleFile]:
    """Load rules from the user's and the project's folder; if neither has any, from the first non-empty single file."""
    found: list[RuleFile] = []
    for base in dict.fromkeys((home, root)):
        files = islice(_list_files_below(base / ".roo" / f"rules{suffix}", 0, set()), _MOST)
        ordered = sorted(files, key=lambda p: (p.name.casefold(), str(p)))
        found += [_read_rule_file(path, base, in_home=base != root) for path in ordered]
    if any(file.text for file in found):
        return found
    return [*found, *_read_rule_files_until_non_empty(root, [f"{name}{suffix}" for name in RULES])]


def _read_rule_files_until_non_empty(root: Path, names: Sequence[str]) -> Iterator[RuleFile]:
    """Yield files up to and including the first non-empty one."""
    for name in names:
        if is_file(root / name):
            file = _read_rule_file(root / name, root, in_home=False)
            yield file
            if file.text:
                return


def _list_files_below(folder: Path, depth: int, seen: set[str]) -> Iterator[Path]:
    """Yield files at any depth, following links but visiting each folder only once."""
    real = os.path.realpath(folder)
    if depth > _DEEPEST or real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if is_directory(entry, follow_symlinks=True):
            yield from _list_files_below(Path(entry.path), depth + 1, seen)
        elif is_file(path := Path(entry.path)):
            yield path


def is_directory(entry: os.DirEntry[str], *, follow_symlinks: bool) -> bool:
    """Return whether it is a folder; not if that can't be found out."""
    try:
        return entry.is_dir(follow_symlinks=follow_symlinks)
    except OSError:
        return False


def _read_rule_file(path: Path, base: Path, *, in_home: bool) -> RuleFile:
    """Read one rule file. Users may link anything into their own folder; a project's link must not lead outside it."""
    name = path.relative_to(base).as_posix()
    shown = format_file_name(f"~/{name}" if in_home else name)
    if path.name.casefold().endswith(_NO_RULES):
        return RuleFile(shown, "", "editors and systems leave such files behind")
    allowed = [Path(os.path.realpath(base))]
    if in_home:
        allowed.append(Path(os.path.realpath(path)).parent)
    try:
        real, top = resolve_readable_in_roots(path, allowed)
        return RuleFile(shown, replace_surrogates(read_truncated_text(real, FILE_LIMIT, top)).strip())
    except UnreadableError as error:
        return RuleFile(shown, "", str(error))


def configured_system_prompt_file(env: Mapping[str, str], workspace: Path, home: Path) -> Path | None:
    """Return the file named by GEMINI_SYSTEM_MD (1 or true: `.gemini/system.md`)."""
    value = env.get("GEMINI_SYSTEM_MD", "").strip()
    if value.lower() in ("", "0", "false"):
        return None
    if value.lower() in ("1", "true"):
        return workspace / ".gemini" / "system.md"
    return home / value[2:] if value.startswith("~/") else workspace / value
