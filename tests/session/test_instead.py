"""test_instead: a prompt replaces what a person stopped, and the model learns what became of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interlock.engine import Options, resume, run
from interlock.engine.driver.drive import Stop
from interlock.engine.store.checkpoints import state_at
from interlock.engine.store.runs import messages_at
from interlock.state.events import Event

SLEEP = {"tool_calls": [{"name": "run_shell_command", "args": {"command": "touch began; sleep 60"}}]}


@pytest.mark.parametrize("cut", ["request", "tool", "second request"])
def test_what_was_stopped_ends_and_the_prompt_is_answered_in_its_place(tmp_path: Path, cut: str) -> None:
    look = {"tool_calls": [{"name": "list_directory", "args": {"dir_path": "."}}]}
    before = {"request": [], "tool": [SLEEP], "second request": [look]}[cut]
    script = tmp_path / "replies.json"
    script.write_text(json.dumps([*before, {"text": "too late", "delay_s": 60}]))
    (tmp_path / "work").mkdir()
    options = Options(tmp_path / "state", tmp_path, tmp_path / "work", f"script:{script}", "yolo")

    async def cut_short() -> Any:
        stop, seen = Stop(), list[Event]()

        def show(event: Event) -> None:
            seen.append(event)

        async def later() -> None:
            while not (tmp_path / "work" / "began").exists() if cut == "tool" else not stopped_at(seen):
                await asyncio.sleep(0.01)
            stop()

        def stopped_at(seen: list[Event]) -> bool:
            nodes = [
                event
                for event in seen
                if getattr(event, "node", "") == "call_model" and event.type == "node_start"
            ]
            return len(nodes) >= (2 if cut == "second request" else 1)

        task = asyncio.ensure_future(later())
        first = await run("main", {"prompt": "go"}, options=options, renderers=[show], stop=stop)
        await task
        assert first.status == "cancelled"
        script.write_text(json.dumps([*before, {"text": "as you wish"}]))
        return await resume(first.run, prompt="do that instead", options=options, instead=True)

    outcome = asyncio.run(cut_short())
    assert (outcome.status, outcome.output["response"]) == ("done", "as you wish")
    told = messages_at(options.home, outcome.run, state_at(options.home, outcome.run)["head"])
    said = [m.text for m in told if m.role == "user" and m.origin in (None, "person")]
    assert "go" in said[0] and "do that instead" in said[-1]
    answers = [m for m in told if m.role == "tool"]
    assert [m.status for m in answers] == {
        "request": [],
        "tool": ["cancelled"],
        "second request": ["success"],
    }[cut]
