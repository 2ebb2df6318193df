"""path: the way that a run took, from the rows of the `steps` table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

from langgraph.graph import END, START

Place = tuple[str, ...]
"""Names of the nodes around a graph, outermost first; `()` is the workflow itself."""


class Row(Protocol):
    """A row of `steps`, a dict or a `sqlite3.Row`: namespace, superstep, task, node, root_step, seq."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(frozen=True)
class Step:
    """One superstep: the tasks that ran side by side."""

    nodes: Counter[str]
    root_step: int


@dataclass(frozen=True)
class Visit:
    """One run through one graph."""

    steps: tuple[Step, ...]
    ended: bool


@dataclass(frozen=True)
class Counts:
    """What was entered and taken within one graph."""

    nodes: Counter[str]
    edges: Counter[tuple[str, str]]
    """A fan-out of three counts three times, as does its join."""
    here: Set[str] = frozenset()
    """Nodes where the run waits or stopped."""


@dataclass(frozen=True)
class RunPath:
    """The way that a run took. A graph that was entered several times has as many visits."""

    visits: Mapping[Place, list[Visit]]
    mark: str = ""
    """What is written to the nodes that the run came to last: that it waits there, or stopped."""

    @property
    def entered(self) -> set[str]:
        """The workflow's own nodes that the run came to."""
        return {node for visit in self.visits.get((), []) for step in visit.steps for node in step.nodes}

    def through(self, place: Place, declared: Set[tuple[str, str]]) -> Counts:
        """Count the declared edges whose two nodes ran one after the other."""
        counts = Counts(Counter(), Counter())
        for visit in self.visits.get(place, []):
            _walk(visit, declared, counts)
        last = self.visits[place][-1] if self.mark and self.visits.get(place) else None
        if last and last.steps and not (place and last.ended):
            return replace(counts, here={*last.steps[-1].nodes})
        return counts


def _walk(visit: Visit, declared: Set[tuple[str, str]], counts: Counts) -> None:
    start, end = Counter({START: 1}), Counter({END: 1})
    walked = [start]
    last = visit.steps[0].root_step
    for step in visit.steps:
        # Root steps are numbered without a gap, but for the input that comes in between: a further prompt.
        follows = _between(walked[-1], step.nodes, declared) and step.root_step <= last + 1
        if not follows and _between(start, step.nodes, declared):
            walked += [end, start]
        walked.append(step.nodes)
        last = step.root_step
    if visit.ended:
        walked.append(end)
    for nodes in walked:
        counts.nodes.update(nodes)
    for before, after in pairwise(walked):
        counts.edges.update(_between(before, after, declared))


def _between(
    before: Counter[str], after: Counter[str], declared: Set[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    return {(a, b): max(before[a], after[b]) for a in before for b in after if (a, b) in declared}


MARKS = {
    "waiting": "waits here",
    "interrupted": "stopped here",
    "failed": "stopped here",
    "cancelled": "stopped here",
}
"""A run's status → what is written to the nodes that it came to last."""
_ENDED = ("done", "failed", "cancelled")


def path_of(rows: Iterable[Row], status: str) -> RunPath:
    """The path of a run with this status, marked where it waits or stopped."""
    return replace(run_path(rows, status in _ENDED), mark=MARKS.get(status, ""))


def run_path(rows: Iterable[Row], ended: bool) -> RunPath:
    """The path of one run. `ended`: its graph came to its end; a run that waits or was cut off has not."""
    ordered = sorted((r for r in rows if r["node"] != START), key=lambda r: r["seq"])
    finished = {r["task"] for r in ordered}
    steps = _supersteps(ordered)
    _add_open(steps, finished)
    visits: dict[Place, list[Visit]] = {}
    for namespace, found in steps.items():
        segments = [s.partition(":") for s in namespace.split("|") if s]
        over = segments[-1][2] in finished if segments else ended
        place = tuple(name for name, _, _ in segments)
        visits.setdefault(place, []).append(Visit(tuple(found.values()), over))
    return RunPath(visits)


def _supersteps(rows: Iterable[Row]) -> dict[str, dict[str, Step]]:
    """Namespace → checkpoint → nodes: the tasks of a superstep share the checkpoint that they ran in."""
    steps: dict[str, dict[str, Step]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row["namespace"], row["task"]) in seen:  # done again after a crash
            continue
        seen.add((row["namespace"], row["task"]))
        found = steps.setdefault(row["namespace"], {})
        found.setdefault(row["superstep"], Step(Counter(), row["root_step"])).nodes[row["node"]] += 1
    return steps


def _add_open(steps: dict[str, dict[str, Step]], finished: set[str]) -> None:
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
        if (
            newest is None or name not in newest.nodes
        ):  # else it runs beside those of its superstep that are over
            newest = found.setdefault("open", Step(Counter(), newest.root_step if newest else 0))
        newest.nodes[name] += 1
