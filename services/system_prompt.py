"""system_prompt: the main loop's system prompt, from its sections or from what replaces them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from interlock.prompts import render
from interlock.state.errors import ConfigError


@dataclass(frozen=True)
class _Section:
    prompt: str
    tool: str | None = None
    """Included only if this tool exists."""
    only: Literal["git", "unattended", "open", "sandboxed", "offline"] | None = None
    """Included only in a git repository; if nobody sits before the terminal; by where commands run: on the machine
    itself, in a sandbox, in one without network."""


SECTIONS = (
    _Section("main/preamble"),
    _Section("main/mandates"),
    _Section("main/workflows"),
    _Section("main/todos", tool="write_todos"),
    _Section("main/operations"),
    _Section("main/questions", tool="ask_user"),
    _Section("main/unattended", only="unattended"),
    _Section("main/sandbox_none", only="open"),
    _Section("main/sandbox_bubblewrap", only="sandboxed"),
    _Section("main/sandbox_offline", only="offline"),
    _Section("main/git", only="git"),
)


def generated(
    tools: Collection[str], *, in_git: bool, attended: bool, sandboxed: bool = False, offline: bool = False
) -> str:
    """The sections that apply, in order."""
    holds = {None: True, "git": in_git, "unattended": not attended}
    holds |= {"open": not sandboxed, "sandboxed": sandboxed, "offline": offline}
    chosen = [s for s in SECTIONS if holds[s.only] and (s.tool is None or s.tool in tools)]
    return "\n\n".join(render(s.prompt) for s in chosen)


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
