"""The path a run took, read from the rows that a real run leaves in the store."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drawn import KEEPS_NOTHING, ask, sample
from langgraph.graph import END, START
from langgraph.types import Command

from interlock.engine.diagrams import declared_or_taken_edges, render_mermaid
from interlock.engine.diagrams.graph_model import extract_diagram
from interlock.engine.read import list_step_rows, list_waiting_tasks
from interlock.engine.read.run_path import RunPath, build_run_path, read_run_path
from interlock.engine.store import Store, queries
from interlock.engine.store.checkpoints import list_innermost_due_nodes
from interlock.engine.store.saver import Saver
from interlock.graphs.graph import Graph
from interlock.state.deps import Token


class Run:
    """One run of a graph, through a real store."""

    def __init__(self, home: Path, graph: Graph) -> None:
        self.home = home
        store = Store(home)
        store.create_or_migrate()
        self.connection = store.connect()
        saver = Saver(self.connection)
        self.graph = graph.compile(saver)
        self.deps: Any = SimpleNamespace(steps=saver.steps, cancel=Token(), emit=id, effects=KEEPS_NOTHING)

    def drive(self, value: Any) -> None:
        config: Any = {"configurable": {"thread_id": "r"}}
        asyncio.run(self.graph.ainvoke(value, config, context=self.deps, durability="sync"))

    def rows(self) -> list[Any]:
        return list_step_rows(self.home, "r")


def counts(run: Run, path: RunPath) -> dict[tuple[str, str], int | None]:
    return {(e.source, e.target): e.count for e in extract_diagram(run.graph, 2, path).all_edges()}


def test_edges_are_counted_by_the_tasks_that_took_them(tmp_path: Path) -> None:
    run = Run(tmp_path, sample())
    run.drive({"rounds": 2, "count": 3})
    assert counts(run, build_run_path(run.rows(), "done")) == {
        (START, "begin"): 1,
        ("begin", "item.__start__"): 3,
        ("item.__start__", "item.look"): 3,
        ("item.look", "item.even"): 2,
        ("item.look", "item.__end__"): 1,
        ("item.even", "item.__end__"): 2,
        ("item.__end__", "join"): 3,
        ("begin", "join"): 1,
        ("join", "begin"): 1,
        ("join", END): 1,
    }


def test_a_second_prompt_starts_and_ends_again(tmp_path: Path) -> None:
    run = Run(tmp_path, sample())
    run.drive({"rounds": 1, "count": 0})
    run.drive({"rounds": 1, "count": 0})
    path = build_run_path(run.rows(), "done")
    found = counts(run, path)
    assert found[START, "begin"] == found["join", END] == 2
    assert found["join", "begin"] == 0
    assert counts(run, build_run_path(run.rows(), "running"))["join", END] == 1


def test_a_parked_run_has_entered_but_not_left_what_waits(tmp_path: Path) -> None:
    run = Run(tmp_path, sample(even=ask))
    run.drive({"rounds": 2, "count": 2})
    parked = counts(run, build_run_path(run.rows(), "running"))
    assert parked["begin", "item.__start__"] == 2
    assert parked["item.__end__", "join"] == 0
    assert parked["item.look", "item.even"] == 0
    assert parked["item.look", "item.__end__"] == 1
    run.drive(Command(resume="yes"))
    after = counts(run, build_run_path(run.rows(), "done"))
    assert after["item.__end__", "join"] == 2
    assert after["item.look", "item.even"] == after["item.even", "item.__end__"] == 1


def test_the_node_that_waits_is_marked_and_not_the_one_before_it(tmp_path: Path) -> None:
    run = Run(tmp_path, sample(even=ask))
    run.drive({"rounds": 2, "count": 2})

    def marked(status: str) -> list[tuple[str, int | None]]:
        path = build_run_path(run.rows(), status, list_waiting_tasks(run.home, "r"))
        return [
            (n.id, n.count) for n in extract_diagram(run.graph, 2, path).all_nodes() if n.mark == "waits here"
        ]

    assert marked("waiting") == [("item.even", 1)]
    path = build_run_path(run.rows(), "waiting", list_waiting_tasks(run.home, "r"))
    assert counts(run, path)["item.look", "item.even"] == 1
    assert [n.name for n in extract_diagram(run.graph, 1, path).nodes if n.mark] == ["item"]
    run.drive(Command(resume="yes"))
    assert marked("done") == []


def test_a_task_that_was_done_again_counts_once(tmp_path: Path) -> None:
    run = Run(tmp_path, sample())
    run.drive({"rounds": 1, "count": 0})
    rows: list[dict[str, Any]] = [dict(r) for r in run.rows()]
    again = [{**r, "seq": r["seq"] + len(rows)} for r in rows if r["node"] == "join"]
    path = build_run_path([*rows, *again], "done")
    assert path.count_nodes_and_edges((), {("join", END)}).nodes["join"] == 1
    assert counts(run, path)["join", END] == 1


def test_a_run_that_is_looked_at_again_is_read_on_and_not_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read = Run(tmp_path, sample(even=ask)), list[int]()
    steps_since = queries.list_steps_since

    def counting(*args: Any, **kwargs: Any) -> list[Any]:
        rows = steps_since(*args, **kwargs)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(queries, "list_steps_since", counting)

    def look(status: str) -> RunPath:
        row: Any = SimpleNamespace(run="r", status=status)
        path, whole = (
            read_run_path(run.home, row),
            build_run_path(
                run.rows(),
                status,
                list_waiting_tasks(run.home, "r"),
                (),
                list_innermost_due_nodes(run.home, "r"),
            ),
        )
        assert counts(run, path) == counts(run, whole)
        assert (path.waits, path.visits) == (whole.waits, whole.visits)
        return path

    run.drive({"rounds": 2, "count": 2})
    before = look("waiting")
    assert counts(run, look("waiting")) == counts(run, before)
    run.drive(Command(resume="yes"))
    look("done")
    look("done")
    assert sum(read) == len(run.rows()) and read[1] == read[3] == 0 < read[2]


def test_only_edges_whose_nodes_followed_each_other_are_taken(tmp_path: Path) -> None:
    run = Run(tmp_path, sample())
    run.drive({"rounds": 1, "count": 0})
    taken = declared_or_taken_edges(run.graph, build_run_path(run.rows(), "done"))
    assert taken == {
        ("sample", START, "begin"),
        ("sample", "begin", "join"),
        ("sample", "join", END),
    }
    assert taken < declared_or_taken_edges(run.graph)


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_was_not_taken_is_grey_and_has_no_count(tmp_path: Path, shuffled: bool) -> None:
    run = Run(tmp_path, sample())
    run.drive({"rounds": 2, "count": 3})
    rows = list(reversed(run.rows())) if shuffled else run.rows()
    text = render_mermaid(extract_diagram(run.graph, 1, build_run_path(rows, "running")))
    assert '    item[["item ×3"]]' in text
    assert '    begin ==>|"one each ×3"| item' in text
    assert '    join -->|"over · limit"| __end__' in text
    assert "    class __end__ untaken" in text
    assert "    linkStyle 0,1,2,3,4 stroke:#0969da" in text
    assert "    linkStyle 5 stroke:#d0d7de" in text
