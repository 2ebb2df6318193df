"""snapshots: past states of a workspace's files, in a shadow repository: a bare git repository, never the user's.

Written by `git fast-import`, which converts nothing and runs nothing: hooks, filters, attributes and configuration of
the workspace have no effect. Commits are never collected; objects get packed.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import replace_private_file_holding_lock
from interlock.services.files.ignore import find_shared_git_directory, git_index_path
from interlock.services.snapshots.file_diffs import FileDiff, parse_raw_and_patch, split_git_lines
from interlock.services.snapshots.workspace_tree import PathChange, WorkspaceTree, permission_kind
from interlock.state.errors import RunError
from interlock.state.workspace import Workspace

if TYPE_CHECKING:  # the program that restores needs no settings, which take a tenth of a second to import
    from interlock.state.settings import SnapshotSettings

NO_GIT = "git isn't installed, and snapshots of files are kept with it: install it (apt install git, brew install git)."
_FILES, _LAYOUT = "files", "layout.json"
"""In each commit: the folder with the workspace's files, and the file with metadata that git doesn't store."""
_BORROWED, _ALTERNATES = "interlock-borrowed", Path("objects", "info", "alternates")
_KINDS = {"120000": stat.S_IFLNK, "100644": stat.S_IFREG, "100755": stat.S_IFREG | 0o100}
_SETTINGS = (
    *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", f"core.attributesFile={os.devnull}"),
    *("core.quotePath=false", "core.compression=1", "gc.auto=0", "safe.bareRepository=all"),
)
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_SHOW_DIFFS = (
    *("diff-tree", "-r", "--raw", "-p", "-M", f"--relative={_FILES}/"),
    *("--no-ext-diff", "--no-textconv", "--no-color"),
)
_IMPORT = ("fast-import", "--quiet", "--force", "--done", "--depth=0")
"""Files of a tree have little in common: trying to store each as a difference to the last would double git's time."""
_SMALL_INDEX = 400_000
"""Bytes of an index, of 4,000 files or so, below which asking four processes takes longer than compressing again."""
_BUFFER_BYTES = 1 << 20
"""With the usual 8 KB, a quarter of our own time goes into handing the files of a large folder to git."""
_AT_ONCE = 500
"""Maximum paths per command line."""
_MOST_LOOSE, _MOST_PACKS = 3_000, 50
"""Limits on loose objects and packs before repacking. 620 edits in a workspace of 10,000 files produced 3,700 objects
of 16 MB, packed in 1.5 s to 0.4 MB."""


class SnapshotError(RunError):
    """A snapshot can't be created or read."""

    kind = "snapshot"


class SnapshotFile(NamedTuple):
    """A file in a snapshot."""

    mode: int
    """Type and permissions."""
    blob: str


@dataclass(frozen=True)
class BlobSource:
    """A repository of the user's whose blobs can be copied."""

    objects: Path
    blobs: Set[str]
    """What it has."""
    wanted: set[str] = field(default_factory=set[str])


class SnapshotContents(NamedTuple):
    """Everything in a snapshot, by path."""

    files: Mapping[str, SnapshotFile]
    folders: Mapping[str, int]
    """Permissions of every folder, empty ones included."""


def shadow_repository_name(root: Path) -> str:
    """Name of a workspace's shadow repository in `snapshots/`."""
    return hashlib.sha256(str(root).encode(errors="surrogateescape")).hexdigest()[:16]


class ShadowRepository:
    """A shadow repository, created on first write. Methods raise `SnapshotError` with a one-line message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def commit_changes(
        self,
        ref: str,
        parent: str,
        changes: Iterator[PathChange],
        make_layout: Callable[[], bytes],
        parent_layout: bytes,
        blob_source: "BlobSource | None" = None,
    ) -> str:
        """Add a snapshot after `parent` (empty for the first); returns its id, or `parent` if nothing changed.

        `make_layout` is called after the changes are consumed; `parent_layout` is its value for `parent`.
        `blob_source`: where blobs are copied from instead of compressed again.
        """
        first = next(changes, None)
        if first is None and parent and make_layout() == parent_layout:
            return parent
        self._create_repository_if_missing()
        # Left by a killed git: a ref belongs to one run, which has one driver.
        (self.folder / f"{ref}.lock").unlink(missing_ok=True)
        commands = self._iterate_fast_import_stream(
            ref, parent, chain([first] if first else (), changes), make_layout, blob_source
        )
        if blob_source is None:
            with self._start_git(*_IMPORT, stdin=subprocess.PIPE) as git:
                assert git.stdin is not None and git.stdout is not None
                git.stdin.writelines(commands)
                git.stdin.close()
                return git.stdout.read().decode().strip()
        with _temporary_file_containing(commands) as written:
            # Only now: with the other's objects in sight, git would leave out folders that it has.
            self._copy_wanted_blobs(blob_source)
            return self._run_git(*_IMPORT, stdin=written).decode().strip()

    def _iterate_fast_import_stream(
        self,
        ref: str,
        parent: str,
        changes: Iterable[PathChange],
        make_layout: Callable[[], bytes],
        blob_source: "BlobSource | None",
    ) -> Iterator[bytes]:
        """Yield what fast-import reads. Files that need no data are noted in `blob_source`."""
        stamp = f"interlock <interlock@localhost> {time.time():.0f} +0000"
        after = f"from {parent}\n" if parent else ""
        yield f"commit {ref}\nmark :1\ncommitter {stamp}\ndata 0\n{after}".encode()
        for change in changes:
            there = change.blob if blob_source and change.blob in blob_source.blobs else ""
            if blob_source and there:
                blob_source.wanted.add(there)
            yield _format_file_change_command(f"{_FILES}/{change.path}", change.mode, change.data, there)
        yield _format_file_change_command(_LAYOUT, stat.S_IFREG, make_layout()) + b"get-mark :1\ndone\n"

    def find_user_repository_blobs(self, root: Path) -> "BlobSource | None":
        """Return the blobs that the git repository around a folder has of files in it; None: there is none, or it
        is small.

        Nothing of that repository's configuration counts: git is asked as this repository, about the other's index and
        objects.
        """
        top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
        if top is None:
            return None
        index, objects = git_index_path(top), find_shared_git_directory(top) / "objects"
        try:
            found = index.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_size < _SMALL_INDEX or set(str(objects)) & {*':"\n'}:
            return None
        self._create_repository_if_missing()
        inside = str(root.relative_to(top))
        try:
            listed = self._run_git(
                "ls-files", "--stage", "-z", "--", *([inside] if root != top else ()), index=index
            )
            names = {line[7:47] for line in listed.split(b"\0") if line[:2] == b"10" and line[47:48] == b" "}
            asked = b"\n".join(sorted(names)).decode()
            lines = self._run_git("cat-file", "--batch-check", text=f"{asked}\n", objects=objects).decode()
        except SnapshotError:  # of another format, or damaged: its files are read like any others
            return None
        return BlobSource(objects, {line[:40] for line in lines.splitlines() if line[40:46] == " blob "})

    def _copy_wanted_blobs(self, blob_source: "BlobSource") -> None:
        """Copy the blobs that are wanted, each checked against its name, as they are compressed there."""
        if not blob_source.wanted:
            return
        pack = ("pack-objects", "--stdout", "--quiet", "--window=0")
        with (
            _temporary_file_containing(f"{name}\n".encode() for name in blob_source.wanted) as asked,
            self._start_git(*pack, stdin=asked, objects=blob_source.objects) as theirs,
        ):
            self._run_git("index-pack", "--stdin", stdin=cast(IO[bytes], theirs.stdout))

    def read_layout(self, commit: str) -> bytes:
        return self._run_git("cat-file", "blob", f"{commit}:{_LAYOUT}")

    def read_contents(self, commit: str) -> SnapshotContents:
        layout = json.loads(self.read_layout(commit))
        usual, odd = layout["usual"], layout["odd"]
        files: dict[str, SnapshotFile] = {}
        for line in self._run_git("ls-tree", "-r", "-z", "--full-tree", commit, f"{_FILES}/").split(b"\0")[
            :-1
        ]:
            about, _, name = line.partition(b"\t")
            kind, _, blob = about.decode().split(" ")
            path, mode = os.fsdecode(name).removeprefix(f"{_FILES}/"), _KINDS[kind]
            if not stat.S_ISLNK(mode):
                mode = stat.S_IFREG | odd.get(path, usual.get(permission_kind(mode), mode & 0o777))
            files[path] = SnapshotFile(mode, blob)
        folders = dict.fromkeys(layout["empty"], 0)
        for path in (*files, *layout["empty"]):
            while (path := path.rpartition("/")[0]) and path not in folders:
                folders[path] = 0
        return SnapshotContents(
            files, {path: odd.get(path, usual.get("folder", 0)) for path in sorted(folders)}
        )

    def read_blobs(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the bytes of each blob, in the given order."""
        with (
            _temporary_file_containing(
                f"{name}\n".encode() for name in blob_ids
            ) as asked,  # two pipes would deadlock
            self._start_git("cat-file", "--batch", "--buffer", stdin=asked) as git,
        ):
            assert git.stdout is not None
            for name in blob_ids:
                about = git.stdout.readline().split()
                if len(about) != 3:
                    raise SnapshotError(
                        f"The snapshots in {str(self.folder)!r} are damaged: {name} is missing."
                    )
                yield git.stdout.read(int(about[2]))
                git.stdout.read(1)

    def diff_paths(self, old: str, new: str, paths: Sequence[str]) -> list[FileDiff]:
        """Return what changed in these paths."""
        found = list[FileDiff]()
        for some in _in_groups([f"{_FILES}/{path}" for path in paths]):
            found += parse_raw_and_patch(split_git_lines(self._run_git(*_SHOW_DIFFS, old, new, "--", *some)))
        return found

    def diff_snapshot_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[list[FileDiff]]:
        """Return what changed from each snapshot to another, file by file, by one process of git."""
        asked = "".join(f"{new} {old}\n" for old, new in pairs)
        text = self._run_git(*_SHOW_DIFFS, "--stdin", "--always", "--abbrev=40", text=asked)
        found = list[list[str]]()
        for line in split_git_lines(text):
            if len(found) < len(pairs) and line[:-1] == pairs[len(found)][1]:
                found.append([])
            else:
                found[-1].append(line)
        return [*map(parse_raw_and_patch, found)]

    @property
    def name(self) -> str:
        return self.folder.name

    def ancestors(self, commit: str) -> list[str]:
        """Earlier snapshots that this one continues, newest first."""
        return self._run_git("rev-list", "--first-parent", commit).decode().split()[1:]

    def find_missing_snapshots(self, commits: Sequence[str]) -> list[str]:
        """Those of the snapshots that aren't here."""
        if not (self.folder / "HEAD").exists():
            return [*commits]
        answers = self._run_git("cat-file", "--batch-check", text="".join(f"{c}\n" for c in commits))
        lines = answers.decode().splitlines()
        return [c for c, line in zip(commits, lines, strict=True) if line.endswith("missing")]

    def pack_snapshot(self, commit: str, base: str) -> bytes:
        """Return all objects of a snapshot that `base`, and the repositories that this one borrows from, don't
        have."""
        without = "".join(f"^{name}\n" for name in (*([base] if base else ()), *self._borrowed_trees()))
        return self._run_git("pack-objects", "--revs", "--stdout", "--quiet", text=f"{commit}\n{without}")

    def add_packs(self, packs: Sequence[bytes]) -> None:
        """Add objects as `pack_of` made them, at once: each call of git takes longer than reading a small pack."""
        self._create_repository_if_missing()
        count = sum(int.from_bytes(pack[8:12], "big") for pack in packs)
        joined = hashlib.sha1(usedforsecurity=False)
        parts = (b"PACK\0\0\0\2" + count.to_bytes(4, "big"), *(memoryview(pack)[12:-20] for pack in packs))
        for part in parts:
            joined.update(part)
        with _temporary_file_containing([*parts, joined.digest()]) as file:
            self._run_git("index-pack", "--stdin", stdin=file)

    def copy_missing_snapshots_from(self, other: "ShadowRepository", commits: Sequence[str]) -> None:
        """Take over those of the snapshots that the other repository has and this one lacks."""
        gone = (
            {*other.find_missing_snapshots(commits)}
            if (wanted := self.find_missing_snapshots(commits))
            else set[str]()
        )
        if there := [commit for commit in wanted if commit not in gone]:
            self.add_packs([other.pack_snapshot("\n".join(there), "")])

    def borrow_objects(self, objects: Path, tree: str) -> None:
        """Use the objects of another repository, of which `tree` stays there: packs leave it out."""
        self._create_repository_if_missing()
        replace_private_file_holding_lock(self.folder / _ALTERNATES, f"{objects}\n".encode())
        replace_private_file_holding_lock(self.folder / _BORROWED, tree.encode())

    @property
    def is_borrowing_objects(self) -> bool:
        """Whether it uses objects of another repository, which is there."""
        try:
            objects = (self.folder / _ALTERNATES).read_text().strip()
        except FileNotFoundError:
            return False
        return Path(objects).is_dir()

    def _borrowed_trees(self) -> list[str]:
        try:
            return [(self.folder / _BORROWED).read_text()]
        except FileNotFoundError:
            return []

    @property
    def objects_folder(self) -> Path:
        return self.folder / "objects"

    def make_patch(self, old: str, new: str, paths: Sequence[str] | None = None) -> bytes:
        """Return what changed, in these paths or everywhere, as a patch that `git apply` takes."""
        shown = (
            *("diff", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
            "--no-renames",
        )
        trees = (f"{old}:{_FILES}", f"{new}:{_FILES}")
        if paths is None:
            return self._run_git(*shown, *trees)
        return b"".join(self._run_git(*shown, *trees, "--", *some) for some in _in_groups(paths))

    def format_changed_index_entries(self, old: str, new: str) -> str:
        """Return what changed, as `git update-index -z --index-info` takes it."""
        raw = self._run_git("diff-tree", "-r", "-z", "--no-renames", f"{old}:{_FILES}", f"{new}:{_FILES}")
        parts = os.fsdecode(raw).split("\0")
        lines = zip(parts[::2], parts[1::2], strict=False)
        return "".join("{1} {3}\t{path}\0".format(*about.split(" "), path=path) for about, path in lines)

    def pack_objects_if_many(self) -> None:
        """Pack loose objects if there are many. Safe against kills and concurrent processes."""
        one = self.folder / "objects" / "17"  # holds a 256th of them
        if not (self.folder / "HEAD").exists():
            return
        if len([*one.glob("*")]) > _MOST_LOOSE // 256:
            self._run_git("repack", "-d", "-q")
        if len([*(self.folder / "objects" / "pack").glob("*.pack")]) > _MOST_PACKS:
            self._run_git("repack", "-a", "-d", "-k", "-q")

    def _create_repository_if_missing(self) -> None:
        if (self.folder / "HEAD").exists():
            return
        make_private_directory(self.folder.parent)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder.parent))
        self._run_git("init", "--quiet", "--bare", "--template=", str(made))
        try:
            made.rename(self.folder)
        except OSError:  # another process was faster
            shutil.rmtree(made)

    def _run_git(
        self,
        *arguments: str,
        text: str = "",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        objects: Path | None = None,
        index: Path | None = None,
    ) -> bytes:
        """Return what git prints. `text`, or else `stdin`: what it reads. The others: as in `_start_git`."""
        with (
            _temporary_file_containing([text.encode()]) if text else nullcontext(stdin) as read,
            self._start_git(*arguments, stdin=read, objects=objects, index=index) as git,
        ):
            assert git.stdout is not None
            return git.stdout.read()

    @contextmanager
    def _start_git(
        self, *arguments: str, stdin: int | IO[bytes], objects: Path | None = None, index: Path | None = None
    ) -> Generator["subprocess.Popen[bytes]"]:
        """`objects`, `index`: another repository's, to read."""
        settings = (part for setting in _SETTINGS for part in ("-c", setting))
        command = ("git", *settings, "--literal-pathspecs", *arguments)
        env = {"PATH": os.environ.get("PATH", os.defpath), "GIT_DIR": str(self.folder), **_ALONE}
        env |= {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)} if objects else {}
        env |= {"GIT_INDEX_FILE": str(index)} if index else {}
        with tempfile.TemporaryFile() as errors:
            try:
                git = subprocess.Popen(
                    command,
                    cwd="/",  # this process's own may be deleted
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=env,
                    start_new_session=True,
                    umask=0o077,
                    bufsize=_BUFFER_BYTES,
                )
            except FileNotFoundError as error:
                raise SnapshotError(NO_GIT) from error
            broken: OSError | None = None
            try:
                with git:
                    yield git
            except BrokenPipeError as error:
                broken = error
            except BaseException:
                git.kill()
                raise
            if git.returncode or broken:
                errors.seek(0)
                output = " ".join(errors.read(2000).decode(errors="replace").split())
                raise SnapshotError(f"git {arguments[0]} failed in {str(self.folder)!r}: {output or broken}")


def _in_groups(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the paths in groups that fit into a command line."""
    return (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))


@contextmanager
def _temporary_file_containing(parts: Iterable[bytes | memoryview]) -> Generator[IO[bytes]]:
    """Hold data in a file that a program can read from its beginning."""
    with tempfile.TemporaryFile() as file:
        file.writelines(parts)
        file.seek(0)
        yield file


def _format_file_change_command(path: str, mode: int | None, data: bytes, known_blob: str = "") -> bytes:
    """Format the fast-import command for one path. `known_blob`: the id of its blob, if git can read it already."""
    name = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    if mode is None:
        return b'D "%s"\n' % name
    kind = b"120000" if stat.S_ISLNK(mode) else b"100755" if mode & 0o100 else b"100644"
    if known_blob:
        return b'M %s %s "%s"\n' % (kind, known_blob.encode(), name)
    return b'M %s inline "%s"\ndata %d\n%s\n' % (kind, name, len(data), data)


_INDEX = "interlock-index.json"


def set_parent_snapshot(folder: Path, commit: str) -> None:
    """Let the next snapshot in this repository continue a commit, whose files the workspace has."""
    layout = json.loads(ShadowRepository(folder).read_layout(commit))
    known = {"commit": commit, "layout": json.dumps(layout, sort_keys=True), "folders": dict[str, Any]()}
    replace_private_file_holding_lock(folder / _INDEX, json.dumps(known).encode())


class WorkspaceSnapshots:
    """Snapshots of one workspace by one process; taken one at a time."""

    def __init__(
        self,
        home: Path,
        workspace: Workspace,
        limits: "SnapshotSettings",
        repository: ShadowRepository | None = None,
    ) -> None:
        """`repository`: another one than the workspace's own."""
        self.repository = repository or ShadowRepository(
            home / "snapshots" / shadow_repository_name(workspace.root)
        )
        self._workspace, self._limits = workspace, limits
        self._tree: WorkspaceTree | None = None
        self._under_way: WorkspaceTree | None = None
        self._commit, self._layout = "", b""
        self._saved = ""
        self._lock = threading.Lock()

    def take_snapshot(self, ref: str, changed_path: str = "") -> str:
        """Return the commit with the current files. Raises `SnapshotError`, `TooManyFilesError`.

        `changed_path`: the only file, relative to the workspace, that can have changed since the last snapshot.
        """
        with self._lock:
            beside = (
                None
                if self._tree or self._index_path.exists()
                else self.repository.find_user_repository_blobs(self._workspace.root)
            )
            try:
                return self._take_snapshot_with_blobs(ref, changed_path, beside)
            except SnapshotError:
                if beside is None:
                    raise
                return self._take_snapshot_with_blobs(
                    ref, changed_path, None
                )  # the other repository is damaged, or was changed meanwhile

    def _take_snapshot_with_blobs(self, ref: str, changed_path: str, blob_source: BlobSource | None) -> str:
        self._under_way = tree = self._tree or self._load_tree()
        self._tree = None  # invalid if this fails
        layout = b""

        def laid_out() -> bytes:
            nonlocal layout
            layout = layout or tree.layout_json()
            return layout

        changes = tree.scan_for_changes(changed_path.rpartition("/")[0] if changed_path else None)
        self._commit = self.repository.commit_changes(
            ref, self._commit, changes, laid_out, self._layout, blob_source
        )
        self._layout, self._tree = layout or self._layout, tree
        if not self._saved:
            self._save_tree(tree)
        return self._commit

    @property
    def progress(self) -> tuple[int, int]:
        """Of a snapshot under way: files read, and those to be read; 0 while the folders are listed."""
        return (tree.seen, tree.due) if (tree := self._under_way) else (0, 0)

    def save_and_close(self) -> None:
        """Save the tree for the next process and pack the repository; files not saved would be examined again."""
        with self._lock:
            if self._tree is not None and self._saved != self._commit:
                self._save_tree(self._tree)
                self.repository.pack_objects_if_many()

    @property
    def _index_path(self) -> Path:
        return self.repository.folder / _INDEX

    def _load_tree(self) -> WorkspaceTree:
        try:
            known = cast(dict[str, Any], json.loads(self._index_path.read_bytes()))
            tree = WorkspaceTree(self._workspace, self._limits, known["folders"])
            self._commit, self._layout = known["commit"], known["layout"].encode()
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or of another version
            self._commit, self._layout = "", b""
            return WorkspaceTree(self._workspace, self._limits)
        self._saved = self._commit
        return tree

    def _save_tree(self, tree: WorkspaceTree) -> None:
        known = {"commit": self._commit, "layout": self._layout.decode(), "folders": tree.to_json()}
        replace_private_file_holding_lock(self._index_path, json.dumps(known).encode())
        self._saved = self._commit
