"""repository: which parts of a repository a sandboxed command may not change, and how they are mounted and held."""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.files.protected import (
    Kind,
    ProtectedPaths,
    folded,
    is_private,
    named_by_git,
    program_folders,
)
from interlock.state.errors import SandboxError


class Mounts:
    """Path → how it is mounted. Anything not below one of them doesn't exist in the sandbox."""

    def __init__(self) -> None:
        self._how: dict[Path, list[str]] = {}

    def link(self, path: Path) -> None:
        self._how[path] = ["--symlink", str(path.readlink()), str(path)]

    def read_only(self, path: Path) -> None:
        self._how[path] = ["--ro-bind-try", str(path), str(path)]

    def writable(self, path: Path) -> None:
        self._how[path] = ["--bind-try", str(path), str(path)]

    def pin(self, path: Path) -> None:
        """Keep `path` from being moved, so that mounts below it stay in place; otherwise it is unchanged."""
        if path not in self._how:
            self.writable(path)

    def hide(self, path: Path) -> None:
        """Make a folder empty, or a file unreadable; neither can be removed or replaced."""
        if path.is_dir():
            self._how[path] = ["--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            self._how[path] = ["--ro-bind", os.devnull, str(path)]

    def scratch(self, path: Path) -> None:
        """Mount an empty temporary folder that is gone with the command."""
        self._how[path] = ["--tmpfs", str(path)]

    def update(self, other: "Mounts") -> None:
        """Add the mounts of `other`, which take precedence."""
        self._how.update(other._how)

    def shows(self, path: Path) -> bool:
        """Whether the nearest mount at or above `path` shows the host's files."""
        above = [self._how[p] for p in (path, *path.parents) if p in self._how]
        return bool(above) and "bind" in above[0][0]

    def arguments(self, below: Path = Path("/")) -> list[str]:
        """What bubblewrap is given for the paths `below` a folder, the outer ones first."""
        by_depth = sorted(self._how, key=lambda path: (len(path.parts), path))
        return [part for path in by_depth if path.is_relative_to(below) for part in self._how[path]]


_EXECUTES = ("config", "config.worktree", "modules", "worktrees")
"""Configuration names programs (hooks, filters, pagers); `modules` and `worktrees` contain further git directories."""
_HERE = b".\n"
"""As `commondir`: this directory itself. Without this file, a new one could point git at another configuration."""
_ELSEWHERE = re.compile(r"^\s*(?:bare\s*=\s*true|worktree\s*=)", re.MULTILINE | re.IGNORECASE)
"""Settings that git ignores once there is a `commondir`."""
_NOTHING = b"# nothing is included\n"


_PRIVATE = (".env", ".git")
NOT_SEARCHED = "node_modules"
"""Tens of thousands of folders of third-party packages."""


@dataclass
class Survey:
    """Mounts on top of the writable roots, and placeholders to hold while the command runs."""

    roots: Sequence[Path]
    mounts: Mounts = field(default_factory=Mounts)
    missing: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])
    known: set[str] = field(default_factory=set[str])
    """Protected files and repositories that are there."""
    folders: dict[str, "Stamp | None"] = field(default_factory=dict[str, "Stamp | None"])

    def keep(self, path: Path) -> None:
        """Make it read-only and immovable."""
        self._pin_above(path)
        self.mounts.read_only(path)

    def never_new(self, path: Path, content: bytes | None = None) -> None:
        """Make it read-only; if it doesn't exist, a placeholder holds the first missing part of `path`."""
        first = next((p for p in reversed((path, *path.parents)) if not os.path.lexists(p)), path)
        if first != path or not os.path.lexists(path) or is_placeholder(path, content):
            self.missing[first] = content if first == path else None
        self.keep(first)

    def _pin_above(self, path: Path) -> None:
        root = self.root_of(path)
        for parent in path.parents:
            if root is None or parent == root or root not in parent.parents:
                return
            self.mounts.pin(parent)

    def root_of(self, path: Path) -> Path | None:
        return max(
            (r for r in self.roots if path.is_relative_to(r)), key=lambda r: len(r.parts), default=None
        )


def survey(roots: Sequence[Path], env: Mapping[str, str], protected: ProtectedPaths) -> Survey:
    """Survey the roots by walking their folders. Raises `SandboxError` for a link that a command could redirect."""
    found = Survey(roots)
    names = protected.names()
    for root in roots:
        found.mounts.writable(root)
    for root in roots:
        _walk(root, found, protected.kinds())
        for name in _PRIVATE:
            _top(root / name, found)
        for name in protected.spelled():
            kind = names[folded(name)]
            if kind.new and (kind.trusted or not (root / name).is_symlink()):
                _top(root / name, found)
    for path in (*program_folders(env), *protected.places):
        if found.root_of(path) and path not in (*roots, *found.missing):
            found.never_new(path)
    return found


def _top(path: Path, found: Survey) -> None:
    if path.is_symlink():
        raise SandboxError(
            f"{str(path)!r} is a link, and a sandboxed command could turn it; expected a file or folder."
            " Put what it leads to in its place, or run without the sandbox."
        )
    if not os.path.lexists(path) or is_placeholder(path, None):
        found.never_new(path)
    elif path.name == ".git" and path.is_file():
        _linked_worktree(path, found)


def _walk(root: Path, found: Survey, kinds: Callable[[str], Kind | None]) -> None:
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        found.folders[folder] = stamp(folder)  # first: what comes later changes it
        for entry in _entries(folder):
            name = folded(entry.name)
            is_dir = entry.is_dir(follow_symlinks=False)
            is_protected = name == ".git" or kinds(name) is not None
            if is_protected:
                found.known.add(entry.path)
            if name == ".git" and is_dir:
                _repository(Path(entry.path), found)
            elif is_protected and not entry.is_symlink():
                found.keep(Path(entry.path))
            elif is_private(entry.name):
                real = Path(os.path.realpath(entry.path))
                if found.root_of(real) and real.exists():  # outside the roots there is nothing to see anyway
                    found.mounts.hide(real)
            elif is_dir and name != NOT_SEARCHED:
                pending.append(entry.path)


def _repository(git: Path, found: Survey, tree: Path | None = None) -> None:
    """Mount a `.git` folder so that commands can work with it but gain no rights from it; `tree` is a work tree other
    than its parent. What git wouldn't accept as a whole repository is read-only."""
    found.mounts.pin(git)
    config = git / "config"
    text = config.read_text(errors="replace") if config.is_file() else None
    if text is None or not (git / "HEAD").exists() or _ELSEWHERE.search(text):
        found.keep(git)
        return
    for name in _EXECUTES:
        if os.path.lexists(git / name):
            found.keep(git / name)
    never_new: dict[Path, bytes | None] = {git / "hooks": None, git / "commondir": _HERE}
    for path, configures in named_by_git(config, tree or git.parent):
        never_new[path] = _NOTHING if configures else None
    for path, content in never_new.items():
        if found.root_of(path) or path.is_relative_to(git):
            found.never_new(path, content)


def _linked_worktree(git_file: Path, found: Survey) -> None:
    """Handle a `.git` file, provided its repository confirms the worktree: the file alone must not open a folder."""
    try:
        own = _leads_to(git_file.parent, read_file(git_file).decode().strip().removeprefix("gitdir:").strip())
        common = _leads_to(own, read_file(own / "commondir").decode().strip())
        back = _leads_to(own, read_file(own / "gitdir").decode().strip())
    except (OSError, UnicodeDecodeError):
        return
    if back != git_file or own.parent != common / "worktrees" or not (common / "objects").is_dir():
        return
    found.mounts.writable(common)
    found.mounts.writable(own)
    _repository(common, found, git_file.parent)
    for name in ("commondir", "gitdir", "config.worktree"):
        if (own / name).exists():
            found.keep(own / name)


def _leads_to(base: Path, name: str) -> Path:
    return Path(os.path.realpath(base / name))


Stamp = tuple[int, int, int]


def stamp(folder: str) -> Stamp | None:
    """Return a value that differs once an entry of the folder is new or gone; None if that can't be known yet."""
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    # Clocks of file systems tick: a change right after another may leave the same time.
    settled = time.time_ns() - status.st_ctime_ns > _TICK_NS
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if settled else None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # gone or unreadable: a command can't read it either
        return []


_TICK_NS = 50_000_000
_TRIES = 100
_FOLDER = 0o1555
"""Unusual permissions that distinguish our placeholders from a user's empty folders."""
_TELLING = 0o1222
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def is_placeholder(path: Path, content: bytes | None) -> bool:
    """Whether it is a placeholder, made by any run."""
    try:
        if content is not None:
            return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
        return (
            path.is_dir() and path.stat().st_mode & _TELLING == _FOLDER & _TELLING and not any(path.iterdir())
        )
    except OSError:
        return False


@contextmanager
def held(missing: Mapping[Path, bytes | None]) -> Generator[None]:
    """Hold placeholders: path → file content, or None for a folder. Skips what nobody can create. Raises `OSError`."""
    with ExitStack() as stack:
        for path, content in missing.items():
            try:
                stack.enter_context(_one(path, content))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
        yield


@contextmanager
def _one(path: Path, content: bytes | None) -> Generator[None]:
    descriptor = _locked(path, content)
    try:
        yield
    finally:
        with suppress(BlockingIOError):  # another run still holds it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path, content)
        os.close(descriptor)


def _locked(path: Path, content: bytes | None) -> int:
    """Create, open and lock it, retrying if it is removed in between."""
    for _ in range(_TRIES):
        _make(path, content)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileExistsError(f"{path} comes and goes")


def _make(path: Path, content: bytes | None) -> None:
    if content is None:
        with suppress(FileExistsError):
            path.mkdir(_FOLDER)
        return
    with suppress(FileExistsError), path.open("xb") as file:
        file.write(content)


def _remove(path: Path, content: bytes | None) -> None:
    if not is_placeholder(path, content):
        return  # filled by a person in the meantime
    with suppress(OSError):  # or just now
        if content is None:
            path.rmdir()
        else:
            path.unlink()
