"""system_prompt: the main loop's system prompt, from its sections or from what replaces them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from interlock.prompts import render
from interlock.state.errors import ConfigError

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
