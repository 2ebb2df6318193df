"""context: builds what a conversation starts with, part by part, and the prompt.

Nothing loops; once the conversation has started, only its system prompt is checked.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.context import at_files, directory, environment, history, ide, memory, tool_declarations
from interlock.state.context import ContextInput, ContextOutput, ContextState, DeclaredTool, FileOutcome
from interlock.state.workflow import WorkflowContext, start_chain_from_history


@cache
def build() -> Graph:
    g = Graph("context", ContextState)
    g.nodes(history, environment, directory, ide)
    g.subgraph("system-prompt", nested_graph_builder("system-prompt"))
    g.nodes(memory, tool_declarations, at_files)

    g.edge(START, "history")
    g.by_label("history", {"new": "environment", "begun": "system-prompt"})
    g.edge("environment", "directory", "ide")
    g.by_label("ide", {"on": "system-prompt", "prompt off": "memory"})
    g.edge("system-prompt", "memory", "tool_declarations", "at_files", END)
    g.together(START, "history", "environment", "directory", "ide", "system-prompt")
    g.together("memory", "tool_declarations", "at_files")
    return g


def initial_state(input: ContextInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "head": start_chain_from_history(context.transcript, input.history),
        "prompt": context.record_prompt(input.prompt),
        "ide_given": context.record_ide_input(input.ide),
        "off": [name for name, on in input.parts.items() if not on],
        "alone": True,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> ContextOutput:
    messages = context.transcript.read(values["head"])
    tools = values.get("tools")
    return ContextOutput(
        system="\n\n".join(m.text for m in messages if m.role == "system"),
        messages=[m.model_dump(mode="json", exclude_defaults=True) for m in messages if m.role != "system"],
        tools=[DeclaredTool(**t) for t in json.loads(context.transcript.read_message(tools).text)]
        if tools
        else [],
        files=[FileOutcome(**file) for file in values["files"]],
        tokens=values["tokens"],
    )


PIPELINE = Pipeline(
    "context",
    build,
    ContextInput,
    ContextOutput,
    prompt_field="prompt",
    enter=initial_state,
    leave=build_output,
)
