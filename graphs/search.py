"""search: finds code in the workspace by what it does: updates the index, then queries it.

The loop handles one batch of files at a time: cut, embedded if a model is set, committed. It ends when none is left.
"""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.search import chunk, compare, embed, format_results, query, rank, scan, store
from interlock.state.errors import InputError
from interlock.state.messages import Message
from interlock.state.search import SearchInput, SearchOutput, SearchState
from interlock.state.text import replace_surrogates
from interlock.state.workflow import WorkflowContext, error_from_state


def build() -> Graph:
    g = Graph("search", SearchState)
    g.node("scan", scan)
    g.node("hash", compare)
    g.nodes(chunk, embed, store, query, rank)
    g.node("format", format_results)

    g.edge(START, "scan")
    g.by_label("scan", {"update": "hash", "as it is": "query", "only": "format", "refused": "format"})
    g.by_label("hash", {"changed": "chunk", "unchanged": "query", "only": "format"})
    g.by_label("chunk", {"embed": "embed", "store": "store"})
    g.edge("embed", "store")
    g.by_label("store", {"more": "chunk", "done": "query", "only": "format"})
    g.edge("query", "rank", "format", END)
    return g


def initial_state(input: SearchInput, context: WorkflowContext) -> dict[str, Any]:
    if input.index != "only" and not (input.query or "").strip():
        raise InputError("Input field 'query' is empty: say in words what is looked for.", "query")
    plain = input.model_dump(
        mode="json", include={"query", "path", "language", "limit", "min_score", "index"}
    )
    text = replace_surrogates(json.dumps(plain, ensure_ascii=False))
    return {"request": context.transcript.append("", [Message(role="user", content=text)])}


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> SearchOutput:
    found = json.loads(context.transcript.read_message(values["found"]).text)
    return SearchOutput(status=values["search_status"], **found, error=error_from_state(values))


PIPELINE = Pipeline(
    "search",
    build,
    SearchInput,
    SearchOutput,
    prompt_field="query",
    enter=initial_state,
    leave=build_output,
    outcome="search_status",
)
