"""memory: the user's and the project's instruction files for the model, and the file of one's own system prompt."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Literal

from interlock.services.config.settings import FOLDERS
from interlock.services.context.imports import AlreadyIncludedError, ImportExpansion, IncludedTexts
from interlock.services.files.agent_files import list_agent_files
from interlock.services.files.filesystem import UnreadableError, is_file
from interlock.services.files.git_folder import find_git_root
from interlock.services.files.protected import resolve_links, to_absolute_path
from interlock.services.files.stamps import real_path
from interlock.state.workspace import PathRefused, Workspace

FILE_LIMIT = 64 * 1024
"""Maximum bytes of one memory file with its imports (about 16,000 tokens)."""
TOTAL_LIMIT = 256 * 1024
"""Maximum bytes of all memory files together."""
UNTRUSTED = "the folder isn't trusted (interlock trust)"
_OVERRIDE, _OVERRIDDEN = "AGENTS.override.md", "AGENTS.md"
"""As in Codex."""
_IN_HOME = frozenset({"GEMINI.md", _OVERRIDE, _OVERRIDDEN})
"""Names that Interlock reads in the user's own folders, too."""


@dataclass(frozen=True)
class MemoryFile:
    """One memory file with its imports expanded; if it can't be read, `text` is an HTML comment saying why."""

    path: Path
    level: Literal["global", "project"]
    text: str
    sources: frozenset[Path] = frozenset()
    """The real paths of the file and its imports."""
    unused: str = ""
    """Why the file isn't used, for people; its text is empty then."""


@dataclass(frozen=True)
class MemoryNames:
    """Which files are memory files."""

    names: tuple[str, ...]
    """Their paths below each folder, in the order in which the model sees them."""
    chosen: bool = False
    """The user named them (`context.fileName`): none replaces another."""

    @classmethod
    def choose(cls, names: Sequence[str] | None) -> "MemoryNames":
        """Return those that the setting `context.fileName` names; None: those of all agents."""
        if names is not None:
            return cls(tuple(names), chosen=True)
        return cls(tuple(path for row in list_agent_files("memory") for path in row.project))

    def list_names_in_home(self) -> tuple[str, ...]:
        """Return their names in the user's folders; those of all agents are a project's."""
        return self.names if self.chosen else tuple(name for name in self.names if name in _IN_HOME)

    def find_replacement(self, file: Path) -> str:
        """Return the name of the file beside this one that replaces it, or an empty text."""
        if self.chosen or file.name != _OVERRIDDEN:
            return ""
        return _OVERRIDE if _has_content(file.with_name(_OVERRIDE)) else ""


def load_memory_files(
    *,
    roots: Sequence[Path],
    home: Path,
    names: Sequence[str] | None,
    trusted: bool,
    included: IncludedTexts,
    untrusted_parents: Collection[Path] = (),
) -> list[MemoryFile]:
    """Load global files, then each root's from its git root down (nearest last), also those that aren't used; each real
    file only once.

    `names`: of the setting `context.fileName`; None: those of all agents. `included`: notes what was read.
    `untrusted_parents`: folders above a root that count only once they are trusted, too."""
    chosen = MemoryNames.choose(names)
    found: dict[Path, MemoryFile] = {}
    left = TOTAL_LIMIT
    for path, name, top, level in _list_candidate_memory_files(roots, home, chosen):
        if path in found or not is_file(real_path(path)):
            continue
        if level == "project" and (not trusted or path.parents[name.count("/")] in untrusted_parents):
            found[path] = MemoryFile(path, level, "", unused=UNTRUSTED)
        elif replacement := chosen.find_replacement(path):
            found[path] = MemoryFile(path, level, "", unused=f"{replacement} replaces it")
        else:
            # Users may link anything into their own folder; a project's link must not lead outside the project.
            allowed = (top, real_path(path).parent) if level == "global" else (top,)
            imports = ImportExpansion(allowed, min(FILE_LIMIT, left), included)
            found[path] = read_memory_file(path, level, imports)
            left -= len(found[path].text.encode())
    return [*found.values()]


def read_memory_file(path: Path, level: Literal["global", "project"], imports: ImportExpansion) -> MemoryFile:
    """Read one file with its imports; what can't be read is a note in its text, what isn't new or empty isn't used."""
    if imports.left <= 0:
        text = f"<!-- not read: the memory files before it hold {TOTAL_LIMIT:,} bytes already -->"
        return MemoryFile(path, level, text)
    try:
        text = imports.expand_file(path).strip()
    except AlreadyIncludedError as error:
        unused = f"the same text as {error.first}"
        return MemoryFile(path, level, "", frozenset(imports.seen), unused)
    except UnreadableError as error:
        text = f"<!-- not read: {error} -->"
    return MemoryFile(path, level, text, frozenset(imports.seen), "" if text else "it is empty")


def find_memory_files_down_to(path: str, workspace: Workspace, names: Sequence[str]) -> Iterator[Path]:
    """Yield memory files below a workspace root, down to `path`; the root's own are already loaded."""
    try:
        folders = list_folders_down_to(path, workspace)
        tried = (os.path.join(folder, name) for folder in folders for name in names)  # noqa: PTH118 - each call that names a file pays for it
        found = [Path(file) for file in tried if os.path.isfile(file)]  # noqa: PTH113 - as above
        # Asked only then: most folders have none.
        if found and workspace.resolve_readable(path) != resolve_links(
            to_absolute_path(path, workspace.root)
        ):
            return
    except PathRefused:
        return
    yield from (file for file in found if not _is_hidden(file, workspace))


def _is_hidden(file: Path, workspace: Workspace) -> bool:
    """Return whether ignore files hide a memory file. That git ignores a person's own (CLAUDE.local.md) is usual."""
    if ".local." not in file.name:
        return workspace.is_ignored(file)
    return workspace.is_ignored(file, git=False) or workspace.is_ignored(file.parent)


def list_folders_down_to(path: str, workspace: Workspace) -> list[str]:
    """Return the folders below a workspace root on the way to a path, and the path. Raises `PathRefused`."""
    real = resolve_links(to_absolute_path(path, workspace.root))
    root = next((r for r in workspace.roots if real.is_relative_to(r)), real)
    return [*islice(accumulate(real.relative_to(root).parts, os.path.join, initial=str(root)), 1, None)]


def list_folders_from_git_root(root: Path) -> tuple[Path, list[Path]]:
    """Return the git root of a folder, or the folder, and the folders from there down to it."""
    top = find_git_root(root) or root
    return top, [d for d in reversed((root, *root.parents)) if d.is_relative_to(top)]


def _list_candidate_memory_files(
    roots: Sequence[Path], home: Path, names: MemoryNames
) -> Iterator[tuple[Path, str, Path, Literal["global", "project"]]]:
    for folder in FOLDERS:
        for name in names.list_names_in_home():
            yield home / folder / name, name, real_path(home / folder), "global"
    for root in roots:
        top, way = list_folders_from_git_root(root)
        for directory in way:
            for name in names.names:
                yield directory / name, name, real_path(top), "project"


def _has_content(file: Path) -> bool:
    try:
        return is_file(file) and file.stat().st_size > 0
    except OSError:
        return False


def configured_system_prompt_file(env: Mapping[str, str], workspace: Path, home: Path) -> Path | None:
    """Return the file named by GEMINI_SYSTEM_MD (1 or true: `.gemini/system.md`)."""
    value = env.get("GEMINI_SYSTEM_MD", "").strip()
    if value.lower() in ("", "0", "false"):
        return None
    if value.lower() in ("1", "true"):
        return workspace / ".gemini" / "system.md"
    return home / value[2:] if value.startswith("~/") else workspace / value
