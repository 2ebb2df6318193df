"""A hook runs once, even if the run is killed: an unknown outcome is asked about, and nothing is repeated unasked."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.engine.driver.hooks import RunHooks
from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals, record_decision
from interlock.engine.store.journal import HookLog
from interlock.services.config.settings import HookLayer
from interlock.services.files.filesystem import OutputFiles
from interlock.services.hooks.hook_replies import HookEnvironment
from interlock.services.hooks.hook_settings import load_hooks
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.calls import Answer, ApprovalRequest, CallView
from interlock.state.events import Event
from interlock.state.hooks import HookOutcome


class Stage:
    """A store, and as many drives of the run as a test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = Store(folder / "home")
        store.create_or_migrate()
        self.conn = store.connect()
        self.told: list[Event] = []

    def fire(
        self, hooks: dict[str, Any], epoch: int = 1, event: Any = "BeforeTool", **config: Any
    ) -> HookOutcome:
        async def go() -> HookOutcome:
            outputs, home = OutputFiles(self.folder / "home"), self.folder / "home"
            log = HookLog(self.conn, home / "outputs", "r", epoch)
            processes = SupervisedProcesses(outputs=outputs, env=dict(os.environ))
            book = load_hooks([HookLayer("s.json", hooks, config, False)], {})
            around = HookEnvironment("r", self.folder, None)
            self.run = RunHooks(book, log, SqlApprovals(self.conn, "r"), processes, around)
            return await self.run.fire(event, "k", {"tool_input": {}}, subject="x", emit=self.told.append)

        return asyncio.run(go())

    def cut(self, word: str) -> None:
        """Simulate a kill: the hook with this word in its command has started, and its end isn't recorded."""
        self.conn.execute_raw("delete from hook_calls where hook = ''")
        self.conn.execute_raw(
            "update hook_calls set state = 'intent', reply = null where command like $1", (f"%{word}%",)
        )

    def answer(self, unknown: str, choice: Any) -> None:
        request = ApprovalRequest(
            key=unknown,
            kind="outcome",
            call=CallView(id="", name="", args={}),
            reason="",
            preview="",
            choices=(choice,),
        )
        name = SqlApprovals(self.conn, "r").write_request(request)
        record_decision(self.conn, "r", name, Answer(choice=choice))

    @property
    def ran(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().split() if log.exists() else []


def hook(word: str, **more: Any) -> dict[str, Any]:
    return {"command": f"echo {word} >> log", **more}


def both(*hooks: dict[str, Any], sequential: bool = False) -> dict[str, Any]:
    return {"BeforeTool": [{"sequential": sequential, "hooks": list(hooks)}]}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.conn.close()


def test_a_firing_that_has_an_outcome_returns_it_again(stage: Stage) -> None:
    said = json.dumps(
        {"decision": "deny", "reason": "r" * 20_000, "hookSpecificOutput": {"additionalContext": "c"}}
    )
    (stage.folder / "said").write_text(said)
    hooks = both({"command": "cat said; echo x >> log"})
    hooks["BeforeTool"][0]["hooks"][0]["command"] = "echo x >> log; cat said"
    first = stage.fire(hooks)
    assert (first.decision, len(first.reason), first.context) == ("block", 20_000, "c")
    assert stage.fire(hooks, epoch=2) == first
    assert stage.ran == ["x"]
    assert stage.conn.execute("select count(*) from hook_calls where reply_file is not null").fetchone() == (
        1,
    )


def test_only_what_is_in_doubt_is_asked_and_skipping_runs_nothing(stage: Stage) -> None:
    hooks = both(hook("one"), hook("two"))
    stage.fire(hooks)
    stage.cut("two")
    unknown = stage.fire(hooks, epoch=2).unknown
    assert stage.run.load_interrupted_firing(unknown).commands == ("echo two >> log",)
    assert stage.fire(hooks, epoch=2).unknown == unknown
    stage.answer(unknown, "reject")
    assert [v.name for v in stage.fire(hooks, epoch=3).verdicts] == ["echo one >> log"]
    assert sorted(stage.ran) == ["one", "two"]


def test_redo_runs_it_again_and_a_second_kill_asks_anew(stage: Stage) -> None:
    hooks = both(hook("one"), hook("two"), sequential=True)
    stage.fire(hooks)
    stage.cut("two")
    first = stage.fire(hooks, epoch=2).unknown
    stage.answer(first, "proceed_once")
    assert stage.fire(hooks, epoch=2).decision == "none"
    assert stage.ran == ["one", "two", "two"]
    stage.cut("two")
    second = stage.fire(hooks, epoch=3).unknown
    assert second not in ("", first)
    stage.answer(second, "proceed_once")
    assert len(stage.fire(hooks, epoch=3).verdicts) == 2
    assert stage.ran == ["one", "two", "two", "two"]


def test_idempotent_hooks_and_notifications_are_simply_run_again(stage: Stage) -> None:
    hooks = {**both(hook("one", idempotent=True)), "Notification": [{"hooks": [hook("note")]}]}
    stage.fire(hooks)
    stage.fire(hooks, event="Notification")
    stage.cut("")
    assert not stage.fire(hooks, epoch=2).unknown
    assert not stage.fire(hooks, epoch=2, event="Notification").unknown
    assert stage.ran == ["one", "note", "one", "note"]


def test_a_hook_that_settings_no_longer_have_is_asked_about_too(stage: Stage) -> None:
    stage.fire(both(hook("one")))
    stage.cut("one")
    unknown = stage.fire({}, epoch=2).unknown
    assert unknown
    stage.answer(unknown, "proceed_once")
    assert stage.fire({}, epoch=2) == HookOutcome()
    assert stage.ran == ["one"]


def test_hooks_one_after_the_other_see_what_the_one_before_changed(stage: Stage) -> None:
    change = {"command": """echo '{"hookSpecificOutput": {"tool_input": {"a": 1}}}'"""}
    outcome = stage.fire(both(change, {"command": "cat > got"}, sequential=True))
    assert json.loads((stage.folder / "got").read_text())["tool_input"] == {"a": 1}
    assert outcome.output == {"tool_input": {"a": 1}}
    (stage.folder / "got").unlink()
    stage.conn.execute_raw("delete from hook_calls")
    stage.fire(both(change, {"command": "cat > got"}))
    assert json.loads((stage.folder / "got").read_text())["tool_input"] == {}


def test_hooks_side_by_side_wait_for_each_other(stage: Stage) -> None:
    meet = "touch {}; for i in $(seq 500); do [ -e {} ] && exit 0; sleep 0.02; done; exit 2"
    hooks = both({"command": meet.format("a", "b")}, {"command": meet.format("b", "a")})
    assert stage.fire(hooks).decision == "none"


def test_each_hook_is_told_and_what_does_not_count_is_a_warning(stage: Stage) -> None:
    hooks = both(hook("one"), {"command": "exit 7", "name": "bad"}, {"command": "echo hello"})
    stage.fire(hooks)
    assert [e.type for e in stage.told] == ["hook", "hook", "error", "hook", "error"]
    texts = [e.message for e in stage.told if e.type == "error"]
    assert texts == [
        "Hook 'bad' of BeforeTool (s.json): it exited with 7; it doesn't count.",
        "BeforeTool hook: hello",
    ]
    stage.told.clear()
    stage.conn.execute_raw("delete from hook_calls")
    stage.fire(hooks, notifications=False)
    assert [e.type for e in stage.told] == ["hook", "error", "error"]
