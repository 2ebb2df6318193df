"""_masking: which older tool outputs leave the conversation, and what stays in their place."""

import re
from collections.abc import Sequence

from interlock.prompts import load
from interlock.state.compress import KEPT_OUTPUT_TOKENS
from interlock.state.messages import Message
from interlock.state.text import estimate_tokens

WORTH_TOKENS = 30_000
"""Less than this is not worth a new chain, which costs the provider's cache (gemini-cli: the same)."""
_NEVER = frozenset({"ask_user", "enter_plan_mode", "exit_plan_mode", "write_todos"})
"""What people said and decided stays, and so does the list of steps."""
_SHELL = frozenset({"run_shell_command", "execute_command"})
_PREVIEW_CHARS, _PREVIEW_LINES, _LINE_CHARS = 250, 10, 500
"""Characters at each end; for shell output lines at each end, and characters of a line (gemini-cli: 250, 10, none)."""
_TELLING = re.compile(r"(?:Exit Code|Signal|Error|PID|Process Group PGID): .*")
_SPARED = 50
"""Tokens; an output that isn't longer isn't worth a file."""


def older_outputs(messages: Sequence[Message]) -> list[int]:
    """Indices of the outputs beyond the newest 50,000 tokens, oldest first.

    The one that crosses the line counts as older. Those that no model has seen yet never do.
    """
    unseen = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    tokens, found = 0, list[int]()
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role != "tool":
            continue
        size = estimate_tokens(message.text)
        tokens += size
        if tokens > KEPT_OUTPUT_TOKENS and index < unseen and _can_go(message, size):
            found.append(index)
    return found[::-1]


def masked(message: Message, path: str) -> Message:
    text = load("summarize/masked").text(
        characters=f"{len(message.text):,}", path=path, preview=_preview(message)
    )
    return message.model_copy(update={"content": text})


def gain(messages: Sequence[Message], indices: Sequence[int]) -> int:
    """Tokens that masking them frees; the file's name counts with some characters of its own."""
    name = "x" * 100
    return sum(
        estimate_tokens(messages[i].text) - estimate_tokens(masked(messages[i], name).text) for i in indices
    )


def _can_go(message: Message, size: int) -> bool:
    """What is masked already is short, so that it never is masked twice."""
    if message.name in _NEVER or message.text.startswith("<tool_output_masked>"):
        return False
    return size - estimate_tokens(_preview(message)) > _SPARED


def _preview(message: Message) -> str:
    """The two ends; of shell output whole lines, and those that say how the command ended."""
    text = message.text
    if message.name not in _SHELL:
        return _ends(text, _PREVIEW_CHARS)
    lines = text.splitlines()
    if len(lines) <= 2 * _PREVIEW_LINES:
        return "\n".join(map(_cut, lines))
    middle = lines[_PREVIEW_LINES:-_PREVIEW_LINES]
    kept = [line for line in middle[-_PREVIEW_LINES:] if _TELLING.fullmatch(line)]
    shown = [*lines[:_PREVIEW_LINES], f"[… {len(middle):,} lines …]", *kept, *lines[-_PREVIEW_LINES:]]
    return "\n".join(map(_cut, shown))


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else _ends(line, _LINE_CHARS // 2)


def _ends(text: str, each: int) -> str:
    return text if len(text) <= 2 * each else f"{text[:each]} […] {text[-each:]}"
