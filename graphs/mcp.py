"""mcp: lists what MCP servers offer, reads one of their resources or prompts, or calls one tool.

A call is a batch of one in `tools`: decided, asked about and journalled like a model's. Nothing loops.
"""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import tools
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.mcp import connect, format_answer, load, prompt, read
from interlock.state.errors import InputError
from interlock.state.mcp import McpInput, McpOutput, McpState
from interlock.state.messages import Message, ToolCall
from interlock.state.names import mcp_tool_name
from interlock.state.subagent import MAX_DEPTH
from interlock.state.text import clean_json, replace_surrogates
from interlock.state.workflow import WorkflowContext, error_from_state

_NEEDED = {"list": (), "call": ("server", "name"), "read": ("server", "uri"), "prompt": ("server", "name")}


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents, as for `tools`."""
    g = Graph("mcp", McpState)
    g.nodes(load, connect)
    g.subgraph("call", tools.build(depth))
    g.nodes(read, prompt)
    g.node("format", format_answer)

    g.edge(START, "load")
    g.by_label("load", {"known": "connect", "unknown": "format"})
    asked = {"list": "format", "call": "call", "read": "read", "prompt": "prompt"}
    g.by_label("connect", {**asked, "failed": "format"})
    g.edge("call", "format")
    g.edge("read", "format")
    g.edge("prompt", "format", END)
    return g


def initial_state(input: McpInput, context: WorkflowContext) -> dict[str, Any]:
    for field in _NEEDED[input.action]:
        if not getattr(input, field):
            raise InputError(f"Input field {field!r} is missing: action {input.action!r} needs it.", field)
    plain = input.model_dump(mode="json", include={"action", "server", "name", "args", "uri"})
    text = replace_surrogates(json.dumps(plain, ensure_ascii=False))
    request = context.transcript.append("", [Message(role="user", content=text)])
    state: dict[str, Any] = {"request": request, "approval_mode": context.approval_mode}
    if input.action == "call":
        args: Any = clean_json(input.args)
        call = ToolCall(id="0.0", name=mcp_tool_name(input.server or "", input.name or ""), args=args)
        message = Message(role="assistant", tool_calls=(call,))
        state["head"] = context.transcript.append("", [message])
    return state


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> McpOutput:
    servers, found = values.get("servers"), values.get("found")
    return McpOutput(
        status=values["mcp_status"],
        servers=json.loads(context.transcript.read_message(servers).text) if servers else [],
        content=context.transcript.read_message(found).text if found else None,
        is_error=values["mcp_status"] == "failed" if found else None,
        error=error_from_state(values),
    )


PIPELINE = Pipeline(
    "mcp", build, McpInput, McpOutput, enter=initial_state, leave=build_output, outcome="mcp_status"
)
