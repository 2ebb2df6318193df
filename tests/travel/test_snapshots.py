"""Snapshots preserve a workspace exactly: bytes, permissions, links; the user's own git isn't involved."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from commands import python
from folders import put
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import HANG_S
from travel.conftest import REPLIES, Desk, shell, write
from travel.trees import change, changes, tree_of

from interlock.engine import run_sync
from interlock.engine.store.snapshots import SqlSnapshots
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.snapshots import snapshots as shadow
from interlock.services.snapshots.restore import apply_restore, plan_restore, run_restore_in_subprocess
from interlock.services.snapshots.snapshots import SnapshotError, WorkspaceSnapshots
from interlock.services.snapshots.workspace_tree import TooManyFilesError
from interlock.state.events import SAVING
from interlock.state.settings import SnapshotSettings

REF = "refs/runs/test"
MANY = settings().max_examples // 4
"""Each starts git a dozen times."""


def made(folder: Path, **settings: float) -> WorkspaceSnapshots:
    (folder / "work").mkdir(exist_ok=True, parents=True)
    limits = SnapshotSettings.model_validate(settings)
    return WorkspaceSnapshots(folder / "home", FolderWorkspace(folder / "work"), limits)


def back_to(shots: WorkspaceSnapshots, folder: Path, commit: str) -> None:
    """Restore a snapshot in place."""
    now, then = (shots.repository.read_contents(c) for c in (shots.take_snapshot(REF), commit))
    run_restore_in_subprocess(plan_restore(now, then, folder / "work", shots.repository.folder))


def test_the_program_that_restores_imports_no_models_of_data(tmp_path: Path) -> None:
    """They would take three quarters of its time."""
    asked = "import sys, interlock.services.snapshots.restore; print('pydantic' in sys.modules)"
    assert python(asked, tmp_path) == "False\n"


@settings(max_examples=MANY)
@given(st.lists(changes, min_size=2, max_size=4), st.data())
def test_a_restored_tree_is_the_tree_that_was(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[str, str, object]]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    shots, work, kept = made(folder), folder / "work", []
    for number, some in enumerate(rounds):
        for what, name, how in some:
            change(work, what, name, how)
        if number == 1:  # another process continues
            shots.save_and_close()
            shots = made(folder)
        kept.append((shots.take_snapshot(REF), tree_of(work)))
    commit, tree = data.draw(st.sampled_from(kept))
    new = folder / "new"
    new.mkdir()
    repository = shots.repository.folder
    nothing = shots.repository.read_contents(kept[0][0])._replace(files={}, folders={})
    apply_restore(
        plan_restore(nothing, shots.repository.read_contents(commit), new, repository), durable=False
    )
    assert tree_of(new) == tree
    now = shots.repository.read_contents(shots.take_snapshot(REF))
    apply_restore(plan_restore(now, shots.repository.read_contents(commit), work, repository), durable=True)
    assert tree_of(work) == tree


def test_an_edit_in_the_same_instant_and_of_the_same_size_is_seen(tmp_path: Path) -> None:
    shots, file = made(tmp_path), tmp_path / "work" / "a"
    seen = []
    for text in ("one", "two", "six"):
        file.write_text(text)
        seen.append(shots.take_snapshot(REF))
    assert len(set(seen)) == 3


@pytest.mark.parametrize("name", ["file", "folder", "folder/inside"])
def test_a_change_of_permissions_alone_is_kept(tmp_path: Path, name: str) -> None:
    shots, work = made(tmp_path), tmp_path / "work"
    (work / "folder").mkdir()
    for file in ("file", "folder/inside", "folder/other"):
        (work / file).write_text(file)
    shots.take_snapshot(REF)
    trees = []
    for mode in (0o700, 0o750):
        (work / name).chmod(mode)
        trees.append((shots.take_snapshot(REF), tree_of(work)))
    for commit, tree in trees:
        back_to(shots, tmp_path, commit)
        assert tree_of(work) == tree


@pytest.mark.parametrize("packs", [0, 50])
def test_many_objects_are_packed_at_the_end_and_no_snapshot_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packs: int
) -> None:
    shots, work, kept = made(tmp_path), tmp_path / "work", []
    folder = shots.repository.folder
    for number, ref in enumerate((REF, REF, REF, "refs/runs/removed")):
        (work / f"{number}").write_bytes(os.urandom(9))
        kept.append((shots.take_snapshot(ref), tree_of(work)))
    git = ["git", "--git-dir", str(folder)]
    subprocess.run([*git, "update-ref", "-d", "refs/runs/removed"], check=True)
    loose = [p for p in folder.glob("objects/??/*") if len(p.name) > 2]
    assert len(loose) > 10
    monkeypatch.setattr(shadow, "_MOST_LOOSE", -256)
    monkeypatch.setattr(shadow, "_MOST_PACKS", packs)
    shots.save_and_close()
    assert len([p for p in folder.glob("objects/??/*") if len(p.name) > 2]) < len(loose)
    assert len(list(folder.glob("objects/pack/*.pack"))) == 1
    shots = made(tmp_path)
    for commit, tree in kept:
        back_to(shots, tmp_path, commit)
        assert tree_of(work) == tree


def test_what_cant_be_packed_is_told_and_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise SnapshotError("no space left")

    monkeypatch.setattr(shadow.ShadowRepository, "pack_objects_if_many", full)
    told: list[object] = []
    options = desk.options(REPLIES)
    outcome = run_sync("main", {"prompt": "Do it."}, options=options, renderers=[told.append])
    assert outcome.status == "done"
    assert "Snapshots couldn't be tidied up: no space left" in [getattr(e, "message", "") for e in told]
    monkeypatch.undo()


def test_what_is_ignored_private_or_too_large_is_left_out_and_stays(tmp_path: Path) -> None:
    shots, work = made(tmp_path, maxFileMb=0.001), tmp_path / "work"
    work.joinpath(".git").mkdir()
    for name in ("kept", ".env", "out.log", "node_modules/x/y", "sub/.git/HEAD", "sub/file"):
        work.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        work.joinpath(name).write_text(name)
    work.joinpath("large").write_bytes(bytes(2000))
    work.joinpath(".gitignore").write_text("*.log\n")
    commit = shots.take_snapshot(REF)
    assert set(shots.repository.read_contents(commit).files) == {"kept", "sub/file", ".gitignore"}
    work.joinpath(".gitignore").write_text("kept\n")
    assert set(shots.repository.read_contents(shots.take_snapshot(REF)).files) == {
        "out.log",
        "sub/file",
        ".gitignore",
    }
    assert shots.take_snapshot(REF) == shots.take_snapshot(REF)


def test_attributes_filters_and_hooks_of_the_users_repository_change_nothing(tmp_path: Path) -> None:
    shots, work = made(tmp_path), tmp_path / "work"
    trap = f"sh -c 'touch {tmp_path}/ran; cat'"
    for command in (
        ["init", "-q"],
        ["config", "core.autocrlf", "true"],
        ["config", "core.fsmonitor", trap],
        ["config", "filter.f.clean", trap],
    ):
        subprocess.run(["git", *command], cwd=work, check=True)
    work.joinpath(".gitattributes").write_text(
        "* text=auto eol=crlf ident filter=f working-tree-encoding=UTF-16\n"
    )
    work.joinpath("a").write_bytes(b"$Id$\r\nx\n\xff\0")
    before = {p: p.stat().st_mtime_ns for p in work.joinpath(".git").rglob("*")}
    commit, tree = shots.take_snapshot(REF), tree_of(work)
    work.joinpath("a").write_text("other")
    back_to(shots, tmp_path, commit)
    assert tree_of(work) == tree
    assert before == {p: p.stat().st_mtime_ns for p in work.joinpath(".git").rglob("*")}
    assert not (tmp_path / "ran").exists()


def test_a_repository_with_a_submodule_is_kept_with_the_submodules_files(tmp_path: Path) -> None:
    shots, work = made(tmp_path), tmp_path / "work"
    inner = tmp_path / "inner"
    for folder in (inner, work):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        folder.joinpath("file").write_text("one")
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
        subprocess.run(["git", "commit", "-qm", "first"], cwd=folder, check=True)
    add = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub"]
    subprocess.run(add, cwd=work, check=True)
    commit, tree = shots.take_snapshot(REF), tree_of(work)
    work.joinpath("sub", "file").write_text("two")
    back_to(shots, tmp_path, commit)
    assert tree_of(work) == tree
    assert work.joinpath("sub", "file").read_text() == "one"


def test_a_folder_with_too_many_files_is_refused_by_name(tmp_path: Path) -> None:
    shots = made(tmp_path, maxFiles=3)
    for number in range(4):
        tmp_path.joinpath("work", f"{number}").write_text("")
    with pytest.raises(TooManyFilesError, match="more than 3 files"):
        shots.take_snapshot(REF)


def test_a_link_put_on_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A folder replaced by a link to one outside is kept as a link, and its target isn't read."""
    shots, work = made(tmp_path), tmp_path / "work"
    outside = tmp_path / "outside"
    for folder in (work / "d", outside):
        folder.mkdir()
        folder.joinpath("f").write_text(str(folder))
    first = shots.take_snapshot(REF)
    os.rename(work / "d", tmp_path / "away")  # noqa: PTH104
    work.joinpath("d").symlink_to(outside)
    assert set(shots.repository.read_contents(shots.take_snapshot(REF)).files) == {"d"}
    back_to(shots, tmp_path, first)
    assert work.joinpath("d", "f").read_text() == str(work / "d")
    assert outside.joinpath("f").read_text() == str(outside)


def test_what_the_repository_has_stored_is_copied_from_it_and_needs_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes count, whatever git would convert: a blob is copied only if the file has its very bytes."""
    monkeypatch.setattr(shadow, "_SMALL_INDEX", 0)
    shots, work = made(tmp_path), tmp_path / "work"
    trap = f"sh -c 'touch {tmp_path}/ran; tr a-z A-Z'"
    git = ["git", "-c", "core.autocrlf=true", "-c", "user.name=a", "-c", "user.email=a@b"]
    work.joinpath("d", "deep").mkdir(parents=True)
    for name, text in (
        ("same", b"as it was\n"),
        ("crlf", b"a\r\nb\r\n"),
        ("d/edited", b"old"),
        ("d/deep/gone", b"x"),
    ):
        work.joinpath(name).write_bytes(text)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "all"],
        ["config", "filter.f.clean", trap],
    ):
        subprocess.run([*git, *command], cwd=work, check=True)
    work.joinpath(".gitattributes").write_text("* filter=f\n")
    work.joinpath("d", "edited").write_bytes(b"new")
    work.joinpath("d", "deep", "gone").unlink()
    work.joinpath("link").symlink_to("same")
    beside = shots.repository.find_user_repository_blobs(work)
    assert beside is not None and len(beside.blobs) == 4
    commit, tree = shots.take_snapshot(REF), tree_of(work)
    shutil.rmtree(work / ".git")
    kept = shots.repository.read_contents(commit).files
    assert {*shots.repository.read_blobs([file.blob for file in kept.values()])} == {
        *(os.fsencode(os.readlink(p)) if p.is_symlink() else p.read_bytes() for p in map(work.joinpath, kept))  # noqa: PTH115
    }
    checked = subprocess.run(
        ["git", "fsck", "--strict"], cwd=shots.repository.folder, capture_output=True, check=True
    )
    assert b"missing" not in checked.stdout
    for name in ("same", "crlf", "d/edited"):
        work.joinpath(name).write_bytes(b"other")
    back_to(shots, tmp_path, commit)
    assert {k: v for k, v in tree_of(work).items() if not k.startswith(".git/")} == {
        k: v for k, v in tree.items() if not k.startswith(".git/") and k != ".git"
    }
    assert not (tmp_path / "ran").exists()


def test_a_damaged_repository_beside_it_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "_SMALL_INDEX", 0)
    shots, work = made(tmp_path), tmp_path / "work"
    work.joinpath("a").write_text("text")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=work, check=True)
    [blob] = (file for file in work.joinpath(".git", "objects").glob("??/*"))
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes()[:-9])
    commit = shots.take_snapshot(REF)
    assert [*shots.repository.read_blobs([shots.repository.read_contents(commit).files["a"].blob])] == [
        b"text"
    ]


def test_what_a_large_folder_loses_is_said_before_the_change_and_by_undo(desk: Desk) -> None:
    put(desk.home.parent / ".interlock" / "settings.json", {"snapshots": {"maxFiles": 3}})
    for number in range(4):
        desk.work.joinpath(f"{number}").write_text("")
    told: list[Any] = []
    replies = [write("0", "new"), shell("echo more >> 1"), shell("cat 1"), {"text": "done"}]
    run = run_sync("main", {"prompt": "Go."}, options=desk.options(replies), renderers=[told.append])
    types = [e.type if e.type != "error" else e.message.partition(":")[0] for e in told]
    assert types.index("No snapshots of files") < types.index("tool_result")
    stays = "No snapshots were taken around 2 calls, so what they changed stays: 1 (write_file), 2 (run_shell_command)"
    for command in (("undo", run.run), ("undo", run.run, "--call", "1"), ("diff", run.run, "--files")):
        assert stays in (ended := desk(*command)).err and ended.code == 2
    assert "more than 3 files" in desk("rewind", run.run, "--at", "2", "--yes").err
    assert f"more than 3 files lie in '{desk.work}/'" in desk("doctor").out


def test_a_run_that_outgrows_the_limit_is_taken_back_as_far_as_it_was_kept(desk: Desk) -> None:
    put(desk.home.parent / ".interlock" / "settings.json", {"snapshots": {"maxFiles": 3}})
    desk.work.joinpath("a").write_text("old")
    replies = [
        write("a", "new"),
        shell("touch 1 2 3 4"),
        write("b", "more"),
        shell("rm 1 2 3 4"),
        {"text": "done"},
    ]
    run = desk.run(replies)
    ended = desk("undo", run.run)
    assert "No snapshots were taken around 2 calls" in ended.err and "3 (write_file)" in ended.err
    assert desk.work.joinpath("a").read_text() == "old"


def test_a_long_snapshot_says_how_far_it_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlSnapshots, "patience_s", 0.01)
    take = WorkspaceSnapshots.take_snapshot

    def slow(self: WorkspaceSnapshots, *given: str) -> str:
        assert said.wait(HANG_S)
        return take(self, *given)

    said = threading.Event()
    monkeypatch.setattr(WorkspaceSnapshots, "take_snapshot", slow)
    told: list[Any] = []

    def hear(event: Any) -> None:
        told.append(event)
        if event.type == "progress":
            said.set()

    run_sync("main", {"prompt": "Go."}, options=desk.options(REPLIES), renderers=[hear])
    progress = [event for event in told if event.type == "progress"]
    assert {event.what for event in progress} == {SAVING}
    assert progress[0].total == 0 and progress[-1].done == progress[-1].total == 1
    assert [event.type for event in told].index("progress") < [event.type for event in told].index(
        "tool_result"
    )
