"""run_path: the way that a run took through the graphs, from the rows of its steps."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from langgraph.constants import END, START

from interlock.engine.read import RunRow
from interlock.engine.store import queries
from interlock.engine.store.checkpoints import DueNode, list_innermost_due_nodes
from interlock.engine.store.queries import Row
from interlock.graphs.stored_channels import node_of_task_path
from interlock.state.names import ERROR_HANDLER, RAISED

Place = tuple[str, ...]
"""Names of the nodes around a graph, outermost first; `()` is the workflow itself."""


@dataclass
class Step:
    """One superstep: the tasks that ran in parallel."""

    nodes: Counter[str]
    root_step: int
    raised: Counter[str] = field(default_factory=Counter[str])
    """Those of the nodes that raised: only an error handler, in the same superstep, follows them."""


@dataclass(frozen=True)
class Visit:
    """One run through one graph."""

    steps: tuple[Step, ...]
    ended: bool
    counted: dict[frozenset[tuple[str, str]], "Counts"] = field(
        default_factory=dict[frozenset[tuple[str, str]], "Counts"], compare=False
    )
    """Declared edges → what was counted of them, once."""

    def count_nodes_and_edges(self, declared: frozenset[tuple[str, str]]) -> "Counts":
        if declared not in self.counted:
            self.counted[declared] = _count_visit_nodes_and_edges(self, declared)
        return self.counted[declared]


@dataclass(frozen=True)
class Counts:
    """Nodes entered and edges taken within one graph."""

    nodes: Counter[str]
    edges: Counter[tuple[str, str]]
    """A fan-out of three counts three times, as does its join."""
    here: Set[str] = frozenset()
    """Nodes where the run waits or stopped."""
    reasons: Mapping[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Node → what it gave as its reasons, a part each, and how often."""

    def reasons_of(self, node: str) -> Counter[str]:
        """What the node chose, of what it chooses among."""
        return self.reasons.get(node, Counter())

    @property
    def all_reasons(self) -> Counter[str]:
        """What the nodes of this graph chose."""
        return sum(self.reasons.values(), Counter[str]())


@dataclass(frozen=True)
class RunPath:
    """The path a run took. A graph entered several times has as many visits."""

    visits: Mapping[Place, list[Visit]]
    mark: str = ""
    """Label for the last nodes reached: the run works or waits there, or stopped."""
    asks: tuple[str, ...] = ()
    """Lines that say what it waits for; drawn beside those nodes."""
    waits: frozenset[tuple[Place, str]] = frozenset()
    """Nodes that wait for a person, or that the run stopped in, and the graphs around them."""
    reasons: Mapping[Place, Mapping[str, Counter[str]]] = field(
        default_factory=dict[Place, Mapping[str, Counter[str]]]
    )
    """Of each graph, as `Counts.reasons`."""

    @property
    def entered_nodes(self) -> set[str]:
        """The workflow's own nodes that the run reached."""
        return {node for visit in self.visits.get((), []) for step in visit.steps for node in step.nodes}

    @property
    def has_session_hooks(self) -> bool:
        """Whether the run entered the hooks of a session, which are around every workflow."""
        return bool(self.entered_nodes & {"session_start", "session_end"})

    def count_nodes_and_edges(self, place: Place, declared: Set[tuple[str, str]]) -> Counts:
        """Count the declared edges whose two nodes ran in succession."""
        counts, edges = Counts(Counter(), Counter(), reasons=self.reasons.get(place, {})), frozenset(declared)
        for visit in self.visits.get(place, []):
            found = visit.count_nodes_and_edges(edges)
            counts.nodes.update(found.nodes)
            counts.edges.update(found.edges)
        waits = {node for at, node in self.waits if at == place}
        if self.waits:
            return replace(counts, here=waits)
        last = self.visits[place][-1] if self.mark and self.visits.get(place) else None
        if last and last.steps and not (place and last.ended):
            return replace(counts, here={*last.steps[-1].nodes})
        return counts


def _count_visit_nodes_and_edges(visit: Visit, declared: Set[tuple[str, str]]) -> Counts:
    counts = Counts(Counter(), Counter())
    start, end = Counter({START: 1}), Counter({END: 1})
    walked = [(start, start)]  # what was entered, and what of it leads on
    last = visit.steps[0].root_step
    for step in visit.steps:
        handlers = Counter({n: times for n, times in step.nodes.items() if n.startswith(ERROR_HANDLER)})
        counts.edges.update(_count_edges_between(step.raised, handlers, declared))
        entered = step.nodes - handlers if handlers else step.nodes
        # Root step numbers have no gaps, except for an input in between: a further prompt.
        follows = _count_edges_between(walked[-1][1], entered, declared) and step.root_step <= last + 1
        if not follows and _count_edges_between(start, entered, declared):
            walked += [(end, end), (start, start)]
        walked.append((step.nodes, step.nodes - step.raised if step.raised else step.nodes))
        last = step.root_step
    if visit.ended:
        walked.append((end, end))
    for nodes, _ in walked:
        counts.nodes.update(nodes)
    for (_, before), (after, _) in pairwise(walked):
        counts.edges.update(_count_edges_between(before, after, declared))
    return counts


def _count_edges_between(
    before: Counter[str], after: Counter[str], declared: Set[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    return {(a, b): max(before[a], after[b]) for a in before for b in after if (a, b) in declared}


MARKS = {
    "running": "works here",
    "waiting": "waits here",
    "interrupted": "stopped here",
    "failed": "stopped here",
    "cancelled": "stopped here",
}
"""A run's status → label of the last nodes it reached."""
_ENDED = ("done", "failed", "cancelled")
_FOLLOWED = 4
"""Runs whose steps are kept for the next look at them."""


def build_run_path(
    rows: Iterable[Row],
    status: str,
    waiting_tasks: Iterable[Row] = (),
    request_lines: Iterable[str] = (),
    due_nodes: Iterable[DueNode] = (),
) -> RunPath:
    """The path of a run with this status, marked where it works, waits or stopped; `due_nodes`: nodes that hadn't
    ended."""
    taken = _Supersteps()
    taken.add_rows(sorted(rows, key=lambda row: row["seq"]))
    return _build_marked_path(taken, status, waiting_tasks, request_lines, due_nodes)


def _build_marked_path(
    supersteps: "_Supersteps",
    status: str,
    waiting_tasks: Iterable[Row],
    request_lines: Iterable[str],
    due_nodes: Iterable[DueNode],
) -> RunPath:
    waiting_tasks = waiting_tasks if status == "waiting" else ()
    due_nodes = due_nodes if status in ("running", "interrupted") else ()
    found = supersteps.build_path(status in _ENDED, waiting_tasks, due_nodes)
    mark = "" if status == "running" and not found.waits else MARKS.get(status, "")
    return replace(found, mark=mark, asks=tuple(request_lines))


def read_run_path(
    home: Path, run: RunRow, request_lines: Iterable[str] = (), until: int | None = None
) -> RunPath:
    """Return the path of a run as the store has it; `until`: only up to this root step, as if it had stopped there."""
    if until is not None:
        rows = queries.list_steps(home, run.run)
        return build_run_path([row for row in rows if row["root_step"] < until], "interrupted")
    taken = _cached_supersteps(home, run.run)
    with taken.reading:
        taken.add_rows(queries.list_steps_since(home, run.run, taken.newest + 1, include_nested=True))
        return _build_marked_path(
            taken,
            run.status,
            queries.list_waiting_tasks(home, run.run),
            request_lines,
            list_innermost_due_nodes(home, run.run),
        )


@lru_cache(maxsize=_FOLLOWED)
def _cached_supersteps(home: Path, run: str) -> "_Supersteps":  # noqa: ARG001 - what it is kept under
    """The steps of a run as read so far: a page that follows a run asks again and again, and rows only come."""
    return _Supersteps()


class Marks(NamedTuple):
    """What a drawing shows of a run's path, by the names that it gives to nodes: those of the graphs around come first,
    as in `turn.send`.
    """

    nodes: dict[str, int]
    """How often the run entered each."""
    edges: list[tuple[str, str]]
    """Those that it took."""
    here: list[str]
    """Where it works, waits or stopped, with the graphs around."""
    raised: list[str]
    """Nodes that raised."""


def compute_path_marks(path: RunPath, declared: Mapping[str, Iterable[tuple[str, str]]]) -> Marks:
    """Return what a run's path marks in graphs whose edges are declared; each graph by the nodes around it."""
    marks = Marks({}, [], [], [])
    for around, edges in declared.items():
        place = tuple(around.split(".")) if around else ()
        counts = path.count_nodes_and_edges(place, {(source, target) for source, target in edges})
        marks.nodes.update({".".join((*place, name)): times for name, times in counts.nodes.items() if times})
        marks.edges.extend(
            (".".join((*place, a)), ".".join((*place, b))) for (a, b), n in counts.edges.items() if n
        )
        marks.here.extend(".".join((*place, name)) for name in counts.here)
        steps = (step for visit in path.visits.get(place, []) for step in visit.steps)
        raised = dict.fromkeys(name for step in steps for name, times in step.raised.items() if times > 0)
        marks.raised.extend(".".join((*place, name)) for name in raised)
    return marks


class _Supersteps:
    """The supersteps that a run took, as far as its rows were read."""

    def __init__(self) -> None:
        self.newest = -1
        """Number of the last row."""
        self.reading = Lock()
        self._steps: dict[str, dict[str, Step]] = {}
        """Namespace → checkpoint → nodes: the tasks of a superstep share the checkpoint they ran in."""
        self._seen: set[tuple[str, str]] = set()
        self._finished: set[str] = set()
        self._over: dict[str, Visit] = {}
        """Those of graphs that have ended, which only a row of their own changes."""
        self._reasons: dict[Place, dict[str, Counter[str]]] = {}

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Take in further rows, in the order in which the nodes ended."""
        for row in rows:
            self.newest = max(self.newest, row["seq"])
            if row["node"] != START:
                self._add_row(row)

    def _add_row(self, row: Row) -> None:
        namespace, node = row["namespace"], row["node"]
        self._finished.add(row["task"])
        self._over.pop(namespace, None)
        if reason := row["reason"]:
            place = tuple(part.partition(":")[0] for part in namespace.split("|") if part)
            parts = _APART.split(_CUT.sub("", reason).removeprefix("in: "))
            self._reasons.setdefault(place, {}).setdefault(node, Counter()).update(parts)
        found = self._steps.setdefault(namespace, {})
        step, task = found.get(row["superstep"]), (namespace, row["task"])
        if task in self._seen:  # repeated after a crash, or because it had raised
            if step and row["route"] != RAISED:
                step.raised -= Counter({node: 1})
            return
        self._seen.add(task)
        step = found.setdefault(row["superstep"], Step(Counter(), row["root_step"]))
        step.nodes[node] += 1
        if row["route"] == RAISED:
            step.raised[node] += 1

    def build_path(self, ended: bool, waiting_tasks: Iterable[Row], due_nodes: Iterable[DueNode]) -> RunPath:
        """The path so far. What waits, is due or is open is no part of what was read, and changes only copies."""
        steps = {
            namespace: found
            if self._has_graph_ended(namespace)
            else {name: _copy_step(one) for name, one in found.items()}
            for namespace, found in self._steps.items()
        }
        here = _add_waiting_nodes(
            steps, [row for row in waiting_tasks if row["task_id"][:8] not in self._finished]
        )
        here |= _add_due_nodes(steps, due_nodes)
        _add_open_graphs(steps, self._finished)
        visits: dict[Place, list[Visit]] = {}
        for namespace, found in steps.items():
            place = tuple(part.partition(":")[0] for part in namespace.split("|") if part)
            if namespace and self._has_graph_ended(namespace):
                visit = self._over.setdefault(namespace, Visit(tuple(found.values()), ended=True))
            else:
                visit = Visit(tuple(found.values()), ended and not namespace)
            visits.setdefault(place, []).append(visit)
        reasons = {
            place: {node: given.copy() for node, given in nodes.items()}
            for place, nodes in self._reasons.items()
        }
        return RunPath(visits, waits=here, reasons=reasons)

    def _has_graph_ended(self, namespace: str) -> bool:
        """Whether the node that the graph stands for has ended."""
        return namespace.rpartition(":")[2] in self._finished


def _copy_step(step: Step) -> Step:
    return Step(step.nodes.copy(), step.root_step, step.raised.copy())


_CUT = re.compile(r"; out: .*", re.DOTALL)
_APART = re.compile(r", (?:then )?")


def _add_waiting_nodes(
    steps: dict[str, dict[str, Step]], waiting_tasks: Iterable[Row]
) -> frozenset[tuple[Place, str]]:
    """Add the nodes that wait, which have no row yet; returns them and the graphs around them."""
    here: set[tuple[Place, str]] = set()
    # Innermost first: a graph that waits is entered by what waits in it, and `_add_open_graphs` adds it.
    for row in sorted(
        waiting_tasks, key=lambda row: -row["checkpoint_ns"].count("|") - bool(row["checkpoint_ns"])
    ):
        inside = [part.partition(":") for part in row["checkpoint_ns"].split("|") if part]
        namespace = "|".join(f"{name}:{task[:8]}" for name, _, task in inside)  # as rows of steps have it
        place = tuple(name for name, _, _ in inside)
        here |= {(place[:depth], name) for depth, name in enumerate(place)}
        if not (node := node_of_task_path(row["task_path"])):
            continue
        here.add((place, node))
        if any(inner.startswith(f"{namespace}|{node}:".lstrip("|")) for inner in steps):
            continue
        found = steps.setdefault(namespace, {})
        last = max((step.root_step for step in found.values()), default=0)
        found.setdefault(row["checkpoint_id"][-12:], Step(Counter(), last)).nodes[node] += 1
    return frozenset(here)


def _add_due_nodes(
    steps: dict[str, dict[str, Step]], due_nodes: Iterable[DueNode]
) -> frozenset[tuple[Place, str]]:
    """Add the nodes that the run stopped in, unless one raised and has its row; returns them and the graphs around."""
    here: set[tuple[Place, str]] = set()
    for one in due_nodes:
        here |= {(one.place[:depth], name) for depth, name in enumerate(one.place)}
        inside = [part.partition(":") for part in one.namespace.split("|") if part]
        found = steps.setdefault("|".join(f"{name}:{task[:8]}" for name, _, task in inside), {})
        newest = next(reversed(found.values()), None)
        if newest is None or one.node not in newest.raised:
            root_step = newest.root_step + (not inside) if newest else 0
            found.setdefault("due", Step(Counter(), root_step)).nodes[one.node] += 1
    return frozenset(here)


def _add_open_graphs(steps: dict[str, dict[str, Step]], finished: set[str]) -> None:
    """Add graphs still open: they have no row of their own, but the rows inside show that they were entered."""
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
        ):  # otherwise it runs in parallel with the finished tasks of its superstep
            newest = found.setdefault("open", Step(Counter(), newest.root_step if newest else 0))
        newest.nodes[name] += 1
