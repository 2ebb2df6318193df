"""report: a run as Markdown."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from interlock.cli.render.calls import clock
from interlock.cli.render.output import amount, elapsed, one_line
from interlock.cli.render.page import call_of, decided_text, dollars, message_text, path_text
from interlock.cli.render.pending import brief
from interlock.state.text import harmless

Record = Mapping[str, Any]


def report(record: Record, drawn: str) -> str:
    """`drawn`: the diagram as Mermaid text."""
    return harmless("\n".join([*_head(record), "", *_block(drawn, "mermaid"), *_told(record)]) + "\n")


def _head(record: Record) -> Iterator[str]:
    yield f"# {one_line(record['title'], 200)}"
    yield ""
    yield f"Run `{record['run']}` of {record['workflow']}, {record['status']}, in `{record['workspace']}`,"
    yield f"{clock(record['created'])} to {clock(record['updated'])}. Path: {path_text(record)}."
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
            yield message_text(message).strip()
            yield from (
                f"- calls {c['name']} {one_line(brief(c.get('args', {})))}"
                for c in message.get("tool_calls", ())
            )
    if record["calls"]:
        yield "\n## Calls\n"
    for number, told in enumerate(record["calls"], 1):
        call = call_of(told)
        state = "failed" if call.failed else call.status or call.state
        yield f"{number}. {call.tool} {one_line(brief(call.args))}: {state}. {one_line(decided_text(call))}"
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
        yield f"{name}: {counts}, {dollars(used['usd'])}"


def _block(text: str, kind: str) -> Iterator[str]:
    """Fenced longer than any fence in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield from (f"{fence}{kind}", text.rstrip("\n"), fence)
