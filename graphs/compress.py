"""compress: an old part of the conversation becomes a snapshot, checked by the model that wrote it.

Only a hook that was cut off loops, when a person has said what became of it. Below the threshold, put off by a hook,
with nothing to drop or after `accept` it ends.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.graph import END, START

from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.compress import (
    accept,
    after_check_threshold,
    after_pre_compress,
    after_split,
    after_summarise,
    after_truncate_old_outputs,
    check_threshold,
    keep_truncated,
    pre_compress,
    split,
    summarise,
    truncate_old_outputs,
    verify,
)
from interlock.nodes.hooks import ask_hook, await_person
from interlock.state.compress import CompressInput, CompressOutput, CompressState, CompressStatus
from interlock.state.workflow import WorkflowContext, append_history


def build() -> Graph:
    g = Graph("compress", CompressState)
    _nodes(g)

    g.edge(START, "check_threshold")
    g.route(
        "check_threshold",
        after_check_threshold,
        {"due": "truncate_old_outputs", "hooked": "pre_compress", "below": END},
    )
    g.route(
        "pre_compress",
        after_pre_compress,
        {
            "go on": "truncate_old_outputs",
            "put off": END,
            "unknown": "ask_hook",
        },
    )
    g.edge("ask_hook", "await_hook")
    g.edge("await_hook", "pre_compress")
    g.route(
        "truncate_old_outputs",
        after_truncate_old_outputs,
        {"attempt": "split", "failed before": "keep_truncated"},
    )
    g.route("split", after_split, {"found": "summarise", "nothing to drop": "keep_truncated"})
    g.edge("keep_truncated", END)
    g.route("summarise", after_summarise, {"answered": "verify", "failed": "accept"})
    g.edge("verify", "accept")
    g.edge("accept", END)
    return g


def _nodes(g: Graph) -> None:
    g.node("check_threshold", check_threshold)
    g.node("pre_compress", pre_compress)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)
    g.node("truncate_old_outputs", truncate_old_outputs)
    g.node("keep_truncated", keep_truncated)
    g.node("split", split)
    g.node("summarise", summarise)
    g.node("verify", verify)
    g.node("accept", accept)


def enter(given: CompressInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "head": append_history(context.transcript, given.history),
        "model": context.model,
        "last_prompt_tokens": given.last_prompt_tokens or 0,
        "force": given.force,
        "token_limit": given.token_limit,
        "threshold": given.threshold,
        "preserve": given.preserve,
        "compress_failed_at": given.failed_at_tokens or 0,
    }


def leave(values: Mapping[str, Any], context: WorkflowContext) -> CompressOutput:
    head, snapshot = values["head"], values.get("snapshot")
    messages = context.transcript.read(head) if head else []
    return CompressOutput(
        status=cast(CompressStatus, values["compress_status"]),
        history=[m.model_dump(mode="json", exclude_defaults=True) for m in messages],
        tokens_before=values["tokens_before"],
        tokens_after=values["tokens_after"],
        snapshot=context.transcript.message(snapshot).text if snapshot else None,
        failed_at_tokens=values.get("compress_failed_at") or None,
    )


PIPELINE = Pipeline(
    "compress", build, CompressInput, CompressOutput, enter=enter, leave=leave, outcome="compress_status"
)
