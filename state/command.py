"""command: state of a custom command's expansion into a prompt, and parsing of its text."""

import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from typing_extensions import TypedDict

from interlock.state.chart_channels import ApprovalModeState
from interlock.state.context import CustomCommand, Dialect
from interlock.state.conversation import Refusals
from interlock.state.run import keep_newest
from interlock.state.tools import ToolsState

NAME = r"\w[\w.:-]*"
"""Form of a command's name: `/name` is a command, `/etc/hosts`, `//` and `/* … */` begin a prompt."""
ARGS = "{{args}}"
"""Placeholder for whatever follows the command's name."""
MOST_PIECES = 100
"""Shell lines and files that one command may insert."""
_OPENING = re.compile(r"[!@]\{")
_BRACE = re.compile(r"[{}]")
_MENTION = r"(?<![^\s(])@(?P<file>[^\s@`<>\"'()\[\]|*,;]+)"
_MARKS: Mapping[Dialect, re.Pattern[str]] = {
    "claude": re.compile(rf"(?P<block>^```!.*\n)|(?:(?<=\s)|^)!`(?P<line>[^`\n]+)`|{_MENTION}", re.MULTILINE),
    "opencode": re.compile(rf"!`(?P<line>[^`]+)`|{_MENTION}"),
}
"""What a dialect writes besides text; those that aren't here, only text, but for gemini-cli's `!{…}` and `@{…}`."""
_FENCE = re.compile(r"^```[ \t]*$", re.MULTILINE)


class CommandIn(TypedDict, total=False):
    """What the calling graph passes in: the prompt, and the rules it runs under."""

    prompt: str
    approval_mode: ApprovalModeState
    plan_phase: str
    mode: Annotated[str, keep_newest]


class CommandOut(TypedDict, total=False):
    """What the calling graph gets back."""

    prompt: str
    asked: str
    mode: Annotated[str, keep_newest]
    skill_denies: Annotated[str, keep_newest]
    skill_allows: Annotated[str, keep_newest]
    stop: str
    stopped_by: str
    refused: Refusals


class CommandState(ToolsState, total=False):
    """State of a command besides the chain."""

    prompt: str
    """Chain record of the prompt: as typed, and in the end as expanded by the command."""
    command: str
    """Chain record (detached) of the command as its file was; empty: an earlier version's run, which reads it again."""
    asked: str


class TemplatePiece(NamedTuple):
    """A part of a command's text: words, a shell line, the name of a file, or what is one if there is such a file."""

    kind: Literal["text", "shell", "file", "mention"]
    text: str


def split_template(template: str, dialect: Dialect = "gemini") -> Iterator[TemplatePiece]:
    """The pieces in order. gemini-cli's nested braces are balanced; anything unclosed is text."""
    if dialect == "gemini":
        yield from _split_at_braces(template)
        return
    marks = _MARKS.get(dialect)
    start = 0
    ends = (
        deque(found.span() for found in _FENCE.finditer(template))
        if dialect == "claude"
        else deque[tuple[int, int]]()
    )
    for found in marks.finditer(template) if marks else ():
        groups, end = found.groupdict(), found.end()
        if found.start() < start:  # inside of a block
            continue
        block = groups.get("block")
        while block and ends and ends[0][0] < end:
            ends.popleft()
        if block and not ends:
            continue
        if found.start() > start:
            yield TemplatePiece("text", template[start : found.start()])
        if block:
            yield TemplatePiece("shell", template[end : ends[0][0]].strip())
            start = ends[0][1]
        elif (file := groups["file"]) is None:
            yield TemplatePiece("shell", groups["line"].strip())
            start = end
        else:
            name = file.rstrip(".:!?")
            yield TemplatePiece("mention", name) if name else TemplatePiece("text", "@")
            start = end - len(file) + len(name)
    if start < len(template):
        yield TemplatePiece("text", template[start:])


def _split_at_braces(template: str) -> Iterator[TemplatePiece]:
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


class FilledTemplate(NamedTuple):
    """A command's text with its arguments in it."""

    pieces: Sequence[TemplatePiece]
    has_all_arguments: bool
    """False if the text has no place for what was typed behind the name."""


def fill_template(
    command: CustomCommand, args: str, variables: Mapping[str, str] | None = None
) -> FilledTemplate:
    """Put the arguments into a command's text, as its program does. What is put in isn't read for marks again.

    `variables`: name → value of `${NAME}`, such as CLAUDE_PROJECT_DIR."""
    filler = _Filler(command, args, variables or {})
    pieces = [
        piece._replace(text=filler.fill(piece.text, quoted=piece.kind == "shell"))
        for piece in split_template(command.prompt, command.dialect)
    ]
    return FilledTemplate(pieces, filler.used or not args)


def list_shell_lines(template: str, dialect: Dialect) -> list[str]:
    """The shell lines of a command's text, without arguments."""
    return [piece.text for piece in split_template(template, dialect) if piece.kind == "shell"]


_CLAUDE_SLOT = re.compile(
    r"\\(?P<literal>\$(?:\d+|[A-Za-z_]\w*))|\$ARGUMENTS\[(?P<at>\d{1,9})\]|\$(?P<number>\d{1,9})(?!\d)"
    r"|\$(?P<name>[A-Za-z_]\w*)"
    r"|\$\{(?P<braced>[A-Za-z_]\w*)\}",
    re.ASCII,
)
_CODEX_SLOT = re.compile(r"\$(?:(?P<dollar>\$)|(?P<number>[1-9])|(?P<name>[A-Z][A-Z0-9_]*))", re.ASCII)
_OPENCODE_SLOT = re.compile(r"\$(?:(?P<number>[1-9]\d{0,8})(?!\d)|(?P<name>ARGUMENTS))", re.ASCII)
# Lengths have limits: without them, time grows with the cube of the length of `${input:${input:…`.
_COPILOT_SLOT = re.compile(
    r"\$\{(?:input:(?P<input>[^}:]{1,200}+)(?::[^}]{0,1000}+)?|(?P<name>\w{1,200}+))\}"
)
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class _Filler:
    """Fills the places for arguments in the pieces of one command."""

    def __init__(self, command: CustomCommand, args: str, variables: Mapping[str, str]) -> None:
        self._args, self._variables = args, variables
        self._dialect: Dialect = command.dialect
        self._words = split_arguments(args)
        self._by_name = dict(zip(command.argument_names, self._words, strict=False))
        self._names = {*command.argument_names}
        self._pairs = {m[1]: m[2] for word in self._words if (m := _NAMED.fullmatch(word))}
        self._last = max((int(n) for n in _list_numbers(command)), default=0)
        self._inputs = {*_list_inputs(command)}
        self.used = False
        """Whether the text had a place for arguments."""

    def fill(self, text: str, *, quoted: bool) -> str:
        """`quoted`: the text is a shell line; each argument stays one word of it."""
        match self._dialect:
            case "gemini":
                self.used = self.used or ARGS in text
                return text.replace(ARGS, shlex.quote(self._args) if quoted else self._args)
            case "claude":
                return _CLAUDE_SLOT.sub(lambda found: self._fill_claude(found, quoted), text)
            case "codex":
                return _CODEX_SLOT.sub(self._fill_codex, text)
            case "opencode":
                return _OPENCODE_SLOT.sub(lambda found: self._fill_opencode(found, quoted), text)
            case "copilot":
                return _COPILOT_SLOT.sub(self._fill_copilot, text)
            case "plain":
                return text

    def _put(self, value: str, quoted: bool) -> str:
        self.used = True
        return shlex.quote(value) if quoted else value

    def _put_all(self, quoted: bool) -> str:
        self.used = True
        return shlex.join(self._words) if quoted else self._args

    def _fill_claude(self, found: re.Match[str], quoted: bool) -> str:
        if literal := found["literal"]:
            return literal
        if (number := found["at"] or found["number"]) is not None:  # from 0; one that wasn't given stays
            there = int(number) < len(self._words)
            return self._put(self._words[int(number)], quoted) if there else found[0]
        name = found["name"] or found["braced"] or ""
        if name in self._variables:
            return self._variables[name]
        if name in self._names:
            return self._put(self._by_name.get(name, ""), quoted)
        return self._put_all(quoted) if name == "ARGUMENTS" and found["name"] else found[0]

    def _fill_opencode(self, found: re.Match[str], quoted: bool) -> str:
        if found["name"]:
            return self._put_all(quoted)
        number = int(found["number"])
        words = self._words[number - 1 :] if number == self._last else self._words[number - 1 : number]
        self.used = True  # the last place takes the rest; one that wasn't given is empty
        return shlex.join(words) if quoted else " ".join(words)

    def _fill_codex(self, found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if found["number"]:
            return self._put("".join(self._words[int(found["number"]) - 1 : int(found["number"])]), False)
        name = found["name"]
        if name == "ARGUMENTS":
            return self._put_all(False)
        return self._put(self._pairs[name], False) if name in self._pairs else found[0]

    def _fill_copilot(self, found: re.Match[str]) -> str:
        if (name := found["input"]) is None:
            return self._variables.get(found["name"], found[0])
        if name in self._pairs:
            return self._put(self._pairs[name], False)
        only = len(self._inputs) == 1 and self._args and not self._pairs
        return self._put_all(False) if only else found[0]


def _list_numbers(command: CustomCommand) -> Iterator[str]:
    if command.dialect == "opencode":
        yield from (m["number"] for m in _OPENCODE_SLOT.finditer(command.prompt) if m["number"])


def _list_inputs(command: CustomCommand) -> Iterator[str]:
    if command.dialect == "copilot":
        yield from (m["input"] for m in _COPILOT_SLOT.finditer(command.prompt) if m["input"])


def split_arguments(args: str) -> list[str]:
    """The words of what was typed behind a name: quotes group; one that isn't closed is a letter like others."""
    try:
        return shlex.split(args)
    except ValueError:
        return args.split()


def split_slash_command(prompt: str) -> tuple[str, str]:
    """Name and arguments of `/name arguments`; the name is empty if the prompt doesn't begin with a slash."""
    found = re.match(r"/(\S*)(.*)", prompt, re.DOTALL)
    return (found[1], found[2].strip()) if found else ("", "")


def is_command_name(name: str) -> bool:
    return re.fullmatch(NAME, name) is not None
