"""All pipelines, under the names the CLI uses. Adding a line here ships a pipeline."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from interlock.state.errors import UserError
from interlock.state.text import did_you_mean

if TYPE_CHECKING:
    from interlock.graphs.graph import Graph
    from interlock.graphs.pipeline import Pipeline

PIPELINES = {
    "main": "Run the main agent loop: turns and tools until the model answers",
    "turn": "Run one model turn: check limits and context, send the request, check the reply",
    "edit": "Replace one text in a file: match tolerantly, let a helper model correct it, or refuse",
    "compress": "Compress the older part of a conversation into a verified summary",
    "summarize": "Save a long tool output to a file, and summarize or truncate it",
    "route": "Choose the model for a turn",
    "loop-check": "Detect loops: repeated calls, repeated text, and a periodic check by a model",
    "next-speaker": "Decide whether the model or the user speaks next",
    "context": "Build the start of a conversation: system prompt, environment, memory and named files",
    "system-prompt": "Build the system prompt",
    "tools": "Decide every call of a batch, then execute the calls in groups",
    "task": "Carry out a task in a mode of work, architect at first, one call per message, with subtasks",
    "mode": "List modes of work, check what a mode allows, or switch modes",
    "plan": "Explore, write a plan, and after your approval pass it to main",
    "init": "Explore the repository and write or improve its memory file (GEMINI.md)",
    "mcp": "List what MCP servers offer, read a resource or prompt, or call a tool",
    "repair": "Mend code until a check passes: locate the fault, try corrections, apply the one that holds",
    "search": "Search code by meaning, with an index of the workspace",
    "subagent": "Run one sub-agent, with its own turns and tools, until it returns its result",
    "investigate": "Investigate the codebase, read-only, and report on an objective",
}
"""Name → one-line summary. The module is `graphs/<name>.py` with `-` as `_`."""


_ADDED: "dict[str, Pipeline]" = {}
_OFFERED: "dict[str, Callable[[], Pipeline]]" = {}


def register_pipeline(pipeline: "Pipeline") -> None:
    """Register a pipeline from outside the package for this process, so that its runs can be resumed and drawn.

    Raises `UserError` if its name is a built-in's.
    """
    if pipeline.name in PIPELINES:
        raise UserError(f"Workflow {pipeline.name!r} is built in. Give yours another name.")
    _ADDED[pipeline.name] = pipeline


def replace_loadable_workflows(loaders: "Mapping[str, Callable[[], Pipeline]]") -> None:
    """Offer workflows to be loaded on request by name, replacing those offered before."""
    _OFFERED.clear()
    _OFFERED.update(loaders)


def is_pipeline(name: str) -> bool:
    """Whether it is built in, or registered in this process."""
    return name in PIPELINES or name in _ADDED


def load_pipeline(name: str) -> "Pipeline":
    """Load a pipeline. Raises `UserError` with the nearest names."""
    if name in _ADDED:
        return _ADDED[name]
    if name in _OFFERED:
        return _OFFERED[name]()
    if name not in PIPELINES:
        hint = did_you_mean(name, [*PIPELINES, *_ADDED, *_OFFERED], 3, 0.6)
        raise UserError(f"No workflow {name[:80]!r}.{hint} List them with: interlock workflows")
    return _import_graph_module(name).PIPELINE


def nested_graph_builder(name: str, *args: Any) -> "Callable[[], Graph]":
    """A built-in pipeline's graph as a part of another: its module is imported when a run first enters it."""
    return lambda: _import_graph_module(name).build(*args)


def _import_graph_module(name: str) -> Any:
    return import_module(f"interlock.graphs.{name.replace('-', '_')}")
