"""A run stopped by a signal or a time-out and then resumed ends like the undisturbed one.

`docs/internals.md#a-stop-is-a-polite-kill`.
"""

import asyncio
import os
import signal
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from kill_runs.stops import SCENES, WAYS, Place, Scene, swept
from patience import sweep_part

from interlock.engine import resume_sync, run, run_sync
from interlock.engine.driver import runner
from interlock.engine.read import find_run, list_runs
from interlock.state.events import Event

OFTEN = ("turn, tried again", "tools")
"""Tried with every change; the others in the sweeps."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.sweep) for name in SCENES]
)
def test_a_stop_while_a_model_or_a_command_works_is_no_answer(name: str, tmp_path: Path) -> None:
    """One stop in each kind of request and in a command, each in another way."""

    def pick(moments: list[str]) -> list[tuple[int, signal.Signals | None]]:
        first = {kind: at for at, kind in reversed(list(enumerate(moments, 1)))}
        return list(zip(sorted(first.values()), cycle(WAYS)))

    stops, differ = swept(name, tmp_path / "place", pick)
    assert differ == []
    assert stops


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize("name", SCENES)
def test_a_stop_at_any_node_request_or_command_changes_nothing(name: str, tmp_path: Path) -> None:
    """Every moment, alternating the ways. STOP_WAYS=all tries every way at each: four times as long."""

    def pick(moments: list[str]) -> list[tuple[int, signal.Signals | None]]:
        if os.environ.get("STOP_WAYS") == "all":
            return [(at + 1, way) for at in range(len(moments)) for way in WAYS]
        part, of = sweep_part()
        return list(zip(range(1, len(moments) + 1), cycle(WAYS)))[part::of]

    stops, differ = swept(name, tmp_path / "place", pick)
    print(f"{name}: {stops} stops")
    assert differ == []


def _place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place", Scene("main", {"prompt": "go"}, [{"text": "Hello.", "delay_s": 0.3}]))


@pytest.mark.parametrize("where", ["prepare_run", "insert_run", "clear_run_error"])
def test_ctrl_c_before_the_first_node_keeps_the_prompt(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, whole = _place(tmp_path), getattr(runner, where)

    def pressed(*args: Any, **given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return whole(*args, **given)

    with monkeypatch.context() as patch:
        patch.setattr(runner, where, pressed)
        outcome = run_sync("main", {"prompt": "go"}, options=place.options)
    assert (outcome.status, outcome.exit_code) == ("cancelled", 130)
    assert find_run(place.options.home, outcome.run).status == "interrupted"
    done = resume_sync(outcome.run, options=place.options)
    assert (done.status, done.output["response"]) == ("done", "Hello.")
    assert [m["content"] for m in done.output["history"]] == ["go", "Hello."]


def test_a_caller_who_cancels_a_run_can_resume_it(tmp_path: Path) -> None:
    place, seen = _place(tmp_path), list[Event]()

    async def cancelled(after: int) -> None:
        task = asyncio.ensure_future(
            run("main", {"prompt": "go"}, options=place.options, renderers=[seen.append])
        )
        while len(seen) < after:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled(after=1))
    (row,) = list_runs(place.options.home)
    assert row.status == "interrupted"
    assert resume_sync(row.run, options=place.options).output["response"] == "Hello."
