"""command: state of a custom command's expansion into a prompt, and parsing of its text."""

import re
import shlex
from collections.abc import Iterator
from typing import Literal, NamedTuple

from typing_extensions import TypedDict

from interlock.state.chart_channels import ApprovalModeState
from interlock.state.conversation import Refusals
from interlock.state.tools import ToolsState

NAME = r"\w[\w.:-]*"
"""Form of a command's name: `/name` is a command, `/etc/hosts`, `//` and `/* … */` begin a prompt."""
ARGS = "{{args}}"
"""Placeholder for whatever follows the command's name."""
MOST_PIECES = 100
"""Shell lines and files that one command may insert."""
_OPENING = re.compile(r"[!@]\{")
_BRACE = re.compile(r"[{}]")


class CommandIn(TypedDict, total=False):
    """What the calling graph passes in: the prompt, and the rules it runs under."""

    prompt: str
    approval_mode: ApprovalModeState
    plan_phase: str


class CommandOut(TypedDict, total=False):
    """What the calling graph gets back."""

    prompt: str
    asked: str
    stop: str
    stopped_by: str
    refused: Refusals


class CommandState(ToolsState, total=False):
    """State of a command besides the chain."""

    prompt: str
    """Chain record of the prompt: as typed, and in the end as expanded by the command."""
    asked: str


class TemplatePiece(NamedTuple):
    """A part of a command's text: words, a shell line between `!{` and `}`, or a file name between `@{` and `}`."""

    kind: Literal["text", "shell", "file"]
    text: str


def split_template(template: str) -> Iterator[TemplatePiece]:
    """The pieces in order. Nested braces are balanced; anything unclosed is text."""
    ends = _closing_brace_positions(template)
    start = 0
    for found in _OPENING.finditer(template):
        at, end = found.start(), ends.get(found.end() - 1, -1)
        if at < start or end < 0:
            continue
        if at > start:
            yield TemplatePiece("text", template[start:at])
        yield TemplatePiece("shell" if template[at] == "!" else "file", template[at + 2 : end].strip())
        start = end + 1
    if start < len(template):
        yield TemplatePiece("text", template[start:])


def _closing_brace_positions(text: str) -> dict[int, int]:
    """Index of each opening brace → index of the one that closes it."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for found in _BRACE.finditer(text):
        if found[0] == "{":
            opened.append(found.start())
        elif opened:
            ends[opened.pop()] = found.start()
    return ends


def split_slash_command(prompt: str) -> tuple[str, str]:
    """Name and arguments of `/name arguments`; the name is empty if the prompt doesn't begin with a slash."""
    found = re.match(r"/(\S*)(.*)", prompt, re.DOTALL)
    return (found[1], found[2].strip()) if found else ("", "")


def is_command_name(name: str) -> bool:
    return re.fullmatch(NAME, name) is not None


def shell_lines_of_template(template: str, args: str) -> list[str]:
    """The shell lines a command runs; the arguments are quoted as one word."""
    return [p.text.replace(ARGS, shlex.quote(args)) for p in split_template(template) if p.kind == "shell"]
