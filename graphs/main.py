"""main: the agent loop, a turn and its tools until the model has answered.

`turn` and `tools` alternate; `continue`, `nudge` and a hook's feedback lead to another turn. A turn that nobody must
go on from, a limit, an error, a second loop, a hook or a batch that says stop ends it. Hooks are passed by where none
are set; those that were cancelled run again, and a person says what became of those that a kill interrupted.
"""

from langgraph.graph import END, START

from interlock.graphs import next_speaker, tools, turn
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.hooks import ask_hook, await_person
from interlock.nodes.main import (
    after_after_agent,
    after_agent,
    after_await_hook,
    after_before_agent,
    after_next_speaker,
    after_open_prompt,
    after_tools,
    after_turn,
    before_agent,
    finish,
    go_on,
    nudge,
    open_prompt,
)
from interlock.state.main import MainInput, MainOutput, MainState
from interlock.state.subagent import MAX_DEPTH


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("main", MainState)
    _nodes(g, depth)

    g.edge(START, "open_prompt")
    g.route(
        "open_prompt",
        after_open_prompt,
        {"plain": "turn", "hooked": "before_agent", "answered": "after_agent"},
    )
    passed = {"passed": "turn", "ended": "finish", "unknown": "ask_hook", "cancelled": "before_agent"}
    g.route("before_agent", after_before_agent, passed)
    g.route(
        "turn",
        after_turn,
        {
            "calls": "tools",
            "no calls": "next-speaker",
            "answered": "after_agent",
            "first loop": "nudge",
            "ended": "finish",
        },
    )
    g.route("tools", after_tools, {"results": "turn", "stop": "finish"})
    g.route(
        "next-speaker",
        after_next_speaker,
        {"model": "continue", "answered": "after_agent", "user or nobody": "finish"},
    )
    answered = {"feedback": "turn", "ended": "finish", "unknown": "ask_hook", "cancelled": "after_agent"}
    g.route("after_agent", after_after_agent, answered)
    g.edge("ask_hook", "await_hook")
    g.route("await_hook", after_await_hook, {"BeforeAgent": "before_agent", "AfterAgent": "after_agent"})
    g.edge("continue", "turn")
    g.edge("nudge", "turn")
    g.edge("finish", END)
    return g


def _nodes(g: Graph, depth: int) -> None:
    g.node("open_prompt", open_prompt)
    g.node("before_agent", before_agent)
    g.part("turn", turn.build())
    g.part("tools", tools.build(depth))
    g.part("next-speaker", next_speaker.build())
    g.node("continue", go_on)
    g.node("nudge", nudge)
    g.node("after_agent", after_agent)
    g.node("ask_hook", ask_hook)
    g.node("await_hook", await_person)
    g.node("finish", finish)


PIPELINE = Pipeline("main", build, MainInput, MainOutput, prompt_field="prompt", needs_model=True)
