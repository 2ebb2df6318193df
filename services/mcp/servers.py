"""servers: all MCP servers of a drive: started concurrently on first use, closed with it."""

import asyncio
import json
import mimetypes
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from interlock.services.mcp.client import Progress, ServerSession
from interlock.services.mcp.connection import (
    CONNECTION_ENDED,
    RecordedConnection,
    ServerConnection,
    UnavailableError,
    dump_connection_record,
)
from interlock.services.mcp.content import BinaryPart, Content, InputWantedError
from interlock.services.mcp.exchanges import AnsweredError, LostError, NotRunError
from interlock.services.mcp.sign_in import Learn, load_stored_token_provider
from interlock.services.mcp.spec import ServerSpec, ServerTool
from interlock.services.mcp.stdio import StdioServer
from interlock.services.toolset import BuiltinToolset, nearest_names, to_failed_result
from interlock.state.calls import CallView, Preview, ToolResult, error_result
from interlock.state.events import Emit, ErrorEvent, ToolOutput
from interlock.state.mcp import ServerItem, ServerView
from interlock.state.messages import DataPart, ToolDeclaration
from interlock.state.names import mcp_tool_prefix
from interlock.state.seen import SeenFiles
from interlock.state.text import make_visible, schema_violation, to_visible_json
from interlock.state.tooling import Outputs, ToolInfo, ToolRun
from interlock.tools.file_content import LARGEST_MEDIA, to_media_part_or_notice

Keep = Callable[[str, JsonValue], None]
"""Records a request and its answer."""


def skip_recording(_asked: str, _answer: JsonValue) -> None:
    """Record nothing, as no replay will need it."""


class Servers:
    """Implements `McpServers`, and calls server tools for the toolset."""

    def __init__(
        self,
        specs: Mapping[str, ServerSpec],
        *,
        workspace: Path,
        env: Mapping[str, str],
        most: tuple[int, int],
        outputs: Outputs,
        emit: Emit,
        home: Path,
        learn: Learn = lambda _: None,
        keep: Keep = skip_recording,
    ) -> None:
        """`env`: base environment of stdio servers; `most`: processes and bytes that each may use.

        `home`: the state directory with tokens; `learn` is called with new ones. `keep` records what a replay needs.
        """
        self._env, self._most, self._outputs, self._emit = env, most, outputs, emit
        self._home, self._learn, self._workspace = home, learn, workspace
        self._keep, self._noted = keep, dict[str, JsonValue]()
        self._recorded: Mapping[str, str] | None = None
        self._connections = {
            n: ServerConnection(s, self._open_transport, workspace) for n, s in specs.items()
        }
        self._warned: set[str] = set()

    def enabled_server_names(self) -> list[str]:
        return [name for name, one in self._connections.items() if one.is_enabled_and_valid]

    async def start_and_wait_for_servers(self, server: str | None = None) -> None:
        if not self._connections:
            return
        wanted = [c for name, c in self._connections.items() if server in (None, name)]
        await asyncio.gather(*(one.start_and_wait_briefly() for one in wanted))
        for one in wanted:
            view = self._to_server_view(one)
            lines = [f"MCP server {view.name!r}: {line}; skipped." for line in view.warnings]
            if view.status == "connecting":
                lines = [f"MCP server {view.name!r} is still starting; its tools come when it is ready."]
            if view.status == "failed":
                lines = [
                    f"MCP server {view.name!r} is skipped: {view.error}. "
                    f"Check it: interlock mcp test {shlex.quote(view.name)}"
                ]
            for line in lines:
                if line not in self._warned:
                    self._warned.add(line)
                    self._emit(ErrorEvent(severity="warning", message=line))
            self._record_answer(json.dumps([one.spec.name]), dump_connection_record(one))

    def switch_to_replay(self, recorded: Mapping[str, str]) -> None:
        """Switch to replay: nothing is started or called. `recorded` holds what `keep` received, as JSON."""
        self._recorded, self._keep = recorded, skip_recording
        self._connections = {
            name: RecordedConnection(one.spec, recorded.get(json.dumps([name]), ""), self._workspace)
            for name, one in self._connections.items()
        }

    def _record_answer(self, request_key: str, reply: JsonValue) -> None:
        if self._noted.get(request_key) != reply:
            self._noted[request_key] = reply
            self._keep(request_key, reply)

    def list_servers(self) -> list[ServerView]:
        return [self._to_server_view(one) for one in self._connections.values()]

    def tools_by_name(self) -> dict[str, ServerTool]:
        """Return the tools of connected servers by the name that models use."""
        return {
            tool.name: tool
            for one in self._connections.values()
            for tool in self._offerable_tools_and_refusals(one)[0]
        }

    def find_server_of_tool(self, name: str) -> str | None:
        """Return the server that a tool name belongs to: the longest matching name."""
        fitting = [
            server for server in self.enabled_server_names() if name.startswith(mcp_tool_prefix(server))
        ]
        return max(fitting, key=len, default=None)

    def trusted_tool_annotations(self, tool_name: str) -> Mapping[str, JsonValue]:
        """Return the trusted annotations of a server's tool."""
        tool = self.tools_by_name().get(tool_name) if self._connections else None
        return tool.annotations if tool else {}

    def is_connected(self, server: str) -> bool:
        return self._connections[server].status == "connected"

    async def call_tool(self, server: str, run: ToolRun, report_progress: Progress) -> ToolResult:
        """Call a tool. If it is unknown whether the call took effect, the error is `unknown_outcome`."""
        name, args, one = run.call.name, run.call.args, self._connections[server]
        called: list[ServerTool] = []

        async def call_live_tool(session: ServerSession) -> ToolResult:
            tool = self.tools_by_name().get(name)
            if tool is None:
                here = ", ".join(t.original for t in self._offerable_tools_and_refusals(one)[0]) or "none"
                text = f"MCP server {server!r} has no tool {name!r}. It has: {here}"
                return error_result("tool_not_registered", text)
            called.append(tool)
            # It may want others than when the call was decided.
            if wrong := schema_violation(tool.parameters, args):
                return error_result("invalid_tool_params", f"{name}: {wrong}")
            limit = min(one.spec.timeout_s, run.time_left_s or one.spec.timeout_s)
            if tool.reads_resource:
                content = await session.read_resource(str(args["uri"]))
            else:
                content = await session.call_tool(tool.original, args, report_progress, limit, run.given)
            return await self._save_data_and_build_result(content, f"{server}: {tool.original}")

        try:
            return await self._ask_session_retrying_if_not_run(one, call_live_tool)
        except (UnavailableError, NotRunError) as error:
            return error_result("mcp_unavailable", f"MCP server {server!r} can't be reached: {error}")
        except LostError as error:
            is_repeatable = any(tool.read_only or tool.idempotent for tool in called[-1:])
            why = str(error) or one.loss_reason or CONNECTION_ENDED
            kind = "mcp_lost" if is_repeatable else "unknown_outcome"
            return error_result(kind, f"MCP server {server!r} gave no answer: {why}.")
        except AnsweredError as error:
            return error_result("mcp_error", f"MCP server {server!r} refused the call: {error}")
        except InputWantedError as error:
            return error_result(
                "input_wanted",
                f"MCP server {server!r} asks for input: {make_visible(str(error))}",
                form=error.form.model_dump(mode="json"),
            )

    async def _ask_session_retrying_if_not_run(
        self,
        connection: ServerConnection,
        send_request: Callable[[ServerSession], Awaitable[ToolResult]],
        is_repeated: bool = False,
    ) -> ToolResult:
        """Return what a live session answers; what its server surely didn't take is asked once more."""
        session = await connection.require_session()
        try:
            return await send_request(session)
        except LostError as error:
            connection.record_loss(error, session)
            if isinstance(error, NotRunError) and not is_repeated:
                return await self._ask_session_retrying_if_not_run(connection, send_request, is_repeated=True)
            raise

    async def read_resource(self, server: str, uri: str) -> ToolResult:
        return await self._ask_or_replay([server, uri], lambda live: live.read_resource(uri))

    async def get_prompt(self, server: str, name: str, args: Mapping[str, JsonValue]) -> ToolResult:
        texts = {key: value if isinstance(value, str) else str(value) for key, value in args.items()}
        return await self._ask_or_replay([server, name, texts], lambda live: live.get_prompt(name, texts))

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    async def _ask_or_replay(
        self, request: list[Any], send_request: Callable[[ServerSession], Awaitable[Content]]
    ) -> ToolResult:
        """`request`: the server and its request, which together identify the answer in a replay."""
        name = json.dumps(request)
        if self._recorded is not None and name in self._recorded:
            return ToolResult.model_validate_json(self._recorded[name])
        reply = await self._ask_server(request[0], send_request)
        self._record_answer(name, reply.model_dump(mode="json"))
        return reply

    async def _ask_server(
        self, server: str, send_request: Callable[[ServerSession], Awaitable[Content]]
    ) -> ToolResult:
        one = self._connections.get(server)
        if one is None:
            there = ", ".join(map(repr, self._connections)) or "none"
            return error_result("mcp_unavailable", f"No MCP server {server!r}. There are: {there}")

        async def ask_and_convert(session: ServerSession) -> ToolResult:
            return await self._save_data_and_build_result(await send_request(session), server)

        try:
            return await self._ask_session_retrying_if_not_run(one, ask_and_convert)
        except (UnavailableError, LostError, AnsweredError) as error:
            return error_result("mcp_error", f"MCP server {server!r}: {str(error) or one.loss_reason}")

    async def _save_data_and_build_result(self, content: Content, summary: str) -> ToolResult:
        text, parts, left = content.text, list[DataPart](), LARGEST_MEDIA
        for data in content.data:
            where = str(await asyncio.to_thread(self._save_data, data))
            part = to_media_part_or_notice("", data.data) if len(data.data) <= left else None
            if isinstance(part, DataPart):
                parts.append(part)
                left -= len(data.data)
                where += ", and shown beside this text"
            about = f"{data.kind} ({make_visible(data.mime_type)}, {len(data.data):,} bytes)"
            text = text.replace(data.place, f"[{about} is in {where}]", 1)
        text = text or "(no output)"
        if content.is_error:
            return error_result("mcp_tool_error", text).model_copy(update={"data": tuple(parts)})
        return ToolResult(
            status="success", content=text, data=tuple(parts), meta={"summary": make_visible(summary)}
        )

    def _save_data(self, data: BinaryPart) -> Path:
        return self._outputs.save_bytes(data.data, mimetypes.guess_extension(data.mime_type) or ".bin")

    def _offerable_tools_and_refusals(
        self, connection: ServerConnection
    ) -> tuple[list[ServerTool], list[str]]:
        """Return the tools with unambiguous names, and why others are left out."""
        found: dict[str, ServerTool] = {}
        refused: list[str] = []
        if connection.status != "connected":
            return [], []
        for tool in (*connection.listing.tools, *connection.listing.resource_reader_tools(connection.spec)):
            if (owner := self.find_server_of_tool(tool.name)) != connection.spec.name:
                refused.append(
                    f"tool {make_visible(tool.original)!r} would pass for one of the server {owner!r}"
                )
            elif tool.name in found:
                refused.append(
                    f"tool {make_visible(tool.original)!r} has the name of {found[tool.name].original!r} here"
                )
            else:
                found[tool.name] = tool
        return [*found.values()], refused

    def _to_server_view(self, connection: ServerConnection) -> ServerView:
        tools, refused = self._offerable_tools_and_refusals(connection)
        view = connection.to_view()
        items = tuple(ServerItem(name=t.name, description=t.description) for t in tools)
        return view.model_copy(update={"tools": items, "warnings": (*view.warnings, *refused)})

    def _open_transport(self, spec: ServerSpec, on_lost: Callable[[str], None]) -> Any:
        if spec.transport == "stdio":
            env = {**self._env, **(spec.env or {})}
            cwd = spec.cwd or Path.cwd()
            return StdioServer(spec.command, cwd=cwd, env=env, most=self._most, lost=on_lost).open_streams()
        from interlock.services.mcp.endpoint import open_http_streams

        return open_http_streams(
            spec, load_stored_token_provider(spec, self._home, self._learn, on_lost), on_lost
        )


_SUMMARY = 160


@dataclass(kw_only=True)
class JoinedToolset(BuiltinToolset):
    """Implements `Toolset`: the built-in tools and those of connected servers."""

    servers: Servers
    is_included: Callable[[str], bool]
    """Whether a server's tool is included."""
    _seen: set[str] = field(default_factory=set[str])
    """Every tool name offered so far: a call of one that has disappeared still gets an answer."""

    def declare_tools(self) -> list[ToolDeclaration]:
        tools = self._included_server_tools()
        self._seen.update(tools)
        return super().declare_tools() + [
            ToolDeclaration(name=t.name, description=t.description, parameters=t.parameters)
            for t in tools.values()
        ]

    def _included_server_tools(self) -> dict[str, ServerTool]:
        return {name: tool for name, tool in self.servers.tools_by_name().items() if self.is_included(name)}

    def find_tool_info(self, name: str) -> ToolInfo | None:
        server = self.servers.find_server_of_tool(name)
        if server is None or not self.is_included(name):
            return super().find_tool_info(name)
        tool = self.servers.tools_by_name().get(name)
        if tool is None:
            # Not connected yet, or the tool is gone: assume the worst.
            known = name in self._seen or not self.servers.is_connected(server)
            return ToolInfo(name=name, risk="execute", alone=True, effect="other") if known else None
        repeatable = tool.read_only or tool.idempotent
        return ToolInfo(
            name=name,
            risk="read" if tool.read_only else "execute",
            alone=not tool.read_only,
            effect="none" if repeatable else "other",
        )

    def nearest_tool_names(self, name: str) -> list[str]:
        found = nearest_names(name, self._included_server_tools())
        return nearest_names(name, [*super().nearest_tool_names(name), *found])

    def find_call_problem(self, call: CallView) -> str | None:
        if self.servers.find_server_of_tool(call.name) is None:
            return super().find_call_problem(call)
        tool = self.servers.tools_by_name().get(call.name)
        wrong = schema_violation(tool.parameters, call.args) if tool else ""
        return f"{call.name}: {wrong}" if wrong else None

    def summarize_call(self, call: CallView) -> str:
        server = self.servers.find_server_of_tool(call.name)
        if server is None:
            return super().summarize_call(call)
        tool = self.servers.tools_by_name().get(call.name)
        name = tool.original if tool else call.name.removeprefix(mcp_tool_prefix(server))
        text = f"{server}: {make_visible(name)}" + (f" {to_visible_json(call.args)}" if call.args else "")
        return text if len(text) <= _SUMMARY else text[: _SUMMARY - 1] + "…"

    async def preview_call(
        self, call: CallView, earlier: Sequence[CallView], seen: SeenFiles | None = None
    ) -> Preview:
        if self.servers.find_server_of_tool(call.name) is None:
            return await super().preview_call(call, earlier, seen)
        args = to_visible_json(call.args, indent=2)
        return Preview(text=f"{self.summarize_call(call.model_copy(update={'args': {}}))}\n{args}")

    async def run_call(self, run: ToolRun) -> ToolResult:
        server = self.servers.find_server_of_tool(run.call.name)
        if server is None:
            return await super().run_call(run)

        def progress(line: str) -> None:
            run.emit(ToolOutput(tool_id=run.call.id, text=f"{line}\n"))

        try:
            return await self.servers.call_tool(server, run, progress)
        except Exception as error:
            return to_failed_result(run.call.name, error)
