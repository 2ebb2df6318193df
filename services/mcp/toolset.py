"""toolset: the tools of MCP servers among all others."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from interlock.services.mcp.declared import ServerTool
from interlock.services.mcp.servers import Servers
from interlock.services.toolset import nearest_names, unexpected
from interlock.state.calls import CallView, Planned, Preview, ToolResult
from interlock.state.events import ToolOutput
from interlock.state.messages import ToolDeclaration
from interlock.state.text import clean, visible, visible_json
from interlock.state.tooling import FileNow, ToolInfo, ToolRun, Toolset

_SHOWN = 60
_SUMMARY = 160


class JoinedToolset:
    """Implements `Toolset`: what `others` has, and the tools of servers that are connected."""

    def __init__(self, others: Toolset, servers: Servers, counts: Callable[[str], bool]) -> None:
        """`counts`: whether a tool of a server is among them."""
        self._others, self._servers, self._counts = others, servers, counts
        self._seen: set[str] = set()
        """Names that once were tools: a call of one that is gone meanwhile gets an answer."""

    def declarations(self) -> list[ToolDeclaration]:
        tools = self._tools()
        self._seen.update(tools)
        return self._others.declarations() + [
            ToolDeclaration(name=t.name, description=t.description, parameters=t.parameters)
            for t in tools.values()
        ]

    def _tools(self) -> dict[str, ServerTool]:
        return {name: tool for name, tool in self._servers.tools().items() if self._counts(name)}

    def info(self, name: str) -> ToolInfo | None:
        server = self._servers.owner(name)
        if server is None or not self._counts(name):
            return self._others.info(name)
        tool = self._servers.tools().get(name)
        if tool is None:
            # Not connected yet, or its tool is gone: what isn't known is the worst.
            known = name in self._seen or not self._servers.is_connected(server)
            return ToolInfo(name=name, risk="execute", alone=True, effect="other") if known else None
        repeatable = tool.read_only or tool.idempotent
        return ToolInfo(
            name=name,
            risk="read" if tool.read_only else "execute",
            alone=not tool.read_only,
            effect="none" if repeatable else "other",
        )

    def nearest(self, name: str) -> list[str]:
        found = nearest_names(name, self._tools())
        return nearest_names(name, [*self._others.nearest(name), *found])

    def invalid(self, call: CallView) -> str | None:
        if self._servers.owner(call.name) is None:
            return self._others.invalid(call)
        tool = self._servers.tools().get(call.name)
        return None if tool is None else _misfit(tool, call)

    def writes(self, call: CallView) -> list[str] | None:
        return None if self._servers.owner(call.name) else self._others.writes(call)

    def summary(self, call: CallView) -> str:
        server = self._servers.owner(call.name)
        if server is None:
            return self._others.summary(call)
        tool = self._servers.tools().get(call.name)
        name = tool.original if tool else call.name.removeprefix(f"mcp_{server}_")
        text = f"{server}: {visible(name)}" + (f" {visible_json(call.args)}" if call.args else "")
        return text if len(text) <= _SUMMARY else text[: _SUMMARY - 1] + "…"

    async def preview(self, call: CallView, earlier: Sequence[CallView]) -> Preview:
        server = self._servers.owner(call.name)
        if server is None:
            return await self._others.preview(call, earlier)
        args = visible_json(call.args, indent=2)
        return Preview(text=f"{self.summary(call.model_copy(update={'args': {}}))}\n{args}")

    async def file(self, call: CallView, earlier: Sequence[CallView]) -> FileNow | ToolResult:
        return await self._others.file(call, earlier)

    async def plan(self, call: CallView, run: ToolRun | None = None) -> Planned | ToolResult:
        return await self._others.plan(call, run)

    async def run(self, run: ToolRun) -> ToolResult:
        server = self._servers.owner(run.call.name)
        if server is None:
            return await self._others.run(run)

        def progress(line: str) -> None:
            run.emit(ToolOutput(tool_id=run.call.id, text=f"{line}\n"))

        try:
            return await self._servers.call(server, run, progress)
        except Exception as error:
            return unexpected(run.call.name, error)

    def now(self, planned_path: str) -> str | None:
        return self._others.now(planned_path)


def _misfit(tool: ServerTool, call: CallView) -> str | None:
    """The first argument that isn't what the server's schema says."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(tool.parameters)  # its overloads aren't fully typed
    error = next(iter(validator.iter_errors(call.args)), None)
    if error is None:
        return None
    place = ".".join(map(str, error.absolute_path))
    what = clean(" ".join(str(error.message).split()))
    given = json.dumps(error.instance, ensure_ascii=False, default=repr)[:_SHOWN]
    return f"{call.name}: " + (f"{place!r}: {what}, got {given}" if place else what)
