"""export: a run as a self-contained HTML page (no script, no request), as Markdown (the same parts in both) or as JSON,
and its graph as a diagram. Markdown and diffs are imported where they are written."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from interlock.cli.render.output import (
    format_compact_number,
    format_count,
    format_duration,
    format_node_path,
    is_diff,
    shorten,
    to_one_line,
)
from interlock.cli.render.word_diff import SIGNS, DiffLine, parse_diff
from interlock.engine.client import Call, Client, Options, RunRow
from interlock.engine.client.decision_lines import (
    call_status_text,
    choice_verb_and_suffix,
    format_call_decisions,
    format_local_time,
)
from interlock.engine.client.requests import request_headline, summarize_arguments
from interlock.state.context import UNDONE
from interlock.state.entry_points import is_part_installed
from interlock.state.errors import InterlockError
from interlock.state.names import RAISED
from interlock.state.text import make_visible, sanitize_for_terminal, to_json_text, to_visible_json

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from interlock.graphs.pipeline import Pipeline

Record = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def draw_graph(
    workflow: "Pipeline | str",
    image_format: str,
    depth: int,
    run: RunRow | None,
    call: str | None = None,
    node_groups: Sequence[str] | None = None,
) -> str | bytes:
    from interlock.engine.client.diagrams import GROUPS, render_diagram
    from interlock.state.charts import CHARTS

    if isinstance(workflow, str) and workflow in CHARTS:
        life = Client.for_this_user().read_lifecycle(run.run, workflow, call) if run else None
        return render_diagram(workflow, image_format, depth, lifecycle=life)
    path = Client.for_this_user().read_graph_path(run.run, _diagram_request_lines(run.run)) if run else None
    return render_diagram(workflow, image_format, depth, path, groups=node_groups or GROUPS)


def _diagram_request_lines(run: str) -> list[str]:
    """What a run waits for and since when, why each thing is asked, and how to decide."""
    requests = Client.for_this_user().waiting_requests(run)
    lines: list[str] = []
    for nth, request in enumerate(requests, 1):
        lines += [
            f"{nth}. {to_one_line(request_headline(request.fields), 60)}",
            *_wrap_reason(request.fields["reason"]),
        ]
    if not lines:
        return []
    asked = time.strftime("%a %H:%M", time.localtime(requests[0].asked_at))
    return [f"asked {asked}:", *lines, f"decide: interlock resume {run}"]


def _wrap_reason(text: str) -> list[str]:
    indent = "\u00a0" * 4
    return wrap(
        to_one_line(text, 200), 60, initial_indent=indent, subsequent_indent=indent, drop_whitespace=True
    )


def export_run(run: RunRow, export_format: str) -> str:
    """A run's export as html, md or json."""
    record = Client.for_this_user().export_record(run.run)
    if export_format == "json":
        return to_visible_json(record, 2) + "\n"
    options = Options(home=Client.for_this_user().home, workspace=Path(run.workspace), env=dict(os.environ))
    try:
        workflow = Client(options).load_workflow(run.workflow, with_user_processors=True)
    except InterlockError:  # the folder is gone, or its settings are wrong now: our workflow of that name
        workflow = run.workflow
    # Without the folder that draws, everything else of the run is exported.
    can_draw = is_part_installed("diagrams")
    drawn = draw_graph(workflow, "svg" if export_format == "html" else "mermaid", 1, run) if can_draw else ""
    text = drawn.decode() if isinstance(drawn, bytes) else drawn
    return render_html_page(record, text) if export_format == "html" else render_markdown_report(record, text)


class ReportPart(NamedTuple):
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
    inside: "Sequence[ReportPart]" = ()
    """What the page folds away; the report has the lines of it."""


def render_html_page(record: Record, svg: str) -> str:
    """Return the run as an HTML page. `svg`: its diagram; empty: none."""
    title = escape(f"Run {record['run']}: {to_one_line(record['title'], 80)}")
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    drawing = svg[svg.index("<svg") :] if svg else ""
    body = "\n".join(_part_to_html(part, drawing) for part in _report_parts(record))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def render_markdown_report(record: Record, mermaid: str) -> str:
    """Return the run as Markdown. `mermaid`: its diagram; empty: none."""
    return sanitize_for_terminal(
        "\n".join(line for part in _report_parts(record) for line in _part_to_markdown(part, mermaid)) + "\n"
    )


def _report_parts(record: Record) -> Iterator[ReportPart]:
    yield ReportPart("title", shorten(record["title"], 200))
    yield ReportPart("soft", " · ".join(_run_facts(record)))
    yield ReportPart("soft", record["workspace"])
    if record["error"]:
        yield ReportPart("bad", str(record["error"].get("message", "")))
    if record["pending_approvals"]:
        yield ReportPart("heading", "Waits for a decision")
    for request in record["pending_approvals"]:
        yield ReportPart("line", f"{request['tool_name']}: {request['reason']}")
        yield ReportPart("block", request["preview"])
    yield from _conversation_parts(record)
    if record["state"]:
        yield from (ReportPart("heading", "State"), ReportPart("block", to_json_text(record["state"], 2)))
    if record["diff"]:
        yield from (ReportPart("heading", "Files"), ReportPart("block", record["diff"]))
    yield from _table_parts(
        "Decisions of people", ("when", "who", "what", "decision"), map(_decision_row, record["answered"])
    )
    yield from (
        ReportPart("heading", "Path"),
        ReportPart("diagram"),
        ReportPart("soft", format_node_path(record["path"])),
    )
    yield from _table_parts("Timeline", ("at", "step", "node", "took", "went"), _root_step_rows(record))
    used = _table_parts(
        "Tokens and cost", ("model", "requests", "in", "out", "cost"), _usage_rows(record["models"])
    )
    if tokens := [*used]:
        yield from (*tokens, ReportPart("line", f"In all: {_format_cost(record['usd'])}"))
    if given := [message for message in record["messages"] if _is_context_message(message)]:
        yield ReportPart("heading", "What the model was given")
    for message in given:
        about = message.get("name") or message.get("origin") or ""
        yield ReportPart(
            "folded",
            f"{message['role']} {about}",
            inside=(ReportPart("block", _message_text(message).strip()),),
        )


def _run_facts(record: Record) -> Iterator[str]:
    yield from (f"run {record['run']}", record["workflow"], record["status"])
    if record["parent"]:
        yield f"forked from {record['parent']}"
    began, ended = time.localtime(record["created"]), time.localtime(record["updated"])
    until = "%H:%M" if began[:3] == ended[:3] else "%Y-%m-%d %H:%M"
    yield f"{time.strftime('%Y-%m-%d %H:%M', began)} to {time.strftime(until, ended)}"


def _message_text(message: Record) -> str:
    content: str | Sequence[Record] = message.get("content", "")
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _is_context_message(message: Record) -> bool:
    return message["role"] == "system" or (
        message.get("origin") == "context" and not _undo_notice_text(message)
    )


def _undo_notice_text(message: Record) -> str:
    """What a person took back, if the message tells the model that."""
    content: str | Sequence[Record] = message.get("content", "")
    parts = () if isinstance(content, str) else content
    return "".join(str(part.get("text", "")) for part in parts if part.get("section") == UNDONE)


def _conversation_parts(record: Record) -> Iterator[ReportPart]:
    """What was said, each call with its result where it was made; calls of compressed messages come first."""
    calls = {
        call.id: (number, call, entry) for number, (call, entry) in enumerate(_calls_with_entries(record), 1)
    }
    results = {m.get("tool_call_id"): _message_text(m) for m in record["messages"] if m["role"] == "tool"}
    asked = {call["id"] for message in record["messages"] for call in message.get("tool_calls", ())}
    if calls or record["messages"] or not record["state"]:
        yield ReportPart("heading", "Conversation")
    yield from (_call_part(*made, "") for name, made in calls.items() if name not in asked)
    said = ""
    for message in record["messages"]:
        if message["role"] == "tool" or _is_context_message(message):
            continue
        if text := _undo_notice_text(message):
            yield from (ReportPart("soft", line) for line in text.splitlines())
            continue
        if message["role"] != said:
            yield ReportPart("who", said := message["role"])
        yield ReportPart("asked" if said == "user" else "text", _message_text(message).strip())
        for call in message.get("tool_calls", ()):
            if made := calls.get(call["id"]):
                yield _call_part(*made, results.get(call["id"], ""))
            else:
                yield ReportPart("soft", f"calls {call['name']} {summarize_arguments(call.get('args', {}))}")
    yield from (ReportPart("soft", one["text"]) for one in record["undone"] if not one["told"])


def _calls_with_entries(record: Record) -> Iterator[tuple[Call, Record]]:
    return ((Call(**{name: entry[name] for name in Call._fields}), entry) for entry in record["calls"])


def _call_part(number: int, call: Call, entry: Record, output: str) -> ReportPart:
    started = f"{format_local_time(call.started)}: started" if call.started else ""
    lines = (
        ReportPart("soft", line) for line in (format_call_decisions(call), started, call.summary) if line
    )
    blocks = (
        ReportPart("block", to_visible_json(call.args, 2)),
        ReportPart("block", entry["diff"] or output),
    )
    about = f"{number}. {call.tool} {summarize_arguments(call.args)} · {call_status_text(call)}"
    return ReportPart("folded", about, inside=(*lines, *blocks))


def _decision_row(item: Record) -> tuple[str, ...]:
    decision = "".join(choice_verb_and_suffix(item["kind"], item["choice"]))
    words = f"{decision} {item['text'] or item['feedback'] or ''}"
    return format_local_time(item["at"]), item["by"], item["tool_name"], words


def _root_step_rows(record: Record) -> Iterator[tuple[str, ...]]:
    for s in record["steps"]:
        if s["depth"] == 0:
            took = format_duration(s["ms"] / 1000)
            went = f"{s['route']}: {s['reason']}" if s["route"] == RAISED else s["route"] or ""
            yield format_local_time(s["started"]), str(s["step"]), s["node"], took, went


def _usage_rows(models: Mapping[str, Record]) -> Iterator[tuple[str, ...]]:
    for name, n in models.items():
        tokens = format_compact_number(n["input_tokens"]), format_compact_number(n["output_tokens"])
        yield name, str(n["requests"]), *tokens, _format_cost(n["usd"])


def _table_parts(
    title: str, header: tuple[str, ...], table_rows: Iterable[tuple[str, ...]]
) -> Iterator[ReportPart]:
    """Nothing where there are no rows."""
    if rows := [*table_rows]:
        yield from (ReportPart("heading", title), ReportPart("table", rows=(header, *rows)))


def _format_cost(usd: float | None) -> str:
    return "— (no price known; set models.NAME.price)" if usd is None else f"${usd:.4f}"


def model_usage_lines(models: Mapping[str, Record]) -> Iterator[str]:
    for name, used in models.items():
        tokens = f"{format_compact_number(used['input_tokens'])} in, {format_compact_number(used['output_tokens'])} out"
        yield f"{name}: {format_count(used['requests'], 'request')}, {tokens}, {_format_cost(used['usd'])}"


_TAGS = {
    "title": "<h1>{}</h1>",
    "heading": "<h2>{}</h2>",
    "soft": '<p class="soft">{}</p>',
    "bad": '<p class="bad">{}</p>',
    "line": "<p>{}</p>",
    "who": '<p class="role">{}</p>',
}


def _part_to_html(part: ReportPart, svg: str) -> str:
    match part.kind:
        case "diagram":
            return f'<div class="diagram" id="diagram">{svg}</div>' if svg else ""
        case "asked":
            return f'<div class="asked">{_escape_html(part.text)}</div>'
        case "text":
            return f'<div class="said">{_markdown_to_html(part.text)}</div>' if part.text else ""
        case "block":
            return _diff_or_text_to_html(part.text)
        case "table":
            header, *rows = part.rows
            cells = ("".join(f"<td>{_escape_html_on_one_line(cell)}</td>" for cell in row) for row in rows)
            lines = ("".join(f"<th>{_escape_html_on_one_line(cell)}</th>" for cell in header), *cells)
            return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        case "folded":
            inside = "\n".join(_part_to_html(one, svg) for one in part.inside)
            return f"<details><summary>{_escape_html_on_one_line(part.text)}</summary>{inside}</details>"
        case _:
            return _TAGS[part.kind].format(_escape_html_on_one_line(part.text))


def _diff_or_text_to_html(text: str) -> str:
    """A diff with changed words marked, as on a terminal; any other text as its lines."""
    if not text:
        return ""

    kinds = {"added": "add", "removed": "del", "hunk": "hunk"}
    plain = (DiffLine("note", ((line, False),)) for line in text.splitlines())
    lines = (
        f'<span class="{kinds.get(line.kind, "")}">{SIGNS.get(line.kind, "")}{_pieces_to_html(line.pieces)}</span>'
        for line in (parse_diff(text) if is_diff(text) else plain)
    )
    return f'<pre class="diff">{"".join(lines)}</pre>'


def _pieces_to_html(pieces: Iterable[tuple[str, bool]]) -> str:
    marked = (f"<b>{_escape_html(text)}</b>" if changed else _escape_html(text) for text, changed in pieces)
    return "".join(marked) or "&nbsp;"


_LINE = re.compile(r"[\r\n]")


def _escape_html(text: str) -> str:
    """What a model or a file says, escaped to plain text."""
    return escape(sanitize_for_terminal(text) if _LINE.search(text) else make_visible(text))


def _markdown_to_html(text: str) -> str:
    """A model's Markdown. HTML, links and pictures stay as they are written."""
    return _markdown_parser().render(sanitize_for_terminal(text))


@cache
def _markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    read = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return read.disable(["link", "image", "autolink", "reference", "entity"])


def _escape_html_on_one_line(text: str) -> str:
    """What a model or a file names, escaped to plain text on one line."""
    return escape(to_one_line(text))


_MARKS = {"title": "# {}", "heading": "\n## {}\n", "bad": "\n**{}**\n", "who": "\n**{}**\n"}


def _part_to_markdown(part: ReportPart, mermaid: str) -> Iterator[str]:
    match part.kind:
        case "diagram":
            if mermaid:
                yield from _code_block_lines(mermaid, "mermaid")
        case "asked" | "text" | "block":
            if part.text:
                yield from _code_block_lines(part.text, "diff" if is_diff(part.text) else "text")
        case "table":
            header, *rows = part.rows
            yield from (f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header)))
            yield from (f"| {' | '.join(map(_escape_markdown, row))} |" for row in rows)
        case "folded":
            if lines := [one.text for one in part.inside if one.kind == "soft"]:
                yield f"\n{_escape_markdown('. '.join([part.text, *lines]))}"
        case _:
            yield _MARKS.get(part.kind, "\n{}\n").format(_escape_markdown(part.text))


_MARKUP = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[\\`*{}\[\]<>#|!&~]")
"""What Markdown takes for markup, links, pictures or HTML on one line."""


def _escape_markdown(text: str) -> str:
    """One line that Markdown shows as it stands."""
    return _MARKUP.sub(r"\\\g<0>", to_one_line(text))


def _code_block_lines(text: str, kind: str) -> Iterator[str]:
    """A code block whose fence is longer than any inside it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield from (f"{fence}{kind}", text.rstrip("\n"), fence)
