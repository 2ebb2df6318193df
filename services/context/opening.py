"""opening: the messages before the first prompt: system prompt, environment, repository, memory files."""

import asyncio
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from interlock.prompts import render
from interlock.services.context.environment import ENTRIES, IgnoredIn, git_summary, tree
from interlock.services.context.memory import MemoryFile, git_root, load_memory
from interlock.services.secrets.environment import tool_environment
from interlock.state.deps import Clock, RunInfo
from interlock.state.errors import ConfigError
from interlock.state.messages import Message
from interlock.state.models import ToolDeclaration
from interlock.state.settings import Settings
from interlock.state.text import clean

_WRITING = frozenset({"write_file", "replace"})
_COMMANDS = frozenset({"run_shell_command"})


@dataclass(frozen=True)
class _Section:
    prompt: str
    tools: frozenset[str] = frozenset()
    """Included only if one of these exists; empty: always."""
    only: Literal["git", "unattended", "open", "sandboxed", "offline"] | None = None
    """Included only in a git repository; if nobody sits before the terminal; by where commands run: on the machine
    itself, in a sandbox, in one without network."""
    shared: bool = True
    """Sub-agents get it, too, after their own prompt."""


SECTIONS = (
    _Section("main/preamble", shared=False),
    _Section("main/mandates"),
    _Section("main/changes", tools=_WRITING | _COMMANDS),
    _Section("main/workflows", shared=False),
    _Section("main/planning", tools=frozenset({"enter_plan_mode"})),
    _Section("main/delegation", tools=frozenset({"invoke_agent"})),
    _Section("main/todos", tools=frozenset({"write_todos"})),
    _Section("main/answers", shared=False),
    _Section("main/calls"),
    _Section("main/edits", tools=_WRITING),
    _Section("main/commands", tools=_COMMANDS),
    _Section("main/results"),
    _Section("main/data"),
    _Section("main/questions", tools=frozenset({"ask_user"})),
    _Section("main/unattended", only="unattended", shared=False),
    _Section("main/sandbox_none", tools=_COMMANDS, only="open"),
    _Section("main/sandbox_bubblewrap", tools=_COMMANDS, only="sandboxed"),
    _Section("main/sandbox_offline", tools=_COMMANDS, only="offline"),
    _Section("main/git", tools=_COMMANDS, only="git"),
)


def generated(
    tools: Collection[str],
    *,
    in_git: bool,
    attended: bool,
    sandboxed: bool = False,
    offline: bool = False,
    agent: bool = False,
) -> str:
    """The sections that apply, in order; for a sub-agent (`agent`) those that follow its own prompt."""
    holds = {None: True, "git": in_git, "unattended": not attended}
    holds |= {"open": not sandboxed, "sandboxed": sandboxed, "offline": offline}
    chosen = [s for s in SECTIONS if holds[s.only] and (not s.tools or s.tools & {*tools})]
    return "\n\n".join(render(s.prompt) for s in chosen if s.shared or not agent)


def replacement(env: Mapping[str, str], workspace: Path, home: Path) -> str | None:
    """The text of the file that GEMINI_SYSTEM_MD names (1 or true: `.gemini/system.md`). Raises `ConfigError`."""
    value = env.get("GEMINI_SYSTEM_MD", "").strip()
    if value.lower() in ("", "0", "false"):
        return None
    if value.lower() in ("1", "true"):
        file = workspace / ".gemini" / "system.md"
    else:
        file = home / value[2:] if value.startswith("~/") else workspace / value
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"GEMINI_SYSTEM_MD={value!r}: {file} can't be read as text ({error}); name another file, or unset it."
        ) from None


_EACH = 20
"""Lines of a directory's listing, however many directories there are."""


class WorkspaceContext:
    """What a model is told of the workspace before the first prompt; `ContextSource` of `state/deps.py`."""

    def __init__(
        self,
        *,
        info: RunInfo,
        settings: Settings,
        clock: Clock,
        env: Mapping[str, str],
        workspace_roots: Sequence[Path],
        ignored_in: IgnoredIn,
        system_prompt: str | None,
        append_system_prompt: str | None,
        home: Path,
    ) -> None:
        self._info = info
        self._settings = settings
        self._clock = clock
        self._env = env
        self._roots = list(dict.fromkeys([info.workspace, *workspace_roots]))
        self._ignored_in = ignored_in
        self._system_prompt = system_prompt
        self._append = append_system_prompt
        self._home = home

    async def opening(self, tools: Sequence[ToolDeclaration], agent: str | None = None) -> list[Message]:
        """A system message and a user message of origin `context`. Raises `ConfigError` (GEMINI_SYSTEM_MD).

        `agent`: a sub-agent's own prompt; what its tools need to be told follows, whatever the user put in place of
        the main loop's prompt.
        """
        in_git = git_root(self._info.workspace) is not None
        names = {t.name for t in tools}
        system, parts = await asyncio.gather(
            asyncio.to_thread(self._system, names, in_git, agent), self._parts(in_git)
        )
        context = Message(role="user", origin="context", content=clean("\n\n".join(parts)))
        # A person may have replaced the text by nothing; providers refuse an empty system message.
        return [Message(role="system", content=clean(system)), context] if system.strip() else [context]

    def _system(self, tools: set[str], in_git: bool, agent: str | None) -> str:
        if agent is not None:
            return f"{agent}\n\n{self._sections(tools, in_git, agent=True)}"
        text = self._system_prompt
        if text is None:
            text = replacement(self._env, self._info.workspace, self._home)
        if text is None:
            text = self._sections(tools, in_git)
        return f"{text}\n\n{self._append}" if self._append else text

    def _sections(self, tools: set[str], in_git: bool, *, agent: bool = False) -> str:
        shell = self._settings.tools
        return generated(
            tools,
            in_git=in_git,
            attended=self._info.interactive,
            sandboxed=bool(shell.sandbox),
            offline=bool(shell.sandbox) and not shell.sandbox_network,
            agent=agent,
        )

    async def _parts(self, in_git: bool) -> list[str]:
        names = self._settings.context.file_names
        trees, files, status = await asyncio.gather(
            asyncio.to_thread(self._trees),
            asyncio.to_thread(load_memory, roots=self._roots, home=self._home, names=names),
            self._git(in_git),
        )
        parts = [
            render(
                "context/environment",
                # Only the day: the text stays the same, so a provider can cache what begins with it.
                date=f"{datetime.fromtimestamp(self._clock.now()):%Y-%m-%d, %A}",
                system=f"{platform.system()} {platform.release()} ({platform.machine()})",
                directories="\n".join(f"- {root}" for root in self._roots),
                tree=trees,
            )
        ]
        if status:
            parts.append(render("context/git", status=status))
        if files:
            parts.append(render("context/memory", files="\n\n".join(self._memory(f) for f in files)))
        return parts

    async def _git(self, in_git: bool) -> str:
        env = tool_environment(self._env, rules=self._settings.security.environment)
        return await git_summary(self._info.workspace, env) if in_git else ""

    def _trees(self) -> str:
        limit = max(ENTRIES // len(self._roots), _EACH)
        return "\n\n".join(f"{root}/\n{tree(root, self._ignored_in, limit)}" for root in self._roots)

    def _memory(self, file: MemoryFile) -> str:
        name = self._shown(file.path)
        return f"--- {name} ({file.level}) ---\n{file.text}\n--- end of {name} ---"

    def _shown(self, path: Path) -> str:
        if path.is_relative_to(self._info.workspace):
            return path.relative_to(self._info.workspace).as_posix()
        if path.is_relative_to(self._home):
            return f"~/{path.relative_to(self._home).as_posix()}"
        return str(path)
