"""Every box and arrow of the original documents' diagrams is on a graph, or differs for a stated reason.

The table is `documented_flows.yaml`. A row that names nothing fails, and so does one that names what is gone.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from interlock.engine.diagrams.graph_model import Edge, merged_edges, walk_graphs
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Compiled
from interlock.graphs.graph_changes import PLACES
from interlock.graphs.supersteps import SuperstepTask
from interlock.state import events
from interlock.state.charts import CHARTS, initial_state, legal_moves
from interlock.state.node import find_node_spec

TABLE = yaml.load(
    (Path(__file__).parent / "documented_flows.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
DOCUMENTS = ["000", "001", "002", "003", "004"]
LEAST = 400
"""Rows of the table."""
ENDS = {"start": "__start__", "end": "__end__"}
EVENTS = {kind.model_fields["type"].default for kind in events.Event.__subclasses__()}


class Row(NamedTuple):
    document: str
    says: str
    refers: tuple[str, ...]
    differs: str
    """Why it is done in another way, on purpose."""


def rows() -> Iterator[Row]:
    for document in TABLE:
        for section, boxes in document["flows"].items():
            for box in boxes:
                ((says, told),) = box.items()
                held: dict[str, Any] = {**told} if isinstance(told, dict) else {"is": told}
                refers = tuple((held["is"] or "").split(" + "))
                yield Row(document["document"], f"§{section}: {says}", refers, held.get("differs", "-"))


ROWS = [*rows()]


@cache
def graphs() -> dict[str, Compiled]:
    """By name; of those built to several depths, the one with sub-agents."""
    found: dict[str, Compiled] = {}
    for workflow in PIPELINES:
        for _, graph in walk_graphs(load_pipeline(workflow).build().compile()):
            before = found.setdefault(graph.name or "", graph)
            found[graph.name or ""] = max(before, graph, key=lambda one: len(one.builder.nodes))
    return found


@cache
def edges(graph: str) -> dict[tuple[str, str], Edge]:
    return {(edge.source, edge.target): edge for edge in merged_edges(graphs()[graph])}


def is_node(graph: str, node: str) -> bool:
    return node in graphs()[graph].builder.nodes


def is_edge(graph: str, source: str, label: str | None, target: str) -> bool:
    ends = {name: end for name, end in ENDS.items() if name not in graphs()[graph].builder.nodes}
    found = edges(graph).get((ends.get(source, source), ends.get(target, target)))
    return found is not None and (label in found.labels if label else not found.labels)


def is_state(chart: str, state: str) -> bool:
    known, new = set[str](), {initial_state(CHARTS[chart])}
    while new:
        known |= new
        new = {target for one in new for target in legal_moves(CHARTS[chart], one).values()} - known
    return state in known


def is_move(chart: str, source: str, event: str | None, target: str) -> bool:
    return event is not None and legal_moves(CHARTS[chart], source).get(event) == target


def is_event(event: str) -> bool:
    return event in EVENTS


def is_place(graph: str, place: str) -> bool:
    return is_node(graph, PLACES[place][1])


def declared(graph: str, node: str) -> Any:
    """The function of a node; null: it is a graph."""
    task = graphs()[graph].builder.nodes[node].runnable
    return task.function if isinstance(task, SuperstepTask) else None


def lists(graph: str, node: str, item: str) -> bool:
    spec = find_node_spec(declared(graph, node))
    parts = spec.parts if spec else ()
    return any(item in (p.when, *p.what, *(one.partition(":")[0] for one in p.what)) for p in parts)


def is_branch(graph: str, node: str, condition: str, item: str) -> bool:
    spec = find_node_spec(declared(graph, node))
    return any(p.numbers and p.when == condition and item in p.what for p in (spec.parts if spec else ()))


def keys(of: str) -> Callable[[str, str, str], bool]:
    def names(graph: str, node: str, key: str) -> bool:
        spec = find_node_spec(declared(graph, node))
        return spec is not None and key in getattr(spec, of)

    return names


def fields(of: str) -> Callable[[str, str], bool]:
    return lambda workflow, field: field in getattr(load_pipeline(workflow), of).model_fields


FORMS: Mapping[str, Callable[..., bool]] = {
    r"chart (\S+) (\S+)": is_state,
    r"chart (\S+) (\S+) --(.+)--> (\S+)": is_move,
    r"event (\S+)": is_event,
    r"(\S+) (\S+)": is_node,
    r"(\S+) (\S+) --(.+)--> \[(\S+)\]": is_branch,
    r"(\S+) (\S+) (?:->|--(.+)-->) (\S+)": is_edge,
    r"(\S+) (\S+) lists (.+)": lists,
    r"(\S+) (\S+) reads (\S+)": keys("reads"),
    r"(\S+) (\S+) writes (\S+)": keys("writes"),
    r"(\S+) takes (\S+)": fields("input"),
    r"(\S+) gives (\S+)": fields("output"),
    r"(\S+) at (\S+)": is_place,
}
"""How a row says what a box or arrow is → whether there is such a thing."""


def is_there(refers: str) -> bool:
    for form, holds in FORMS.items():
        if found := re.fullmatch(form, refers):
            try:
                return holds(*found.groups())
            except (KeyError, AttributeError):  # no such graph, node, chart, event or place
                return False
    return False


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_box_and_arrow_of_a_document_is_on_a_graph(document: str) -> None:
    of_it = [row for row in ROWS if row.document == document]
    missing = [f"{row.says}: {one!r}" for row in of_it for one in row.refers if not is_there(one)]
    unexplained = [row.says for row in of_it if not row.differs]
    assert of_it and (missing, unexplained) == ([], [])


def test_the_table_has_every_document_and_no_row_twice() -> None:
    assert [document["document"] for document in TABLE] == DOCUMENTS
    assert len({(row.document, row.says) for row in ROWS}) == len(ROWS) >= LEAST


GONE = (
    "",
    "turn",
    "turn call_nobody",
    "nothing call_model",
    "turn call_model -> wait_retry",
    "turn check_stream --again--> wait_retry",
    "turn check_stream -> wait_retry",
    "edit match lists guess",
    "edit match --the first that finds any--> [exact]",
    "system-prompt gather_task --a browser--> [rules_diff]",
    "turn call_model writes nothing",
    "event nothing",
    "turn route reads head",
    "main takes nothing",
    "main at after_lunch",
    "chart tool-call dreaming",
    "chart tool-call executing --ask--> success",
)


def test_what_is_gone_is_not_found() -> None:
    assert [one for one in GONE if is_there(one)] == []
