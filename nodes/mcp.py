"""mcp: query MCP servers, or call one of their tools."""

import difflib
import json
import re
import shlex
from typing import Any

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.prompts import render_prompt
from interlock.state.calls import CallView, ToolResult, error_result
from interlock.state.deps import Deps
from interlock.state.errors import UserError
from interlock.state.mcp import McpInput, McpState, ServerView
from interlock.state.messages import Message, TextPart
from interlock.state.names import mcp_server_key, mcp_tool_name, mcp_tool_prefix
from interlock.state.node import node
from interlock.state.text import sanitize_for_terminal

_COMMAND = re.compile(r"/(?P<server>[\w-]+):(?P<name>\S+)(?:\s+(?P<rest>.*))?", re.DOTALL)
"""A server's prompt, as a person invokes it."""


@node(reads=("request",), writes=("servers", "found", "mcp_status", "error"), labels=("known", "unknown"))
async def load(state: McpState, runtime: Runtime[Deps]) -> McpState:
    """A server missing from settings is an error with the nearest names."""
    asked = load_mcp_request(state, runtime.context)
    known = [view.name for view in runtime.context.mcp.list_servers()]
    fresh: McpState = {"servers": "", "found": "", "mcp_status": "", "error": {}, "label": "known"}
    if asked.server is None or asked.server in known:
        return fresh
    near = difflib.get_close_matches(asked.server, known, 3, 0.6) or known
    hint = f" There are: {', '.join(map(repr, near))}." if near else " Settings name none."
    return {
        **fresh,
        **_error_update("unknown_server", f"No MCP server {asked.server!r}.{hint}"),
        "label": "unknown",
    }


@node(
    reads=("request",),
    writes=("servers", "mcp_status", "error"),
    labels=("list", "call", "read", "prompt", "failed"),
)
async def connect(state: McpState, runtime: Runtime[Deps]) -> McpState:
    """Connect in parallel. Failures are reported, and fatal only to requests for that server alone."""
    deps = runtime.context
    asked = load_mcp_request(state, deps)
    await deps.mcp.start_and_wait_for_servers(asked.server)
    views = [view for view in deps.mcp.list_servers() if asked.server in (None, view.name)]
    update: McpState = {"servers": _store_json_record(deps, [view.model_dump(mode="json") for view in views])}
    if asked.action == "list":
        return {**update, "label": "list"}
    (view,) = views
    if view.status != "connected":
        return {**update, **_error_update("mcp_unavailable", _unavailable_reason(view)), "label": "failed"}
    return {**update, "label": asked.action}


@node(reads=("request",), writes=("found", "mcp_status", "error"))
async def read(state: McpState, runtime: Runtime[Deps]) -> McpState:
    asked = load_mcp_request(state, runtime.context)
    return _store_result(
        runtime.context, await runtime.context.mcp.read_resource(asked.server or "", asked.uri or "")
    )


@node(reads=("request",), writes=("found", "mcp_status", "error"))
async def prompt(state: McpState, runtime: Runtime[Deps]) -> McpState:
    asked = load_mcp_request(state, runtime.context)
    found = await runtime.context.mcp.get_prompt(asked.server or "", asked.name or "", asked.args)
    return _store_result(runtime.context, found)


@node(reads=("mcp_status", "found", "head", "request"), writes=("found", "mcp_status", "error"))
async def format_answer(state: McpState, runtime: Runtime[Deps]) -> McpState:
    """A call's answer is the last record of its batch."""
    if state["mcp_status"]:
        return {}
    if load_mcp_request(state, runtime.context).action != "call":
        return {"mcp_status": "done"}
    answer = runtime.context.transcript.read_message(state["head"])
    ended: McpState = {"found": state["head"], "mcp_status": "done"}
    return (
        ended
        if answer.status == "success"
        else {**ended, **_error_update("mcp_error", _shorten_error(answer.text))}
    )


async def expand_if_server_prompt(prompt: str, deps: Deps) -> str:
    """A prompt's record; for `/SERVER:PROMPT …`, a record of the server's text.

    Raises `UserError` if the server has no such prompt or is unavailable.
    """
    command = _COMMAND.fullmatch(deps.transcript.read_message(prompt).text.strip())
    names = {mcp_server_key(server): server for server in deps.mcp.enabled_server_names()}
    if command is None or command["server"] not in names:
        return prompt
    server, name = names[command["server"]], command["name"]
    await deps.mcp.start_and_wait_for_servers(server)
    (view,) = (v for v in deps.mcp.list_servers() if v.name == server)
    known = {item.name: item.args for item in view.prompts}
    if name not in known:
        there = (
            f"It has: {', '.join(known) or 'none'}."
            if view.status == "connected"
            else _unavailable_reason(view)
        )
        raise UserError(f"MCP server {server!r} has no prompt {name!r}. {there}")
    found = await deps.mcp.get_prompt(
        server, name, _parse_prompt_arguments(command["rest"] or "", known[name])
    )
    if found.status != "success":
        raise UserError(f"{found.content}. It takes: {' '.join(known[name]) or 'nothing'}.")
    text = render_prompt(
        "run/mcp_prompt", server=server, prompt=name, text=sanitize_for_terminal(found.content)
    )
    content = (TextPart(text=text), *found.data) if found.data else text
    before = deps.transcript.read(prompt)[:-1]
    return deps.transcript.append("", [*before, Message(role="user", origin="person", content=content)])


def _parse_prompt_arguments(text: str, names: tuple[str, ...]) -> dict[str, JsonValue]:
    """Parse `name=value`, `--name=value`, and positional values in the order of `names`; the last takes the rest."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    free = [name.removesuffix("*") for name in names]
    found: dict[str, JsonValue] = {}
    rest: list[str] = []
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if equals and name in free:
            found[name] = value
        else:
            rest.append(word)
    free = [name for name in free if name not in found]
    for place, name in enumerate(free):
        if words := rest[place:] if name == free[-1] else rest[place : place + 1]:
            found[name] = " ".join(words)
    return found


MCP_BY_NAMES = ("use_mcp_tool", "access_mcp_resource")
"""Tools that take the name of a server and of what to use on it."""


async def resolve_named_mcp_call(deps: Deps, call: CallView) -> CallView | ToolResult:
    """The server's own call that one of `MCP_BY_NAMES` refers to, or an error listing what there is."""
    server = str(call.args["server_name"])
    await deps.mcp.start_and_wait_for_servers(server if server in deps.mcp.enabled_server_names() else None)
    views = {view.name: view for view in deps.mcp.list_servers()}
    if server not in views:
        there = ", ".join(views) or "none"
        return error_result("mcp_unavailable", f"There is no MCP server {server!r}. There are: {there}.")
    if views[server].status != "connected":
        return error_result("mcp_unavailable", _unavailable_reason(views[server]))
    tool = str(call.args.get("tool_name") or "read_resource")
    name = mcp_tool_name(server, tool)
    if deps.toolset.find_tool_info(name) is None:
        prefix = mcp_tool_prefix(server)
        there = ", ".join(item.name.removeprefix(prefix) for item in views[server].tools) or "none"
        return error_result(
            "mcp_unavailable", f"MCP server {server!r} has no tool {tool!r}. It has: {there}."
        )
    args = call.args.get("arguments") or {} if call.name == "use_mcp_tool" else {"uri": call.args["uri"]}
    parsed: Any = json.loads(args) if isinstance(args, str) else args
    return CallView(id=call.id, name=name, args=parsed)


def load_mcp_request(state: McpState, deps: Deps) -> McpInput:
    return McpInput.model_validate_json(deps.transcript.read_message(state["request"]).text)


def _store_result(deps: Deps, result: ToolResult) -> McpState:
    record = Message(role="tool", name="mcp", status=result.status, content=result.content)
    found: McpState = {"found": deps.transcript.append("", [record]), "mcp_status": "done"}
    if result.status == "success":
        return found
    return {
        **found,
        **_error_update((result.error or {}).get("type", "mcp_error"), _shorten_error(result.content)),
    }


def _shorten_error(text: str) -> str:
    return text if len(text) <= _ERROR else f"{text[:_ERROR]}…"


def _store_json_record(deps: Deps, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return deps.transcript.append("", [Message(role="tool", name="mcp", content=text)])


def _unavailable_reason(view: ServerView) -> str:
    if view.status == "disabled":
        return f"MCP server {view.name!r} is disabled in settings."
    if view.status == "connecting":
        return f"MCP server {view.name!r} is still starting. Try again."
    return f"MCP server {view.name!r} can't be reached: {view.error}."


_ERROR = 500
"""Characters of an answer shown as the run's error; the output has all of it."""


def _error_update(kind: str, message: str) -> McpState:
    return {"mcp_status": "failed", "error": {"type": kind, "message": message}}
