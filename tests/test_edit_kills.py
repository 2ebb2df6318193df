"""An edit cut off at any of its commits is made once, with the same answer, when the run is resumed."""

from pathlib import Path
from typing import Any

import pytest

from interlock.services.files.calls import FileWriteCalls
from interlock.services.toolset import BuiltinToolset
from interlock.testing import Stage, kill_everywhere

EDIT = {"file_path": "a.txt", "old_string": "two", "new_string": "2"}


def staged(folder: Path) -> Stage:
    return Stage(folder, files={"a.txt": "one\ntwo\n"}, given={"approval_mode": "auto_edit"})


@pytest.mark.parametrize(("every", "least"), [(2, 5), pytest.param(1, 10, marks=pytest.mark.sweep)])
def test_killed_at_commits_an_edit_is_made_once(every: int, least: int, tmp_path: Path) -> None:
    """Right before each commit, and in the sweeps also right after it: before the last one, the file is written."""
    assert kill_everywhere(staged, "edit", EDIT, tmp_path, every=every) >= least


class Cut(Exception):  # noqa: N818 - no error of ours: the process ends here
    """Simulates a kill: nothing after it in the process is done."""


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_file_that_somebody_else_writes_before_the_edit_does_is_left_alone(
    cut_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the run is interrupted, or between reading and writing."""
    stage = staged(tmp_path)
    file = stage.work / "a.txt"
    plan = FileWriteCalls.plan_change

    async def cut(*_: Any, **__: Any) -> None:
        raise Cut

    async def late(*args: Any, **kwargs: Any) -> Any:
        file.write_text("zero\none\ntwo\n")
        return await plan(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(BuiltinToolset, "run_call", cut) if cut_off else patch.setattr(
            FileWriteCalls, "plan_change", late
        )
        outcome = stage.run("edit", EDIT)
    if cut_off:
        file.write_text("zero\none\ntwo\n")
        outcome = stage.resume(outcome.run)
    assert outcome.output["error"]["code"] == "external_change"
    assert file.read_text() == "zero\none\ntwo\n"
