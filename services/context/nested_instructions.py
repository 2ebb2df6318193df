"""nested_instructions: the memory and rule files in folders below a workspace's root, listed for people.

A run doesn't look for them: it finds those on the way to the files that it reads and edits."""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from interlock.services.context.imports import ImportExpansion, IncludedTexts
from interlock.services.context.memory import FILE_LIMIT, UNTRUSTED, MemoryFile, MemoryNames, read_memory_file
from interlock.services.context.rules import AgentRule, load_nested_rules
from interlock.services.files.agent_files import list_agent_files
from interlock.services.files.filesystem import is_directory
from interlock.services.files.stamps import real_path
from interlock.services.files.workspace import FolderWorkspace
from interlock.state.settings import ContextSettings

_MOST_FOLDERS = 20_000
"""Maximum number of folders looked into."""


def find_nested_instructions(
    root: Path, settings: ContextSettings, included: IncludedTexts, *, trusted: bool
) -> Iterator[MemoryFile | AgentRule]:
    """Yield the memory and rule files below the root, outside of ignored folders. `included`: what the opening has.

    A file has no new text if one of the folders above, or its own, has the same: only these come with it in a run."""
    included_by_folder = {root: included}
    names = MemoryNames.choose(settings.chosen_file_names)
    firsts = {name.partition("/")[0] for name in names.names} | {
        path.partition("/")[0] for row in list_agent_files("rules") if row.nested for path in row.project
    }
    for folder, entries in _walk_folders(root):
        if folder == root or firsts.isdisjoint(entries):
            continue
        above = next(parent for parent in folder.parents if parent in included_by_folder)
        here = included_by_folder[folder] = included_by_folder[above].copy()
        if settings.read.memory:
            for name in names.names:
                file = folder / name
                is_of_root = file.relative_to(root).as_posix() in names.names  # .claude/CLAUDE.md
                if is_of_root or not file.is_file() or names.find_replacement(file):
                    continue
                if trusted:
                    imports = ImportExpansion((real_path(root),), FILE_LIMIT, here)
                    yield read_memory_file(file, "project", imports)
                else:
                    yield MemoryFile(file, "project", "", unused=UNTRUSTED)
        for rule in load_nested_rules(folder, [root]) if settings.read.rules else ():
            yield rule if trusted else replace(rule, text="", unused=UNTRUSTED)


def _walk_folders(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield folders with the names of their entries; links to folders aren't followed."""
    workspace, queue = FolderWorkspace(root), deque([root])
    for _ in range(_MOST_FOLDERS):
        if not queue:
            return
        folder = queue.popleft()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        yield folder, {entry.name for entry in entries}
        is_ignored = workspace.make_ignore_test(folder)
        queue.extend(
            Path(entry.path)
            for entry in entries
            if is_directory(entry, follow_symlinks=False)
            and entry.name != ".git"
            and not is_ignored(entry.name, True)
        )
