"""session_updates: a run's events as the protocol's session updates."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from interlock.engine.client.event_lines import agent_end_line, call_summary_line, event_notice_line
from interlock.state.events import (
    AgentEnd,
    AgentStart,
    ErrorEvent,
    Event,
    Finished,
    MessageEvent,
    Thought,
    ToolOutput,
    ToolResultEvent,
    ToolStart,
    ToolUse,
)
from interlock.state.task import parse_todo_steps
from interlock.state.text import find_truncated_diff_notice, make_visible
from interlock.tools.table import TOOLS

Update = dict[str, Any]
_KINDS = {
    "read": "read",
    "write": "edit",
    "execute": "execute",
    "network": "fetch",
    "question": "other",
    "state": "think",
}
_KIND_OF = {
    **dict.fromkeys(("glob", "grep_search", "search_files", "codebase_search"), "search"),
    **dict.fromkeys(("switch_mode", "enter_plan_mode", "exit_plan_mode"), "switch_mode"),
}
"""Of tools whose risk doesn't say it."""
_PATHS = ("file_path", "path", "dir_path")
_TODOS = ("write_todos", "update_todo_list")
_SHOWN_OUTPUT = 16_000
"""Characters of a running command's output: the newest. Each update brings all of them."""
_EXIT = re.compile(r"exit (\d+)$")
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@.*$", re.MULTILINE)


def message_chunk(kind: str, content: str) -> Update:
    """Return a piece of a message. `kind`: agent_message, agent_thought or user_message."""
    return {"sessionUpdate": f"{kind}_chunk", "content": {"type": "text", "text": content}}


class UpdateRenderer:
    """Updates of one session. Calls are named by run, agent and id, so that they differ in a session of many runs."""

    def __init__(self, workspace: Path, terminals: bool = False) -> None:
        """`terminals`: whether the client draws a command's output as a terminal, which is fed through `_meta`."""
        self.workspace, self._terminals = workspace, terminals
        self.run = ""
        self.announced_calls: set[str] = set()
        self.open_calls: set[str] = set()
        """Calls without an end."""
        self._args: dict[str, Mapping[str, Any]] = {}
        self._output: dict[str, str] = {}
        self._in_terminal: set[str] = set()
        self._streamed = False
        """Whether the answer came in pieces."""

    def make_tool_call_id(self, run: str, agent: str, call: str) -> str:
        return "/".join(filter(None, (run, agent, call)))

    def render_event(self, event: Event, replaying: bool) -> Iterator[Update]:
        """Yield an event's updates. `replaying`: what the person said is shown, too."""
        match event:
            case MessageEvent() if event.agent:
                return
            case MessageEvent(role="user"):
                if replaying:
                    yield message_chunk("user_message", event.content)
            case MessageEvent():
                if event.content and (event.delta or not self._streamed):
                    yield message_chunk("agent_message", event.content)
                self._streamed = event.delta
            case Thought() if not event.agent and event.content:
                yield message_chunk("agent_thought", event.content)
            case Finished() if not event.agent:
                self._streamed = False
            case ToolUse() | ToolStart() | ToolOutput() | ToolResultEvent():
                yield from self._render_call_event(event)
            case AgentStart():
                yield message_chunk("agent_thought", f"{event.name}: {event.task}\n")
            case AgentEnd():
                yield message_chunk("agent_thought", f"{event.agent}: {agent_end_line(event)}\n")
            case ErrorEvent():
                yield message_chunk("agent_thought", f"{make_visible(event.message)}\n")
            case _:
                if line := event_notice_line(event, verbose=False):
                    yield message_chunk("agent_thought", f"{line}\n")

    def record_open_call(self, call_id: str, tool: str, args: Mapping[str, Any], title: str) -> Update:
        """Record a call as open, and return the update that introduces it."""
        self.announced_calls.add(call_id)
        self.open_calls.add(call_id)
        self._args[call_id] = args
        terminal: Update = {}
        if self._terminals and tool_kind(tool) == "execute":
            self._in_terminal.add(call_id)
            info = {"terminal_id": call_id, "cwd": str(self.workspace)}
            terminal = {"content": [_terminal_content(call_id)], "_meta": {"terminal_info": info}}
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": call_id,
            "title": title,
            "kind": tool_kind(tool),
            "status": "pending",
            "rawInput": dict(args),
            "locations": self.call_locations(args),
            **terminal,
        }

    def record_call_end(self, call_id: str, succeeded: bool) -> Update:
        """Record a call as ended, and return the update that says so, where no event does."""
        self.open_calls.discard(call_id)
        return _call_update(call_id, status="completed" if succeeded else "failed")

    def _render_call_event(
        self, event: ToolUse | ToolStart | ToolOutput | ToolResultEvent
    ) -> Iterator[Update]:
        call_id = self.make_tool_call_id(self.run, event.agent, event.tool_id)
        if isinstance(event, ToolOutput):
            self._output[call_id] = (self._output.get(call_id, "") + event.text)[-_SHOWN_OUTPUT:]
            if call_id in self._in_terminal:
                yield _terminal_output_update(call_id, event.text)
            else:
                yield _call_update(call_id, content=[text_content(self._output[call_id])])
            return
        args = event.parameters if isinstance(event, ToolUse | ToolStart) else None
        if call_id not in self.announced_calls:
            yield self.record_open_call(call_id, event.tool_name, args or {}, call_summary_line(event))
        elif isinstance(event, ToolStart) and args is not None:
            self._args[call_id] = args
            more = {
                "rawInput": args,
                "locations": self.call_locations(args),
                "title": call_summary_line(event),
            }
            yield _call_update(call_id, **more)
        if isinstance(event, ToolStart):
            shows = {"content": [_terminal_content(call_id)]} if call_id in self._in_terminal else {}
            yield _call_update(call_id, status="in_progress", **shows)
        elif isinstance(event, ToolResultEvent):
            self.open_calls.discard(call_id)
            printed = self._output.pop(call_id, "")
            if call_id in self._in_terminal and not event.error:
                yield from _terminal_exit_updates(call_id, event, printed)
            else:
                yield self._result_update(call_id, event)
            if event.tool_name in _TODOS and event.status == "success":
                yield from _plan_updates_from_todos(self._args.get(call_id, {}))

    def _result_update(self, call_id: str, event: ToolResultEvent) -> Update:
        told = event.output or (event.error or {}).get("message", "") or event.exit
        failed = event.status != "success" or event.exit
        args = self._args.get(call_id, {})
        changed = [*diff_to_hunk_contents(event.diff, self.absolute_call_path(args))] if event.diff else []
        shown = changed or ([text_content(make_visible(told[-_SHOWN_OUTPUT:]))] if told else [])
        update = _call_update(call_id, status="failed" if failed else "completed", content=shown)
        if changed and (line := _HUNK.search(event.diff)):
            update["locations"] = [{"path": self.absolute_call_path(args), "line": max(int(line[2]), 1)}]
        return update

    def absolute_call_path(self, args: Mapping[str, Any]) -> str:
        """Return the absolute path that a call names; empty: none."""
        named = next((str(args[key]) for key in _PATHS if args.get(key)), "")
        return str(self.workspace / named) if named else ""

    def call_locations(self, args: Mapping[str, Any]) -> list[Update]:
        path, line = self.absolute_call_path(args), args.get("start_line")
        return [{"path": path, **({"line": line} if isinstance(line, int) else {})}] if path else []


def tool_kind(tool: str) -> str:
    return _KIND_OF.get(tool) or (_KINDS[TOOLS[tool].risk] if tool in TOOLS else "other")


def diff_to_hunk_contents(diff: str, path: str) -> Iterator[Update]:
    """Yield a unified diff as texts before and after, one pair a hunk; last, how much of it was cut."""
    starts = [*_HUNK.finditer(diff)]
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(diff)
        lines = [line for line in diff[start.end() + 1 : end].splitlines(keepends=True) if line[:1] != "\\"]
        old = "".join(line[1:] for line in lines if line[:1] in "- ")
        new = "".join(line[1:] for line in lines if line[:1] in "+ ")
        made = start[1] == "0"
        yield {"type": "diff", "path": path, "oldText": None if made else old, "newText": new}
    if cut := find_truncated_diff_notice(diff):
        yield text_content(cut)


def _plan_updates_from_todos(args: Mapping[str, Any]) -> Iterator[Update]:
    todos: Any = args.get("todos") or []
    steps: list[Mapping[str, Any]] = (
        [{**s} for s in parse_todo_steps(todos)] if isinstance(todos, str) else todos
    )
    entries = [
        {
            "content": str(step["description"]),
            "priority": "medium",
            "status": status if (status := step["status"]) in ("pending", "in_progress") else "completed",
        }
        for step in steps
    ]
    yield {"sessionUpdate": "plan", "entries": entries}


def _terminal_exit_updates(call_id: str, event: ToolResultEvent, streamed_output: str) -> Iterator[Update]:
    """Yield the end of a command that a terminal shows; one whose output wasn't followed is printed whole."""
    if not streamed_output and event.output:
        yield _terminal_output_update(call_id, event.output)
    code = 0 if not event.exit else int(found[1]) if (found := _EXIT.match(event.exit)) else None
    exit = {"terminal_id": call_id, "exit_code": code, "signal": event.exit if code is None else None}
    status = "failed" if event.exit or event.status != "success" else "completed"
    yield _call_update(
        call_id, status=status, content=[_terminal_content(call_id)], _meta={"terminal_exit": exit}
    )


def _terminal_output_update(call_id: str, output: str) -> Update:
    lines = make_visible(output).replace("\n", "\r\n")
    return _call_update(call_id, _meta={"terminal_output": {"terminal_id": call_id, "data": lines}})


def _terminal_content(call_id: str) -> Update:
    return {"type": "terminal", "terminalId": call_id}


def _call_update(call_id: str, **fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}


def text_content(text: str) -> Update:
    return {"type": "content", "content": {"type": "text", "text": text}}
