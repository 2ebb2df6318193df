"""`doctor --store` makes the lists agree with the checkpoints again."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kill_runs.scene import Scene

from interlock.engine import Decision, resume_sync, run_sync
from interlock.engine.read import list_runs, list_waiting_requests
from interlock.engine.rebuild import rebuild_run_statuses_from_checkpoints
from interlock.engine.store import Store
from interlock.graphs.pipeline import Pipeline


@pytest.fixture
def parked(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path / "scene")
    scene.prepare()
    outcome = run_sync("main", {"prompt": "Do it."}, options=scene.options, run_id="r")
    assert outcome.status == "waiting"
    return scene


def test_rows_that_were_changed_are_found_and_mended(parked: Scene) -> None:
    home = parked.options.home
    assert rebuild_run_statuses_from_checkpoints(home) == []
    waiting = [r.id for r in list_waiting_requests(home)]
    with closing(Store(home).connect()) as conn:
        conn.execute_raw("update runs set status = 'done', outcome = 'done', step = 77")
        conn.execute_raw("update approvals set interrupt = null")
    assert list_runs(home)[0].status == "done"
    assert len(rebuild_run_statuses_from_checkpoints(home)) == 2
    assert rebuild_run_statuses_from_checkpoints(home) == []
    assert list_runs(home)[0].status == "waiting"
    assert [r.id for r in list_waiting_requests(home)] == waiting


def test_the_graph_of_many_runs_is_compiled_once(parked: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_sync("main", {"prompt": "Do it."}, options=parked.options, run_id="s").status == "waiting"
    compiled: list[str] = []
    compile = Pipeline.compile

    def counted(self: Pipeline, *args: Any) -> Any:
        compiled.append(self.name)
        return compile(self, *args)

    monkeypatch.setattr(Pipeline, "compile", counted)
    assert rebuild_run_statuses_from_checkpoints(parked.options.home) == []
    assert compiled == ["main"]


def test_an_answered_request_waits_no_more(parked: Scene) -> None:
    home = parked.options.home
    for _ in range(2):
        decisions = [Decision(r.id, "proceed_once") for r in list_waiting_requests(home)]
        outcome = resume_sync("r", decisions=decisions, options=parked.options)
        assert rebuild_run_statuses_from_checkpoints(home) == []
    assert outcome.status == "done"
    assert (list_runs(home)[0].status, list_waiting_requests(home)) == ("done", [])
