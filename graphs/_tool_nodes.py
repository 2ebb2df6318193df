"""_tool_nodes: the `ToolNode`s of somebody's graph, those that it shows and those that its tools run."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any


def tool_nodes(compiled: Any) -> list[Any]:
    """The `ToolNode`s of a graph and of those inside it."""
    graphs = (compiled, *(inner for _, inner in compiled.get_subgraphs(recurse=True)))
    bound = (node.bound for graph in graphs for node in graph.nodes.values())
    return [one for one in bound if isinstance(getattr(one, "tools_by_name", None), dict)]


@cache
def before_tool_calls(prepare: Callable[[Any], object]) -> None:
    """Call it with a `ToolNode` before each of its calls, also with those of graphs that tools make or hold."""
    from langgraph.prebuilt import ToolNode

    own: Any = ToolNode
    run_one, arun_one = own._run_one, own._arun_one

    @wraps(run_one)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        prepare(self)
        return run_one(self, *args, **named)

    @wraps(arun_one)
    async def arun(self: Any, *args: Any, **named: Any) -> Any:
        prepare(self)
        return await arun_one(self, *args, **named)

    own._run_one, own._arun_one = run, arun
