"""path: the way that a run took, from the rows of the `steps` table."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from langgraph.graph import END, START

Place = tuple[str, ...]
"""Names of the nodes around a graph, outermost first; `()` is the workflow itself."""
Walk = list[Counter[str]]
"""The supersteps of one run through a graph: node → tasks. It begins with START, and ends with END if it did."""


class Row(Protocol):
    """A row of `steps` with `namespace`, `checkpoint`, `task`, `node` and `seq`: a dict or a `sqlite3.Row`."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(frozen=True)
class RunPath:
    """The way that a run took. A graph that was run several times has as many walks."""

    walks: Mapping[Place, list[Walk]]

    def entered(self, place: Place, node: str) -> int:
        """How many tasks of this node there were."""
        return sum(step[node] for walk in self.walks.get(place, []) for step in walk)

    def taken(self, place: Place, source: str, target: str) -> int:
        """How often `target` ran right after `source`; a fan-out of three counts three times, as does its join."""
        pairs = (pair for walk in self.walks.get(place, []) for pair in pairwise(walk))
        return sum(max(a[source], b[target]) for a, b in pairs if a[source] and b[target])


def run_path(rows: Iterable[Row], ended: bool) -> RunPath:
    """The path of one run. `ended`: its graph came to its end; a run that waits or was cut off has not."""
    ordered = sorted(rows, key=lambda r: r["seq"])
    finished = {r["task"] for r in ordered}
    steps = _supersteps(ordered)
    _add_open(steps, finished)
    walks: dict[Place, list[Walk]] = {}
    for namespace, found in steps.items():
        segments = [s.partition(":") for s in namespace.split("|") if s]
        over = segments[-1][2] in finished if segments else ended
        walks.setdefault(tuple(name for name, _, _ in segments), []).extend(
            _walks(list(found.values()), over)
        )
    return RunPath(walks)


def _supersteps(rows: Iterable[Row]) -> dict[str, dict[str, Counter[str]]]:
    """Namespace → checkpoint → nodes: the tasks of a superstep share the checkpoint that they ran in."""
    steps: dict[str, dict[str, Counter[str]]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row["namespace"], row["task"]) in seen:  # done again after a crash
            continue
        seen.add((row["namespace"], row["task"]))
        found = steps.setdefault(row["namespace"], {})
        found.setdefault(row["checkpoint"], Counter())[row["node"]] += 1
    return steps


def _add_open(steps: dict[str, dict[str, Counter[str]]], finished: set[str]) -> None:
    """A graph that is still open has no row of its own: the rows inside it show that it was entered."""
    open_graphs: set[str] = set()
    for namespace in steps:
        while namespace and namespace.rpartition(":")[2] not in finished:
            open_graphs.add(namespace)
            namespace = namespace.rpartition("|")[0]
    for namespace in sorted(open_graphs):
        outer, _, last = namespace.rpartition("|")
        name = last.partition(":")[0]
        found = steps.setdefault(outer, {})
        newest = next(reversed(found.values()), None)
        if newest is None or name not in newest:  # else it runs beside those of its superstep that are over
            newest = found.setdefault("open", Counter())
        newest[name] += 1


def _walks(steps: list[Counter[str]], over: bool) -> list[Walk]:
    """Split at each START: every further prompt of a run walks its graph anew."""
    walks: list[Walk] = []
    for step in steps:
        if START in step or not walks:
            walks.append([])
        walks[-1].append(step)
    for i, walk in enumerate(walks):
        if over or i < len(walks) - 1:
            walk.append(Counter({END: 1}))
    return walks
