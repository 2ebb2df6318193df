"""blocks: what the session shows besides answers: prompts, calls, diffs, steps, endings, and live progress."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.cells import set_cell_size
from rich.text import Text

from interlock.cli.render.live_calls import ProgressBar, RunningCall, call_mark_and_colour
from interlock.cli.render.output import (
    format_compact_number,
    format_count,
    format_duration,
    strip_codes_and_overwritten_text,
    to_one_line,
)
from interlock.cli.session.markdown_layout import fold_line, wrap_with_hanging_indent
from interlock.cli.session.session_wording import reword_for_session
from interlock.engine.client.event_lines import agent_end_line, call_result_facts, call_summary_line
from interlock.state.errors import ENDED_WELL
from interlock.state.events import (
    AgentEnd,
    AgentStart,
    Asking,
    Finished,
    NodeStart,
    Progress,
    Result,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)
from interlock.state.task import parse_todo_steps
from interlock.state.text import sanitize_for_terminal

if TYPE_CHECKING:
    from interlock.cli.render.word_diff import DiffLine

PROMPT_LINES = 20
DIFF_LINES = 40
_MARKS = {"completed": ("✓", "good"), "in_progress": ("▸", "accent"), "cancelled": ("–", "dim")}
_STYLES = {"green": "good", "red": "bad", "yellow": "warn"}

_WHY = 6
"""Lines of an error to show; the record has all of it."""
_RUNNING = 24
"""Columns of a running call in the status line."""
_SHELLS = ("run_shell_command", "execute_command")

Todo = Mapping[str, Any]


def clip_to_width(text: Text, width: int) -> Text:
    """Cut the text to one line of at most `width` cells."""
    if text.cell_len > width:
        kept = set_cell_size(text.plain, max(width - 1, 0)).rstrip()
        text = text[: len(kept)] if text.plain.startswith(kept) else text[: max(len(kept) - 1, 0)]
        text.append("…")
    return text


def prompt_lines(text: str, width: int, limit: int = PROMPT_LINES) -> Iterator[Text]:
    """The user's prompt; only the beginning of a long paste."""
    lines = sanitize_for_terminal(text).strip("\n").split("\n")
    for number, line in enumerate(lines[:limit]):
        yield from wrap_with_hanging_indent(
            Text.assemble(("❯ " if number == 0 else "  ", "prompt"), (line, "strong")), width
        )
    if len(lines) > limit:
        yield Text(f"  … {len(lines) - limit:,} more lines", "dim")


def call_result_lines(event: ToolResultEvent, output: RunningCall | None, width: int) -> Iterator[Text]:
    """One line for the call, its output folded below; an error that doesn't fit gets lines of its own."""
    mark, colour = call_mark_and_colour(event)
    facts = [*call_result_facts(event)]
    why = facts.pop(0) if event.status == "error" else ""
    what = Text.assemble(
        (mark, _STYLES[colour]), " ", prefix_if_shell_command(event.tool_name, call_summary_line(event))
    )
    short = Text.assemble((" · ", "dim"), (why, "bad")) if why else Text()
    details = Text("".join(f" · {fact}" for fact in facts), "dim")
    fits = what.cell_len + short.cell_len + details.cell_len <= width
    after = Text.assemble(short, details) if fits else details
    yield Text.assemble(clip_to_width(what, max(width - after.cell_len, width // 3)), after)
    if why and not fits:
        yield from islice(wrap_with_hanging_indent(Text(f"  {why}", "bad"), width), _WHY)
    if output:
        yield from _printed_output_lines(output, event.tool_id)


def prefix_if_shell_command(tool: str, summary: str) -> str:
    """The summary, with `$ ` before a shell command."""
    return f"$ {summary}" if tool in _SHELLS else summary


def _printed_output_lines(output: RunningCall, call_id: str) -> Iterator[Text]:
    for line in output.head:
        yield _output_line(line)
    if output.hidden_line_count > 0:
        yield Text(
            f"  │ … {format_count(output.hidden_line_count, 'line')}: /show --call {to_one_line(call_id)}",
            "dim",
        )
    for line in output.tail:
        yield _output_line(line)


def _output_line(line: str) -> Text:
    return Text(f"  │ {strip_codes_and_overwritten_text(line)}", "dim")


def _running_call_lines(
    call: RunningCall, width: int, seconds: float, max_output_lines: int
) -> Iterator[Text]:
    """A call in flight, with the last lines of its output."""
    count = f" · {call.lines:,} lines" if call.lines > max_output_lines else ""
    facts = Text(count + (f" · {format_elapsed(seconds)}" if seconds >= 1 else ""), "dim")
    what = clip_to_width(Text(call.summary), max(width - 2 - facts.cell_len, 8))
    yield clip_to_width(Text.assemble(("● ", "accent"), what, facts), width)
    seen = [*call.head, *call.tail, *([call.partial] if call.partial.strip() else [])]
    for line in seen[-max_output_lines:] if max_output_lines else ():
        text = _output_line(line)
        text.expand_tabs(4)
        yield clip_to_width(text, width)


def format_elapsed(seconds: float) -> str:
    """A running clock, in whole seconds."""
    return f"{int(seconds)} s" if seconds < 100 else format_duration(seconds)


def diff_lines(text: str, width: int, limit: int | None = DIFF_LINES) -> list[Text]:
    """A unified diff with line numbers, folded at `width`; `limit`: at most so many of its lines."""
    parts = diff_line_parts(text, width)
    shown = [line for part in parts[:limit] for line in part]
    if limit is not None and len(parts) > limit:
        shown.append(Text(f"  … {format_count(len(parts) - limit, 'more line')}", "dim"))
    return shown


def diff_line_parts(text: str, width: int) -> list[list[Text]]:
    """A unified diff with line numbers: for each of its lines the one or more lines that it takes at `width`."""
    from interlock.cli.render.word_diff import parse_diff

    lines = [line for line in parse_diff(text) if line.kind != "file" or line.text.startswith("+++ ")]
    if sum(line.kind == "file" for line in lines) == 1:
        lines = [line for line in lines if line.kind != "file"]  # the call names the file
    hunks = [line for line in lines if line.kind == "hunk"]
    lines = [line for line in lines if not hunks or line is not hunks[0]]
    wide = max((len(str(line.number)) for line in lines if line.number), default=0)
    return [[*_fold_diff_line(_diff_line_text(line, wide), width, wide + 5)] for line in lines]


def _fold_diff_line(line: Text, width: int, gutter: int) -> Iterator[Text]:
    """A long line goes on below its text, not below its number."""
    line.expand_tabs(4)
    yield line[:gutter].append_text((parts := fold_line(line[gutter:], max(width - gutter, 10)))[0])
    yield from (Text(" " * gutter).append_text(part) for part in parts[1:])


def _diff_line_text(line: "DiffLine", number_width: int) -> Text:
    if line.kind == "hunk":
        return Text(" " * number_width + "   ⋯", "hunk")
    if line.kind in ("file", "note"):
        return Text(line.text.removeprefix("+++ b/"), "strong" if line.kind == "file" else "dim")
    sign = {"removed": "-", "added": "+"}.get(line.kind, " ")
    style = line.kind if line.kind != "same" else ""
    text = Text.assemble((f"  {line.number:>{number_width}} ", "dim"), (f"{sign} ", style))
    for piece, changed in line.pieces:
        text.append(piece, f"{line.kind}.word" if changed else style)
    return text


def todos_in_call(event: ToolUse) -> Sequence[Todo] | None:
    """The steps that a call writes down; None if it writes none."""
    todos = event.parameters.get("todos")
    if event.tool_name == "update_todo_list" and isinstance(todos, str):
        return parse_todo_steps(todos)
    if event.tool_name == "write_todos" and isinstance(todos, list):
        return [todo for todo in todos if isinstance(todo, dict)]
    return None


def todo_lines(todos: Sequence[Todo], limit: int) -> list[Text]:
    """The steps; of a long list, those around the active one."""
    done = sum(todo.get("status") == "completed" for todo in todos)
    active = next((n for n, todo in enumerate(todos) if todo.get("status") == "in_progress"), done)
    first = max(0, min(active - limit // 3, len(todos) - limit + 1)) if len(todos) >= limit else 0
    lines = [Text(f"Steps · {done} of {len(todos)} done", "dim")]
    for todo in todos[first : first + limit - 1]:
        status = str(todo.get("status", ""))
        mark, style = _MARKS.get(status, ("○", "dim"))
        words = {"completed": "dim", "cancelled": "dim strike", "in_progress": "strong"}.get(status, "")
        lines.append(
            Text.assemble("  ", (mark, style), " ", (to_one_line(str(todo.get("description", ""))), words))
        )
    return lines


def failure_or_cancellation_lines(event: Result, tokens: int) -> Iterator[Text]:
    """How a drive ended, if it didn't end well."""
    if event.status in ENDED_WELL or event.status == "waiting":
        return
    told = str((event.error or {}).get("message", ""))
    message = to_one_line(reword_for_session(told))
    kind = str((event.error or {}).get("type", ""))
    facts = [*_usage_facts(event.stats, tokens)]
    if event.status == "cancelled":
        yield Text.assemble(("– Cancelled", "warn"), (" · " + " · ".join(facts) if facts else "", "dim"))
    else:
        about = message or f"the run stopped: {event.status.replace('_', ' ')}"
        if kind == "refused":
            yield Text.assemble(("– ", "warn"), about)
        else:
            yield Text.assemble(("✗ ", "bad"), (f"{about} ({kind})" if kind else about, "bad"))
        if facts:
            yield Text("  " + " · ".join(facts), "dim")
    if event.resume_command and event.resume_command not in told and event.status != "cancelled":
        yield Text(f"  Go on with a prompt here, or later with: {event.resume_command}", "dim")


_LONG_S = 1.0
"""Seconds from which the end of a turn says how long it took."""


def duration_lines(seconds: float) -> Iterator[Text]:
    """How long a turn took that ended well."""
    if seconds >= _LONG_S:
        yield Text(f"Took {format_duration(seconds)}", "dim")


def _usage_facts(stats: Mapping[str, Any], tokens: int) -> Iterator[str]:
    total = int(stats.get("total_tokens") or tokens)
    if total:
        yield f"{format_compact_number(total)} tokens"
    if (usd := stats.get("usd")) is not None:
        yield f"${usd:.4f}"
    if ms := stats.get("elapsed_ms"):
        yield format_duration(ms / 1000)


def thought_headline(thought: str) -> str:
    """A thought's title, else its first sentence."""
    text = to_one_line(sanitize_for_terminal(thought))
    if text.startswith("**") and "**" in text[2:]:
        return text[2:].partition("**")[0].strip()
    first = next((line for line in sanitize_for_terminal(thought).splitlines() if line.strip()), "")
    return to_one_line(first.strip("*# "), 100)


_FRAMES, _FRAME_S = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.1
_HEAD, _TAIL, _LIVE = 3, 5, 5
"""Lines of a call's output kept from its start and end, and lines shown while it runs."""
_AT_WORK = {
    "compress": "compressing the conversation",
    "summarize": "shortening a long output",
    "context": "looking at the workspace",
    "loop_check": "checking for a loop",
    "next_speaker": "checking whether it is done",
    "route": "choosing a model",
}
"""Workflow → what the spinner says while it runs."""


@dataclass
class _Call:
    printed: RunningCall
    agent: str
    since: float
    started: bool = False


@dataclass
class _Agent:
    name: str
    since: float
    doing: str
    turns: int = 0
    calls: int = 0


@dataclass
class DriveProgress:
    """One drive's progress, since a moment of the screen's clock."""

    since: float
    doing: str = ""
    """Empty: it thinks, or runs calls."""
    bar: ProgressBar = field(default_factory=ProgressBar)
    tokens: int = 0
    _calls: dict[tuple[str, str], _Call] = field(default_factory=dict[tuple[str, str], _Call])
    _agents: dict[str, _Agent] = field(default_factory=dict[str, _Agent])

    def record_call_event(self, event: ToolUse | ToolStart | ToolOutput, now: float) -> None:
        """Record that a call was requested, started, or printed something."""
        key = (event.agent, event.tool_id)
        if isinstance(event, ToolOutput):
            call = self._calls.setdefault(key, _make_call(event.agent, to_one_line(event.tool_id), now))
            call.started = True
            call.printed.add_output(event.text)
            return
        call = self._calls[key] = _make_call(
            event.agent, prefix_if_shell_command(event.tool_name, call_summary_line(event)), now
        )
        call.started = isinstance(event, ToolStart)
        if agent := self._agents.get(event.agent):
            agent.doing = to_one_line(event.summary or event.tool_name)
            agent.calls += call.started

    def end_call(self, event: ToolResultEvent) -> RunningCall | None:
        """Remove the call; returns its output, None if the call is unknown."""
        call = self._calls.pop((event.agent, event.tool_id), None)
        if call:
            call.printed.finish_partial_line()
        return call.printed if call else None

    def record_agent_start(self, event: AgentStart, now: float) -> None:
        self._agents[event.agent] = _Agent(to_one_line(event.name), now, to_one_line(event.task))

    def end_agent_and_describe(self, event: AgentEnd) -> Text:
        agent = self._agents.pop(event.agent, None)
        calls = f"{format_count(agent.calls, 'call')}, " if agent and agent.calls else ""
        return Text.assemble(
            ("▪ ", "accent"),
            agent.name if agent else event.agent,
            (f" · {calls}{agent_end_line(event)}", "dim"),
        )

    def update_spinner(self, event: Asking | Finished | Progress | NodeStart) -> None:
        """Take in an event that only moves the spinner."""
        if not isinstance(event, Asking):
            self.bar.update(event)
        if isinstance(event, Asking):
            self.doing = "" if event.agent else describe_model_stage(event)
        elif isinstance(event, Finished):
            self.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
            if agent := self._agents.get(event.agent):
                agent.turns += 1
        elif isinstance(event, NodeStart) and not event.agent:
            self.doing = _AT_WORK.get(event.workflow, self.doing if event.workflow == "turn" else "")

    def live_lines(self, width: int, height: int, now: float) -> Iterator[Text]:
        """The running calls, each with its latest output, and the sub-agents."""
        running = [call for call in self._calls.values() if call.started and not call.agent]
        each = min(_LIVE, max(0, (height - 2) // max(len(running), 1) - 1))
        for call in running:
            yield from _running_call_lines(call.printed, width, now - call.since, each)
        for agent in [*self._agents.values()][-max(height // 3, 1) :]:
            turns = f" · {format_count(agent.turns, 'turn')}" if agent.turns else ""
            facts = f"{turns} · {format_elapsed(now - agent.since)}"
            room = max(width - len(facts), 10)
            text = clip_to_width(Text.assemble((f"▸ {agent.name}", "accent"), f" {agent.doing}"), room)
            yield clip_to_width(text.append(facts, "dim"), width)

    def newest_call_text(self, now: float) -> str:
        """The newest running call and its time; empty: none."""
        calls = [call for call in self._calls.values() if call.started]
        if not calls:
            return ""
        what = clip_to_width(Text(to_one_line(calls[-1].printed.summary)), _RUNNING).plain
        return f"{what} {format_elapsed(now - calls[-1].since)}"

    def spinner_line(self, width: int, now: float) -> Text:
        running = sum(call.started for call in self._calls.values())
        doing = self.doing or (f"running {format_count(running, 'call')}" if running else "thinking")
        facts = [format_elapsed(now - self.since)] if now - self.since >= 1 else []
        facts += [f"{format_compact_number(self.tokens)} tokens"] if self.tokens else []
        facts.append("Esc stops")
        frame = _FRAMES[int(now / _FRAME_S) % len(_FRAMES)]
        tail = "".join(f" · {fact}" for fact in facts)
        return clip_to_width(Text.assemble((frame, "accent"), f" {doing}", (tail, "dim")), width)


def describe_model_stage(event: Asking) -> str:
    """What a model does before its first word."""
    model = to_one_line(event.model.rpartition("/")[2], 40)
    size = f"{format_compact_number(event.tokens)} tokens"
    texts = {
        "connecting": f"connecting to {model}",
        "reading": f"{model} is reading {size}",
        "thinking": f"{model} is thinking",
    }
    return texts[event.stage]


def _make_call(agent: str, summary: str, now: float) -> _Call:
    return _Call(RunningCall(summary, _HEAD, _TAIL), agent, now)
