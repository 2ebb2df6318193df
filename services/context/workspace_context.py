"""workspace_context: collects what the model is told: directories, repository, memory files, editor, instructions."""

import asyncio
import json
import platform
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from interlock.services.context.definitions import load_commands
from interlock.services.context.memory import (
    find_git_root,
    find_memory_below,
    first_omission,
    load_memory,
    load_rules,
    read_memory,
    system_prompt_file,
)
from interlock.services.context.references import resolve_path, resolve_references
from interlock.services.context.workspace_summary import ENTRIES, list_tree, summarize_repository
from interlock.services.files.disk import read_text_file
from interlock.services.secrets.environment import tool_environment
from interlock.state.context import (
    Commands,
    IdeState,
    MemoryText,
    Reference,
    Replacement,
    RuleFile,
    SystemFacts,
)
from interlock.state.deps import RunInfo, run_in_thread
from interlock.state.errors import ConfigError
from interlock.state.settings import Settings
from interlock.state.text import replace_surrogates
from interlock.state.workspace import Workspace

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_EACH = 20
"""Minimum lines per directory listing, however many directories there are."""


def read_system_prompt(env: Mapping[str, str], workspace: Path, home: Path) -> Replacement | None:
    """Read the file named by GEMINI_SYSTEM_MD. Raises `ConfigError`."""
    file = system_prompt_file(env, workspace, home)
    if file is None:
        return None
    try:
        return Replacement(read_text_file(file), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"GEMINI_SYSTEM_MD={env['GEMINI_SYSTEM_MD']!r}: {file} can't be read as text ({error}); name another file,"
            " or unset it."
        ) from None


def read_mode_prompt(mode: str, workspace: Path, env: Mapping[str, str]) -> Replacement | None:
    """Read `.roo/system-prompt-MODE`, filling its placeholders; an empty file counts as none. Raises `ConfigError`."""
    file = workspace / ".roo" / f"system-prompt-{mode}"
    try:
        text = read_text_file(file).strip()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read as text ({error}); repair or remove it.") from None
    values = {
        "workspace": str(workspace),
        "mode": mode,
        "language": env.get("LANG", "").partition(".")[0] or "en",
        "shell": "bash",  # commands run in it, whatever the user's own shell is
        "operatingSystem": platform.system(),
    }
    filled = _SLOT.sub(lambda found: values.get(found[1], found[0]), text)
    return Replacement(filled, str(file)) if text else None


@dataclass(frozen=True)
class PromptFlags:
    """Options from the command line; None if not given."""

    system_prompt: str | None = None
    append: str | None = None
    ide_context: Path | None = None


@dataclass(frozen=True, kw_only=True)
class WorkspaceContext:
    """Implements `ContextSource` of `state/deps.py` for one drive."""

    info: RunInfo
    settings: Settings
    env: Mapping[str, str]
    workspace: Workspace
    flags: PromptFlags
    home: Path
    trusted: bool

    @property
    def roots(self) -> list[Path]:
        return list(dict.fromkeys([self.info.workspace, *self.workspace.roots]))

    @property
    def _ide_file(self) -> Path | None:
        named = self.settings.ide.context_file
        return self.flags.ide_context or (self.info.workspace / Path(named).expanduser() if named else None)

    def replacement(self, mode: str = "") -> Replacement | None:
        if self.flags.system_prompt is not None:
            return Replacement(self.flags.system_prompt, "--system-prompt")
        if mode and self.trusted and (found := read_mode_prompt(mode, self.info.workspace, self.env)):
            return found
        return read_system_prompt(self.env, self.info.workspace, self.home)

    def facts(self) -> SystemFacts:
        return SystemFacts(find_git_root(self.info.workspace) is not None, self.flags.append or "")

    async def repository(self) -> str:
        if find_git_root(self.info.workspace) is None:
            return ""
        env = tool_environment(self.env, rules=self.settings.security.environment)
        return await summarize_repository(self.info.workspace, env)

    async def tree(self) -> str:
        return await asyncio.to_thread(self._list_trees)

    async def rules(self, mode: str) -> Sequence[RuleFile]:
        agents = self.settings.context.use_agent_rules
        return await asyncio.to_thread(load_rules, self.info.workspace, self.home, mode, agents=agents)

    def commands(self) -> Commands:
        return load_commands(self.info.workspace, self.home, self.trusted)

    async def file(self, path: str) -> Reference:
        return await run_in_thread(resolve_path, path, self.workspace)

    @property
    def has_ide(self) -> bool:
        return self._ide_file is not None

    def ide(self, record: str) -> IdeState:
        if self._ide_file is not None:
            return read_ide_state(self._ide_file)
        return parse_ide_state(record, "of the input") if record else IdeState(open=[], active={})

    async def references(self, prompt: str) -> Sequence[Reference]:
        return await run_in_thread(resolve_references, prompt, self.workspace) if "@" in prompt else []

    def nearby(self, paths: Sequence[str], seen: Collection[str]) -> Sequence[MemoryText]:
        names = self.settings.context.file_names
        files = dict.fromkeys(f for path in paths for f in find_memory_below(path, self.workspace, names))
        new = [f for f in files if self._display_path(f) not in seen]
        return [
            MemoryText(self._display_path(f), "project", read_memory(f, self.workspace.roots)) for f in new
        ]

    async def memory(self) -> Sequence[MemoryText]:
        names = self.settings.context.file_names
        files = await asyncio.to_thread(load_memory, roots=self.roots, home=self.home, names=names)
        return [
            MemoryText(self._display_path(f.path), f.level, f.text, first_omission(f.text)) for f in files
        ]

    def _list_trees(self) -> str:
        limit = max(ENTRIES // len(self.roots), _EACH)
        return "\n\n".join(
            f"{root}/\n{list_tree(root, self.workspace.ignored_in, limit)}" for root in self.roots
        )

    def _display_path(self, path: Path) -> str:
        if path.is_relative_to(self.info.workspace):
            return path.relative_to(self.info.workspace).as_posix()
        if path.is_relative_to(self.home):
            return f"~/{path.relative_to(self.home).as_posix()}"
        return str(path)


_MOST_FILES = 10
_MOST_CHARS = 16_384
"""Maximum characters of a selection (gemini-cli: the same)."""
_LARGEST = 8_000_000
"""Maximum size of the file in bytes."""


def read_ide_state(file: Path) -> IdeState:
    """Read the IDE's state, newest files first; only the newest can be active. Raises `ConfigError`."""
    try:
        text = read_text_file(file, _LARGEST)
    except (OSError, ValueError) as error:
        raise _malformed_error(repr(str(file)), error) from None
    return parse_ide_state(text, repr(str(file)))


def parse_ide_state(text: str, where: str) -> IdeState:
    """Parse the text that `read_ide` reads; same rules."""
    try:
        data: Any = json.loads(text)
        found = data.get("workspaceState", data)["openFiles"]
        files = [_parse_ide_file(one) for one in cast(list[Any], found)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed_error(where, error) from None
    files.sort(key=lambda one: -one[0])
    newest = files[0][1] if files else {}
    return IdeState(
        open=[one["path"] for _, one in files[:_MOST_FILES]], active=newest if newest.get("active") else {}
    )


def _malformed_error(where: str, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return ConfigError(
        f"The IDE's context {where} can't be used ({why}); expected "
        '{"workspaceState": {"openFiles": [{"path": …}]}}. It is ignored.'
    )


def _parse_ide_file(entry: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    path, selection = entry["path"], entry.get("selectedText") or ""
    cursor: dict[str, Any] = entry.get("cursor") or {}
    if not isinstance(path, str) or not isinstance(selection, str):
        raise TypeError("'path' and 'selectedText' are strings")
    if len(selection) > _MOST_CHARS:
        selection = selection[:_MOST_CHARS] + "… [cut]"
    one: dict[str, Any] = {"path": replace_surrogates(path), "active": entry.get("isActive") is True}
    if cursor:
        one["cursor"] = {"line": int(cursor["line"]), "character": int(cursor["character"])}
    if selection:
        one["selection"] = replace_surrogates(selection)
    return float(entry.get("timestamp") or 0), one
