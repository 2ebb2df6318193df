"""workflow: everything you need to write a workflow of your own.

A file `.interlock/workflows/NAME.py` declares `WORKFLOW = Workflow(NAME, build, Input, Output)`. `build` returns a
`Graph`: nodes, subgraphs and edges. A node is an async function of the state and, if it has side effects, of the
`runtime`; it returns the keys that it changes. `docs/tutorial.md` makes one.
"""

from langgraph.graph import END, START
from langgraph.runtime import Runtime
from pydantic import Field

from interlock.graphs import load_pipeline as pipeline
from interlock.graphs import main, tools
from interlock.graphs.foreign import Workflow
from interlock.graphs.graph import Graph
from interlock.graphs.workflow_parts import agent, approve, ask_person, loop
from interlock.nodes.chat_model import model
from interlock.nodes.effects import durable, effect, effect_sync
from interlock.nodes.guarded_tools import guarded
from interlock.nodes.workflow import CALLS, ask_model, call, place_calls, results
from interlock.state.calls import ToolResult, merge_by_key
from interlock.state.deps import Deps
from interlock.state.errors import RunError, UserError
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.run import WorkflowInput as Input
from interlock.state.run import WorkflowOutput as Output
from interlock.state.workflow import AgentState, State, ToolState

__all__ = [
    "CALLS",
    "END",
    "START",
    "AgentState",
    "Deps",
    "Field",
    "Graph",
    "Input",
    "Message",
    "Output",
    "RunError",
    "Runtime",
    "State",
    "ToolResult",
    "ToolState",
    "UserError",
    "Workflow",
    "agent",
    "approve",
    "ask_model",
    "ask_person",
    "call",
    "durable",
    "effect",
    "effect_sync",
    "guarded",
    "loop",
    "main",
    "merge_by_key",
    "model",
    "node",
    "pipeline",
    "place_calls",
    "results",
    "tools",
]
