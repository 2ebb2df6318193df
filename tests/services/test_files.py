"""Atomic writes: whole or not at all, mode kept, nothing left behind."""

import hashlib
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from interlock.services.files.disk import make_directories
from interlock.services.files.filesystem import (
    Anchor,
    OutputFiles,
    hash_at,
    locked,
    replace_file,
    sha256,
    temporary,
)
from interlock.services.files.filesystem import remove_leftover as remove_leftover_at
from interlock.services.files.filesystem import write_atomically as write_at
from interlock.state.calls import CallKey

KEY = CallKey(message="m1", index=0)


def write_atomically(path: Path, data: bytes, key: CallKey) -> None:
    there = next(d for d in path.parents if d.exists())
    with Anchor(there).place(path, make=True) as place:
        write_at(place, data, key)


def remove_leftover(path: Path, key: CallKey) -> None:
    with Anchor(path.parent).place(path) as place:
        remove_leftover_at(place, key)


def now(path: Path) -> str | None:
    with Anchor(path.parent).place(path) as place:
        return hash_at(place)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_gets_its_directories_and_the_usual_mode(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a" / "b" / "c.txt", b"x", KEY)
    finally:
        os.umask(umask)
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"x"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o644, 0o4755])
def test_the_mode_of_a_file_survives(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomically(path, b"new", KEY)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)


def test_who_reads_meanwhile_sees_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new", KEY)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_nothing_is_left_and_a_leftover_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "a"
    temporary(path, KEY).write_bytes(b"half")
    write_atomically(path, b"whole", KEY)
    assert names(tmp_path) == ["a"]
    temporary(path, KEY).write_bytes(b"half")
    remove_leftover(path, KEY)
    remove_leftover(path, KEY)
    assert names(tmp_path) == ["a"]


def test_a_later_attempt_finds_the_leftover_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert temporary(path, KEY) == temporary(path, KEY.model_copy(update={"attempt": 2}))
    assert temporary(path, KEY) != temporary(path, KEY.model_copy(update={"index": 1}))


def test_a_link_planted_at_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"keep")
    temporary(tmp_path / "a", KEY).symlink_to("victim")
    write_atomically(tmp_path / "a", b"new", KEY)
    assert (tmp_path / "victim").read_bytes() == b"keep"


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from interlock.services.files.filesystem import Anchor
    from interlock.services.files.filesystem import write_atomically
    from interlock.state.calls import CallKey
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    path = Path(sys.argv[1])
    try:
        with Anchor(path.parent).place(path) as place:
            write_atomically(place, b"x" * 5000, CallKey(message="m", index=0))
    except OSError as error:
        print(error.strerror)
"""


def test_when_there_is_no_room_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    """A limit on file sizes simulates a full disk: the write fails half way."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    argv = [sys.executable, "-c", textwrap.dedent(FULL), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large"
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["a"])


def test_a_file_of_ours_is_the_owners_alone_and_a_leftover_or_link_at_its_scratch_name_is_no_hindrance(
    tmp_path: Path,
) -> None:
    folder, path = tmp_path / "in", tmp_path / "in" / "answers.json"
    folder.mkdir()
    (tmp_path / "victim").write_bytes(b"keep")
    path.write_bytes(b"old")
    (folder / ".answers.json.tmp").symlink_to(tmp_path / "victim")
    replace_file(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert (names(folder), (tmp_path / "victim").read_bytes()) == (["answers.json"], b"keep")


def test_a_locked_folder_is_waited_for_and_in_the_end_given_up_on(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(TimeoutError) as refused, locked(tmp_path, 0.05):
        pass
    assert refused.value.strerror == "another process has been writing there for 0.05 s"
    with locked(tmp_path, 0):
        pass
    assert names(tmp_path) == []


def test_now_is_the_hash_of_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert now(path) is None
    path.write_bytes(b"x" * 3_000_000)
    assert now(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest() == sha256(b"x" * 3_000_000)
    assert now(tmp_path) == "unreadable"
    os.mkfifo(tmp_path / "pipe")
    assert now(tmp_path / "pipe") == "unreadable"


def test_directories_are_made_once(tmp_path: Path) -> None:
    make_directories(tmp_path / "a" / "b", 0o700)
    make_directories(tmp_path / "a" / "b", 0o700)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_outputs_are_named_by_their_content_and_private(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path / "state")
    one, again, other = outputs.save(b"one"), outputs.save(b"one"), outputs.save(b"other", ".json")
    assert one == again != other
    assert (one.read_bytes(), other.suffix) == (b"one", ".json")
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(outputs.directory.stat().st_mode) == 0o700
    assert sorted(outputs.directory.iterdir()) == sorted([one, other])


def test_an_output_damaged_by_a_power_cut_is_written_again(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path)
    path = outputs.save(b"whole")
    path.write_bytes(b"")
    assert outputs.save(b"whole").read_bytes() == b"whole"
    path.write_bytes(b"wrong")
    assert outputs.save(b"whole").read_bytes() == b"whole"


def test_each_spool_is_new_and_private(tmp_path: Path) -> None:
    outputs = OutputFiles(tmp_path)
    one, other = outputs.new_spool(), outputs.new_spool()
    assert one != other
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
