"""workspace_context: collects what the model is told: directories, repository, memory files, editor, instructions."""

import asyncio
import contextlib
import json
import os
import platform
import re
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, cast

from interlock.services.context.commands import load_commands
from interlock.services.context.definition_files import Folders
from interlock.services.context.imports import first_omission_note
from interlock.services.context.memory import configured_system_prompt_file
from interlock.services.context.nearby import InstructionSource
from interlock.services.context.references import resolve_reference, resolve_references
from interlock.services.context.rules import load_rule_files
from interlock.services.context.skills import (
    Skill,
    describe_nested_skills,
    find_skills_for_files,
    list_folders_below_root,
)
from interlock.services.files.disk import read_text_file
from interlock.services.files.filesystem import is_directory
from interlock.services.files.git_folder import find_git_root
from interlock.services.files.ignore import is_generated_folder
from interlock.services.secrets.environment import tool_environment
from interlock.state.context import (
    DESCRIBED,
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
from interlock.state.file_names import format_file_name
from interlock.state.settings import Settings
from interlock.state.text import replace_surrogates
from interlock.state.workspace import Workspace

ENTRIES = 200
"""Maximum lines of a listing (gemini-cli: 200)."""
_BELOW = 30
"""Maximum lines per directory below the root, so that one full folder doesn't use up the listing."""
_SCANNED, _SCANNED_IN_ALL = 5_000, 10_000
"""Maximum entries considered per directory and in total: about 0.1 s."""
_READ = 200_000
"""Maximum entries read from one directory before choosing among them."""
_SECONDS = 2.0
"""After this time no more directories are opened: a slow file system must not hold up the first request."""
_HIDDEN = frozenset({".git"})

IgnoreTestFactory = Callable[[Path], Callable[[str, bool], bool]]
"""Same as `Workspace.make_ignore_test`."""


def format_directory_tree(root: Path, make_ignore_test: IgnoreTestFactory, limit: int = ENTRIES) -> str:
    """List names below `root`, indented; links aren't followed, and `…` marks omissions, such as the content of folders
    that a build made (`is_made`)."""
    end = monotonic() + _SECONDS
    shown: dict[Path, list[os.DirEntry[str]]] = {}
    omitted: dict[Path, int] = {}
    queue: deque[tuple[Path, Collection[str]]] = deque([(root, ())])
    left = _SCANNED_IN_ALL
    while queue and limit > 0 and left > 0 and monotonic() < end:
        directory, beside = queue.popleft()
        found = _list_entries(directory, min(left, _SCANNED))
        left -= len(found)
        names = {e.name for e in found}
        if directory != root and is_generated_folder(directory.name, beside, names):
            continue
        ignored = make_ignore_test(directory)
        # Links are followed: patterns for directories match links to them too.
        kept = [e for e in found if e.name not in _HIDDEN]
        entries = [e for e in kept if not ignored(e.name, is_directory(e, follow_symlinks=True))]
        shown[directory] = entries[: limit if directory == root else min(limit, _BELOW)]
        omitted[directory] = len(entries) - len(shown[directory])
        limit -= len(shown[directory])
        inner = (
            e
            for e in shown[directory]
            if is_directory(e, follow_symlinks=False) and not is_generated_folder(e.name, names, ())
        )
        queue.extend((Path(e.path), names) for e in inner)
    return "\n".join(_format_tree_lines(root, shown, omitted, "")) or "(empty)"


def _list_entries(directory: Path, limit: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            # Sorted, so that the choice is stable: directory order is arbitrary.
            return nsmallest(
                limit,
                islice(found, _READ),
                key=lambda e: (not is_directory(e, follow_symlinks=False), e.name),
            )
    except OSError:
        return []


def _format_tree_lines(
    directory: Path,
    entries_by_folder: dict[Path, list[os.DirEntry[str]]],
    omitted_counts: dict[Path, int],
    indent: str,
) -> list[str]:
    lines: list[str] = []
    for entry in entries_by_folder.get(directory, []):
        path, name = Path(entry.path), format_file_name(entry.name)
        if not is_directory(entry, follow_symlinks=False):
            lines.append(indent + name)
        elif path in entries_by_folder:
            lines.append(f"{indent}{name}/")
            lines += _format_tree_lines(path, entries_by_folder, omitted_counts, indent + "  ")
        else:
            lines.append(f"{indent}{name}/ …")
    if omitted_counts.get(directory):
        lines.append(f"{indent}… {omitted_counts[directory]} more")
    return lines


SECONDS = 3.0
"""Time-out per git command; huge repositories get no answer."""
_LINES = 20
"""Maximum number of changed files listed."""
_BYTES = 256 * 1024
_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    "GIT_PREFIX",
)
"""Set by git while it runs a hook; they would point at another repository."""
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
_SAFE = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "core.quotePath=false",
)
"""A repository's own configuration may name programs for git to run, before anyone has approved anything."""


@dataclass(frozen=True)
class _GitOutput:
    """What git said."""

    code: int
    text: str


async def summarize_repository(directory: Path, env: Mapping[str, str], timeout_s: float = SECONDS) -> str:
    """Summarize the repository in a few lines for the model; reports if git is missing or too slow."""
    clean = {k: v for k, v in env.items() if k not in _REPOSITORY} | _QUIET
    log = _run_git(
        directory, clean, timeout_s, "log", "-n5", "--no-show-signature", "--no-color", "--format=%h %s"
    )
    changes, commits = await asyncio.gather(_describe_git_changes(directory, clean, timeout_s), log)
    if commits is None or changes is None:
        return "(git can't be run)"
    # `git log` fails if there are no commits yet.
    last = "(none)" if commits.code > 0 else commits.text.rstrip()
    return f"{changes}\nLast commits:\n{last}"


def _git_failure_line(output: _GitOutput) -> str:
    return f"(no status: {output.text.strip() or 'git failed'})"


async def _describe_git_changes(directory: Path, env: Mapping[str, str], timeout_s: float) -> str | None:
    filters = await _run_git(
        directory, env, timeout_s, "config", "--show-scope", "--get-regexp", r"^filter\..*\.(clean|process)$"
    )
    if filters is None:
        return None
    if filters.code not in (0, 1):
        return _git_failure_line(filters)
    if any(not line.startswith(("system\t", "global\t")) for line in filters.text.splitlines()):
        return "(changes not shown: finding them would run filters that this repository configures)"
    status = await _run_git(
        directory, env, timeout_s, "status", "--short", "--branch", "--ignore-submodules=all", "--no-renames"
    )
    if status is None:
        return None
    if status.code != 0:
        return _git_failure_line(status)
    branch, *files = status.text.splitlines()
    more = [f"… {len(files) - _LINES} more"] if len(files) > _LINES else []
    return "\n".join([branch, *(files[:_LINES] or ["(no changes)"]), *more])


async def _run_git(
    directory: Path, env: Mapping[str, str], timeout_s: float, *args: str
) -> _GitOutput | None:
    """Run git; None if it can't be started. Reads at most 256 KB of output; kills the process on time-out."""
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_SAFE,
            *args,
            cwd=directory,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            data = await _read_up_to_limit(process.stdout)
            code = 0 if len(data) >= _BYTES else await process.wait()
    except TimeoutError:
        return _GitOutput(-1, f"git {args[0]} took longer than {timeout_s:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return _GitOutput(code, data.decode(errors="replace"))


async def _read_up_to_limit(stream: asyncio.StreamReader) -> bytes:
    data = b""
    while len(data) < _BYTES and (chunk := await stream.read(_BYTES - len(data))):
        data += chunk
    return data


_SLOT = re.compile(r"\{\{(\w+)\}\}")
_EACH = 20
"""Minimum lines per directory listing, however many directories there are."""


def read_system_prompt_replacement(env: Mapping[str, str], workspace: Path, home: Path) -> Replacement | None:
    """Read the file named by GEMINI_SYSTEM_MD. Raises `ConfigError`."""
    file = configured_system_prompt_file(env, workspace, home)
    if file is None:
        return None
    try:
        return Replacement(read_text_file(file), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"GEMINI_SYSTEM_MD={env['GEMINI_SYSTEM_MD']!r}: {file} can't be read as text ({error}); name another file,"
            " or unset it."
        ) from None


def read_mode_prompt_replacement(mode: str, workspace: Path, env: Mapping[str, str]) -> Replacement | None:
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
    definition_folders: Folders
    skills: Mapping[str, Skill]

    @property
    def roots(self) -> list[Path]:
        return list(dict.fromkeys([self.info.workspace, *self.workspace.roots]))

    @property
    def _ide_context_file(self) -> Path | None:
        named = self.settings.ide.context_file
        return self.flags.ide_context or (self.info.workspace / Path(named).expanduser() if named else None)

    def system_prompt_replacement(self, mode: str = "") -> Replacement | None:
        if self.flags.system_prompt is not None:
            return Replacement(self.flags.system_prompt, "--system-prompt")
        if (
            mode
            and self.trusted
            and (found := read_mode_prompt_replacement(mode, self.info.workspace, self.env))
        ):
            return found
        return read_system_prompt_replacement(self.env, self.info.workspace, self.home)

    def system_prompt_facts(self) -> SystemFacts:
        return SystemFacts(find_git_root(self.info.workspace) is not None, self.flags.append or "")

    async def summarize_git_state(self) -> str:
        if find_git_root(self.info.workspace) is None:
            return ""
        env = tool_environment(self.env, rules=self.settings.security.environment)
        return await summarize_repository(self.info.workspace, env)

    async def render_directory_trees(self) -> str:
        return await asyncio.to_thread(self._format_directory_trees)

    async def load_mode_rules(self, mode: str) -> Sequence[RuleFile]:
        read = self.settings.context.read
        found = await asyncio.to_thread(
            load_rule_files,
            self.info.workspace,
            self.home,
            mode,
            trusted=self.trusted,
            use_agent_files=self.settings.context.use_agent_rules and read.memory,
            use_rules=read.rules,
        )
        return [file for file in found if file.text]

    def load_commands(self) -> Commands:
        return load_commands(self.definition_folders, self.skills)

    async def resolve_path_reference(self, path: str) -> Reference:
        return await run_in_thread(resolve_reference, path, self.workspace)

    @property
    def has_ide_source(self) -> bool:
        return self._ide_context_file is not None

    def read_ide_state(self, recorded_json: str) -> IdeState:
        if self._ide_context_file is not None:
            return read_ide_state(self._ide_context_file)
        return (
            parse_ide_state(recorded_json, "of the input") if recorded_json else IdeState(open=[], active={})
        )

    async def resolve_prompt_references(self, prompt: str) -> Sequence[Reference]:
        return await run_in_thread(resolve_references, prompt, self.workspace) if "@" in prompt else []

    def load_subdirectory_memory_files(
        self, paths: Sequence[str], seen: Collection[str]
    ) -> Sequence[MemoryText]:
        return [*self._instructions.load_files_near(paths, seen), *self._list_skills_near(paths, seen)]

    @cached_property
    def _instructions(self) -> InstructionSource:
        return InstructionSource(
            self.roots,
            self.definition_folders,
            self.settings.context,
            self.workspace,
            self._display_path,
        )

    def _list_skills_near(self, paths: Sequence[str], seen: Collection[str]) -> Iterator[MemoryText]:
        """Yield the skills of folders on the way to some files, once for each folder, and those for such files."""
        root = self.info.workspace
        counts = self.trusted and self.settings.context.read.skills
        folders = list_folders_below_root(paths, self.workspace) if counts else []
        for folder in folders:
            shown = f"{folder.relative_to(root).as_posix()}/skills"
            if shown not in seen and (text := describe_nested_skills(root, folder)):
                yield MemoryText(shown, "skills, for files here", text)
        for skill in find_skills_for_files(self.skills.values(), paths, self.workspace):
            shown = self._display_path(skill.file.path)
            if shown not in seen:
                yield MemoryText(shown, "a skill for this file", f"- {skill.name}: {skill.description}")

    async def load_memory_files(self) -> Sequence[MemoryText]:
        found = await asyncio.to_thread(self._instructions.load)
        return [
            *(
                MemoryText(self._display_path(f.path), f.level, f.text, first_omission_note(f.text))
                for f in (*found.used_memory(), *found.used_rules("always"))
            ),
            *(
                MemoryText(self._display_path(rule.path), DESCRIBED, rule.condition.description)
                for rule in found.used_rules("described")
            ),
        ]

    def _format_directory_trees(self) -> str:
        limit = max(ENTRIES // len(self.roots), _EACH)
        return "\n\n".join(
            f"{root}/\n{format_directory_tree(root, self.workspace.make_ignore_test, limit)}"
            for root in self.roots
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
        raise _malformed_ide_state_error(repr(str(file)), error) from None
    return parse_ide_state(text, repr(str(file)))


def parse_ide_state(text: str, source: str) -> IdeState:
    """Parse the text that `read_ide` reads; same rules."""
    try:
        data: Any = json.loads(text)
        found = data.get("workspaceState", data)["openFiles"]
        files = [_parse_open_file_and_time(one) for one in cast(list[Any], found)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _malformed_ide_state_error(source, error) from None
    files.sort(key=lambda one: -one[0])
    newest = files[0][1] if files else {}
    return IdeState(
        open=[one["path"] for _, one in files[:_MOST_FILES]], active=newest if newest.get("active") else {}
    )


def _malformed_ide_state_error(source: str, error: Exception) -> ConfigError:
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return ConfigError(
        f"The IDE's context {source} can't be used ({why}); expected "
        '{"workspaceState": {"openFiles": [{"path": …}]}}. It is ignored.'
    )


def _parse_open_file_and_time(entry: dict[str, Any]) -> tuple[float, dict[str, Any]]:
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
