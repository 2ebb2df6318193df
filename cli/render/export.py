"""export: a run written down: as one HTML page that needs nothing else (no script, no request), or as Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from interlock.cli.render.calls import clock, who_decided
from interlock.cli.render.output import amount, elapsed, one_line
from interlock.cli.render.pending import brief
from interlock.engine.read.calls import Call
from interlock.state.text import harmless, visible, visible_json

Record = Mapping[str, Any]
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --page: #ffffff; --soft: #59636e; --box: #f6f8fa; --line: #d1d9e0;
  --added: #dafbe1; --removed: #ffebe9; --mark: #0969da; --bad: #d1242f }
@media (prefers-color-scheme: dark) { :root { --text: #f0f6fc; --page: #0d1117; --soft: #9198a1; --box: #151b23;
  --line: #3d444d; --added: #12361f; --removed: #4a1a1d; --mark: #4493f8; --bad: #f85149 } }
body { margin: 0 auto; padding: 2rem 1rem; max-width: 64rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem }
p { margin: .25rem 0 } .soft { color: var(--soft) } .bad { color: var(--bad) }
pre { margin: .5rem 0; padding: .75rem; overflow-x: auto; background: var(--box); border: 1px solid var(--line);
  border-radius: 6px; font: 13px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
pre span { display: block } .add { background: var(--added) } .del { background: var(--removed) }
.hunk { color: var(--mark) } .said { white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .3rem .75rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere }
.diagram { background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: 1rem; overflow-x: auto;
  text-align: center } .diagram svg { max-width: 100%; height: auto }
details { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; margin: .5rem 0 }
summary { cursor: pointer; overflow-wrap: anywhere } .role { font-weight: 600 }
"""


def page(record: Record, drawn: bytes) -> str:
    """`drawn`: the diagram as SVG."""
    title = escape(f"Run {record['run']}: {one_line(record['title'], 80)}")
    body = "\n".join(part for section in _SECTIONS for part in section(record, drawn))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
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
    yield f'<p class="soft">{_text(_path_text(record))}</p>'


def _path_text(record: Record) -> str:
    """`turn → tools ×2 → turn`."""
    return " → ".join(node if times == 1 else f"{node} ×{times}" for node, times in record["path"])


def _waiting(record: Record, _: bytes) -> Iterator[str]:
    if record["pending_approvals"]:
        yield "<h2>Waits for a decision</h2>"
    for request in record["pending_approvals"]:
        yield f"<p><strong>{_text(request['tool_name'])}</strong> {_text(request['reason'])}</p>"
        yield _diff(request["preview"])


def _conversation(record: Record, _: bytes) -> Iterator[str]:
    yield "<h2>Conversation</h2>"
    for message in record["messages"]:
        text = _message_text(message).strip()
        asked = [f"{call['name']} {brief(call.get('args', {}))}" for call in message.get("tool_calls", ())]
        if message["role"] in ("system", "tool") or message.get("origin") == "context":
            about = message.get("name") or message.get("origin") or ""
            yield f"<details><summary>{_text(message['role'])} {_text(about)}</summary>"
            yield f"<pre>{_text(text)}</pre></details>"
            continue
        said = "".join(f'<p class="soft">calls {_text(line)}</p>' for line in asked)
        yield f'<p class="role">{_text(message["role"])}</p><div class="said">{_text(text)}</div>{said}'


def _message_text(message: Record) -> str:
    """All text parts of a message."""
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
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"


def _calls(record: Record, _: bytes) -> Iterator[str]:
    if record["calls"]:
        yield "<h2>Calls</h2>"
    for number, told in enumerate(record["calls"], 1):
        call = _call_of(told)
        state = "failed" if call.failed else call.status or call.state
        yield f"<details><summary>{number}. {_text(call.tool)} {_text(brief(call.args))} · {_text(state)}</summary>"
        for line in (
            who_decided(call),
            f"{clock(call.started)}: started" if call.started else "",
            call.summary,
        ):
            yield f'<p class="soft">{_text(line)}</p>' if line else ""
        yield f"<pre>{_text(visible_json(call.args, 2))}</pre>{_diff(told['diff'])}</details>"


def _call_of(told: Record) -> Call:
    return Call(**{name: told[name] for name in Call._fields})


def _files(record: Record, _: bytes) -> Iterator[str]:
    if record["diff"]:
        yield f'<h2>Files</h2><div id="files">{_diff(record["diff"])}</div>'


def _diff(text: str) -> str:
    if not text:
        return ""
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    lines = (
        f'<span class="{kinds.get(line[:1], "")}">{_text(line) or "&nbsp;"}</span>'
        for line in text.splitlines()
    )
    return f'<pre class="diff">{"".join(lines)}</pre>'


def _approvals(record: Record, _: bytes) -> Iterator[str]:
    rows = [
        (
            clock(item["at"]),
            item["by"],
            item["tool_name"],
            f"{item['choice']} {item['text'] or item['feedback'] or ''}",
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
    """What a model or a file named, as text and nothing else."""
    return escape(harmless(text) if _LINE.search(text) else visible(text))


def report(record: Record, drawn: str) -> str:
    """`drawn`: the diagram as Mermaid text."""
    return harmless("\n".join([*_report_head(record), "", *_block(drawn, "mermaid"), *_told(record)]) + "\n")


def _report_head(record: Record) -> Iterator[str]:
    yield f"# {one_line(record['title'], 200)}"
    yield ""
    yield f"Run `{record['run']}` of {record['workflow']}, {record['status']}, in `{record['workspace']}`,"
    yield f"{clock(record['created'])} to {clock(record['updated'])}. Path: {_path_text(record)}."
    if record["error"]:
        yield f"\n**{one_line(str(record['error'].get('message', '')))}**"


def _told(record: Record) -> Iterator[str]:
    for request in record["pending_approvals"]:
        yield f"\n## Waits for a decision\n\n{request['tool_name']}: {one_line(request['reason'])}\n"
        yield from _block(request["preview"], "diff")
    yield "\n## Conversation"
    for message in record["messages"]:
        if message["role"] not in ("system", "tool") and message.get("origin") != "context":
            yield f"\n**{message['role']}**\n"
            yield _message_text(message).strip()
            yield from (
                f"- calls {c['name']} {one_line(brief(c.get('args', {})))}"
                for c in message.get("tool_calls", ())
            )
    if record["calls"]:
        yield "\n## Calls\n"
    for number, told in enumerate(record["calls"], 1):
        call = _call_of(told)
        state = "failed" if call.failed else call.status or call.state
        yield f"{number}. {call.tool} {one_line(brief(call.args))}: {state}. {one_line(who_decided(call))}"
    if record["answered"]:
        yield "\n## Decisions of people\n"
    for item in record["answered"]:
        said = one_line(item["text"] or item["feedback"] or "")
        yield f"- {clock(item['at'])} {item['by']}: {item['choice']} {item['tool_name']} {said}".rstrip()
    if record["diff"]:
        yield "\n## Files\n"
        yield from _block(record["diff"], "diff")
    yield "\n## Timeline\n\n| at | step | node | took |\n|---|---|---|---|"
    for step in record["steps"]:
        if step["depth"] == 0:
            yield f"| {clock(step['started'])} | {step['step']} | {step['node']} | {elapsed(step['ms'] / 1000)} |"
    yield "\n## Tokens and cost\n"
    yield from (f"- {line}" for line in usage_lines(record["models"]))


def usage_lines(models: Mapping[str, Record]) -> Iterator[str]:
    """Requests, tokens and cost of each model."""
    for name, used in models.items():
        counts = f"{used['requests']} requests, {amount(used['input_tokens'])} in, {amount(used['output_tokens'])} out"
        yield f"{name}: {counts}, {_dollars(used['usd'])}"


def _block(text: str, kind: str) -> Iterator[str]:
    """Fenced longer than any fence in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield from (f"{fence}{kind}", text.rstrip("\n"), fence)
