"""Edits: previewed on top of each other, planned, written exactly as planned, and the same after a crash."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import ANY

import pytest

from interlock.services.files.filesystem import OutputFiles, sha256, temporary_path
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.secrets.redaction import SHAPES
from interlock.services.toolset import BuiltinToolset
from interlock.state.calls import CallKey, CallView, Planned, Preview, ToolResult
from interlock.state.settings import Settings
from interlock.state.tooling import Processes, ToolRun

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
    result = asyncio.run(toolset.plan_change(call))
    assert isinstance(result, Planned)
    return result


def refused(root: Path, call: CallView) -> ToolResult:
    result = asyncio.run(fresh(root).plan_change(call))
    assert isinstance(result, ToolResult)
    return result


def run(toolset: BuiltinToolset, call: CallView, plan: Planned | None) -> ToolResult:
    return asyncio.run(toolset.run_call(ToolRun(key=KEY, call=call, emit=lambda _: None, planned=plan)))


def preview(root: Path, call: CallView, earlier: Sequence[CallView] = ()) -> Preview:
    return asyncio.run(fresh(root).preview_call(call, earlier))


def identity(path: Path) -> tuple[int, int]:
    """Changes with every write."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def kind(result: ToolResult) -> str:
    assert result.error is not None
    return result.error["type"]


def text(root: Path) -> str:
    return (root / "a").read_text()


def test_a_plan_changes_nothing_and_a_run_writes_what_was_planned(root: Path) -> None:
    toolset = fresh(root)
    assert planned(toolset, write("new", "x")).before is None
    plan = planned(toolset, replace("two", "2"))
    hashes = [sha256(b"one\ntwo\n"), sha256(b"one\n2\n")]
    assert ([plan.path, plan.before, plan.after], text(root)) == ([str(root / "a"), *hashes], "one\ntwo\n")
    result = run(toolset, replace("two", "2"), plan)
    assert toolset.current_file_digest(plan.path) == plan.after
    assert (result.status, result.content) == ("success", plan.message)
    assert (result.meta["path"], result.meta["diff"], result.meta["summary"]) == ("a", plan.diff, "+1 -1")
    for call in (replace("one", "1"), replace("1\n2", "3")):
        assert run(toolset, call, planned(toolset, call)).status == "success"
    assert text(root) == "3\n"


@pytest.mark.parametrize(
    "call", [replace("two", "2"), write("a", "all new\n"), write("new", "x"), replace("", "x", "new")]
)
def test_after_a_crash_it_is_the_same_success_done_once(root: Path, call: CallView) -> None:
    """Before the write, in the middle of it, and after it."""
    toolset = fresh(root)
    plan = planned(toolset, call)
    file, scratch = Path(plan.path), temporary_path(Path(plan.path), KEY)
    before = file.read_bytes() if file.exists() else None
    clean = run(toolset, call, plan)
    written, stamp = file.read_bytes(), identity(file)
    scratch.write_bytes(b"left over")
    assert run(fresh(root), call, plan) == clean
    assert (identity(file), scratch.exists()) == (stamp, False)
    file.unlink()
    if before is not None:
        file.write_bytes(before)
    scratch.write_bytes(b"on")
    assert run(fresh(root), call, plan) == clean
    assert (file.read_bytes(), scratch.exists()) == (written, False)


def test_what_is_written_is_what_was_planned_for_the_file_as_it_was(root: Path) -> None:
    """An upgrade between a crash and the resume may compute another change from the same file."""
    call, toolset = replace("two", "2"), fresh(root)
    plan = planned(toolset, call)
    other = plan.model_copy(update={"after": "0" * 64})
    assert (kind(run(fresh(root), call, other)), text(root)) == ("external_change", "one\ntwo\n")
    (root / "a").write_text("one\ntwo\nthree\n")
    for later in (toolset, fresh(root)):
        assert kind(run(later, call, plan)) == "external_change"
    assert text(root) == "one\ntwo\nthree\n"


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
    assert text(root) == "one\n2\n"


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
    assert text(root) == "one\ntwo\n"
    assert [p.name for p in root.iterdir()] == ["a"]


def test_without_a_plan_a_run_plans_by_itself_and_a_plan_that_fails_is_the_answer(root: Path) -> None:
    assert run(fresh(root), replace("two", "2"), None).status == "success"
    assert kind(run(fresh(root), replace("two", "2"), None)) == "no_occurrence"
    assert refused(root, replace("absent", "x")).error == {"type": "no_occurrence", "message": ANY}


def test_a_preview_is_made_on_what_earlier_calls_leave(root: Path) -> None:
    first, second = replace("two", "2"), replace("2", "zwei", call_id="c2")
    shown = preview(root, second, [CallView(id="r", name="read_file", args={"file_path": "a"}), first])
    assert "-2\n+zwei" in shown.text
    assert "two" not in shown.text
    (state,) = shown.files
    assert (state.path, state.sha256) == (str(root / "a"), sha256(b"one\n2\n"))
    assert state.on_disk == sha256(b"one\ntwo\n")
    assert shown.problem is None
    assert text(root) == "one\ntwo\n"


BAD = [
    replace("absent", "x"),
    CallView(id="b", name="replace", args={}),
    CallView(id="n", name="nothing", args={}),
    write("../outside", "x"),
]


@pytest.mark.parametrize(
    ("call", "earlier", "problem", "hashed"),
    [
        (replace("2", "zwei"), [], "isn't in 'a'", None),
        (replace("two", "2", call_id="c2"), [replace("two", "zwei")], "isn't in 'a'", None),
        # Earlier calls that fail or are malformed change nothing.
        (replace("two", "2"), BAD, None, (b"one\ntwo\n", b"one\ntwo\n")),
        # A file that is made earlier in the batch isn't there yet.
        (replace("x", "y", "new"), [write("new", "x\n")], None, (None, b"x\n")),
    ],
)
def test_a_preview_says_what_would_go_wrong_and_what_it_is_based_on(
    root: Path,
    call: CallView,
    earlier: list[CallView],
    problem: str | None,
    hashed: tuple[bytes | None, bytes] | None,
) -> None:
    shown = preview(root, call, earlier)
    assert problem in str(shown.problem) if problem else shown.problem is None
    if hashed:
        (state,), (before, known) = shown.files, hashed
        assert (state.on_disk, state.sha256) == (before and sha256(before), sha256(known))


def test_a_plan_that_was_stored_without_its_secrets_is_carried_out_after_a_crash(root: Path) -> None:
    secret = "ghp_" + "aB3d" * 9
    (root / "a").write_text(f"one\n{secret}\n")
    stored = SHAPES.redact_planned_change(planned(fresh(root), replace("one", "two")))
    assert secret not in stored.model_dump_json()
    assert run(fresh(root), replace("one", "two"), stored).status == "success"
    assert (root / "a").read_text() == f"two\n{secret}\n"


def test_a_mark_that_a_file_holds_already_may_stay_and_no_further_one_is_written(root: Path) -> None:
    (root / "a").write_text("see [redacted:x]\n")
    assert isinstance(planned(fresh(root), write("a", "look at [redacted:x]\n")), Planned)
    more = refused(root, write("a", "[redacted:x] [redacted:x]\n"))
    assert kind(more) == "redacted" and "[redacted:x]" in more.content
    assert kind(refused(root, write("new", "key = [redacted:GITHUB_TOKEN]\n"))) == "redacted"
