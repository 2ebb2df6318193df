"""mode: list the modes and what one of them allows."""

import json

from langgraph.runtime import Runtime

from interlock.state.calls import CallView
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.mode import DEFAULT, ModeState
from interlock.state.node import node


@node(
    reads=("mode", "tool", "head"),
    writes=("mode", "listed", "allowed", "error"),
    labels=("list", "ask", "switch"),
    nondeterministic=True,
)
async def load_modes(state: ModeState, runtime: Runtime[Deps]) -> ModeState:
    """The list is kept: who looks at the run later sees what it was then."""
    deps = runtime.context
    label = "switch" if state["head"] else "ask" if state["tool"] else "list"
    mode = state.get("mode") or DEFAULT
    found = mode if deps.modes.find_mode(mode) else DEFAULT
    text = json.dumps([one.model_dump(mode="json") for one in deps.modes.list_modes()], ensure_ascii=False)
    listed = deps.transcript.append("", [Message(role="tool", name="mode", content=text)])
    return {"label": label, "mode": found, "listed": listed, "allowed": None, "error": {}}


@node(reads=("mode", "tool", "path"), writes=("allowed", "error"), nondeterministic=True)
async def check_tool(state: ModeState, runtime: Runtime[Deps]) -> ModeState:
    """Checks the tool as a real call would be, under any name and path."""
    deps, name, path = runtime.context, state["tool"], state["path"]
    info = deps.toolset.find_tool_info(name)
    call = CallView(id="0", name=name, args={})
    write = CallView(id="0", name="write_to_file", args={"path": path, "content": ""})
    files = deps.toolset.written_paths(write) if path else None
    why = deps.modes.refusal_reason(state.get("mode", ""), call, info.name if info else name, files)
    return {"allowed": why is None, "error": {"type": "mode_restriction", "message": why} if why else {}}
