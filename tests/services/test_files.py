"""Atomic writes: whole or not at all, mode kept, nothing left behind."""

import os
import stat
from pathlib import Path

import pytest

from interlock.services.files.filesystem import (
    HeldDirectory,
    OutputFiles,
    lock_folder,
    remove_temporary_file,
    replace_private_file_holding_lock,
    temporary_path,
)
from interlock.services.files.filesystem import write_atomically as write_at
from interlock.state.calls import CallKey

KEY = CallKey(message="m1", index=0)


def write_atomically(path: Path, data: bytes) -> None:
    there = next(d for d in path.parents if d.exists())
    with HeldDirectory(there).open_parent_directory(path, create_missing=True) as place:
        write_at(place, data, KEY)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_gets_its_directories_and_the_usual_mode(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a" / "b" / "c.txt", b"x")
    finally:
        os.umask(umask)
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o4755])
def test_a_file_is_replaced_whole_keeps_its_mode_and_nothing_is_left(tmp_path: Path, mode: int) -> None:
    """Nor is a link followed that was planted at the temporary name."""
    path, scratch = tmp_path / "a", temporary_path(tmp_path / "a", KEY)
    path.write_bytes(b"old")
    path.chmod(mode)
    (tmp_path / "victim").write_bytes(b"keep")
    scratch.symlink_to("victim")
    with path.open("rb") as reader:
        write_atomically(path, b"new")
        assert reader.read() == b"old", "who reads meanwhile sees the old file"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)
    assert (names(tmp_path), (tmp_path / "victim").read_bytes()) == (["a", "victim"], b"keep")
    scratch.write_bytes(b"half")
    for _ in range(2):
        with HeldDirectory(path.parent).open_parent_directory(path) as place:
            remove_temporary_file(place, KEY)
    assert names(tmp_path) == ["a", "victim"]


def test_a_later_attempt_finds_the_leftover_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert temporary_path(path, KEY) == temporary_path(path, KEY.model_copy(update={"attempt": 2}))
    assert temporary_path(path, KEY) != temporary_path(path, KEY.model_copy(update={"index": 1}))


def test_a_file_of_ours_is_the_owners_alone_and_a_leftover_or_link_at_its_scratch_name_is_no_hindrance(
    tmp_path: Path,
) -> None:
    folder, path = tmp_path / "in", tmp_path / "in" / "answers.json"
    folder.mkdir()
    (tmp_path / "victim").write_bytes(b"keep")
    path.write_bytes(b"old")
    (folder / ".answers.json.tmp").symlink_to(tmp_path / "victim")
    replace_private_file_holding_lock(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert (names(folder), (tmp_path / "victim").read_bytes()) == (["answers.json"], b"keep")


def test_a_locked_folder_is_waited_for_and_in_the_end_given_up_on(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(TimeoutError) as refused, lock_folder(tmp_path, 0.05):
        pass
    assert refused.value.strerror == "another process has been writing there for 0.05 s"
    with lock_folder(tmp_path, 0):
        pass
    assert names(tmp_path) == []


def test_outputs_are_named_by_their_content_and_private(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path / "state")
    one, again, other = (
        outputs.save_bytes(b"one"),
        outputs.save_bytes(b"one"),
        outputs.save_bytes(b"other", ".json"),
    )
    assert one == again != other
    assert (one.read_bytes(), other.suffix) == (b"one", ".json")
    assert sorted(outputs.directory.iterdir()) == sorted([one, other])
    for damage in (b"", b"wrong"):  # by a power cut: it is written again
        one.write_bytes(damage)
        assert outputs.save_bytes(b"one").read_bytes() == b"one"
    spool, another = outputs.create_spool_file(), outputs.create_spool_file()
    assert spool != another
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (one, spool, outputs.directory)]
    assert modes == [0o600, 0o600, 0o700]


def test_an_output_is_on_disk_with_its_folder_before_anything_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    outputs = OutputFiles(tmp_path / "state")
    for _ in ("made", "found there"):
        synced.clear()
        path = outputs.save_bytes(b"one")
        assert synced[-2:] == [path.stat().st_ino, outputs.directory.stat().st_ino]
