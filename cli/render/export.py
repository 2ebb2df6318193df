"""export: a run as a self-contained HTML page (no script, no request), or as Markdown: the same parts in both."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markdown_it import MarkdownIt

from interlock.cli.render.output import (
    format_amount,
    format_count,
    format_duration,
    is_diff,
    one_line,
    shorten,
    way,
)
from interlock.cli.render.worddiff import SIGNS, DiffLine, diff_lines
from interlock.engine.client import Call
from interlock.engine.client.decision_lines import call_status, deciders_line, decision_words, format_clock
from interlock.engine.client.requests import brief_arguments
from interlock.state.context import UNDONE
from interlock.state.names import RAISED
from interlock.state.text import escape_controls, json_text, visible, visible_json

Record = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


class Part(NamedTuple):
    """One part of a run's description; its texts are a model's or a file's, so each medium escapes them."""

    kind: Literal[
        "title",
        "heading",
        "soft",
        "bad",
        "line",
        "who",
        "asked",
        "text",
        "block",
        "diagram",
        "table",
        "folded",
    ]
    text: str = ""
    rows: Sequence[Sequence[str]] = ()
    """Of a table, its header first."""
    inside: "Sequence[Part]" = ()
    """What the page folds away; the report has the lines of it."""


def page(record: Record, drawn: bytes) -> str:
    """The HTML page. `drawn`: the diagram as SVG."""
    title = escape(f"Run {record['run']}: {one_line(record['title'], 80)}")
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    svg = drawn.decode()
    body = "\n".join(_html(part, svg[svg.index("<svg") :]) for part in _parts(record))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def report(record: Record, drawn: str) -> str:
    """The Markdown report. `drawn`: the diagram as Mermaid text."""
    return escape_controls(
        "\n".join(line for part in _parts(record) for line in _markdown(part, drawn)) + "\n"
    )


def _parts(record: Record) -> Iterator[Part]:
    yield Part("title", shorten(record["title"], 200))
    yield Part("soft", " · ".join(_facts(record)))
    yield Part("soft", record["workspace"])
    if record["error"]:
        yield Part("bad", str(record["error"].get("message", "")))
    if record["pending_approvals"]:
        yield Part("heading", "Waits for a decision")
    for request in record["pending_approvals"]:
        yield Part("line", f"{request['tool_name']}: {request['reason']}")
        yield Part("block", request["preview"])
    yield from _conversation(record)
    if record["state"]:
        yield from (Part("heading", "State"), Part("block", json_text(record["state"], 2)))
    if record["diff"]:
        yield from (Part("heading", "Files"), Part("block", record["diff"]))
    yield from _table(
        "Decisions of people", ("when", "who", "what", "decision"), map(_decided, record["answered"])
    )
    yield from (Part("heading", "Path"), Part("diagram"), Part("soft", way(record["path"])))
    yield from _table("Timeline", ("at", "step", "node", "took", "went"), _steps(record))
    used = _table("Tokens and cost", ("model", "requests", "in", "out", "cost"), _used(record["models"]))
    if tokens := [*used]:
        yield from (*tokens, Part("line", f"In all: {_dollars(record['usd'])}"))
    if given := [message for message in record["messages"] if _is_given(message)]:
        yield Part("heading", "What the model was given")
    for message in given:
        about = message.get("name") or message.get("origin") or ""
        yield Part("folded", f"{message['role']} {about}", inside=(Part("block", _text_of(message).strip()),))


def _facts(record: Record) -> Iterator[str]:
    yield from (f"run {record['run']}", record["workflow"], record["status"])
    if record["parent"]:
        yield f"forked from {record['parent']}"
    began, ended = time.localtime(record["created"]), time.localtime(record["updated"])
    until = "%H:%M" if began[:3] == ended[:3] else "%Y-%m-%d %H:%M"
    yield f"{time.strftime('%Y-%m-%d %H:%M', began)} to {time.strftime(until, ended)}"


def _text_of(message: Record) -> str:
    content: str | Sequence[Record] = message.get("content", "")
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _is_given(message: Record) -> bool:
    return message["role"] == "system" or (message.get("origin") == "context" and not _undone_in(message))


def _undone_in(message: Record) -> str:
    """What a person took back, if the message tells the model that."""
    content: str | Sequence[Record] = message.get("content", "")
    parts = () if isinstance(content, str) else content
    return "".join(str(part.get("text", "")) for part in parts if part.get("section") == UNDONE)


def _conversation(record: Record) -> Iterator[Part]:
    """What was said, each call with its result where it was made; calls of compressed messages come first."""
    calls = {call.id: (number, call, entry) for number, (call, entry) in enumerate(_calls(record), 1)}
    results = {m.get("tool_call_id"): _text_of(m) for m in record["messages"] if m["role"] == "tool"}
    asked = {call["id"] for message in record["messages"] for call in message.get("tool_calls", ())}
    if calls or record["messages"] or not record["state"]:
        yield Part("heading", "Conversation")
    yield from (_called(*made, "") for name, made in calls.items() if name not in asked)
    said = ""
    for message in record["messages"]:
        if message["role"] == "tool" or _is_given(message):
            continue
        if text := _undone_in(message):
            yield from (Part("soft", line) for line in text.splitlines())
            continue
        if message["role"] != said:
            yield Part("who", said := message["role"])
        yield Part("asked" if said == "user" else "text", _text_of(message).strip())
        for call in message.get("tool_calls", ()):
            if made := calls.get(call["id"]):
                yield _called(*made, results.get(call["id"], ""))
            else:
                yield Part("soft", f"calls {call['name']} {brief_arguments(call.get('args', {}))}")
    yield from (Part("soft", one["text"]) for one in record["undone"] if not one["told"])


def _calls(record: Record) -> Iterator[tuple[Call, Record]]:
    return ((Call(**{name: entry[name] for name in Call._fields}), entry) for entry in record["calls"])


def _called(number: int, call: Call, entry: Record, output: str) -> Part:
    started = f"{format_clock(call.started)}: started" if call.started else ""
    lines = (Part("soft", line) for line in (deciders_line(call), started, call.summary) if line)
    blocks = (Part("block", visible_json(call.args, 2)), Part("block", entry["diff"] or output))
    about = f"{number}. {call.tool} {brief_arguments(call.args)} · {call_status(call)}"
    return Part("folded", about, inside=(*lines, *blocks))


def _decided(item: Record) -> tuple[str, ...]:
    decision = "".join(decision_words(item["kind"], item["choice"]))
    words = f"{decision} {item['text'] or item['feedback'] or ''}"
    return format_clock(item["at"]), item["by"], item["tool_name"], words


def _steps(record: Record) -> Iterator[tuple[str, ...]]:
    for s in record["steps"]:
        if s["depth"] == 0:
            took = format_duration(s["ms"] / 1000)
            went = f"{s['route']}: {s['reason']}" if s["route"] == RAISED else s["route"] or ""
            yield format_clock(s["started"]), str(s["step"]), s["node"], took, went


def _used(models: Mapping[str, Record]) -> Iterator[tuple[str, ...]]:
    for name, n in models.items():
        tokens = format_amount(n["input_tokens"]), format_amount(n["output_tokens"])
        yield name, str(n["requests"]), *tokens, _dollars(n["usd"])


def _table(title: str, header: tuple[str, ...], found: Iterable[tuple[str, ...]]) -> Iterator[Part]:
    """Nothing where there are no rows."""
    if rows := [*found]:
        yield from (Part("heading", title), Part("table", rows=(header, *rows)))


def _dollars(usd: float | None) -> str:
    return "— (no price known; set models.NAME.price)" if usd is None else f"${usd:.4f}"


def usage_lines(models: Mapping[str, Record]) -> Iterator[str]:
    for name, used in models.items():
        tokens = f"{format_amount(used['input_tokens'])} in, {format_amount(used['output_tokens'])} out"
        yield f"{name}: {format_count(used['requests'], 'request')}, {tokens}, {_dollars(used['usd'])}"


_TAGS = {
    "title": "<h1>{}</h1>",
    "heading": "<h2>{}</h2>",
    "soft": '<p class="soft">{}</p>',
    "bad": '<p class="bad">{}</p>',
    "line": "<p>{}</p>",
    "who": '<p class="role">{}</p>',
}


def _html(part: Part, svg: str) -> str:
    match part.kind:
        case "diagram":
            return f'<div class="diagram" id="diagram">{svg}</div>'
        case "asked":
            return f'<div class="asked">{_text(part.text)}</div>'
        case "text":
            return f'<div class="said">{_rich(part.text)}</div>' if part.text else ""
        case "block":
            return _diff(part.text)
        case "table":
            header, *rows = part.rows
            cells = ("".join(f"<td>{_name(cell)}</td>" for cell in row) for row in rows)
            lines = ("".join(f"<th>{_name(cell)}</th>" for cell in header), *cells)
            return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        case "folded":
            inside = "\n".join(_html(one, svg) for one in part.inside)
            return f"<details><summary>{_name(part.text)}</summary>{inside}</details>"
        case _:
            return _TAGS[part.kind].format(_name(part.text))


def _diff(text: str) -> str:
    """A diff with changed words marked, as on a terminal; any other text as its lines."""
    if not text:
        return ""
    kinds = {"added": "add", "removed": "del", "hunk": "hunk"}
    plain = (DiffLine("note", ((line, False),)) for line in text.splitlines())
    lines = (
        f'<span class="{kinds.get(line.kind, "")}">{SIGNS.get(line.kind, "")}{_pieces(line.pieces) or "&nbsp;"}</span>'
        for line in (diff_lines(text) if is_diff(text) else plain)
    )
    return f'<pre class="diff">{"".join(lines)}</pre>'


def _pieces(pieces: Iterable[tuple[str, bool]]) -> str:
    return "".join(f"<b>{_text(text)}</b>" if changed else _text(text) for text, changed in pieces)


_LINE = re.compile(r"[\r\n]")


def _text(text: str) -> str:
    """What a model or a file says, escaped to plain text."""
    return escape(escape_controls(text) if _LINE.search(text) else visible(text))


def _rich(text: str) -> str:
    """A model's Markdown. HTML, links and pictures stay as they are written."""
    return _reader().render(escape_controls(text))


@cache
def _reader() -> MarkdownIt:
    read = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return read.disable(["link", "image", "autolink", "reference", "entity"])


def _name(text: str) -> str:
    """What a model or a file names, escaped to plain text on one line."""
    return escape(one_line(text))


_MARKS = {"title": "# {}", "heading": "\n## {}\n", "bad": "\n**{}**\n", "who": "\n**{}**\n"}


def _markdown(part: Part, drawn: str) -> Iterator[str]:
    match part.kind:
        case "diagram":
            yield from _block(drawn, "mermaid")
        case "asked" | "text" | "block":
            if part.text:
                yield from _block(part.text, "diff" if is_diff(part.text) else "text")
        case "table":
            header, *rows = part.rows
            yield from (f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header)))
            yield from (f"| {' | '.join(map(_prose, row))} |" for row in rows)
        case "folded":
            if lines := [one.text for one in part.inside if one.kind == "soft"]:
                yield f"\n{_prose('. '.join([part.text, *lines]))}"
        case _:
            yield _MARKS.get(part.kind, "\n{}\n").format(_prose(part.text))


_MARKUP = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[\\`*{}\[\]<>#|!&~]")
"""What Markdown takes for markup, links, pictures or HTML on one line."""


def _prose(text: str) -> str:
    """One line that Markdown shows as it stands."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text))


def _block(text: str, kind: str) -> Iterator[str]:
    """A code block whose fence is longer than any inside it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield from (f"{fence}{kind}", text.rstrip("\n"), fence)
