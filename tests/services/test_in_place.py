"""An edit keeps what belongs to a file beside its bytes; written in place, a kill loses neither state of it."""

import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.files import in_place
from interlock.services.files.filesystem import HeldDirectory, write_keeping_file
from interlock.services.files.in_place import is_torn, restore_from_copies, restore_torn_file
from interlock.state.calls import CallKey
from interlock.testing import Stage

KEY = CallKey(message="m", index=0)
EDIT = {"file_path": "a.txt", "old_string": "two", "new_string": "2" * 5000}
ACL = "system.posix_acl_access"
LET_A_USER_WRITE = struct.pack(
    "<I" + "HHI" * 5,
    2,
    *(1, 6, 0xFFFFFFFF),
    *(2, 6, 1234),
    *(4, 4, 0xFFFFFFFF),
    *(16, 6, 0xFFFFFFFF),
    *(32, 4, 0xFFFFFFFF),
)


def write(path: Path, data: bytes, copies: Path) -> None:
    with HeldDirectory(path.parent).open_parent_directory(path) as place:
        write_keeping_file(place, path, data, KEY, copies)
    assert path.read_bytes() == data
    assert not copies.exists() or not list(copies.iterdir())


def test_hard_links_stay_one_file(tmp_path: Path) -> None:
    path, twin = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"old, and longer")
    twin.hardlink_to(path)
    write(path, b"new", tmp_path / "state")
    assert twin.read_bytes() == b"new"


@pytest.mark.parametrize("error", [16, 18])
def test_a_mounted_file_is_written_where_it_is(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(error, "mounted")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    inode = path.stat().st_ino
    monkeypatch.setattr(os, "replace", refused)
    write(path, b"new", tmp_path / "state")
    assert path.stat().st_ino == inode
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_attributes_and_mode_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    try:
        os.setxattr(path, "user.note", b"mine")
        os.setxattr(path, ACL, LET_A_USER_WRITE)
    except (AttributeError, OSError) as error:
        pytest.skip(f"no extended attributes here: {error}")
    mode = path.stat().st_mode
    write(path, b"new", tmp_path / "state")
    assert (os.getxattr(path, "user.note"), os.getxattr(path, ACL)) == (b"mine", LET_A_USER_WRITE)
    assert path.stat().st_mode == mode


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_owner_and_group_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o4755)
    os.chown(path, 1234, 1235)
    path.chmod(0o4755)
    write(path, b"new", tmp_path / "state")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 1235, 0o4755)


def test_what_a_new_file_cannot_have_is_kept_by_writing_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "not permitted")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    inode = path.stat().st_ino
    monkeypatch.setattr("interlock.services.files.filesystem.copy_owner_and_attributes", refused)
    write(path, b"new", tmp_path / "state")
    assert path.stat().st_ino == inode


class Cut(BaseException):
    """Simulates a kill: nothing after it in the process is done."""


@pytest.mark.parametrize("done", [0, 100, 4096])
def test_a_killed_write_in_place_is_put_back_and_made_once(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(
        tmp_path, files={"a.txt": "one\ntwo\n" * 1 + "three\n" * 3000}, given={"approval_mode": "auto_edit"}
    )
    file = stage.work / "a.txt"
    (stage.work / "b.txt").hardlink_to(file)
    before = file.read_bytes()

    def cut(target: int, data: bytes) -> None:
        os.pwrite(target, data[:done], 0)
        raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(in_place, "_overwrite", cut)
        stage.run("edit", EDIT)
    assert (file.read_bytes() == before) == (done == 0)
    outcome = stage.resume("latest")
    assert outcome.output["status"] == "applied", outcome
    assert file.read_bytes() == before.replace(b"two", b"2" * 5000)
    assert (stage.work / "b.txt").read_bytes() == file.read_bytes()


def test_a_file_that_somebody_changed_since_is_left_and_its_copy_kept(tmp_path: Path) -> None:
    path, copies = tmp_path / "a", tmp_path / "state"
    path.write_bytes(b"theirs")
    folder = copies / "x"
    folder.mkdir(parents=True)
    for name, data in (("before", b"old"), ("after", b"new"), ("path", os.fsencode(path))):
        (folder / name).write_bytes(data)

    def restore(path: Path, before: bytes, after: bytes) -> bool:
        with HeldDirectory(path.parent).open_parent_directory(path) as place:
            return restore_torn_file(place, before, after)

    restore_from_copies(copies, restore)
    assert path.read_bytes() == b"theirs"
    assert (folder / "before").read_bytes() == b"old"


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000))
def test_each_cut_of_a_write_is_recognised(old: int, new: int, done: int) -> None:
    before, after = b"a" * old, b"b" * new
    now = after[:done] + before[done:]
    assert is_torn(now, before, after) == (now not in (before, after))
    assert not is_torn(b"c" + now, before, after)
