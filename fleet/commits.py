"""commits: what a run did in the git repository of its clone: commits, branches, tags and the index.

They are kept beside the run's snapshots, given to the clone of another host, and delivered as commits. The run may have
changed the repository's settings, hooks and links, so git never runs in it: its objects are copied, and git reads them
in a bare repository of ours.
"""

import base64
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.fleet.mirrors import Mirror, run_git
from interlock.state.errors import RunError

_MOST_BYTES = 200_000_000
"""Of objects that the clone has and the mirror hasn't: more aren't kept."""
_MOST_REFS = 1_000
_OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}|[0-9a-f]{2}/[0-9a-f]{62}")
_PACK = re.compile(r"pack/pack-[0-9a-f]{40,64}\.(?:pack|idx)")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/(?:heads|tags|notes|stash)(?:/[\w.@+%=,{}-]+)*")
_TEXT_BYTES = 1_000_000
"""Of `HEAD` and `packed-refs`."""


@dataclass(frozen=True)
class Commits:
    """The state of a clone's own repository."""

    head: str
    """`ref: refs/heads/NAME`, or a commit's id."""
    refs: Mapping[str, str]
    index: bytes
    pack: bytes
    """The objects of these that the commit that was cloned doesn't have."""

    def to_bytes(self) -> bytes:
        texts = {
            "head": self.head,
            "refs": dict(self.refs),
            "index": base64.b64encode(self.index).decode(),
            "pack": base64.b64encode(self.pack).decode(),
        }
        return json.dumps(texts).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> "Commits":
        kept: dict[str, Any] = json.loads(body)
        index, pack = (base64.b64decode(kept[name]) for name in ("index", "pack"))
        return cls(kept["head"], kept["refs"], index, pack)

    @property
    def head_commit(self) -> str:
        """The commit that is checked out; empty: there is none yet."""
        return self.refs.get(
            self.head.removeprefix("ref: "), "" if self.head.startswith("ref: ") else self.head
        )


@dataclass
class CloneCommits:
    """Reads the repository of one clone, again and again while a run works in it."""

    folder: Path
    mirror: Mirror
    commit: str
    """The commit that was cloned."""
    _seen: Any = field(default=None, init=False)
    _is_kept: bool = field(default=False, init=False)

    def read_commits_if_changed(self) -> bytes | None:
        """Return what is to be kept, if that has changed since the last call; None: it hasn't.

        Raises `RunError` if it can't be read, which is no reason to stop a run.
        """
        git_folder = self.folder / ".git"
        try:
            head, refs = _read_head_and_refs(git_folder)
            index = _read_regular_file_or_empty(git_folder / "index", _MOST_BYTES)
        except (OSError, ValueError) as error:
            raise RunError(f"The clone's own git repository can't be read: {error}") from error
        if (now := (head, refs, index)) == self._seen:
            return None
        self._seen = now
        with self._copy_objects_to_bare_repository(git_folder) as ours:
            try:
                if not self._is_kept and self._is_unchanged_since_clone(ours, head, refs, index):
                    return None
                found = Commits(head, refs, index, self._pack_objects(ours, head, refs, index))
            except RunError as error:
                raise RunError(f"The clone's own commits can't be kept: {error}") from error
        self._is_kept = True
        return found.to_bytes()

    @contextmanager
    def _copy_objects_to_bare_repository(self, git_folder: Path) -> Generator[Path]:
        """Yield a bare repository of ours with the clone's objects."""
        with _temporary_bare_repository(self.mirror) as ours:
            try:
                _copy_unmirrored_objects(git_folder / "objects", ours / "objects", self.mirror.objects_folder)
            except OSError as error:
                raise RunError(f"The clone's own git repository can't be read: {error}") from error
            yield ours

    def _is_unchanged_since_clone(
        self, repository: Path, head: str, refs: Mapping[str, str], index: bytes
    ) -> bool:
        at = Commits(head, refs, b"", b"").head_commit
        if at != self.commit or any(name != self.commit for name in refs.values()):
            return False
        return not index or _write_index_tree_or_empty(repository, index) == run_git(
            "rev-parse", f"{self.commit}^{{tree}}", folder=repository
        )

    def _pack_objects(self, repository: Path, head: str, refs: Mapping[str, str], index: bytes) -> bytes:
        wanted = {*refs.values(), Commits(head, refs, b"", b"").head_commit} - {""}
        staged = _staged_object_ids(repository, index) if index else []
        asked = "".join(f"{name}\n" for name in (*sorted(wanted), *staged, f"^{self.commit}"))
        made = run_git(
            "pack-objects", "--revs", "--quiet", str(repository / "made"), folder=repository, stdin_text=asked
        )
        return (repository / f"made-{made}.pack").read_bytes()


def restore_commits(commits: Commits, clone: Path) -> None:
    """Give a fresh clone, in which nothing of the run has worked yet, what is kept. Raises `RunError`."""
    _unpack_objects(clone / ".git/objects", commits.pack, clone)
    for name, commit in commits.refs.items():
        run_git("update-ref", "--no-deref", name, commit, folder=clone)
    if commits.head.startswith("ref: "):
        run_git("symbolic-ref", "HEAD", commits.head.removeprefix("ref: "), folder=clone)
    else:
        run_git("update-ref", "--no-deref", "HEAD", commits.head, folder=clone)
    branches = run_git("for-each-ref", "--format=%(refname)", "refs/heads", folder=clone).split()
    for gone in {*branches} - {*commits.refs}:
        run_git("update-ref", "-d", gone, folder=clone)
    if commits.index:
        (clone / ".git/index").write_bytes(commits.index)


@contextmanager
def unpack_objects_temporarily(commits: Commits, mirror: Mirror) -> Generator[Path]:
    """Yield a folder of objects with those that are kept."""
    with _temporary_bare_repository(mirror) as ours:
        _unpack_objects(ours / "objects", commits.pack, ours)
        yield ours / "objects"


@contextmanager
def _temporary_bare_repository(mirror: Mirror) -> Generator[Path]:
    """Yield a bare repository of ours that has the mirror's objects."""
    with tempfile.TemporaryDirectory() as scratch:
        ours = Path(scratch)
        run_git("init", "--quiet", "--bare", "--template=", ".", folder=ours)
        (ours / "objects/info").mkdir(exist_ok=True)
        (ours / "objects/info/alternates").write_text(f"{mirror.objects_folder}\n")
        yield ours


def _unpack_objects(objects_folder: Path, pack: bytes, repository: Path) -> None:
    if not pack:
        return
    with tempfile.NamedTemporaryFile(dir=objects_folder, prefix="kept-", suffix=".pack") as file:
        file.write(pack)
        file.flush()
        run_git("unpack-objects", "-q", folder=repository, stdin_file=Path(file.name))


def _read_regular_file_or_empty(file: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file that may not be there; raises `ValueError` for a link and for more bytes."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(opened, "rb") as found:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError(f"{file.name!r} is no file")
        body = found.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise ValueError(f"{file.name!r} is larger than {max_bytes} bytes")
    return body


def _read_head_and_refs(git_folder: Path) -> tuple[str, dict[str, str]]:
    """Return what is checked out, and the commits that branches and tags name."""
    for folder in (git_folder, git_folder / "refs", git_folder / "objects"):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise ValueError(f"{folder.name!r} is no folder")
    head = _read_regular_file_or_empty(git_folder / "HEAD", _TEXT_BYTES).decode().strip()
    target = head.removeprefix("ref: ")
    if not (_REF if head.startswith("ref: ") else _ID).fullmatch(target):
        raise ValueError(f"HEAD is {head[:100]!r}")
    refs = dict[str, str]()
    for line in _read_regular_file_or_empty(git_folder / "packed-refs", _TEXT_BYTES).decode().splitlines():
        commit, _, name = line.partition(" ")
        if _ID.fullmatch(commit) and _REF.fullmatch(name):
            refs[name] = commit
    for above, folders, files in os.walk(git_folder / "refs"):
        where = Path(above).relative_to(git_folder)
        folders[:] = [one for one in folders if not Path(above, one).is_symlink()]
        for file in files:
            name = str(where / file)
            if _REF.fullmatch(name) and _ID.fullmatch(
                commit := _read_regular_file_or_empty(Path(above, file), 100).decode().strip()
            ):
                refs[name] = commit
        if len(refs) > _MOST_REFS:
            raise ValueError(f"it has more than {_MOST_REFS} branches and tags")
    return head, refs


def _copy_unmirrored_objects(source_folder: Path, target_folder: Path, mirror_objects: Path) -> None:
    """Copy what only the clone has, without following links. Raises `OSError`, and `RunError` if that is too much."""
    size = 0
    for above, _, files, directory in os.fwalk(
        source_folder
    ):  # by descriptor: a folder may become a link meanwhile
        where = Path(above).relative_to(source_folder)
        for file in files:
            name = str(where / file)
            if not (_OBJECT.fullmatch(name) or _PACK.fullmatch(name)) or (mirror_objects / name).exists():
                continue
            opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            with os.fdopen(opened, "rb") as source:
                found = os.fstat(opened)
                size += found.st_size
                if size > _MOST_BYTES:
                    raise RunError(f"they are more than {_MOST_BYTES // 1_000_000} MB")
                (target_folder / name).parent.mkdir(exist_ok=True)
                if stat.S_ISREG(found.st_mode):
                    with (target_folder / name).open("xb") as written:
                        shutil.copyfileobj(source, written)


@contextmanager
def _temporary_index_environment(index: bytes) -> Generator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as scratch:
        (file := Path(scratch, "index")).write_bytes(index)
        yield {"GIT_INDEX_FILE": str(file)}


def _staged_object_ids(repository: Path, index: bytes) -> list[str]:
    """Return ids of the files that an index names."""
    with _temporary_index_environment(index) as env:
        lines = run_git("ls-files", "-z", "--stage", folder=repository, env=env).split("\0")
    modes = (line.split("\t")[0].split(" ") for line in lines if line)
    return sorted({name for mode, name, _ in modes if mode != "160000"})


def _write_index_tree_or_empty(repository: Path, index: bytes) -> str:
    """Return the tree that an index is; empty: it has conflicts, or files that were only announced."""
    with _temporary_index_environment(index) as env:
        try:
            return run_git("write-tree", folder=repository, env=env)
        except RunError:
            return ""
