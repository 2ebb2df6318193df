"""export: a run as a self-contained HTML page (no script, no request), or as Markdown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from interlock.cli.render.output import amount, counted, cut, elapsed, is_diff, one_line, way
from interlock.engine.client import Call
from interlock.engine.client.deciders import came_to, clock, decision_words, who_decided
from interlock.engine.client.requests import brief
from interlock.state.text import harmless, visible, visible_json

Record = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page(record: Record, drawn: bytes) -> str:
    """The HTML page. `drawn`: the diagram as SVG."""
    title = escape(f"Run {record['run']}: {one_line(record['title'], 80)}")
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    body = "\n".join(part for section in _SECTIONS for part in section(record, drawn))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _page_head(record: Record, _: bytes) -> Iterator[str]:
    yield f"<h1>{_text(one_line(record['title'], 200))}</h1>"
    facts = [f"run {record['run']}", record["workflow"], record["status"], record["workspace"]]
    if record["parent"]:
        facts.append(f"forked from {record['parent']}")
    yield f'<p class="soft">{_text(" · ".join(facts))}</p>'
    yield f'<p class="soft">{clock(record["created"])} to {clock(record["updated"])}</p>'
    if record["error"]:
        yield f'<p class="bad">{_text(str(record["error"].get("message", "")))}</p>'


def _diagram(record: Record, drawn: bytes) -> Iterator[str]:
    svg = drawn.decode()
    yield "<h2>Path</h2>"
    yield f'<div class="diagram" id="diagram">{svg[svg.index("<svg") :]}</div>'
    yield f'<p class="soft">{_text(way(record["path"]))}</p>'


def _waiting(record: Record, _: bytes) -> Iterator[str]:
    if record["pending_approvals"]:
        yield "<h2>Waits for a decision</h2>"
    for request in record["pending_approvals"]:
        yield f"<p><strong>{_name(request['tool_name'])}</strong> {_text(request['reason'])}</p>"
        yield _diff(request["preview"])


def _conversation(record: Record, _: bytes) -> Iterator[str]:
    yield "<h2>Conversation</h2>"
    for message in record["messages"]:
        text = _message_text(message).strip()
        asked = [f"{call['name']} {brief(call.get('args', {}))}" for call in message.get("tool_calls", ())]
        if message["role"] in ("system", "tool") or message.get("origin") == "context":
            about = message.get("name") or message.get("origin") or ""
            yield f"<details><summary>{_name(message['role'])} {_name(about)}</summary>"
            yield f"<pre>{_text(text)}</pre></details>"
            continue
        calls = "".join(f'<p class="soft">calls {_name(line)}</p>' for line in asked)
        yield f'<p class="role">{_text(message["role"])}</p><div class="said">{_text(text)}</div>{calls}'


def _message_text(message: Record) -> str:
    content: str | Sequence[Record] = message.get("content", "")
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _timeline(record: Record, _: bytes) -> Iterator[str]:
    root = [step for step in record["steps"] if step["depth"] == 0]
    rows = [
        (clock(s["started"]), str(s["step"]), s["node"], elapsed(s["ms"] / 1000), s["route"] or "")
        for s in root
    ]
    yield from _table("Timeline", ("at", "step", "node", "took", "went"), rows)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"<h2>{title}</h2><table><tr>{''.join(f'<th>{name}</th>' for name in header)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{_name(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"


def _calls(record: Record, _: bytes) -> Iterator[str]:
    if record["calls"]:
        yield "<h2>Calls</h2>"
    for number, entry in enumerate(record["calls"], 1):
        call = _call_of(entry)
        about = f"{number}. {call.tool} {brief(call.args)} · {came_to(call)}"
        yield f"<details><summary>{_name(about)}</summary>"
        for line in (
            who_decided(call),
            f"{clock(call.started)}: started" if call.started else "",
            call.summary,
        ):
            yield f'<p class="soft">{_name(line)}</p>' if line else ""
        yield f"<pre>{_text(visible_json(call.args, 2))}</pre>{_diff(entry['diff'])}</details>"


def _call_of(entry: Record) -> Call:
    return Call(**{name: entry[name] for name in Call._fields})


def _files(record: Record, _: bytes) -> Iterator[str]:
    if record["diff"]:
        yield f'<h2>Files</h2><div id="files">{_diff(record["diff"])}</div>'


def _diff(text: str) -> str:
    """A diff with changed words marked, as on a terminal; any other text as its lines."""
    from interlock.cli.render.worddiff import SIGNS, DiffLine, diff_lines

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


def _approvals(record: Record, _: bytes) -> Iterator[str]:
    rows = [
        (
            clock(item["at"]),
            item["by"],
            item["tool_name"],
            f"{_decided(item)} {item['text'] or item['feedback'] or ''}",
        )
        for item in record["answered"]
    ]
    if rows:
        yield from _table("Decisions of people", ("when", "who", "what", "decision"), rows)


def _cost(record: Record, _: bytes) -> Iterator[str]:
    rows = [
        (name, str(n["requests"]), amount(n["input_tokens"]), amount(n["output_tokens"]), _dollars(n["usd"]))
        for name, n in record["models"].items()
    ]
    if rows:
        yield from _table("Tokens and cost", ("model", "requests", "in", "out", "cost"), rows)
        yield f"<p>In all: {_dollars(record['usd'])}</p>"


def _dollars(usd: float | None) -> str:
    """`—` where settings have no price."""
    return "— (no price in settings: model.prices)" if usd is None else f"${usd:.4f}"


_SECTIONS = (_page_head, _diagram, _waiting, _conversation, _files, _calls, _approvals, _timeline, _cost)
_LINE = re.compile(r"[\r\n]")


def _text(text: str) -> str:
    """What a model or a file says, escaped to plain text."""
    return escape(harmless(text) if _LINE.search(text) else visible(text))


def _name(text: str) -> str:
    """What a model or a file names, escaped to plain text on one line."""
    return escape(one_line(text))


def _decided(item: Record) -> str:
    return "".join(decision_words(item["kind"], item["choice"]))


def report(record: Record, drawn: str) -> str:
    """The Markdown report. `drawn`: the diagram as Mermaid text."""
    return harmless(
        "\n".join([*_report_head(record), "", *_block(drawn, "mermaid"), *_decided_calls(record)]) + "\n"
    )


def _report_head(record: Record) -> Iterator[str]:
    yield f"# {_prose(cut(record['title'], 200))}"
    yield ""
    yield f"Run `{record['run']}` of {_code(record['workflow'])}, {record['status']}, in {_code(record['workspace'])},"
    yield f"{clock(record['created'])} to {clock(record['updated'])}. Path: {_prose(way(record['path']))}."
    if record["error"]:
        yield f"\n**{_prose(str(record['error'].get('message', '')))}**"


def _decided_calls(record: Record) -> Iterator[str]:
    for request in record["pending_approvals"]:
        yield f"\n## Waits for a decision\n\n{_code(request['tool_name'])}: {_prose(request['reason'])}\n"
        yield from _block(request["preview"], "diff" if is_diff(request["preview"]) else "text")
    yield "\n## Conversation"
    for message in record["messages"]:
        if message["role"] not in ("system", "tool") and message.get("origin") != "context":
            yield f"\n**{message['role']}**\n"
            if text := _message_text(message).strip():
                yield from _block(text, "text")
            yield from (
                f"- calls {_called(c['name'], c.get('args', {}))}" for c in message.get("tool_calls", ())
            )
    if record["calls"]:
        yield "\n## Calls\n"
    for number, entry in enumerate(record["calls"], 1):
        call = _call_of(entry)
        yield f"{number}. {_called(call.tool, call.args)}: {came_to(call)}. {_prose(who_decided(call))}"
    if record["answered"]:
        yield "\n## Decisions of people\n"
    for item in record["answered"]:
        words = _prose(item["text"] or item["feedback"] or "")
        what = f"{_prose(item['by'])}: {_decided(item)} {_code(item['tool_name'])}"
        yield f"- {clock(item['at'])} {what} {words}".rstrip()
    if record["diff"]:
        yield "\n## Files\n"
        yield from _block(record["diff"], "diff")
    yield "\n## Timeline\n\n| at | step | node | took |\n|---|---|---|---|"
    for step in record["steps"]:
        if step["depth"] == 0:
            took = elapsed(step["ms"] / 1000)
            yield f"| {clock(step['started'])} | {step['step']} | {_prose(step['node'])} | {took} |"
    yield "\n## Tokens and cost\n"
    yield from (f"- {_prose(line)}" for line in usage_lines(record["models"]))


def _called(tool: str, args: Record) -> str:
    return _code(f"{tool} {brief(args)}")


_MARKUP = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[\\`*{}\[\]<>#|!&~]")
"""What Markdown takes for markup, links, pictures or HTML on one line."""


def _prose(text: str) -> str:
    """One line that Markdown shows as it stands."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text))


def _code(text: str) -> str:
    """A name, in as many backticks as it takes."""
    shown = one_line(text)
    ticks = _fence(shown, 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def usage_lines(models: Mapping[str, Record]) -> Iterator[str]:
    """Requests, tokens and cost of each model."""
    for name, used in models.items():
        tokens = f"{amount(used['input_tokens'])} in, {amount(used['output_tokens'])} out"
        yield f"{name}: {counted(used['requests'], 'request')}, {tokens}, {_dollars(used['usd'])}"


def _block(text: str, kind: str) -> Iterator[str]:
    """A code block whose fence is longer than any inside it."""
    fence = _fence(text, 3)
    yield from (f"{fence}{kind}", text.rstrip("\n"), fence)


def _fence(text: str, least: int) -> str:
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
