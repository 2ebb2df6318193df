"""Renderers get the events in order and can neither stop nor slow the run (`docs/internals.md#renderers`)."""

import asyncio
import threading
import time
import weakref
from types import SimpleNamespace

import pytest
from patience import HANG_S, lines_run, until

from interlock.engine.driver import event_bus
from interlock.engine.driver.event_bus import EventBus
from interlock.state import events as ev


def delta(text: str) -> ev.MessageEvent:
    return ev.MessageEvent(role="assistant", content=text, delta=True)


def use(name: str) -> ev.ToolUse:
    return ev.ToolUse(tool_name=name, tool_id=name, parameters={})


class Gate:
    """A renderer that blocks until it is opened."""

    def __init__(self) -> None:
        self.seen: list[ev.Event] = []
        self.open = threading.Event()
        self.entered = threading.Event()

    def __call__(self, event: ev.Event) -> None:
        self.entered.set()
        self.open.wait()
        self.seen.append(event)

    def stand_still_on(self, bus: EventBus) -> None:
        bus(ev.NodeStart(workflow="w", node="first", checkpoint_id=""))
        assert self.entered.wait(HANG_S)


def test_what_waited_together_is_flushed_once_after_its_last_event() -> None:
    class Flushed(Gate):
        def __init__(self) -> None:
            super().__init__()
            self.flushed: list[int] = []

        def flush(self) -> None:
            self.flushed.append(len(self.seen))

    gate = Flushed()
    bus = EventBus([gate])
    gate.stand_still_on(bus)
    for n in range(100):
        bus(use(str(n)))
    gate.open.set()
    assert asyncio.run(bus.close())
    assert gate.flushed == [101]


def test_a_piece_of_text_after_a_silence_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_bus, "_TOGETHER_S", 10 * HANG_S)
    gate = Gate()
    bus = EventBus([gate])
    bus(delta("first"))
    assert gate.entered.wait(HANG_S)
    gate.open.set()
    assert asyncio.run(bus.close())


def test_a_renderer_that_stands_still_neither_blocks_emit_nor_the_others() -> None:
    gate, seen = Gate(), list[ev.Event]()
    bus = EventBus([gate, seen.append])
    gate.stand_still_on(bus)
    for n in range(100):
        bus(use(str(n)))
    bus(ev.Result(status="done"))
    assert asyncio.run(bus.close(0.2)) is False
    assert seen[-1] == ev.Result(status="done")
    assert len(seen) == 102
    gate.open.set()


@pytest.mark.parametrize(
    "piece",
    [
        delta("x" * 100),
        ev.Thought(content="x" * 100),
        ev.ToolOutput(tool_id="t", text="x" * 100),
        ev.NodeStart(workflow="w", node="x" * 100, checkpoint_id=""),
    ],
    ids=lambda piece: piece.type,
)
def test_a_full_queue_drops_pieces_first_and_says_so(piece: ev.Event) -> None:
    gate = Gate()
    bus = EventBus([gate], limit=20_000)
    gate.stand_still_on(bus)
    kept = [*(use(str(n)) for n in range(20)), ev.MessageEvent(role="assistant", content="y" * 3000)]
    for event in kept:
        for _ in range(10):
            bus(piece)
        bus(event)
    bus(ev.Result(status="done"))
    gate.open.set()
    assert asyncio.run(bus.close())
    pieces = sum(event == piece for event in gate.seen)
    assert 0 < pieces < 210
    warning = ev.ErrorEvent(
        severity="warning",
        message=f"This output was slower than the run: {210 - pieces} events were skipped.",
    )
    rest = [event for event in gate.seen[1:] if event != piece]
    assert rest == [*kept, warning, ev.Result(status="done")]


def test_what_waits_for_a_stuck_renderer_is_bounded_and_the_result_comes_through() -> None:
    gate = Gate()
    bus = EventBus([gate], limit=100_000)
    gate.stand_still_on(bus)
    for n in range(5000):
        bus(use(str(n)))
    bus(ev.Result(status="waiting"))
    gate.open.set()
    assert asyncio.run(bus.close())
    assert len(gate.seen) < 250
    assert gate.seen[-3] == use("4999")
    assert isinstance(gate.seen[-2], ev.ErrorEvent)
    assert gate.seen[-1] == ev.Result(status="waiting")


@pytest.mark.parametrize("event", [delta("x" * 50), use("t")], ids=["a piece", "a call"])
def test_an_emit_to_a_stuck_renderer_costs_the_same_however_much_waits(event: ev.Event) -> None:
    gate = Gate()
    bus = EventBus([gate], limit=1_000_000)
    gate.stand_still_on(bus)

    def emit() -> None:
        for _ in range(100):
            bus(event)

    emit()
    few = lines_run(emit)
    for _ in range(40):  # more than the queue holds
        emit()
    assert lines_run(emit) < 3 * few < 3 * 500 * 100
    gate.open.set()
    assert asyncio.run(bus.close(HANG_S))


def test_a_renderer_that_raises_is_detached_after_one_warning_to_the_others() -> None:
    """One whose reader closed the pipe without a word; for neither is anything kept."""
    calls: list[ev.Event] = []
    seen: list[ev.Event] = []

    def broken(event: ev.Event) -> None:
        calls.append(event)
        raise ValueError("no such colour")

    def head(event: ev.Event) -> None:
        raise BrokenPipeError

    bus = EventBus([broken, head, seen.append])
    tools = [use(str(n)) for n in range(50)]
    for tool in tools:
        bus(tool)
    until(lambda: bus.failures)
    (warning,) = bus.failures
    assert "broken" in warning and "ValueError: no such colour" in warning
    last = ev.Result(status="done")
    bus(last)
    assert asyncio.run(bus.close()) and len(calls) == 1
    assert [event for event in seen if event.type != "error"] == [*tools, last] and seen[-1] is last
    (told,) = (event for event in seen if isinstance(event, ev.ErrorEvent))
    assert (told.severity, told.message) == ("warning", warning)
    bus = EventBus([broken])
    bus(use("first"))
    until(lambda: bus.failures)
    event = use("later")
    kept = weakref.ref(event)
    bus(event)
    del event
    assert kept() is None
    seen.clear()
    bus = EventBus([broken, seen.append])
    bus(last)
    until(lambda: bus.failures)
    assert asyncio.run(bus.close()) and seen == [last], "nothing comes after the result"


def test_closing_waits_for_a_slow_renderer_as_long_as_it_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on with each event, however busy the machine is."""
    seen: list[ev.Event] = []

    def slow(event: ev.Event) -> None:
        time.sleep(0.1)
        seen.append(event)

    monkeypatch.setattr(event_bus, "time", SimpleNamespace(monotonic=lambda: 1 + len(seen)))
    bus = EventBus([slow])
    for n in range(15):
        bus(use(str(n)))
    assert asyncio.run(bus.close(8))
    assert len(seen) == 15
