"""events: the names of events, ours and Claude Code's."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import get_args

from interlock.state.hooks import HookEvent

EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
ALIASES: dict[str, HookEvent] = {
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",
    "PreCompact": "PreCompress",
}
"""Claude Code's names, where they differ."""


def event_named(name: str) -> HookEvent | None:
    """The event that a name stands for, ours or Claude Code's."""
    return name if name in EVENTS else ALIASES.get(name)


def no_event(name: str) -> str:
    """Why a name is none, and what may have been meant."""
    if name in ("enabled", "disabled", "notifications"):
        return f"no event is called so; write hooksConfig.{name}."
    return f"no event is called so{near(name, [*EVENTS, *ALIASES]) or '.'}"


def near(word: str, known: Iterable[str]) -> str:
    """`. Did you mean 'x'?`, or nothing."""
    found = get_close_matches(word, list(known), 1, 0.6)
    return f". Did you mean {found[0]!r}?" if found else ""
