"""test_instead: a prompt replaces what a person stopped, and the model learns what became of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from places import Place

from interlock.engine import Outcome, resume, run
from interlock.engine.driver.stop import Stop
from interlock.engine.store.chain import read_messages_up_to
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.state.events import Event

SLEEP = {"tool_calls": [{"name": "run_shell_command", "args": {"command": "touch began; sleep 60"}}]}
LOOK = {"tool_calls": [{"name": "list_directory", "args": {"dir_path": "."}}]}


@pytest.mark.parametrize(
    ("before", "requests", "statuses"), [([], 1, []), ([SLEEP], 1, ["cancelled"]), ([LOOK], 2, ["success"])]
)
def test_what_was_stopped_ends_and_the_prompt_is_answered_in_its_place(
    tmp_path: Path, before: list[Any], requests: int, statuses: list[str]
) -> None:
    place, script, seen = Place(tmp_path), tmp_path / "replies.json", list[Event]()
    script.write_text(json.dumps([*before, {"text": "too late", "delay_s": 60}]))
    options = place.options(model=f"script:{script}", approval_mode="yolo")

    def is_there() -> bool:
        asked = [e for e in seen if e.type == "node_start" and getattr(e, "node", "") == "call_model"]
        return (place.work / "began").exists() if SLEEP in before else len(asked) >= requests

    async def cut_short() -> Outcome:
        stop = Stop()

        async def later() -> None:
            while not is_there():
                await asyncio.sleep(0.01)
            stop()

        task = asyncio.ensure_future(later())
        first = await run("main", {"prompt": "go"}, options=options, renderers=[seen.append], stop=stop)
        await task
        assert first.status == "cancelled"
        script.write_text(json.dumps([*before, {"text": "as you wish"}]))
        return await resume(first.run, prompt="do that instead", options=options, instead=True)

    outcome = asyncio.run(cut_short())
    assert (outcome.status, outcome.output["response"]) == ("done", "as you wish")
    told = read_messages_up_to(
        options.home, outcome.run, read_state_at_step(options.home, outcome.run)["head"]
    )
    said = [m.text for m in told if m.role == "user" and m.origin in (None, "person")]
    assert "go" in said[0] and "do that instead" in said[-1]
    assert [m.status for m in told if m.role == "tool"] == statuses
