"""compress: replaces an old part of the conversation with a snapshot, checked by the model that wrote it.

The only loop is for an interrupted hook, after a person has decided on it. It ends below the threshold, when a hook
puts it off, with nothing to drop, or after `accept`.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.graph import END, START

from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_hooks
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.compress import (
    accept,
    check_threshold,
    pre_compress,
    split,
    summarise,
    truncate_old_outputs,
    verify,
)
from interlock.state.compress import CompressInput, CompressOutput, CompressState, CompressStatus
from interlock.state.workflow import WorkflowContext, start_chain_from_history


def build() -> Graph:
    g = Graph("compress", CompressState, renamed={"keep_truncated": "truncate_old_outputs"})
    g.nodes(check_threshold, truncate_old_outputs, split, summarise, verify, accept)
    add_hooks(g, {"PreCompress": (pre_compress, {"go on": "truncate_old_outputs", "put off": END})})

    g.edge(START, "check_threshold")
    due = {"due": "truncate_old_outputs", "hooked": "pre_compress"}
    g.by_label("check_threshold", {**due, "below": END})
    g.by_label("truncate_old_outputs", {"attempt": "split", "failed before": END})
    g.by_label("split", {"found": "summarise", "nothing to drop": END})
    g.by_label("summarise", {"answered": "verify", "failed": "accept"})
    g.edge("verify", "accept")
    g.by_label("accept", dict.fromkeys(("compressed", "truncated", "empty", "inflated"), END))
    return g


def initial_state(input: CompressInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "head": start_chain_from_history(context.transcript, input.history),
        "model": context.model,
        "last_prompt_tokens": input.last_prompt_tokens or 0,
        "force": input.force,
        "token_limit": input.token_limit,
        "threshold": input.threshold,
        "preserve": input.preserve,
        "compress_failed_at": input.failed_at_tokens or 0,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> CompressOutput:
    head, snapshot = values["head"], values.get("snapshot")
    messages = context.transcript.read(head) if head else []
    return CompressOutput(
        status=cast(CompressStatus, values["compress_status"]),
        history=[m.model_dump(mode="json", exclude_defaults=True) for m in messages],
        tokens_before=values["tokens_before"],
        tokens_after=values["tokens_after"],
        snapshot=context.transcript.read_message(snapshot).text if snapshot else None,
        failed_at_tokens=values.get("compress_failed_at") or None,
    )


PIPELINE = Pipeline(
    "compress",
    build,
    CompressInput,
    CompressOutput,
    enter=initial_state,
    leave=build_output,
    outcome="compress_status",
)
