"""summarize: save a long tool output to a file, and summarise or truncate it."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import ask_for_text_record
from interlock.nodes.tools_results import CALL, require_recorded_result
from interlock.prompts import load_prompt
from interlock.state.calls import call_key_from_state
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.settings import OutputRule, Settings
from interlock.state.summarize import HEAD_SHARE, PAGED, SummarizeState, output_rule, should_shorten_output
from interlock.state.text import estimate_tokens, replace_surrogates
from interlock.state.tooling import SHELL

_TIMEOUT_S = 60.0
_ATTEMPTS = 2
_SENT_CHARS = 400_000
"""Characters of an output sent to the helper; longer ones are cut to head and tail."""
_MESSAGES, _MESSAGE_CHARS = 10, 1_000
"""How many of the newest messages it gets, and how many characters of each."""
_CHARS_PER_TOKEN = 4
_OUTPUT = (*CALL, "tool", "source", "head", "max_output_tokens")
"""Keys that identify the output."""


@dataclass(frozen=True)
class LongOutput:
    """One output and how to shorten it."""

    tool: str
    text: str
    rule: OutputRule
    context: str
    """Head of the conversation; empty: none."""
    saved_path: str
    """File with the complete output, saved by the tool itself; empty: the tool didn't have to."""


_READ_LIMIT = 20 * 1024 * 1024
"""Maximum size of a file for read_file, in bytes."""
_PYTHON = re.compile(r"\s*(?:[+|]\s*)*(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(
    r"\s+at \S.*|\s+from \S+:\d+:in .*|#\d+\s+(?:0x[0-9a-f]+ in )?\S+ \(.*"
    r"|\s*(?:Caused by: .*|Suppressed: .*|\.\.\. \d+ (?:more|common frames omitted))"
)
"""Java, JavaScript, .NET; Ruby; gdb and sanitizers. The line before the first frame describes the error."""
_RUST = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at ")
_RUST_FRAME = re.compile(r"stack backtrace:|\s+\d+: .*|\s+at \S.*")
_GO = re.compile(r"(?:panic: |fatal error: |goroutine \d+ \[)")
_WARNING = re.compile(r"warn(?:ing)?s?\b", re.IGNORECASE)
_STATUS = re.compile(r"(?:Exit Code|Signal): \S+")
"""How the shell tool reports a failed command."""


@node(
    reads=_OUTPUT,
    writes=("saved_to", "shortened", "summarize_status"),
    labels=("long", "short"),
    nondeterministic=True,
)
async def measure(state: SummarizeState, runtime: Runtime[Deps]) -> SummarizeState:
    source = load_long_output(state, runtime.context)
    long = should_shorten_output(runtime.context.settings, source.rule, source.text)
    return {
        "label": "long" if long else "short",
        "saved_to": "",
        "shortened": "",
        "summarize_status": "unchanged",
    }


@node(reads=_OUTPUT, writes=("saved_to",), labels=("summarize", "truncate"), nondeterministic=True)
async def save(state: SummarizeState, runtime: Runtime[Deps]) -> SummarizeState:
    """An output cut by the tool's own limit is already saved."""
    source = load_long_output(state, runtime.context)
    path = source.saved_path
    if not path:
        data = replace_surrogates(source.text).encode()
        path = str(await asyncio.to_thread(runtime.context.outputs.save_bytes, data))
    return {"saved_to": path, "label": source.rule.how}


@node(reads=_OUTPUT, writes=("summary",))
async def summarize(state: SummarizeState, runtime: Runtime[Deps]) -> SummarizeState:
    source = load_long_output(state, runtime.context)
    system = Message(role="system", content=load_prompt("summarize/system").render())
    messages = [
        system,
        Message(role="user", origin="nudge", content=_summary_prompt(source, runtime.context)),
    ]
    summary = await ask_for_text_record(
        runtime, "summarizer", messages, source.context, _TIMEOUT_S, _ATTEMPTS
    )
    return {"summary": summary}


def _summary_prompt(source: LongOutput, deps: Deps) -> str:
    output = source.text
    if len(output) > _SENT_CHARS:
        output = "\n[…]\n".join(head_and_tail(output, _SENT_CHARS))
    return load_prompt("summarize/output").render(
        tool=source.tool,
        conversation=_recent_conversation_text(source.context, deps) or "(none)",
        output=output,
        budget=str(source.rule.token_budget),
    )


def _recent_conversation_text(head: str, deps: Deps) -> str:
    """The person's last request and the newest messages as text, since their calls are still open."""
    history = deps.transcript.read(head) if head else []
    messages = [m for m in history if m.role != "system" and m.origin != "context"]
    asked = [m for m in messages[:-_MESSAGES] if m.role == "user"][-1:]
    return "\n".join(_format_message_line(m) for m in [*asked, *messages[-_MESSAGES:]])


def _format_message_line(message: Message) -> str:
    calls = "".join(f" [calls {call.name} {call.args}]" for call in message.tool_calls)
    return f"{message.role}: {message.text}{calls}"[:_MESSAGE_CHARS]


@node(
    reads=(*_OUTPUT, "summary", "saved_to"),
    writes=("shortened", "summarize_status"),
    labels=("good", "failed"),
)
async def check_summary(state: SummarizeState, runtime: Runtime[Deps]) -> SummarizeState:
    transcript = runtime.context.transcript
    if not state["summary"]:
        return {"label": "failed"}
    source = load_long_output(state, runtime.context)
    summary = transcript.read_message(state["summary"]).text
    text = build_summary_with_diagnostics(source.tool, summary, source.text, state["saved_to"])
    if estimate_tokens(text) >= estimate_tokens(source.text):
        return {"label": "failed"}
    record = transcript.append("", [Message(role="tool", name=source.tool, content=text)])
    return {"label": "good", "shortened": record, "summarize_status": "summarized"}


@node(reads=(*_OUTPUT, "saved_to"), writes=("shortened", "summarize_status"), nondeterministic=True)
async def truncate(state: SummarizeState, runtime: Runtime[Deps]) -> SummarizeState:
    """At most 40,000 characters; in place of a summary, no more than the summary's budget."""
    deps = runtime.context
    source = load_long_output(state, deps)
    limit = deps.settings.tools.truncate_at
    if source.rule.how == "summarize":
        limit = min(limit, source.rule.token_budget * _CHARS_PER_TOKEN)
    text = build_truncation_with_diagnostics(source.tool, source.text, limit, state["saved_to"])
    record = deps.transcript.append("", [Message(role="tool", name=source.tool, content=text)])
    return {"shortened": record, "summarize_status": "truncated"}


def rule_for_standalone_output(settings: Settings, tool: str, max_output_tokens: int) -> OutputRule:
    """For an output passed in to be shortened: only what no setting can change is left whole."""
    rule = output_rule(settings, tool)
    if tool in PAGED or rule.how == "truncate":
        return rule
    return OutputRule(how="summarize", tokenBudget=max_output_tokens)


def load_long_output(state: SummarizeState, deps: Deps) -> LongOutput:
    if not state.get("message"):
        text = deps.transcript.read_message(state["source"]).text
        rule = rule_for_standalone_output(deps.settings, state["tool"], state["max_output_tokens"])
        return LongOutput(state["tool"], text, rule, state.get("head", ""), "")
    key = call_key_from_state(state)
    call, result = deps.journal.read_call(key), require_recorded_result(deps.journal, key)
    kept = result.meta.get("full_output")
    rule = output_rule(deps.settings, call.name)
    return LongOutput(
        call.name, result.content, rule, state["message"], kept if isinstance(kept, str) else ""
    )


def head_and_tail(text: str, limit: int) -> tuple[str, str]:
    """The first 20 % and last 80 % of `limit` characters."""
    head = int(limit * HEAD_SHARE)
    return text[:head], text[len(text) - (limit - head) :]


def build_truncation_with_diagnostics(tool: str, text: str, limit: int, path: str) -> str:
    """Head and tail around a line naming the file, followed by the traces and warnings cut out between."""
    if len(text) <= limit:
        return f"{text}\n[All of it is in {path}.]"
    head, tail = head_and_tail(text, limit)
    cut = load_prompt("summarize/truncated").render(
        head=head, omitted=f"{len(text) - limit:,}", path=path, how=reading_hint(path), tail=tail
    )
    return append_omitted_diagnostics(tool, cut, text, limit)


def build_summary_with_diagnostics(tool: str, summary: str, text: str, path: str) -> str:
    """The model's summary plus any stack traces and warnings it omitted."""
    whole = load_prompt("summarize/summarized").render(
        characters=f"{len(text):,}", path=path, how=reading_hint(path), summary=summary.strip()
    )
    return append_omitted_diagnostics(tool, whole, text, len(text))


def append_omitted_diagnostics(tool: str, shortened: str, text: str, limit: int) -> str:
    """`shortened` plus the stack traces, warnings and exit code of `text` it lacks, up to `limit` characters."""
    if tool not in SHELL:
        return shortened
    found = extract_stack_traces(text)
    room = limit
    for tag, wanted in (("error", found), ("warning", extract_warning_lines(text, found))):
        block: list[str] = []
        for item in find_missing_texts(wanted, shortened):
            room -= len(item)
            block += [item] if room >= 0 else []
        if block:
            shortened += f"\n<{tag}>\n" + "\n".join(block) + f"\n</{tag}>"
    return "\n".join([shortened, *find_missing_texts(extract_exit_status_lines(text), shortened)])


def reading_hint(path: str) -> str:
    """A hint that works for the file's size."""
    try:
        large = Path(path).stat().st_size > _READ_LIMIT
    except OSError:  # deleted meanwhile: reading it will fail with a message
        large = False
    return "search it with grep_search" if large else "read it with read_file"


def extract_stack_traces(text: str) -> list[str]:
    """Every distinct stack trace, verbatim, in order."""
    lines = text.splitlines()
    found: list[str] = []
    at = 0
    while at < len(lines):
        end = _trace_end_index(lines, at)
        if end > at:
            found.append("\n".join(lines[at:end]))
        at = max(end, at + 1)
    return list(dict.fromkeys(found))


def extract_warning_lines(text: str, traces: Sequence[str] = ()) -> list[str]:
    """Every distinct warning line that is in none of the traces in `traces`."""
    known = {line for block in traces for line in block.splitlines()}
    lines = (line for line in text.splitlines() if _WARNING.search(line) and line not in known)
    return list(dict.fromkeys(lines))


def extract_exit_status_lines(text: str) -> list[str]:
    """The tool's final lines on how the command ended."""
    return [line for line in text.splitlines()[-3:] if _STATUS.fullmatch(line)]


def find_missing_texts(wanted: Iterable[str], text: str) -> list[str]:
    """Those with any line not in `text`, ignoring indentation."""
    there = {line.strip() for line in text.splitlines()}
    return [block for block in wanted if any(line.strip() not in there for line in block.splitlines())]


def _trace_end_index(lines: Sequence[str], start: int) -> int:
    """Index after the trace that starts at `start`; `start` itself if none does."""
    if _PYTHON.match(lines[start]):
        return _python_trace_end_index(lines, start)
    if _GO.match(lines[start]):
        return next(
            (
                i
                for i in range(start + 1, len(lines))
                if not lines[i].strip() and not _is_followed_by_goroutine(lines, i)
            ),
            len(lines),
        )
    if _RUST.match(lines[start]):
        return _index_after_matching_lines(_RUST_FRAME, lines, min(start + 2, len(lines)))
    end = _index_after_matching_lines(_FRAME, lines, start + 1)
    return end if end > start + 1 else start


def _index_after_matching_lines(pattern: re.Pattern[str], lines: Sequence[str], start: int) -> int:
    """Index of the first line from `start` on that doesn't match."""
    return next((i for i in range(start, len(lines)) if not pattern.fullmatch(lines[i])), len(lines))


def _python_trace_end_index(lines: Sequence[str], start: int) -> int:
    """Frames are indented deeper than the first line; the exception has the first line's indentation."""
    depth = len(lines[start]) - len(lines[start].lstrip(" |+"))
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if line.strip(" |") and len(line) - len(line.lstrip(" |+")) <= depth:
            return index + 1
    return len(lines)


def _is_followed_by_goroutine(lines: Sequence[str], blank_index: int) -> bool:
    """Go separates goroutines with an empty line."""
    return blank_index + 1 < len(lines) and _GO.match(lines[blank_index + 1]) is not None
