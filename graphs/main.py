"""main: the agent loop, a turn and its tools until the model has answered.

`turn` and `tools` alternate; `continue` and `nudge` lead to another turn. A turn that nobody must go on from, a limit,
an error, a second loop or a batch that says stop ends it.
"""

from langgraph.graph import END, START

from interlock.graphs import next_speaker, tools, turn
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.main.finish import finish
from interlock.nodes.main.go_on import go_on
from interlock.nodes.main.nudge import nudge
from interlock.nodes.main.open_prompt import open_prompt
from interlock.nodes.main.routes import after_next_speaker, after_tools, after_turn
from interlock.state.main import MainInput, MainOutput, MainState
from interlock.state.subagent import MAX_DEPTH


def build(depth: int = MAX_DEPTH) -> Graph:
    """`depth`: levels of sub-agents below it."""
    g = Graph("main", MainState)
    g.node("open_prompt", open_prompt)
    g.part("turn", turn.build())
    g.part("tools", tools.build(depth))
    g.part("next-speaker", next_speaker.build())
    g.node("continue", go_on)
    g.node("nudge", nudge)
    g.node("finish", finish)

    g.edge(START, "open_prompt")
    g.edge("open_prompt", "turn")
    g.route(
        "turn",
        after_turn,
        {"calls": "tools", "no calls": "next-speaker", "first loop": "nudge", "ended": "finish"},
    )
    g.route("tools", after_tools, {"results": "turn", "stop": "finish"})
    g.route("next-speaker", after_next_speaker, {"model": "continue", "user or nobody": "finish"})
    g.edge("continue", "turn")
    g.edge("nudge", "turn")
    g.edge("finish", END)
    return g


PIPELINE = Pipeline("main", build, MainInput, MainOutput, prompt_field="prompt", needs_model=True)
