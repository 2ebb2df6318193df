"""main: the agent loop, a turn and its tools until the model has answered.

With a small model and a check, `repair` tries first. `turn` and `tools` alternate; `continue`, `nudge` and a hook's
feedback lead to another turn. A final answer, a limit, an error, a second loop, a hook or a batch that says stop ends
it. Hook nodes are skipped if no hooks are set; a person decides about interrupted ones. A compression may be requested
instead of a prompt.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_answer_check, add_hooks
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.command import expand, fill, route_after_command
from interlock.nodes.main import (
    TURN_ENDS,
    after_agent,
    before_agent,
    finish,
    go_on,
    nudge,
    open_prompt,
    route_after_main_context,
    route_after_next_speaker,
    route_after_tools,
    route_after_turn,
    take_repair,
)
from interlock.state.command import CommandIn, CommandOut, CommandState
from interlock.state.main import MainInput, MainOutput, MainState
from interlock.state.messages import Message
from interlock.state.subagent import MAX_DEPTH
from interlock.state.workflow import WorkflowContext, error_from_state, read_history, start_chain_from_history


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("main", MainState)
    g.node("open_prompt", open_prompt)
    g.subgraph("command", build_command_graph, nondeterministic=True)
    g.subgraph("context", nested_graph_builder("context"))
    g.subgraph("turn", nested_graph_builder("turn"))
    g.subgraph("tools", nested_graph_builder("tools", depth))
    g.subgraph("next-speaker", nested_graph_builder("next-speaker"))
    g.subgraph("repair", nested_graph_builder("repair"))
    g.node("take_repair", take_repair)
    g.subgraph("compress", nested_graph_builder("compress"))
    g.node("continue", go_on)
    g.nodes(nudge, finish)
    add_answer_check(g, feedback_node="turn")
    ended = {"stopped": "finish", "blocked": "finish"}
    add_hooks(
        g,
        {
            "BeforeAgent": (before_agent, {"passed": "turn", **ended}),
            "AfterAgent": (
                after_agent,
                {"feedback": "turn", "passed": "finish", **ended, "check": "run_check"},
            ),
        },
    )

    g.edge(START, "open_prompt")
    opened = {"prompt": "context", "command": "command", "unusable": "finish", "answered": "after_agent"}
    g.by_label("open_prompt", {**opened, "compress": "compress"})
    g.edge("compress", "finish")
    g.route("command", route_after_command, {"filled": "context", "stop": "finish"})
    begun = {"plain": "turn", "hooked": "before_agent", "repair": "repair"}
    g.route("context", route_after_main_context, begun)
    g.edge("repair", "take_repair")
    g.by_label("take_repair", {"answered": "after_agent", "turn": "turn", "failed": "finish"})
    answered = {"no calls": "next-speaker", "answered": "after_agent", "done": "finish"}
    over = dict.fromkeys(TURN_ENDS, "finish")
    g.route("turn", route_after_turn, {"calls": "tools", **answered, "first loop": "nudge", **over})
    g.route("tools", route_after_tools, {"results": "turn", "stop": "finish"})
    speaker = {"model": "continue", "answered": "after_agent", "user or nobody": "finish"}
    g.route("next-speaker", route_after_next_speaker, speaker)
    g.edge("continue", "turn")
    g.edge("nudge", "turn")
    g.edge("finish", END)
    g.together("open_prompt", "context")
    return g


@cache
def build_command_graph() -> Graph:
    """Expand a prompt that names a custom command; its shell lines run first, as a batch of calls."""
    g = Graph("command", CommandState, input=CommandIn, output=CommandOut)
    g.node("expand", expand)
    g.subgraph("tools", nested_graph_builder("tools", 0))
    g.node("fill", fill)

    g.edge(START, "expand")
    g.by_label("expand", {"shell": "tools", "text": END})
    g.route("tools", route_after_tools, {"results": "fill", "stop": END})
    g.edge("fill", END)
    return g


def initial_state(input: MainInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        **build_prompt_state(Message(role="user", origin="person", content=input.prompt), context),
        "head": start_chain_from_history(context.transcript, input.history),
        "ide_given": context.record_ide_input(input.ide),
        "session_turns": 0,
        "last_prompt_tokens": 0,
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> MainOutput:
    error = error_from_state(values)
    answered = values.get("status") in ("done", "stopped_by_hook")  # a hook may stop after the answer
    # A run failed by a refusal still has an answer: what the model says about it.
    answered = answered or (error is not None and error.type == "refused")
    return MainOutput(
        status=values.get("status", "running"),
        response=_joined_answer(context.transcript.read(values["head"])) if answered else "",
        history=read_history(context.transcript, values.get("head", "")),
        stats=context.stats(),
        error=error,
    )


def _joined_answer(history: list[Message]) -> str:
    """The last answer, preceded by those the model was told to continue."""
    texts: list[str] = []
    for message in reversed(history):
        if message.role == "assistant" and not message.tool_calls:
            texts.append(message.text)
        elif message.origin != "continue":
            break
    return "\n\n".join(text for text in reversed(texts) if text)


def build_prompt_state(prompt: Message | None, context: WorkflowContext) -> dict[str, Any]:
    """State for a further prompt of `main`; without one the conversation continues where it ended.

    A prompt refused by a hook isn't in the conversation: it stays in the state, and is retried.
    """
    return {
        **({"prompt": context.record_prompt(prompt.text)} if prompt else {}),
        "approval_mode": context.approval_mode,
        "model": context.model,
        "max_turns": context.limits.max_turns,
        "max_session_turns": context.limits.max_session_turns,
    }


def build_prompt_or_compression_state(prompt: Message | None, context: WorkflowContext) -> dict[str, Any]:
    """`follow_up`, or a compression instead of a prompt."""
    return {**build_prompt_state(prompt, context), "force": context.compress and prompt is None}


PIPELINE = Pipeline(
    "main",
    build,
    MainInput,
    MainOutput,
    prompt_field="prompt",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
    follow_up=build_prompt_or_compression_state,
)
