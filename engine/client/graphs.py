"""graphs: what a front end that offers workflows to programs asks of one: which input is its prompt, and its graph."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.graphs._langgraph import with_saver
from interlock.graphs._pipeline import Pipeline
from interlock.graphs.foreign import Foreign, outline


def prompt_field_of(workflow: Pipeline) -> str | None:
    """Return the input that a prompt fills (empty: none); None: the workflow is a graph of LangGraph's."""
    return None if isinstance(workflow, Foreign) else workflow.prompt_field or ""


def compile_to_look(workflow: Pipeline, config: Mapping[str, Any]) -> Any:
    """Return a workflow's graph without a store; one that a function makes, as the config says."""
    if not isinstance(workflow, Foreign):
        return workflow.compile()
    if workflow.factory:
        workflow = replace(workflow, graph=outline(workflow.factory, {"configurable": {}, **config}))
    return with_saver(workflow.graph, None, None, workflow.name)
