"""task: one task in a working mode, for models with native or tag-based calls: one call per message until its result.

`turn` and `tools` alternate; a message without a call, mistakes a person helped with, a person's feedback and a
subtask's result lead to the next request. A result, a limit, a second loop, an error, a person or a hook ends it. The
prompt is rebuilt for each request from the current mode, rules and servers.
"""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.hook_nodes import add_answer_check, add_hooks
from interlock.graphs.main import build_command_graph, build_prompt_state
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.command import route_after_command
from interlock.nodes.main import TURN_ENDS, before_agent, nudge, route_after_context
from interlock.nodes.requests import await_person, notify
from interlock.nodes.task import (
    after_agent,
    ask_completion,
    ask_guidance,
    await_child,
    choose_call,
    close_open_calls_for_resume,
    finish,
    give_up,
    load_mode,
    open_child,
    remind,
    route_after_turn,
    take_completion,
    take_guidance,
    take_result,
    weigh,
)
from interlock.state.messages import Message
from interlock.state.subagent import MAX_DEPTH
from interlock.state.task import TaskInput, TaskOutput, TaskState
from interlock.state.workflow import WorkflowContext, error_from_state, read_history, start_chain_from_history


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("task", TaskState)
    g.node("load_mode", load_mode)
    g.subgraph("command", build_command_graph, nondeterministic=True)
    g.subgraph("build_prompt", nested_graph_builder("context"))
    g.subgraph("turn", nested_graph_builder("turn"))
    g.node("choose_call", choose_call)
    g.subgraph("tools", nested_graph_builder("tools", depth))
    g.nodes(weigh, remind, nudge, give_up, ask_guidance, take_guidance, ask_completion, take_completion)
    g.node("await_guidance", await_person)
    g.node("await_completion", await_person)
    g.nodes(notify, open_child)
    g.node("child", await_child)
    g.nodes(take_result, finish)
    add_answer_check(g, feedback_node="build_prompt")
    ended = {"stopped": "finish", "blocked": "finish"}
    add_hooks(
        g,
        {
            "BeforeAgent": (before_agent, {"passed": "turn", **ended}),
            "AfterAgent": (
                after_agent,
                {"feedback": "build_prompt", "passed": "finish", **ended, "check": "run_check"},
            ),
        },
    )
    _add_edges(g)
    return g


def _add_edges(g: Graph) -> None:
    g.edge(START, "load_mode")
    g.by_label("load_mode", {"prompt": "build_prompt", "command": "command", "unusable": "finish"})
    g.route("command", route_after_command, {"filled": "build_prompt", "stop": "finish"})
    g.route("build_prompt", route_after_context, {"plain": "turn", "hooked": "before_agent"})
    turned = {"calls": "choose_call", "nothing called": "remind", "first loop": "nudge"}
    g.route("turn", route_after_turn, {**turned, **dict.fromkeys(TURN_ENDS, "finish")})
    g.edge("choose_call", "tools", "weigh")
    on = {"three mistakes": "ask_guidance", "given up": "give_up", "go on": "build_prompt"}
    over = {"answered": "after_agent", "accepted": "finish", "stopped": "finish"}
    g.by_label("weigh", {**over, "completed": "ask_completion", "subtask": "open_child", **on})
    g.by_label("remind", on)
    g.edge("give_up", "finish")
    g.edge("nudge", "build_prompt")
    g.by_label("ask_guidance", {"asked": "await_guidance", "notify": "notify"})
    g.by_label("ask_completion", {"asked": "await_completion", "notify": "notify"})
    completion = dict.fromkeys(("approval", "outcome"), "await_completion")
    g.by_label("notify", {"question": "await_guidance", **completion})
    g.edge("await_guidance", "take_guidance")
    g.by_label("take_guidance", {"go on": "build_prompt", "stopped": "finish"})
    g.edge("await_completion", "take_completion")
    g.by_label("take_completion", {**over, "feedback": "build_prompt"})
    g.edge("open_child", "child", "take_result", "build_prompt")
    g.edge("finish", END)
    g.together("load_mode", "build_prompt", "choose_call", "weigh", "give_up")


def initial_state(input: TaskInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        **build_prompt_state(Message(role="user", origin="person", content=input.prompt), context),
        "head": close_open_calls_for_resume(
            start_chain_from_history(context.transcript, input.resume), context.transcript
        ),
        "first_todos": input.todos or "",
        "session_turns": 0,
        "last_prompt_tokens": 0,
        "depth": 0,
        "path": "",
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> TaskOutput:
    transcript = context.transcript
    result = transcript.read_message(values["result"]).text if values.get("result") else ""
    answers = [m.text for m in transcript.read(values["head"]) if m.role == "assistant" and m.text]
    todos = values.get("todos")
    return TaskOutput(
        status=values.get("status", "running"),
        result=result,
        response=result or (answers[-1] if answers else ""),
        history=read_history(transcript, values["head"]),
        todos=json.loads(transcript.read_message(todos).text) if todos else [],
        mode=values.get("mode", ""),
        mistakes=values.get("mistakes", 0),
        children=values.get("children", []),
        stats=context.stats(),
        error=error_from_state(values),
    )


PIPELINE = Pipeline(
    "task",
    build,
    TaskInput,
    TaskOutput,
    prompt_field="prompt",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
    follow_up=build_prompt_state,
)
