"""_loop: the node that lets a loop go round so often and no oftener."""

from interlock.graphs._pipeline import Graph
from interlock.state.errors import SetupError
from interlock.state.node import node
from interlock.state.placed import State


def loop(g: Graph, name: str, *, most: int, again: str, enough: str) -> None:
    """Add node `name`: the first `most` times that a run comes to it, it leads to `again`, then to `enough`.

    The state is one of `State`, whose `passes` counts. A workflow whose nodes could follow each other for ever, without
    such a node or a person on the way, is refused when it is loaded.
    """
    if most < 1:
        raise SetupError(f"{g.name}.{name}: most={most}, expected 1 or more.")

    @node(reads=("passes",), writes=("passes",), labels=("again", "enough"), pure=True)
    async def passed(state: State) -> State:
        times = state.get("passes", {}).get(name, 0)
        if times >= most:
            return {"label": "enough"}
        return {"label": "again", "passes": {name: times + 1}}

    g.node(name, passed)
    g.by_label(name, {"again": again, "enough": enough})
    g.bounds.add(name)
