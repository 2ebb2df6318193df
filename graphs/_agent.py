"""_agent: the part that gives a task to an agent: `main`, turns and tools until it has answered."""

from langgraph.graph import END, START

from interlock.graphs import main
from interlock.graphs._checks import hints_of, state_of
from interlock.graphs._pipeline import Graph
from interlock.nodes.workflow import begin_task, end_task
from interlock.state.main import MainState
from interlock.state.placed import AgentState


def agent(*, task: str = "task", answer: str = "answer", depth: int = 1) -> Graph:
    """A part in which an agent works on the text under `task`; map its labels `done` and `failed`.

    Its answer, or why there is none, stands under `answer`. The state is one of `AgentState`; agents that are placed
    one after the other share the conversation. `depth`: levels of sub-agents that it may start.
    """
    keys = hints_of(AgentState)
    given = state_of("AgentGiven", {**keys, task: str})
    left = state_of("AgentLeft", {"head": str, "label": keys["label"], answer: str})
    state = state_of("AgentWork", {**hints_of(MainState), task: str, answer: str})
    g = Graph("agent", state, input=given, output=left, labels=("done", "failed"))
    g.node("begin", begin_task(task))
    g.part("main", lambda: main.build(depth))
    g.node("end", end_task(answer))
    g.edge(START, "begin")
    g.edge("begin", "main")
    g.edge("main", "end")
    g.by_label("end", {"done": END, "failed": END})
    return g
