"""What a workflow's nodes, effects and input put into its state keeps its type, with and without a stop in between."""

import math
import os
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from langgraph.graph import StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.engine import Outcome, run_sync
from interlock.state.errors import UserError
from interlock.testing import Stage, reads_from
from interlock.workflow import (
    END,
    START,
    Deps,
    Graph,
    Input,
    Output,
    Runtime,
    State,
    Workflow,
    approve,
    effect,
    node,
)


class Level(Enum):
    high = "high"


class Color(StrEnum):
    red = "red"


class Size(IntEnum):
    big = 3


class Item(BaseModel):
    price: Decimal
    level: Level


@dataclass
class Point:
    x: int


class Pair(NamedTuple):
    a: int
    b: str


WHEN = datetime(2026, 11, 1, 1, 30, tzinfo=UTC)
VALUES: dict[str, Any] = {
    "model": Item(price=Decimal("1.10"), level=Level.high),
    "enum": Level.high,
    "str_enum": Color.red,
    "int_enum": Size.big,
    "datetime": WHEN,
    "decimal": Decimal("0.10"),
    "uuid": UUID(int=7),
    "path": Path("a/b"),
    "tuple": (1, (2, "x")),
    "set": {1, 2},
    "frozenset": frozenset({1}),
    "deque": deque([1], 3),
    "bytes": b"\xff\x00",
    "dataclass": Point(1),
    "namedtuple": Pair(1, "x"),
    "keys": {1: "one", "1": "text"},
    "infinite": math.inf,
    "nan": math.nan,
}


class Given(Input):
    ask: bool = False
    since: datetime = WHEN
    price: Decimal = Decimal("2.50")


class Seen(Output):
    seen: str


class Known(State, total=False):
    ask: bool
    since: datetime
    price: Decimal
    item: Any
    paid: Any
    seen: str


def ordering(value: Any, pays: bool = True) -> Workflow:
    """One node makes a value, and another one sees it; a person may be asked in between."""

    @node(reads=("ask",), writes=("item", "paid"), labels=("ask", "go"))
    async def make(state: Known, runtime: Runtime[Deps]) -> Known:
        paid = await effect(runtime, "pay", lambda: value if pays else None)
        return {"item": value, "paid": paid, "label": "ask" if state["ask"] else "go"}  # pyright: ignore[reportReturnType]

    @node(reads=("item", "paid", "since", "price"), writes=("seen",))
    async def use(state: Known) -> Known:
        shown = (state["item"], state["paid"], state["since"] == WHEN, state["price"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
        return {"seen": repr(shown)}

    def build() -> Graph:
        g = Graph("order", Known)
        g.nodes(make, use)
        g.subgraph("review", approve("Order?"))
        g.edge(START, "make")
        g.by_label("make", {"ask": "review", "go": "use"})
        g.by_label("review", {"approved": "use", "rejected": END})
        g.edge("use", END)
        return g

    return Workflow("order", build, Given, Seen)


def play(folder: Path, value: Any, ask: bool, pays: bool = True) -> Outcome:
    stage = Stage(folder)
    os.chdir(stage.work)
    return stage.play(ordering(value, pays), {"ask": ask}, reads_from(["approve"]))


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_keeps_its_type_with_and_without_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = repr((VALUES[kind], VALUES[kind], True, Decimal("2.50")))
    for ask in (False, True):
        done = play(tmp_path / f"asks-{ask}", VALUES[kind], ask)
        assert (done.status, done.output) == ("done", {"seen": expected}), done.error


def _nested(depth: int) -> list[Any]:
    return [_nested(depth - 1)] if depth else []


class Local:
    """Holds more than data: it can't be loaded again."""


@pytest.mark.parametrize(
    ("value", "named"), [(Local(), "Local"), ("\ud800", "surrogate"), (2**70, "int"), (_nested(400), "list")]
)
def test_what_would_not_come_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for pays in (False, True):
        failed = play(tmp_path / f"pays-{pays}", value, ask=True, pays=pays)
        message = str(failed.error)
        assert (
            failed.status == "failed" and "can't be stored" in message and named in message.lower() + message
        )
        assert len(message) < 600 and "bug" not in message
        expected = (
            "Effect 'pay' of node 'make' took place" if pays else "Node 'make' failed: state key 'item'"
        )
        assert expected in message


class RudeError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Base(BaseException):
    """Isn't an `Exception`."""


RAISED: dict[str, BaseException] = {
    "rude": RudeError(),
    "base": Base("x"),
    "exit": SystemExit("\ud800"),
    "long": ValueError("y" * 3_000_000),
    "lone": ValueError("\ud800"),
    "lines": ValueError("a\nb"),
    "group": ExceptionGroup("g", [RudeError()]),
}


class Word(TypedDict, total=False):
    word: str


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("kind", RAISED)
def test_an_odd_exception_is_one_bounded_line_that_names_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, theirs: bool
) -> None:
    theirs_only: dict[str, Any] = {"error": RAISED[kind]}
    exec(
        compile("def fail(state):\n    raise error\n", "/odd.py", "exec"), theirs_only
    )  # a file of somebody else
    fail = theirs_only["fail"]

    @node(writes=("seen",))
    async def make(state: Known) -> Known:
        return fail(state)

    def build() -> Graph:
        g = Graph("odd", Known)
        g.nodes(make)
        g.edge(START, "make", END)
        return g

    monkeypatch.chdir(tmp_path)
    graph: Any = StateGraph(Word)
    foreign = Workflow.from_langgraph(graph.add_node("make", fail).add_edge(START, "make"), "odd")
    stage = Stage(tmp_path / "stage")
    failed = stage.play(foreign if theirs else Workflow("odd", build, Given, Seen), {}, reads_from([]))
    message = (failed.error or {})["message"]
    assert (failed.status, (failed.error or {})["type"]) == ("failed", "node")
    assert message.startswith(f"Node 'make' failed: {type(RAISED[kind]).__name__}"), message
    assert len(message) < 2_000 and "\n" not in message and "bug" not in message


@pytest.mark.parametrize(("value", "shown"), [(b"\xff\x00", "_wA="), (math.nan, "nan"), ({1}, [1])])
def test_what_json_has_no_word_for_is_kept_in_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, shown: Any
) -> None:
    @node(writes=("item",))
    async def make(state: Known) -> Known:
        return {"item": value}

    class Made(Output):
        item: Any

    def build() -> Graph:
        g = Graph("odd", Known)
        g.nodes(make)
        g.edge(START, "make", END)
        return g

    monkeypatch.chdir(tmp_path)
    done = Stage(tmp_path / "stage").play(Workflow("odd", build, Given, Made), {}, reads_from([]))
    assert (done.status, done.output) == ("done", {"item": shown})


@pytest.mark.parametrize("name", ["latest", "all", "../x", "", "-p", "a b", "a/b", "x" * 200])
def test_an_odd_run_id_and_a_taken_one_are_refused_for_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options = Stage(tmp_path / "stage").options
    order = ordering(1)
    with pytest.raises(UserError, match="can't be a run_id"):
        run_sync(order, {}, options=options, run_id=name)
    assert run_sync(order, {}, options=options, run_id="mine").status == "done"
    with pytest.raises(UserError, match="There is a run 'mine' already"):
        run_sync(order, {}, options=options, run_id="mine")
