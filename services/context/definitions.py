"""definitions: an inventory of all files that configure agents: whether each is used, and why not."""

import os
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.agents import load_agents
from interlock.services.context.commands import load_command_files
from interlock.services.context.definition_files import (
    DefinitionFile,
    FileUse,
    Folders,
    find_definition_files,
    find_ignored_files,
    shorten,
)
from interlock.services.context.instructions import FoundFile, describe_instructions, describe_unknown_mode
from interlock.services.context.memory import UNTRUSTED
from interlock.services.context.skills import load_skills, load_skills_of_files
from interlock.services.files.agent_files import AgentFileKind, find_agent_files, find_unread_agent_files
from interlock.state.command import list_shell_lines
from interlock.state.context import CustomCommand
from interlock.state.settings import ContextSettings
from interlock.state.subagent import AgentDefinition

_LONGEST_DESCRIPTION = 100
"""Characters of a description in a list."""


class DefinitionUse(NamedTuple):
    """A file that defines a skill, a command or a sub-agent, and what became of it."""

    kind: AgentFileKind
    use: FileUse
    effects: tuple[str, ...]
    """What it is and does, a line each, for people who decide whether to trust it."""

    def describe_use(self) -> str:
        """Return one line: its name, what of it doesn't count, or why it isn't used."""
        if self.use.problem:
            return f"{self.use.file.path}: not used; {self.use.problem}"
        slash = "/" if self.kind == "commands" else ""
        return "; ".join([f"{self.use.file.path}: {slash}{self.use.name}", *self.use.notes])


def list_definition_uses(folders: Folders) -> Iterator[DefinitionUse]:
    """List each file that defines a skill, a command or a sub-agent, in the order in which they count."""
    skills, commands, agents = load_skills(folders), load_command_files(folders), load_agents(folders)
    for use in skills.files:
        yield _describe_skill_use(use, skills.by_name[use.name].description if use.name else "")
    for use in commands.files:
        yield DefinitionUse(
            "commands", use, _describe_command(commands.by_name[use.name]) if use.name else ()
        )
    for use in agents.files:
        yield DefinitionUse("agents", use, _describe_agent(agents.by_name[use.name]) if use.name else ())
    for kind in ("skills", "commands", "agents"):
        if kind in folders.off:
            for file in find_definition_files(kind, folders._replace(off=frozenset())):
                yield DefinitionUse(kind, FileUse(file, "", f"context.read.{kind} is false"), ())
        for file in find_ignored_files(kind, folders):
            yield DefinitionUse(kind, FileUse(file, "", UNTRUSTED), ())
        for base in (folders.root, *folders.parents):
            for row, path in find_unread_agent_files(kind, base):
                yield DefinitionUse(kind, FileUse(DefinitionFile(path, base, row, False), "", row.unread), ())


def _describe_skill_use(use: FileUse, description: str) -> DefinitionUse:
    effects = [f"skill {use.name}: {shorten(description, _LONGEST_DESCRIPTION)}"] if use.name else []
    if use.name:
        lines = list_shell_lines(use.file.read_text(), "claude")
        effects += [f"runs !{{{line}}} if a person calls /{use.name}" for line in lines]
    return DefinitionUse("skills", use, tuple(effects))


def _describe_command(command: CustomCommand) -> tuple[str, ...]:
    lines = list_shell_lines(command.prompt, command.dialect)
    about = f": {shorten(command.description, _LONGEST_DESCRIPTION)}" if command.description else ""
    return (f"command /{command.name}{about}", *(f"runs !{{{line}}}" for line in lines))


def _describe_agent(agent: AgentDefinition) -> tuple[str, ...]:
    tools = "all tools" if agent.tools is None else f"tools {', '.join(agent.tools) or 'none'}"
    model = "" if agent.model == "inherit" else f", model {agent.model}"
    return (f"agent {agent.name} ({tools}{model}): {shorten(agent.description, _LONGEST_DESCRIPTION)}",)


_MOST_FOLDERS = 5_000
"""Folders of a repository in which nested skills are looked for."""
_FOLDERS_NOT_SEARCHED = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build"}
)


def find_nested_skill_files(root: Path) -> Iterator[DefinitionFile]:
    """Yield the files of skills that count for the folders below a root in which they lie."""
    for folder, names, _ in islice(os.walk(root), _MOST_FOLDERS):
        names[:] = sorted(name for name in names if name not in _FOLDERS_NOT_SEARCHED)
        below = Path(folder)
        if below != root and any(name.startswith(".") for name in names):
            for row, path in find_agent_files("skills", below):
                yield DefinitionFile(path, below, row, False)
        names[:] = [name for name in names if not name.startswith(".")]


def list_nested_skill_uses(root: Path) -> Iterator[DefinitionUse]:
    """List the skills that count only for files of folders below a root."""
    loaded = load_skills_of_files(find_nested_skill_files(root), root)
    for use in loaded.files:
        yield _describe_skill_use(use, loaded.by_name[use.name].description if use.name else "")


_IGNORE_FILES = (".geminiignore", ".rooignore")
_MODE_PROMPT_PREFIX = "system-prompt-"


def describe_instruction_files(
    folders: Folders, settings: ContextSettings, mode_slugs: Collection[str]
) -> Iterator[FoundFile]:
    """List the agent files found, in a fixed order, without side effects; `mode_slugs`: slugs of existing modes."""
    root, home, trusted = folders.root, folders.home, folders.trusted
    yield from describe_instructions(
        root, home, settings, mode_slugs, trusted=trusted, untrusted_parents=folders.ignored
    )
    for name in _IGNORE_FILES:
        if (root / name).is_file():
            yield FoundFile(True, "ignore", f"{name}: kept from tools and references")
    for path in sorted((root / ".roo").glob(f"{_MODE_PROMPT_PREFIX}*")):
        name = path.relative_to(root).as_posix()
        problem = describe_unknown_mode(path.name.removeprefix(_MODE_PROMPT_PREFIX), mode_slugs) or (
            "" if trusted else UNTRUSTED
        )
        what = f"not used; {problem}" if problem else "in place of the mode's system prompt"
        yield FoundFile(not problem, "prompt", f"{name}: {what}")
