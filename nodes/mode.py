"""mode: list the modes and what one of them allows."""

from langgraph.runtime import Runtime

from interlock.state.calls import CallView
from interlock.state.deps import Deps
from interlock.state.mode import DEFAULT, ModeState
from interlock.state.node import node


@node(
    reads=("mode", "tool", "head"),
    writes=("mode", "allowed", "error"),
    labels=("list", "ask", "switch"),
    fusable=True,
    nondeterministic=True,
)
async def load_modes(state: ModeState, runtime: Runtime[Deps]) -> ModeState:
    label = "switch" if state["head"] else "ask" if state["tool"] else "list"
    mode = state.get("mode") or DEFAULT
    found = mode if runtime.context.modes.get(mode) else DEFAULT
    return {"label": label, "mode": found, "allowed": None, "error": {}}


@node(reads=("mode", "tool", "path"), writes=("allowed", "error"), fusable=True, nondeterministic=True)
async def check_tool(state: ModeState, runtime: Runtime[Deps]) -> ModeState:
    """Checks the tool as a real call would be, under any name and path."""
    deps, name, path = runtime.context, state["tool"], state["path"]
    info = deps.toolset.info(name)
    call = CallView(id="0", name=name, args={})
    write = CallView(id="0", name="write_to_file", args={"path": path, "content": ""})
    files = deps.toolset.writes(write) if path else None
    why = deps.modes.refusal(state.get("mode", ""), call, info.name if info else name, files)
    return {"allowed": why is None, "error": {"type": "mode_restriction", "message": why} if why else {}}
