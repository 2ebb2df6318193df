"""system_prompt: assembles the system prompt from the sections that apply. Nothing loops; a file may replace it all."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.system_prompt import GATHERS, TRIGGERS, assemble, compare, load_override
from interlock.nodes.system_sections import SECTIONS
from interlock.state.system_prompt import (
    SystemPromptInput,
    SystemPromptOutput,
    SystemPromptState,
    message_sections,
)
from interlock.state.workflow import WorkflowContext


def build() -> Graph:
    g = Graph("system-prompt", SystemPromptState)
    g.nodes(load_override, *GATHERS.values(), assemble, compare)

    g.edge(START, "load_override")
    g.by_label("load_override", {**{table: node.__name__ for table, node in GATHERS.items()}, "file": END})
    for node in GATHERS.values():
        g.edge(node.__name__, "assemble")
    g.edge("assemble", "compare")
    g.by_label("compare", dict.fromkeys(("first", "unchanged", *TRIGGERS), END))
    g.together(START, "load_override", *(node.__name__ for node in GATHERS.values()), "assemble", "compare")
    return g


def initial_state(input: SystemPromptInput, context: WorkflowContext) -> dict[str, Any]:  # noqa: ARG001 - every `enter` has this shape
    return {"before": input.previous, "flavour": input.flavour, "has": {**input.has}}


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> SystemPromptOutput:
    message = context.transcript.read_message(values["system"]) if values["system"] else None
    sections = message_sections(message) if message else []
    for section in sections:
        ours = SECTIONS.get(section.name)
        section.why = ours.conditions_text if ours else f"replaces the others: {values['source']}"
    return SystemPromptOutput(
        text=message.text if message else "",
        sections=sections,
        left_out=values.get("left_out", {}),
        source=values["source"],
        changed=values["changed"],
        tokens=sum(s.tokens for s in sections),
    )


PIPELINE = Pipeline(
    "system-prompt", build, SystemPromptInput, SystemPromptOutput, enter=initial_state, leave=build_output
)
