"""command: a prompt that names a custom command becomes the command's text. Nothing loops; what it runs in a shell is a
batch of calls before that."""

from functools import cache

from langgraph.graph import END, START

from interlock.graphs import tools
from interlock.graphs._pipeline import Graph
from interlock.nodes.command import after_tools, expand, fill
from interlock.state.command import CommandIn, CommandOut, CommandState


@cache
def build() -> Graph:
    g = Graph("command", CommandState, input=CommandIn, output=CommandOut)
    g.node("expand", expand)
    g.part("tools", lambda: tools.build(0))
    g.node("fill", fill)

    g.edge(START, "expand")
    g.by_label("expand", {"shell": "tools", "text": END})
    g.route("tools", after_tools, {"results": "fill", "stop": END})
    g.edge("fill", END)
    return g
