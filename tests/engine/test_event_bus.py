"""test_hub: renderers get the events in order and can neither stop nor slow the run (`engine.md` 19)."""

import asyncio
import os
import subprocess
import sys
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


def test_every_renderer_gets_all_events_in_order() -> None:
    one: list[ev.Event] = []
    two: list[ev.Event] = []
    events: list[ev.Event] = [*(delta(str(n)) for n in range(2000)), use("a"), ev.Result(status="done")]
    bus = EventBus([one.append, two.append])
    for event in events:
        bus(event)
    assert asyncio.run(bus.close())
    assert one == two == events
    assert bus.failures == []


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
    tools = [use(str(n)) for n in range(20)]
    for tool in tools:
        for _ in range(10):
            bus(piece)
        bus(tool)
    bus(ev.Result(status="done"))
    gate.open.set()
    assert asyncio.run(bus.close())
    assert [event for event in gate.seen if isinstance(event, ev.ToolUse)] == tools
    pieces = sum(event == piece for event in gate.seen)
    assert pieces < 200
    warning = ev.ErrorEvent(
        severity="warning",
        message=f"This output was slower than the run: {200 - pieces} events were skipped.",
    )
    assert gate.seen[-2:] == [warning, ev.Result(status="done")]


def test_a_whole_message_is_kept_where_its_pieces_are_dropped() -> None:
    gate = Gate()
    bus = EventBus([gate], limit=10_000)
    gate.stand_still_on(bus)
    for _ in range(100):
        bus(delta("x" * 100))
    whole = ev.MessageEvent(role="assistant", content="y" * 3000)
    bus(whole)
    gate.open.set()
    assert asyncio.run(bus.close())
    assert whole in gate.seen


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
    calls: list[ev.Event] = []
    seen: list[ev.Event] = []

    def broken(event: ev.Event) -> None:
        calls.append(event)
        raise ValueError("no such colour")

    bus = EventBus([broken, seen.append])
    for n in range(50):
        bus(use(str(n)))
    until(lambda: bus.failures)
    bus(ev.Result(status="done"))
    assert asyncio.run(bus.close())
    assert len(calls) == 1
    warnings = [event for event in seen if isinstance(event, ev.ErrorEvent)]
    assert [warning.severity for warning in warnings] == ["warning"]
    assert "broken" in warnings[0].message and "ValueError: no such colour" in warnings[0].message
    assert bus.failures == [warnings[0].message]
    assert [event for event in seen if isinstance(event, ev.ToolUse)] == [use(str(n)) for n in range(50)]
    assert seen[-1] == ev.Result(status="done")


def test_the_result_is_the_last_event_also_when_a_renderer_fails_on_it() -> None:
    seen: list[ev.Event] = []

    def broken(_event: ev.Event) -> None:
        raise ValueError

    bus = EventBus([broken, seen.append])
    bus(ev.Result(status="done"))
    until(lambda: bus.failures)
    assert asyncio.run(bus.close())
    assert seen == [ev.Result(status="done")]
    assert len(bus.failures) == 1


def test_a_hub_that_nothing_was_sent_to_has_no_threads() -> None:
    before = threading.active_count()
    bus = EventBus([print])
    assert threading.active_count() == before
    assert asyncio.run(bus.close())


def test_nothing_is_kept_for_a_detached_renderer() -> None:
    def broken(_event: ev.Event) -> None:
        raise ValueError

    bus = EventBus([broken])
    bus(use("first"))
    until(lambda: bus.failures)
    event = use("later")
    kept = weakref.ref(event)
    bus(event)
    del event
    assert kept() is None


def test_a_closed_pipe_detaches_silently() -> None:
    seen: list[ev.Event] = []

    def head(_event: ev.Event) -> None:
        raise BrokenPipeError

    bus = EventBus([head, seen.append])
    bus(use("a"))
    bus(ev.Result(status="done"))
    assert asyncio.run(bus.close())
    assert seen == [use("a"), ev.Result(status="done")]
    assert bus.failures == []


def test_events_after_close_are_ignored() -> None:
    seen: list[ev.Event] = []
    bus = EventBus([seen.append])
    assert asyncio.run(bus.close())
    bus(use("late"))
    assert seen == []


PRINTS = """
import asyncio, json, os, sys
from interlock.engine.driver.event_bus import EventBus
from interlock.state.events import Result, ToolUse, MessageEvent
def show(event):
    sys.stdout.write(event.model_dump_json() + "\\n"); sys.stdout.flush()
async def main():
    bus = EventBus([show])
    for n in range(int(sys.argv[1])):
        bus(MessageEvent(role="assistant", content="x" * 1000, delta=True))
        bus(ToolUse(tool_name=str(n), tool_id="", parameters={}))
    bus(Result(status="done"))
    print("emitted", file=sys.stderr, flush=True)
    return await bus.close(float(sys.argv[2]))
drained = asyncio.run(main())
if not drained:
    os._exit(7)
"""


def child(events: int, timeout_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRINTS, str(events), str(timeout_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Only a buffered stdout has the lock that Python's exit waits for.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


def test_a_process_whose_reader_never_reads_still_ends() -> None:
    process = child(500, 0.5)
    assert process.stderr and process.stdout
    assert process.stderr.readline() == "emitted\n"
    assert process.wait(timeout=HANG_S) == 7
    process.stdout.close()
    process.stderr.close()


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
