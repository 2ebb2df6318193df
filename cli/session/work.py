"""work: what a drive does right now: its calls, its sub-agents, how far it is; the lines that move."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.text import Text

from interlock.cli.render.output import amount, one_line
from interlock.cli.render.text import bar
from interlock.cli.render.tools import RunningCall, agent_end, call_summary
from interlock.cli.session import blocks
from interlock.state.events import (
    AgentEnd,
    AgentStart,
    Finished,
    NodeStart,
    Progress,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)

_FRAMES, _FRAME_S = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.1
_HEAD, _TAIL, _LIVE = 3, 5, 5
"""Lines of a call's output that stay: its first and its last ones; and those that are seen while it runs."""
_AT_WORK = {
    "compress": "compressing the conversation",
    "summarize": "shortening a long output",
    "context": "looking at the workspace",
    "loop_check": "checking for a loop",
    "next_speaker": "checking whether it is done",
    "route": "choosing a model",
}
"""Workflow → what is said of it while it works."""


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
class Work:
    """Of one drive, since a moment of the screen's clock."""

    since: float
    doing: str = ""
    """Empty: it thinks, or runs calls."""
    progress: str = ""
    tokens: int = 0
    _calls: dict[tuple[str, str], _Call] = field(default_factory=dict[tuple[str, str], _Call])
    _agents: dict[str, _Agent] = field(default_factory=dict[str, _Agent])

    def call(self, event: ToolUse | ToolStart | ToolOutput, now: float) -> None:
        """A call was asked for, runs, or printed something."""
        key = (event.agent, event.tool_id)
        if isinstance(event, ToolOutput):
            call = self._calls.setdefault(key, _new(event.agent, one_line(event.tool_id), now))
            call.started = True
            call.printed.feed(event.text)
            return
        call = self._calls[key] = _new(
            event.agent, blocks.commanded(event.tool_name, call_summary(event)), now
        )
        call.started = isinstance(event, ToolStart)
        if agent := self._agents.get(event.agent):
            agent.doing = one_line(event.summary or event.tool_name)
            agent.calls += call.started

    def ended(self, event: ToolResultEvent) -> RunningCall | None:
        """What the call printed; None: nothing is known of it."""
        call = self._calls.pop((event.agent, event.tool_id), None)
        if call:
            call.printed.end()
        return call.printed if call else None

    def agent(self, event: AgentStart, now: float) -> None:
        self._agents[event.agent] = _Agent(one_line(event.name), now, one_line(event.task))

    def agent_ended(self, event: AgentEnd) -> Text:
        agent = self._agents.pop(event.agent, None)
        calls = f"{_count(agent.calls, 'call')}, " if agent and agent.calls else ""
        return Text.assemble(
            ("▪ ", "accent"), agent.name if agent else event.agent, (f" · {calls}{agent_end(event)}", "dim")
        )

    def note(self, event: Finished | Progress | NodeStart) -> None:
        """What only moves the spinner."""
        if isinstance(event, Finished):
            self.tokens += event.usage.get("input", 0) + event.usage.get("output", 0)
            if agent := self._agents.get(event.agent):
                agent.turns += 1
        elif isinstance(event, Progress):
            self.progress = bar(event) if event.done < event.total else ""
        elif not event.agent:
            self.doing = _AT_WORK.get(event.workflow, self.doing if event.workflow == "turn" else "")
            self.progress = ""

    def lines(self, width: int, height: int, now: float) -> Iterator[Text]:
        """The calls that run, each with its last output, and the sub-agents."""
        running = [call for call in self._calls.values() if call.started and not call.agent]
        each = min(_LIVE, max(0, (height - 2) // max(len(running), 1) - 1))
        for call in running:
            yield from blocks.running(call.printed, width, now - call.since, each)
        for agent in [*self._agents.values()][-max(height // 3, 1) :]:
            turns = f" · {_count(agent.turns, 'turn')}" if agent.turns else ""
            facts = f"{turns} · {blocks.since(now - agent.since)}"
            room = max(width - len(facts), 10)
            text = blocks.clipped(Text.assemble((f"▸ {agent.name}", "accent"), f" {agent.doing}"), room)
            yield blocks.clipped(text.append(facts, "dim"), width)

    def spinner(self, width: int, now: float) -> Text:
        running = sum(call.started for call in self._calls.values())
        doing = self.doing or (f"running {_count(running, 'call')}" if running else "thinking")
        facts = [blocks.since(now - self.since)] if now - self.since >= 1 else []
        facts += [f"{amount(self.tokens)} tokens"] if self.tokens else []
        frame = _FRAMES[int(now / _FRAME_S) % len(_FRAMES)]
        tail = "".join(f" · {fact}" for fact in facts)
        return blocks.clipped(Text.assemble((frame, "accent"), f" {doing}", (tail, "dim")), width)


def _new(agent: str, summary: str, now: float) -> _Call:
    return _Call(RunningCall(summary, _HEAD, _TAIL), agent, now)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
