"""Every pipeline, by the name the CLI uses. Adding a line here is what ships a pipeline."""

from importlib import import_module
from typing import TYPE_CHECKING

from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Pipeline

PIPELINES = {
    "main": "the main agent loop: turns and tools until the model has answered",
    "turn": "one model turn: limits, context check, the request, the check of its stream",
    "edit": "one replacement in a text: matched tolerantly, corrected by a helper model if it must be, or refused",
    "compress": "an old part of a conversation becomes a checked snapshot of it",
    "summarize": "one long tool output: kept in a file, and summarised or cut to its ends",
    "tools": "one batch of tool calls: every call decided, then executed in groups",
}
"""Name → what it does, in one line. The module is `graphs/<name>.py` with `-` as `_`."""


def pipeline(name: str) -> "Pipeline":
    """Load a pipeline. Raises `UserError` with the nearest names."""
    if name not in PIPELINES:
        from difflib import get_close_matches

        near = get_close_matches(name, PIPELINES, 3, 0.4)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        raise UserError(f"No workflow {name!r}.{hint} List them with: interlock workflows")
    return import_module(f"interlock.graphs.{name.replace('-', '_')}").PIPELINE
