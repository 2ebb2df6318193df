"""Edits: previewed on top of each other, planned, written exactly as planned, and the same after a crash."""

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from interlock.services.files.filesystem import OutputFiles, sha256, temporary
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.secrets.redaction import SHAPES
from interlock.services.toolset import BuiltinToolset
from interlock.state.calls import CallKey, CallView, Planned, Preview, ToolResult
from interlock.state.settings import Settings
from interlock.state.tooling import Processes, ToolRun
from interlock.tools.table import TOOLS

KEY = CallKey(message="m", index=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    (folder / "a").write_text("one\ntwo\n")
    return folder


def fresh(root: Path) -> BuiltinToolset:
    """A toolset as another process would make it."""
    return BuiltinToolset(
        workspace=FolderWorkspace(root),
        processes=cast(Processes, None),
        outputs=OutputFiles(root.parent / "state"),
        settings=Settings(),
    )


def replace(old: str, new: str, path: str = "a", call_id: str = "c1") -> CallView:
    args: dict[str, Any] = {"file_path": path, "old_string": old, "new_string": new}
    return CallView(id=call_id, name="replace", args=args)


def write(path: str, content: str) -> CallView:
    return CallView(id="w", name="write_file", args={"file_path": path, "content": content})


def planned(toolset: BuiltinToolset, call: CallView) -> Planned:
    result = asyncio.run(toolset.plan(call))
    assert isinstance(result, Planned)
    return result


def run(toolset: BuiltinToolset, call: CallView, plan: Planned | None) -> ToolResult:
    return asyncio.run(toolset.run(ToolRun(key=KEY, call=call, emit=lambda _: None, planned=plan)))


def preview(root: Path, call: CallView, earlier: Sequence[CallView] = ()) -> Preview:
    return asyncio.run(fresh(root).preview(call, earlier))


def identity(path: Path) -> tuple[int, int]:
    """Changes with every write."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def kind(result: ToolResult) -> str:
    assert result.error is not None
    return result.error["type"]


def test_a_plan_names_the_hashes_and_changes_nothing(root: Path) -> None:
    plan = planned(fresh(root), replace("two", "2"))
    assert (plan.path, plan.before, plan.after) == (
        str(root / "a"),
        sha256(b"one\ntwo\n"),
        sha256(b"one\n2\n"),
    )
    assert (root / "a").read_text() == "one\ntwo\n"
    assert planned(fresh(root), write("new", "x")).before is None


def test_a_run_writes_what_was_planned(root: Path) -> None:
    toolset = fresh(root)
    plan = planned(toolset, replace("two", "2"))
    result = run(toolset, replace("two", "2"), plan)
    assert toolset.now(plan.path) == plan.after
    assert (result.status, result.content) == ("success", plan.message)
    assert (result.meta["path"], result.meta["diff"], result.meta["summary"]) == ("a", plan.diff, "+1 -1")


def test_after_a_crash_before_the_write_it_is_done_with_the_same_result(root: Path) -> None:
    call = replace("two", "2")
    plan = planned(fresh(root), call)
    temporary(root / "a", KEY).write_bytes(b"on")
    again = run(fresh(root), call, plan)
    assert (root / "a").read_text() == "one\n2\n"
    (root / "a").write_text("one\ntwo\n")
    toolset = fresh(root)
    assert again == run(toolset, call, planned(toolset, call))
    assert [p.name for p in root.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "call", [replace("two", "2"), write("a", "all new\n"), write("new", "x"), replace("", "x", "new")]
)
def test_after_a_crash_after_the_write_it_is_the_same_success_and_not_done_twice(
    root: Path, call: CallView
) -> None:
    toolset = fresh(root)
    plan = planned(toolset, call)
    first = run(toolset, call, plan)
    temporary(Path(plan.path), KEY).write_bytes(b"left over")
    stamp = identity(Path(plan.path))
    assert run(fresh(root), call, plan) == first
    assert identity(Path(plan.path)) == stamp
    assert not temporary(Path(plan.path), KEY).exists()


def test_a_file_that_changed_after_the_plan_is_not_written(root: Path) -> None:
    toolset = fresh(root)
    plan = planned(toolset, replace("two", "2"))
    (root / "a").write_text("one\ntwo\nthree\n")
    assert kind(run(toolset, replace("two", "2"), plan)) == "external_change"
    assert kind(run(fresh(root), replace("two", "2"), plan)) == "external_change"
    assert (root / "a").read_text() == "one\ntwo\nthree\n"


def test_what_would_be_written_now_must_be_what_was_planned(root: Path) -> None:
    """An upgrade between a crash and the resume may compute another change from the same file."""
    call = replace("two", "2")
    other = planned(fresh(root), call).model_copy(update={"after": "0" * 64})
    assert kind(run(fresh(root), call, other)) == "external_change"
    assert (root / "a").read_text() == "one\ntwo\n"


def test_a_link_put_there_after_the_plan_is_not_followed(root: Path) -> None:
    (root.parent / "outside").write_text("one\ntwo\n")
    toolset = fresh(root)
    plan = planned(toolset, replace("two", "2"))
    (root / "a").unlink()
    (root / "a").symlink_to(root.parent / "outside")
    assert kind(run(toolset, replace("two", "2"), plan)) == "path_refused"
    assert (root.parent / "outside").read_text() == "one\ntwo\n"


def test_an_edit_through_a_link_changes_the_file_and_keeps_the_link(root: Path) -> None:
    (root / "link").symlink_to("a")
    toolset = fresh(root)
    plan = planned(toolset, replace("two", "2", "link"))
    assert plan.path == str(root / "a")
    run(toolset, replace("two", "2", "link"), plan)
    assert (root / "link").is_symlink()
    assert (root / "a").read_text() == "one\n2\n"


def test_writing_the_same_content_is_a_success_without_a_write(root: Path) -> None:
    toolset = fresh(root)
    call = write("a", "one\ntwo\n")
    stamp = identity(root / "a")
    for plan in (planned(toolset, call), None):
        result = run(toolset, call, plan)
        assert (result.status, identity(root / "a")) == ("success", stamp)


def test_a_write_that_fails_says_so_and_leaves_the_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolset = fresh(root)
    plan = planned(toolset, replace("two", "2"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run(toolset, replace("two", "2"), plan)
    assert result.content == "'a' could not be written: No space left on device. The file is as it was."
    assert (root / "a").read_text() == "one\ntwo\n"
    assert [p.name for p in root.iterdir()] == ["a"]


def test_without_a_plan_a_run_plans_by_itself(root: Path) -> None:
    assert run(fresh(root), replace("two", "2"), None).status == "success"
    assert kind(run(fresh(root), replace("two", "2"), None)) == "no_occurrence"


def test_a_plan_that_fails_is_the_answer(root: Path) -> None:
    result = asyncio.run(fresh(root).plan(replace("absent", "x")))
    assert isinstance(result, ToolResult)
    assert kind(result) == "no_occurrence"


def test_a_preview_is_made_on_what_earlier_calls_leave(root: Path) -> None:
    first, second = replace("two", "2"), replace("2", "zwei", call_id="c2")
    shown = preview(root, second, [CallView(id="r", name="read_file", args={"file_path": "a"}), first])
    assert "-2\n+zwei" in shown.text
    assert "two" not in shown.text
    (state,) = shown.files
    assert (state.path, state.sha256) == (str(root / "a"), sha256(b"one\n2\n"))
    assert state.on_disk == sha256(b"one\ntwo\n")
    assert shown.problem is None
    assert (root / "a").read_text() == "one\ntwo\n"


def test_previews_made_side_by_side_compute_each_edit_at_most_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once as what a later one finds, and once as its own."""
    (root / "a").write_text("".join(f"line {n}\n" for n in range(9)))
    computed: list[object] = []
    tool = TOOLS["replace"]
    assert tool.plan is not None
    plan = tool.plan

    def counted(*given: Any) -> Any:
        computed.append(given)
        return plan(*given)

    monkeypatch.setitem(TOOLS, "replace", dataclasses.replace(tool, plan=counted))
    calls = [replace(f"line {n}", f"{n}", call_id=f"c{n}") for n in range(9)]

    async def all_of_them() -> list[Preview]:
        toolset = fresh(root)
        return await asyncio.gather(*(toolset.preview(call, calls[:n]) for n, call in enumerate(calls)))

    shown = asyncio.run(all_of_them())
    assert [f"-line {n}\n+{n}\n" in one.text for n, one in enumerate(shown)] == [True] * 9
    assert len(computed) == 2 * len(calls) - 1


def test_a_preview_says_what_would_go_wrong(root: Path) -> None:
    assert "isn't in 'a'" in str(preview(root, replace("2", "zwei")).problem)
    after = preview(root, replace("two", "2", call_id="c2"), [replace("two", "zwei")])
    assert "isn't in 'a'" in str(after.problem)


def test_earlier_calls_that_fail_or_are_malformed_change_nothing(root: Path) -> None:
    bad = [
        replace("absent", "x"),
        CallView(id="b", name="replace", args={}),
        CallView(id="n", name="nothing", args={}),
    ]
    bad.append(write("../outside", "x"))
    shown = preview(root, replace("two", "2"), bad)
    assert (shown.problem, shown.files[0].sha256) == (None, sha256(b"one\ntwo\n"))


def test_a_preview_of_a_file_made_earlier_in_the_batch_knows_it_is_not_there_yet(root: Path) -> None:
    shown = preview(root, replace("x", "y", "new"), [write("new", "x\n")])
    assert (shown.problem, shown.files[0].on_disk, shown.files[0].sha256) == (None, None, sha256(b"x\n"))


def test_edits_of_one_file_one_after_the_other_all_count(root: Path) -> None:
    toolset = fresh(root)
    for call in (replace("one", "1"), replace("two", "2"), replace("1\n2", "3")):
        assert run(toolset, call, planned(toolset, call)).status == "success"
    assert (root / "a").read_text() == "3\n"


def test_a_plan_that_was_stored_without_its_secrets_is_carried_out_after_a_crash(root: Path) -> None:
    secret = "ghp_" + "aB3d" * 9
    (root / "a").write_text(f"one\n{secret}\n")
    stored = SHAPES.planned(planned(fresh(root), replace("one", "two")))
    assert secret not in stored.model_dump_json()
    assert run(fresh(root), replace("one", "two"), stored).status == "success"
    assert (root / "a").read_text() == f"two\n{secret}\n"


def test_a_mark_that_a_file_holds_already_may_stay_and_no_further_one_is_written(root: Path) -> None:
    (root / "a").write_text("see [redacted:x]\n")
    assert isinstance(planned(fresh(root), write("a", "look at [redacted:x]\n")), Planned)
    refused = asyncio.run(fresh(root).plan(write("a", "[redacted:x] [redacted:x]\n")))
    assert isinstance(refused, ToolResult) and kind(refused) == "redacted"
    assert "[redacted:x]" in refused.content
    refused = asyncio.run(fresh(root).plan(write("new", "key = [redacted:GITHUB_TOKEN]\n")))
    assert isinstance(refused, ToolResult) and kind(refused) == "redacted"
