"""main: the agent loop, a turn and its tools until the model has answered.

`turn` and `tools` alternate; a turn without calls, a limit, an error or a batch that says stop ends it.
"""

from langgraph.graph import END, START

from interlock.graphs import tools, turn
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.nodes.main.finish import finish
from interlock.nodes.main.open_prompt import open_prompt
from interlock.nodes.main.routes import after_tools, after_turn
from interlock.state.main import MainInput, MainOutput, MainState


def build() -> Graph:
    g = Graph("main", MainState)
    g.node("open_prompt", open_prompt)
    g.part("turn", turn.build())
    g.part("tools", tools.build())
    g.node("finish", finish)

    g.edge(START, "open_prompt")
    g.edge("open_prompt", "turn")
    g.route("turn", after_turn, {"calls": "tools", "ended": "finish"})
    g.route("tools", after_tools, {"results": "turn", "stop": "finish"})
    g.edge("finish", END)
    return g


PIPELINE = Pipeline("main", build, MainInput, MainOutput, prompt_field="prompt", needs_model=True)
