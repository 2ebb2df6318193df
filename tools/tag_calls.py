"""tag_calls: parse calls written as tags in a model's text, and render conversations with calls as such text.

A call is `<tool><param>value</param></tool>`: tags are exact, without attributes. Inside a parameter everything up to
its closing tag is text. `TagParser` accepts a message in pieces of any size, in linear time.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from interlock.state.messages import DataPart, Message, TextPart, ToolCall

RAW = frozenset({"content", "diff", "old_string", "new_string"})
"""Parameters with file content: one line break at each end is ours, the rest is theirs (Roo Code: `content`)."""


class TaggedCall(NamedTuple):
    """A call as written; values are text."""

    name: str
    params: dict[str, str]


class _ParameterTag(NamedTuple):
    """A parameter's tag inside a call."""

    name: str
    opens: bool
    start: int
    end: int
    """Offsets in the text between the call's own tags."""


class TagParser:
    """Separates a message's text from its calls."""

    def __init__(self, tools: Mapping[str, Collection[str]], offered: Collection[str] | None = None) -> None:
        """`tools`: name → names of its parameters. Of those that aren't `offered` (None: all are) only what has a
        parameter or nothing in it is a call; a mere tag is text, as an answer may mention it."""
        self._tools = tools
        self._offered = tools.keys() if offered is None else offered
        self._openings = _tag_prefixes(f"<{name}>" for name in tools)
        self._buffer = ""
        """Undecided input: at most the start of a tag."""
        self._before = ""
        """The character before the buffer."""
        self._text: list[str] = []
        self._shown: list[str] = []
        """Text of the current piece."""
        self._tool = ""
        self._param = ""
        self._closed = ""
        """The last piece of file content closed in this call: it may turn out to continue."""
        self._blank = True
        """Only whitespace since a parameter's last tag."""
        self._inside: list[str] = []
        self._length = 0
        self._parameter_tags: list[_ParameterTag] = []
        self._tags: Mapping[str, bool] = {}
        self._known: dict[str, Mapping[str, bool]] = {}
        """Tool → the tags inside its calls."""
        self._within: TagParser | None = None
        """Parses what turned out to be no call."""
        self.calls: list[TaggedCall] = []
        self.problem = ""
        """What is wrong with the calls; empty: nothing."""

    @property
    def text(self) -> str:
        return "".join(self._text).strip()

    def feed(self, piece: str) -> str:
        """Parse a piece; return the text that is certainly outside calls."""
        self._buffer += piece
        self._shown = []
        position = 0
        while position < len(self._buffer):
            if self._param:
                step = self._parse_parameter(position)
            elif self._tool:
                step = self._parse_call(position)
            else:
                step = self._parse_text(position)
            if step == position:
                break
            position = step
        if position:
            self._before = self._buffer[position - 1]
            self._buffer = self._buffer[position:]
        return self._flush_shown_text()

    def _flush_shown_text(self) -> str:
        self._text += self._shown
        return "".join(self._shown)

    def close(self, *, truncated: bool = False) -> str:
        """End the message; return the remaining text. A call with complete parameters counts without its closing tag,
        unless the message was `truncated` off."""
        rest, self._buffer, self._shown = self._buffer, "", []
        if not self._tool:
            self._shown = [rest]
            return self._flush_shown_text()
        if not self._is_meant_as_call():
            self._inside.append(rest)
            self._turn_call_into_text()
            return self._flush_shown_text()
        name = self._param or self._tool
        if self._param or truncated or (rest.strip() and not f"</{self._tool}>".startswith(rest.strip())):
            self._reject_call(f"the call of {self._tool} ended before </{name}>")
        else:
            self._end_call()
        return ""

    def _parse_text(self, position: int) -> int:
        """Parse up to the next tag outside of calls; return the new position."""
        buffer, shown = self._buffer, self._shown
        at = buffer.find("<", position)
        if at < 0:
            shown.append(buffer[position:])
            return len(buffer)
        if at > position:
            shown.append(buffer[position:at])
        tag = _read_tag(buffer, at, self._openings)
        quoted = (buffer[at - 1] if at else self._before) == "`"
        if tag is None:
            return at
        if tag and tag[1] == "/":  # nobody can tell where the file ended
            self._reject_call(f"{tag} stands behind the call that it belongs to")
            tag = ""
        if not tag or quoted:
            shown.append(tag or "<")
            return at + len(tag or "<")
        self._begin_call(tag[1:-1])
        return at + len(tag)

    def _begin_call(self, name: str) -> None:
        self._tool, self._inside, self._length, self._parameter_tags = name, [], 0, []
        self._closed, self._blank = "", True
        if name not in self._known:
            params = self._tools[name]
            closing = (f"</{param}>" for param in params)
            others = (f"<{tool}>" for tool in self._tools if tool not in params)
            self._known[name] = _tag_prefixes(
                [f"</{name}>", *(f"<{param}>" for param in params), *closing, *others]
            )
        self._tags = self._known[name]

    def _parse_call(self, position: int) -> int:
        """Parse up to the next tag inside a call; return the new position."""
        buffer = self._buffer
        at = buffer.find("<", position)
        if at < 0:
            return self._append_call_text(position, len(buffer))
        if at > position:
            self._append_call_text(position, at)
        tag = _read_tag(buffer, at, self._tags)
        if tag is None:
            return at
        if not tag:
            return self._append_call_text(at, at + 1)
        if tag == f"</{self._tool}>":
            if self._is_blank_call() or self._is_meant_as_call():
                self._end_call()
            else:
                self._inside.append(tag)
                self._turn_call_into_text()
        elif tag.startswith("</"):
            self._append_parameter_tag(tag[2:-1], False, tag)
        elif self._closed and not self._blank:  # the file continues
            return self._append_call_text(at, at + len(tag))
        elif tag[1:-1] in self._tools[self._tool]:
            self._param = tag[1:-1]
            self._append_parameter_tag(self._param, True, tag)
        else:
            if self._is_meant_as_call():
                self._reject_call(f"the call of {self._tool} ended before </{self._tool}>")
            else:
                self._turn_call_into_text()
            self._begin_call(tag[1:-1])
        return at + len(tag)

    def _parse_parameter(self, position: int) -> int:
        """Parse a parameter's text up to its closing tag; return the new position."""
        names = {self._param, self._closed} - {""}
        buffer, found = (
            self._buffer,
            [(at, n) for n in names if (at := self._buffer.find(f"</{n}>", position)) >= 0],
        )
        if not found:
            return self._append_call_text(position, max(position, len(buffer) - max(map(len, names)) - 2))
        at, name = min(found)
        self._append_call_text(position, at)
        self._param = ""
        self._append_parameter_tag(name, False, f"</{name}>")
        return at + len(name) + 3

    def _append_call_text(self, start: int, end: int) -> int:
        if end > start:
            self._inside.append(text := self._buffer[start:end])
            self._length += end - start
            self._blank = self._blank and text.isspace()
        return end

    def _append_parameter_tag(self, name: str, is_opening: bool, tag: str) -> None:
        self._parameter_tags.append(_ParameterTag(name, is_opening, self._length, self._length + len(tag)))
        self._inside.append(tag)
        self._length += len(tag)
        self._blank = True
        if name in RAW and not is_opening:
            self._closed = name

    def _end_call(self) -> None:
        params = _read_parameters("".join(self._inside), self._parameter_tags)
        self._openings |= _tag_prefixes(f"</{name}>" for name in params if name in RAW)
        self.calls.append(TaggedCall(self._tool, params))
        self._tool = self._param = ""

    def _is_meant_as_call(self) -> bool:
        """Return whether what was begun is meant as a call."""
        return self._tool in self._offered or bool(
            _read_parameters("".join(self._inside), self._parameter_tags)
        )

    def _is_blank_call(self) -> bool:
        return not "".join(self._inside).strip()

    def _turn_call_into_text(self) -> None:
        """Turn the call that was begun into text, but for calls of offered tools in it."""
        within = self._within = self._within or TagParser({name: self._tools[name] for name in self._offered})
        within.calls = self.calls
        self._shown += [f"<{self._tool}>", within.feed("".join(self._inside)), within.close()]
        self._tool = self._param = ""
        if within.problem:
            self._reject_call(within.problem)

    def _reject_call(self, why: str) -> None:
        self.problem = self.problem or why
        self._tool = self._param = ""


def _tag_prefixes(tags: Any) -> dict[str, bool]:
    """Return each prefix of a tag, with whether it is the whole tag."""
    found: dict[str, bool] = {}
    for tag in tags:
        for end in range(1, len(tag)):
            found.setdefault(tag[:end], False)
        found[tag] = True
    return found


def _read_tag(buffer: str, at: int, tags: Mapping[str, bool]) -> str | None:
    """Return the tag starting at `at`; empty: none; None: more input is needed."""
    for end in range(at + 1, len(buffer) + 1):
        whole = tags.get(buffer[at:end])
        if whole is None:
            return ""
        if whole:
            return buffer[at:end]
    return None


def _read_parameters(inside: str, tags: Sequence[_ParameterTag]) -> dict[str, str]:
    """Return parameters by name. A repeated closing tag extends the value up to it, as files may contain such tags.
    Anything parsed as parameters in between was part of the value too."""
    spans: list[tuple[_ParameterTag, _ParameterTag]] = []
    last: dict[str, int] = {}
    opened: _ParameterTag | None = None
    for mark in tags:
        if mark.opens:
            opened = mark
        elif opened is not None and opened.name == mark.name:
            last[mark.name] = len(spans)
            spans.append((opened, mark))
            opened = None
        elif (at := last.get(mark.name, len(spans))) < len(spans) and spans[at][0].name == mark.name:
            opened = None
            first, before = spans[at]
            own = mark.name in RAW or at == len(spans) - 1  # else it belongs to a later parameter's text
            if own and (mark.name in RAW or bool(inside[before.end : mark.start].strip())):
                del spans[at:]
                spans.append((first, mark))
    return {first.name: _trim_value(first.name, inside[first.end : end.start]) for first, end in spans}


def _trim_value(name: str, text: str) -> str:
    if name not in RAW:
        return text.strip()
    text = text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def render_call_as_tags(call: ToolCall) -> str:
    """Return the call as the model would write it."""
    lines = [f"<{call.name}>"]
    for name, value in call.args.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"<{name}>\n{text}\n</{name}>" if name in RAW else f"<{name}>{text}</{name}>")
    return "\n".join([*lines, f"</{call.name}>"])


def render_message_as_text(message: Message) -> Message:
    """Return a message with its calls and results as text, the way the model itself would have written it."""
    if message.role == "assistant" and message.tool_calls:
        text = "\n\n".join([*filter(None, [message.text]), *map(render_call_as_tags, message.tool_calls)])
        return message.model_copy(update={"content": text, "tool_calls": (), "signature": None})
    if message.role != "tool":
        return message
    kind = "output" if message.status in (None, "success") else "error"
    text = f"[{message.name}]\n<tool_result>\n<{kind}>\n{message.text}\n</{kind}>\n</tool_result>"
    data = () if isinstance(message.content, str) else message.content
    parts = (TextPart(text=text), *(part for part in data if isinstance(part, DataPart)))
    return Message(role="user", content=parts if len(parts) > 1 else text)
