"""subagent: one sub-agent, from the call that asks for it to the result that answers it.

Turns and tools alternate until `complete_task`, the end of turns or time, or a failure; `recover` gives one more turn.
"""

from langgraph.graph import END, START

from interlock.graphs import turn
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.main import nudge
from interlock.nodes.subagent import (
    after_check_end,
    after_check_result,
    after_recover,
    after_turn,
    check_end,
    check_result,
    finish,
    recover,
    send_back,
    start,
    take_notes,
)
from interlock.state.subagent import (
    MAX_DEPTH,
    SubagentIn,
    SubagentInput,
    SubagentOut,
    SubagentOutput,
    SubagentState,
)


def build(depth: int = MAX_DEPTH - 1, name: str = "subagent") -> Graph:
    """`depth`: levels of agents that may still be started below this one."""
    from interlock.graphs import tools  # it holds this graph, a level higher

    g = Graph(name, SubagentState, input=SubagentIn, output=SubagentOut)
    g.node("start", start)
    g.node("check_end", check_end)
    g.part("turn", turn.build())
    g.part("tools", tools.build(depth))
    g.node("take_notes", take_notes)
    g.node("check_result", check_result)
    g.node("nudge", nudge)
    g.node("send_back", send_back)
    g.node("recover", recover)
    g.node("finish", finish)

    g.edge(START, "start")
    g.edge("start", "check_end")
    g.route("check_end", after_check_end, {"turn": "turn", "time or turns are up": "recover"})
    g.route(
        "turn",
        after_turn,
        {"calls": "tools", "no call": "recover", "first loop": "nudge", "failed": "finish"},
    )
    g.edge("tools", "take_notes")
    g.edge("take_notes", "check_result")
    g.route(
        "check_result",
        after_check_result,
        {"complete": "finish", "open questions": "send_back", "go on": "check_end", "aborted": "finish"},
    )
    g.edge("nudge", "check_end")
    g.edge("send_back", "check_end")
    g.route("recover", after_recover, {"last chance": "turn", "give up": "finish"})
    g.edge("finish", END)
    return g


PIPELINE = Pipeline("subagent", build, SubagentInput, SubagentOutput, prompt_field="prompt", needs_model=True)
