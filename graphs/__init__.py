"""All pipelines, under the names the CLI uses. Adding a line here ships a pipeline."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from interlock.state.errors import UserError
from interlock.state.text import nearest

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Pipeline

PIPELINES = {
    "main": "the main agent loop: turns and tools until the model has answered",
    "turn": "one model turn: limits, context check, the request, the check of its stream",
    "edit": "one replacement in a text: matched tolerantly, corrected by a helper model if it must be, or refused",
    "compress": "an old part of a conversation becomes a checked snapshot of it",
    "summarize": "one long tool output: kept in a file, and summarised or cut to its ends",
    "route": "which model answers: named, by mode, chosen by a helper model, or the default",
    "loop-check": "does the run repeat itself: calls, text, and now and then a model's judgement",
    "next-speaker": "must the model go on after its last answer, or is it the user's turn",
    "context": "what a conversation begins with: system prompt, environment, memory files, files that are named",
    "system-prompt": "the text above every request, out of the sections that apply",
    "tools": "one batch of tool calls: every call decided, then executed in groups",
    "task": "one task in a mode of work, one call a message, with subtasks, until its result is handed over",
    "mode": "modes of work: which there are, what each allows, and the switch to another",
    "plan": "plan mode: explore, write a plan, have it approved by a person, hand it over to main",
    "init": "a look at the repository, and its memory file (GEMINI.md) written or made better",
    "mcp": "MCP servers: what they offer, one of their resources or prompts, or one call of a tool",
    "search": "code found by what it does: an index of the workspace, brought up to date and asked",
    "subagent": "one sub-agent: turns and tools of its own until it hands over its result",
    "investigate": "the codebase investigator: reads until its objective is answered by a report",
}
"""Name → one-line summary. The module is `graphs/<name>.py` with `-` as `_`."""


_ADDED: "dict[str, Pipeline]" = {}
_OFFERED: "dict[str, Callable[[], Pipeline]]" = {}


def register(pipeline: "Pipeline") -> None:
    """Register a pipeline from outside the package for this process, so that its runs can be resumed and drawn.

    Raises `UserError` if its name is a built-in's.
    """
    if pipeline.name in PIPELINES:
        raise UserError(f"Workflow {pipeline.name!r} is one of Interlock's own. Give yours another name.")
    _ADDED[pipeline.name] = pipeline


def offer(found: "Mapping[str, Callable[[], Pipeline]]") -> None:
    """Offer workflows to be loaded on request by name, replacing those offered before."""
    _OFFERED.clear()
    _OFFERED.update(found)


def is_known(name: str) -> bool:
    """Whether it is built in, or registered in this process."""
    return name in PIPELINES or name in _ADDED


def pipeline(name: str) -> "Pipeline":
    """Load a pipeline. Raises `UserError` with the nearest names."""
    if name in _ADDED:
        return _ADDED[name]
    if name in _OFFERED:
        return _OFFERED[name]()
    if name not in PIPELINES:
        hint = nearest(name, [*PIPELINES, *_ADDED, *_OFFERED], 3, 0.6)
        raise UserError(f"No workflow {name!r}.{hint} List them with: interlock workflows")
    return import_module(f"interlock.graphs.{name.replace('-', '_')}").PIPELINE
