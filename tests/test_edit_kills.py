"""An edit cut off at any of its commits is made once, with the same answer, when the run is resumed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import Place

from interlock.engine import Options, Outcome, resume_sync, run_sync
from interlock.engine.store.journal import SqlJournal
from interlock.services.files.calls import FileCalls
from interlock.services.toolset import BuiltinToolset

AFTER = "one\n2\n"


class Cut(Exception):  # noqa: N818 - no error of ours: the process ends here
    """Simulates a kill: nothing after it in the process is done."""


def options(folder: Path) -> Options:
    (folder / "script.json").write_text("[]")
    place = Place(folder)
    return place.options(model=f"script:{folder / 'script.json'}", approval_mode="auto_edit")


def edited(given: Options) -> Outcome:
    edit = {"file_path": "a.txt", "old_string": "two", "new_string": "2"}
    return run_sync("edit", edit, options=given)


def cut(patch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool) -> None:
    """Make the first call of a method end the process, before it does its work or right after."""
    real: Callable[..., Any] = getattr(owner, name)
    if name == "run":

        async def stopped(*args: Any, **kwargs: Any) -> None:
            if after:
                await real(*args, **kwargs)
            raise Cut

        patch.setattr(owner, name, stopped)
        return

    def stopped_at_once(*args: Any, **kwargs: Any) -> None:
        if after:
            real(*args, **kwargs)
        raise Cut

    patch.setattr(owner, name, stopped_at_once)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"), [(SqlJournal, "intend"), (BuiltinToolset, "run"), (SqlJournal, "finish")]
)
def test_a_cut_edit_goes_on_and_is_made_once(
    owner: type, name: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path)
    with monkeypatch.context() as patch:
        cut(patch, owner, name, after=after)
        first = edited(given)
    assert first.status == "failed"
    file = tmp_path / "work/a.txt"
    stamp = file.stat().st_mtime_ns if file.read_text() == AFTER else None
    outcome = resume_sync(first.run, options=given)
    assert (outcome.output["status"], outcome.output["new_content"]) == ("applied", AFTER)
    assert file.read_text() == AFTER
    assert stamp in (None, file.stat().st_mtime_ns)
    assert [p.name for p in file.parent.iterdir()] == ["a.txt"]


def test_a_file_that_somebody_else_wrote_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path)
    file = tmp_path / "work/a.txt"
    with monkeypatch.context() as patch:
        cut(patch, BuiltinToolset, "run", after=False)
        first = edited(given)
    file.write_text("one\ntwo\nthree\n")
    outcome = resume_sync(first.run, options=given)
    assert outcome.output["error"]["code"] == "external_change"
    assert file.read_text() == "one\ntwo\nthree\n"


def test_a_file_that_changes_between_reading_and_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path)
    file = tmp_path / "work/a.txt"
    real = FileCalls.plan

    async def late(*args: Any, **kwargs: Any) -> Any:
        file.write_text("zero\none\ntwo\n")
        return await real(*args, **kwargs)

    monkeypatch.setattr(FileCalls, "plan", late)
    outcome = edited(given)
    assert outcome.output["error"]["code"] == "external_change"
    assert file.read_text() == "zero\none\ntwo\n"
