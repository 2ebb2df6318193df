"""rules: rule files as Roo Code has them: those of a mode, then those of every mode, with their fall-backs."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from interlock.services.context.memory import FILE_LIMIT, TOTAL_LIMIT, checked
from interlock.services.files.filesystem import UnreadableError, is_file, read_text
from interlock.services.files.protected import RULES
from interlock.state.context import AGENT_FILES, IGNORE_FILE, RuleFile
from interlock.state.text import clean

_DEEPEST = 5
_MOST = 500
"""Files of one folder that are looked at."""
_NO_RULES = (
    *(".ds_store", ".bak", ".cache", ".crdownload", ".db", ".dmp", ".dump", ".eslintcache", ".lock", ".log"),
    *(
        ".old",
        ".part",
        ".partial",
        ".pyc",
        ".pyo",
        ".stackdump",
        ".swo",
        ".swp",
        ".temp",
        ".tmp",
        "thumbs.db",
    ),
)
"""Ends of names of what editors and systems leave behind (Roo Code: the same)."""


def load_rules(root: Path, home: Path, mode: str, *, agents: bool = True) -> list[RuleFile]:
    """In the order in which a model is shown them: of the mode, what is closed, AGENTS.md, of every mode."""
    return _within_limit(
        [
            *(rules_of(f"-{mode}", root, home) if mode else ()),
            *_first(root, (IGNORE_FILE,)),
            *_first(root, AGENT_FILES if agents else ()),
            *rules_of("", root, home),
        ]
    )


def rules_of(suffix: str, root: Path, home: Path) -> list[RuleFile]:
    """The user's folder and the project's; without a rule in either, the first single file that isn't empty."""
    found: list[RuleFile] = []
    for base in dict.fromkeys((home, root)):
        files = islice(_below(base / ".roo" / f"rules{suffix}", 0, set()), _MOST)
        ordered = sorted(files, key=lambda p: (p.name.casefold(), str(p)))
        found += [_read(path, base, mine=base != root) for path in ordered]
    if any(file.text for file in found):
        return found
    return [*found, *_first(root, [f"{name}{suffix}" for name in RULES])]


def _first(root: Path, names: Sequence[str]) -> Iterator[RuleFile]:
    """Files up to the first that isn't empty."""
    for name in names:
        if is_file(root / name):
            file = _read(root / name, root, mine=False)
            yield file
            if file.text:
                return


def _below(folder: Path, depth: int, seen: set[str]) -> Iterator[Path]:
    """Files at any depth; a link counts as what it leads to, and no folder twice."""
    real = os.path.realpath(folder)
    if depth > _DEEPEST or real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if _is_directory(entry):
            yield from _below(Path(entry.path), depth + 1, seen)
        elif is_file(path := Path(entry.path)):
            yield path


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _read(path: Path, base: Path, *, mine: bool) -> RuleFile:
    """What a person links into their own folder is theirs; a project's link must not lead out of it."""
    name = path.relative_to(base).as_posix()
    shown = f"~/{name}" if mine else name
    shown = shown if shown.isprintable() else ascii(shown)
    if path.name.casefold().endswith(_NO_RULES):
        return RuleFile(shown, "", "editors and systems leave such files behind")
    allowed = [Path(os.path.realpath(base))]
    if mine:
        allowed.append(Path(os.path.realpath(path)).parent)
    try:
        real, top = checked(path, allowed)
        return RuleFile(shown, clean(read_text(real, FILE_LIMIT, top)).strip())
    except UnreadableError as error:
        return RuleFile(shown, "", str(error))


def _within_limit(files: list[RuleFile]) -> list[RuleFile]:
    left = TOTAL_LIMIT
    kept: list[RuleFile] = []
    for file in files:
        if len(file.text.encode()) > left:
            why = f"the rule files before it hold {TOTAL_LIMIT:,} bytes already"
            file = RuleFile(file.shown, "", why)
        left -= len(file.text.encode())
        kept.append(file)
    return kept
