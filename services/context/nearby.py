"""nearby: the instructions of a workspace during a drive: those of the opening, and those that paths in calls bring."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.definition_files import Folders
from interlock.services.context.imports import (
    AlreadyIncludedError,
    ImportExpansion,
    IncludedTexts,
    first_omission_note,
)
from interlock.services.context.instructions import Instructions, load_instructions
from interlock.services.context.memory import (
    FILE_LIMIT,
    MemoryNames,
    find_memory_files_down_to,
    list_folders_down_to,
    read_memory_file,
)
from interlock.services.context.rules import AgentRule, load_nested_rules
from interlock.services.files.protected import resolve_links, to_absolute_path
from interlock.services.files.stamps import Stamps, real_path
from interlock.state.context import MemoryText, format_trigger
from interlock.state.settings import ContextSettings
from interlock.state.workspace import PathRefused, Workspace


class _NearbyFile(NamedTuple):
    level: str
    rule: AgentRule | None
    """None: a memory file."""


class InstructionSource:
    """The memory and rule files of a workspace.

    `folders`: which of them are trusted; `display_path`: the name of a file for the model."""

    def __init__(
        self,
        roots: Sequence[Path],
        folders: Folders,
        settings: ContextSettings,
        workspace: Workspace,
        display_path: Callable[[Path], str],
    ) -> None:
        self._roots, self._folders, self._settings = roots, folders, settings
        self._workspace, self._display_path = workspace, display_path
        self._names = MemoryNames.choose(settings.chosen_file_names)
        self._loaded: tuple[Stamps, Instructions] | None = None
        self._repeated: set[Path] = set()
        """Files whose text the model has from another file."""

    def load(self) -> Instructions:
        """Return the instructions of the opening, read again only if a file has changed: many calls ask for them."""
        if self._loaded is None or not self._loaded[0].are_current():
            stamps = Stamps()
            with stamps.capture_reads():
                found = load_instructions(
                    self._roots,
                    self._folders.home,
                    self._settings,
                    trusted=self._folders.trusted,
                    untrusted_parents=self._folders.ignored,
                )
            self._loaded = stamps, found
        return self._loaded[1]

    def load_files_near(self, paths: Sequence[str], seen: Collection[str]) -> list[MemoryText]:
        """Return memory files of subdirectories on the way to some paths, and the rules that count for them, except
        those in `seen` and texts that the model has."""
        new = {
            path: one
            for path, one in self._find_files_near(paths).items()
            if path not in self._repeated and self._display_path(path) not in seen
        }
        if not new:
            return []
        included, found = self._collect_included_texts(seen), list[MemoryText]()
        for path, one in new.items():
            if text := self._read_new_text(path, one.rule, included):
                found.append(MemoryText(self._display_path(path), one.level, text, first_omission_note(text)))
            else:
                self._repeated.add(path)
        return found

    def _find_files_near(self, paths: Sequence[str]) -> dict[Path, _NearbyFile]:
        found: dict[Path, _NearbyFile] = {}
        read = self._settings.read
        if not self._folders.trusted:
            return found
        for path in paths if read.memory else ():
            for file in find_memory_files_down_to(path, self._workspace, self._names.names):
                if not self._names.find_replacement(file):
                    found.setdefault(file, _NearbyFile("project", None))
        for path in paths if read.rules else ():
            for rule in self._find_rules_for(path):
                found.setdefault(rule.path, _NearbyFile(format_trigger(path), rule))
        return found

    def _find_rules_for(self, path: str) -> list[AgentRule]:
        """Return the rules that a call brings along that reads or edits a file."""
        try:
            real = resolve_links(to_absolute_path(path, self._workspace.root))
            rules = self.load().used_rules("matching")
            for folder in list_folders_down_to(path, self._workspace):
                nested = load_nested_rules(Path(folder), self._workspace.roots)
                rules += [rule for rule in nested if not rule.unused]
            found = [rule for rule in rules if rule.applies_to(real)]
            if found and self._workspace.resolve_readable(path) != real:
                return []
        except PathRefused:
            return []
        return found

    def _collect_included_texts(self, seen: Collection[str]) -> IncludedTexts:
        """Return the texts that the model has: of the opening, and of the nearby files that it was shown."""
        loaded = self.load()
        included = loaded.included.copy()
        rules = {self._display_path(rule.path): rule for rule in loaded.rules}
        for name in seen:
            path = self._workspace.root / name
            if name in rules or path.is_file():
                self._read_new_text(path, rules.get(name), included)
        return included

    def _read_new_text(self, path: Path, rule: AgentRule | None, included: IncludedTexts) -> str:
        """Return what a file says, or an empty text if the model has it already."""
        if rule is None:
            imports = ImportExpansion(tuple(self._workspace.roots), FILE_LIMIT, included)
            return read_memory_file(path, "project", imports).text
        try:
            included.require_new_file(real_path(path))
            included.add(path, real_path(path), rule.text)
        except AlreadyIncludedError:
            return ""
        return rule.text
