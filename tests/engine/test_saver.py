"""The saver is LangGraph's, and keeps the promises of ours."""

import asyncio
import os
import pickle
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate

from interlock.engine.saver import Saver, raise_id_clock, status_of
from interlock.engine.store import Store


def test_it_passes_langgraphs_conformance_suite(tmp_path: Path) -> None:
    made = 0

    @checkpointer_test(name="interlock")
    async def saver() -> AsyncGenerator[Saver]:
        nonlocal made
        made += 1
        store = Store(tmp_path / str(made))
        store.open()
        conn = store.connect()
        yield Saver(conn)
        conn.close()

    report = asyncio.run(validate(saver))
    told = {name: (result.passed, result.failures) for name, result in report.results.items()}
    assert report.passed_all_base(), told
    assert not [result for result in told.values() if result[1]], told


def test_a_crafted_checkpoint_runs_nothing(tmp_path: Path) -> None:
    """A pickle, or a msgpack extension that names a callable, is data at most, also without the environment's lock."""
    store = Store(tmp_path)
    store.open()
    conn = store.connect()
    saver = Saver(conn)
    marker = tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {marker}",)

    extension = ormsgpack.packb(("os", "system", [f"touch {marker}"]))
    for kind, body in (
        ("pickle", pickle.dumps(Attack())),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(1, extension))),
        ("msgpack", ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {marker}"))))),
    ):
        try:
            saver.serde.loads_typed((kind, body))
        except Exception as refused:
            assert not isinstance(refused, AssertionError)
        assert not marker.exists()
    conn.close()


def test_a_new_id_sorts_after_those_of_a_clock_that_was_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    store = Store(tmp_path)
    store.open()
    conn = store.connect()
    saver = Saver(conn)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    ahead = str(uuid6(clock_seq=1))
    config: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}
    saver.put(config, {**empty_checkpoint(), "id": ahead}, {"source": "loop", "step": 0}, {})
    monkeypatch.setattr(time, "time_ns", real)
    from langgraph.checkpoint.base import id as ids

    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    assert str(uuid6(clock_seq=2)) < ahead
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    raise_id_clock(conn, "r")
    assert str(uuid6(clock_seq=3)) > ahead
    conn.close()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"branch:to:turn": None, "status": "running"}, ("open", "")),
        ({"__pregel_tasks": [1], "status": "running"}, ("open", "")),
        ({"__start__": {}}, ("open", "")),
        ({"status": "done"}, ("done", "done")),
        ({"status": "turn_limit"}, ("failed", "turn_limit")),
        ({"status": "cancelled"}, ("cancelled", "cancelled")),
        ({"turn_status": "calls"}, ("done", "done")),
        ({"stop": "hook"}, ("failed", "stopped")),
        ({"head": "x", "stop": ""}, ("done", "done")),
    ],
)
def test_the_row_says_open_until_nothing_is_due(values: dict[str, Any], expected: tuple[str, str]) -> None:
    assert status_of(values) == expected


def test_writes_of_one_checkpoint_are_one_transaction(tmp_path: Path) -> None:
    """Another connection sees the checkpoint and its run's row together, or neither."""
    store = Store(tmp_path)
    store.open()
    conn, other = store.connect(), sqlite3.connect(store.path)
    conn.execute(
        "insert into runs (run, workflow, workspace, title, created, updated, status, options, input) "
        "values ('r', 'main', '/', 't', 0, 0, 'open', '{}', '{}')"
    )
    seen: list[tuple[int, int]] = []

    def look() -> tuple[int, int]:
        step = other.execute("select step from runs").fetchone()[0]
        return other.execute("select count(*) from checkpoints").fetchone()[0], step

    class Spying(Saver):
        def _move_run(self, *args: Any) -> None:
            super()._move_run(*args)
            seen.append(look())

    config: Any = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}
    Spying(conn).put(config, empty_checkpoint(), {"source": "loop", "step": 4}, {})
    assert [*seen, look()] == [(0, 0), (1, 4)]
    conn.close()
    other.close()
