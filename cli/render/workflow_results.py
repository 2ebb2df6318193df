"""workflow_results: draws a workflow's output as lines for people; `run`, `show` and a session's `/run` use it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from interlock.cli.render.output import (
    Paint,
    format_count,
    format_duration,
    json_to_readable_lines,
    table_lines,
)
from interlock.cli.render.pending_requests import coloured_diff_lines

Output = Mapping[str, Any]
_MARKS = {"success": "✓", "cancelled": "–"}


def result_lines(workflow: str, output: Output, paint: Paint) -> Iterator[str]:
    """A workflow's output without its error, which belongs to the run; your own workflow's as `name: value`."""
    if workflow in RESULT_RENDERERS:
        yield from RESULT_RENDERERS[workflow](
            defaultdict(lambda: None, output), paint
        )  # null values are left out
    else:
        yield from json_to_readable_lines(output)


def blank_already_shown_text(output: Output, shown_text: str) -> dict[str, Any]:
    """The output without the text that was shown while the run went on."""
    return {name: "" if shown_text and value == shown_text else value for name, value in output.items()}


def _edit_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    if output["diff"]:
        yield from (
            coloured_diff_lines(output["diff"], paint) if paint.has_colours else output["diff"].splitlines()
        )
    facts = [output["status"].replace("_", " ")]
    facts += [f"found by: {output['strategy']}"] if output["strategy"] else []
    facts += [format_count(output["occurrences"], "place")] if output["occurrences"] else []
    yield " · ".join(facts)
    if output["explanation"]:
        yield output["explanation"]


def _repair_result_lines(output: Output, _: Paint) -> Iterator[str]:
    yield from output["response"].splitlines()  # with the diff, made or proposed


def _search_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    for hit in output["results"]:
        place = f"{hit['path']}:{hit['start_line']}-{hit['end_line']}"
        yield f"{paint(place, 'bold')}  {hit['score']:.2f}"
        yield from _numbered_code_lines(hit["code"], hit["start_line"], paint)
        yield ""
    index = output["index"]
    files = f"index {index['state']}: {format_count(index['files'], 'file')}, {format_count(index['chunks'], 'chunk')}"
    changes = [f"{index[what]} {what}" for what in ("added", "removed") if index[what]]
    yield ", ".join([f"{format_count(len(output['results']), 'result')} · {files}", *changes])
    if why := index.get("error"):
        yield why


def _numbered_code_lines(code: str, first: int, paint: Paint) -> Iterator[str]:
    lines = code.splitlines()
    width = len(str(first + len(lines)))
    for number, line in enumerate(lines, first):
        yield f"  {paint(f'{number:>{width}}', 'dim')}  {line}".rstrip()


def _mode_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    """The verdict alone where a tool was asked about; the modes, with a mark at the current one, otherwise."""
    if output["allowed"] is not None:
        verdict, colour = ("allowed", "green") if output["allowed"] else ("not allowed", "red")
        yield f"{paint(verdict, colour)} in mode {output['current']}"
        return
    if not output["error"]:
        yield from table_lines(
            [
                (
                    "*" if mode["slug"] == output["current"] else "",
                    mode["slug"],
                    format_mode_groups(mode),
                    mode.get("when_to_use") or mode.get("description") or mode["name"],
                )
                for mode in output["modes"]
            ],
            paint=paint,
        )
    yield f"current mode: {output['current']}"


def format_mode_groups(mode: Mapping[str, Any]) -> str:
    """The groups of tools that a mode allows, each with the files that it is limited to."""
    groups: Sequence[Mapping[str, str]] = mode["groups"]
    return ", ".join(
        f"{group['name']} ({group['file_regex']})" if group.get("file_regex") else group["name"]
        for group in groups
    )


def _system_prompt_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield from output["text"].splitlines()
    yield ""
    changed = set(output["changed"])
    rows = [
        (s["name"], f"{s['tokens']:,}", s["why"], "changed" * (s["name"] in changed))
        for s in output["sections"]
    ]
    rows += [(name, "—", f"left out: {why}", "") for name, why in output["left_out"].items()]
    yield from table_lines(rows, ("section", "tokens", "why", ""), flexible=(2,), paint=paint)
    yield f"{output['source']} · {format_count(len(output['sections']), 'section')} · {output['tokens']:,} tokens"


def _context_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield paint("system", "bold")
    yield from _indent_lines(output["system"])
    yield from _message_lines(output["messages"], paint)
    yield ""
    yield paint("tools", "bold") + f"  {', '.join(tool['name'] for tool in output['tools']) or 'none'}"
    rows = [(f"  {file['path']}", file["status"], file["reason"]) for file in output["files"]]
    if rows:
        yield paint("files", "bold")
        yield from table_lines(rows, paint=paint)
    yield paint("tokens", "bold") + f"  {', '.join(f'{name} {n:,}' for name, n in output['tokens'].items())}"


def _message_lines(messages: Iterable[Mapping[str, Any]], paint: Paint) -> Iterator[str]:
    for message in messages:
        yield ""
        yield paint(message["role"], "bold")
        yield from _indent_lines(_content_text(message.get("content")))
        for call in message.get("tool_calls") or ():
            yield f"  calls {call['name']}"
            yield from _indent_lines("\n".join(json_to_readable_lines(call["args"])), "    ")


def _content_text(content: Any) -> str:
    """The text of a message's content; other parts are named."""
    if not isinstance(content, list):
        return str(content or "")
    parts = cast(list[Mapping[str, Any]], content)
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _indent_lines(text: str, by: str = "  ") -> Iterator[str]:
    return (f"{by}{line}".rstrip() for line in text.splitlines())


def _compress_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield from _message_lines(output["history"], paint)
    yield ""
    before, after = output["tokens_before"], output["tokens_after"]
    sizes = f"{before:,} tokens" if before == after else f"{before:,} → {after:,} tokens"
    yield f"{_COMPRESSED[output['status']]} · {sizes} · {format_count(len(output['history']), 'message')}"


_COMPRESSED = {
    "noop": "not compressed: below the threshold",
    "compressed": "compressed",
    "truncated": "truncated: only old tool outputs were shortened",
    "failed_empty": "failed: the model wrote no summary",
    "failed_inflated": "failed: the summary was longer than what it replaces",
}


def _next_speaker_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    next_one = {"model": "the model", "user": "the user"}.get(output["next_speaker"] or "", "undecided")
    yield f"{paint(next_one, 'bold')} ({output['decided_by']}): {output['reasoning']}"


def _route_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    took = format_duration(output["latency_ms"] / 1000)
    yield f"{paint(output['model'], 'bold')} ({output['strategy']}, {took}): {output['reasoning']}"


def _loop_check_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    if output["detected"]:
        where = f"at event {output['at_event']}, {format_count(output['count'], 'detection')}"
        yield f"{paint('loop', 'bold', 'red')} ({output['kind']}): {output['detail']} · {where}"
    else:
        yield "no loop"
    yield f"a model checks next at turn {output['next_check_turn']}, then every {output['interval']} turns"


def _summarize_result_lines(output: Output, paint: Paint) -> Iterator[str]:  # noqa: ARG001 - every one has this shape
    yield from output["text"].splitlines()
    if output["saved_to"]:
        yield f"{output['status']} · complete output: {output['saved_to']}"


def _tools_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    for response in output["responses"]:
        mark = _MARKS.get(response["status"], "✗")
        yield f"{mark} {paint(response['name'], 'bold')} [{response['id']}]"
        yield from _indent_lines(_content_text(response["content"]))
    if output["stop"]:
        yield f"stopped: {output['stop']}"


def _turn_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield from output["text"].splitlines()
    for call in output["tool_calls"]:
        yield f"calls {paint(call['name'], 'bold')}"
        yield from _indent_lines("\n".join(json_to_readable_lines(call["args"])))
    yield " · ".join(
        filter(None, [output["status"].replace("_", " "), output["model"], output["finish_reason"]])
    )


def _subagent_result_lines(output: Output, paint: Paint) -> Iterator[str]:  # noqa: ARG001
    yield from output["result"].splitlines()
    took = f"{format_count(output['turns'], 'turn')} · {format_duration(output['duration_s'])}"
    why = f": {output['reason']}" if output["reason"] and not output["error"] else ""
    yield f"{output['status'].replace('_', ' ')}{why} · {took}"


def _investigate_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    if report := output["report"]:
        yield from report["SummaryOfFindings"].splitlines()
        for place in report["RelevantLocations"]:
            yield ""
            yield f"{paint(place['FilePath'], 'bold')}  {', '.join(place['KeySymbols'])}".rstrip()
            yield from _indent_lines(place["Reasoning"])
        yield ""
        yield paint("explored", "bold")
        yield from (f"  - {step}" for step in report["ExplorationTrace"])
        return
    yield from (output["partial"] or "").splitlines()
    yield output["status"].replace("_", " ") + ("" if output["error"] else f": {output['reason']}")


def _init_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield from output["response"].splitlines()
    yield f"{paint(output['file'], 'bold')} · {output['status'].replace('_', ' ')}"


def _plan_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    yield from (f"{'✓' if step['done'] else '·'} {step['text']}" for step in output["steps"])
    facts = [output["status"], output["plan_file"]]
    facts += [f"carried out by run {output['main_run']}"] if output["main_run"] else []
    yield paint(" · ".join(filter(None, facts)), "bold")


def _mcp_result_lines(output: Output, paint: Paint) -> Iterator[str]:
    if output["content"] is not None:
        yield from output["content"].splitlines()
        return
    if not output["servers"] and not output["error"]:
        yield "No MCP servers are set up. See: interlock mcp --help"
    for server in output["servers"]:
        yield f"{paint(server['name'], 'bold')} · {server['status']}"
        yield from (
            f"  {line}"
            for line in json_to_readable_lines({k: v for k, v in server.items() if k not in _HEAD and v})
        )


_HEAD = ("name", "status")

RESULT_RENDERERS: Mapping[str, Callable[[Output, Paint], Iterator[str]]] = {
    "compress": _compress_result_lines,
    "context": _context_result_lines,
    "edit": _edit_result_lines,
    "init": _init_result_lines,
    "investigate": _investigate_result_lines,
    "loop-check": _loop_check_result_lines,
    "mcp": _mcp_result_lines,
    "mode": _mode_result_lines,
    "next-speaker": _next_speaker_result_lines,
    "plan": _plan_result_lines,
    "repair": _repair_result_lines,
    "route": _route_result_lines,
    "search": _search_result_lines,
    "subagent": _subagent_result_lines,
    "summarize": _summarize_result_lines,
    "system-prompt": _system_prompt_result_lines,
    "tools": _tools_result_lines,
    "turn": _turn_result_lines,
}
"""Workflow → how its output is drawn; that of `main` and `task` is their answer."""
