"""protected_mounts: finds what a sandboxed command may not change in a workspace, and how that is mounted."""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.files.linked_worktree import read_linked_worktree
from interlock.services.files.protected import (
    ProtectedPaths,
    ProtectionKind,
    fold_name,
    is_private_name,
    iterate_git_hook_and_include_paths,
    looks_like_git_repository,
    program_search_folders,
    system_and_user_git_config_paths,
)
from interlock.services.sandbox.mounts import Mounts
from interlock.state.errors import SandboxError

_EXECUTES = ("config", "config.worktree", "modules", "worktrees")
"""Configuration names programs (hooks, filters, pagers); `modules` and `worktrees` contain further git directories."""
HERE = b".\n"
"""As `commondir`: this directory itself. Without this file, a new one could point git at another configuration."""
_ELSEWHERE = re.compile(r"^\s*(?:bare\s*=\s*true|worktree\s*=)", re.MULTILINE | re.IGNORECASE)
"""Settings that git ignores once there is a `commondir`."""
ALTERNATES = Path("objects", "info", "alternates")
"""Where git looks for objects besides its own, in a git directory."""
_BORROWS_NONE = b"# no objects are borrowed\n"
_NOTHING = b"# nothing is included\n"
_WORKTREE_CONFIG = re.compile(r"\bworktreeconfig\b", re.IGNORECASE)
"""With this extension git also reads `config.worktree`."""
_TODO_LISTS = ("rebase-merge/git-rebase-todo",)
"""What an interrupted rebase does when somebody continues it."""
_EXEC = re.compile(rb"^\s*(?:exec|x)\s.*$", re.MULTILINE)

NOT_SEARCHED = "node_modules"
"""Tens of thousands of folders of third-party packages."""
_DOTENV = ".env"
"""In a root it sets Interlock's own variables, so none may be made there."""


@dataclass
class Survey:
    """Mounts on top of the writable roots, and what is there before a command runs."""

    roots: Sequence[Path]
    mounts: Mounts = field(default_factory=Mounts)
    missing: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])
    """Placeholders to hold inside git's own folders while the command runs."""
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """Paths, besides protected names, that aren't there and that no command may make → their first missing part."""
    programs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Lists of what git still does in a repository → the commands in them."""
    known: dict[str, str] = field(default_factory=dict[str, str])
    """Protected files and repositories that are there; where one is a link, what it leads to."""
    folders: dict[str, "Stamp | None"] = field(default_factory=dict[str, "Stamp | None"])

    def protect_path(self, path: Path) -> None:
        """Make it read-only and immovable; a link, what it leads to in a root."""
        place = Path(os.path.realpath(path.parent)) / path.name
        if place.is_symlink():
            self.known[str(place)] = link_target_or_empty(str(place))
            place = Path(os.path.realpath(place))
            if not place.exists() or any(root.is_relative_to(place) for root in self.roots):
                return
        if self.find_root(place) or self.find_root(path) is None:
            self._pin_parents(place)
            self.mounts.add_read_only(place)

    def protect_or_forbid_creation(self, path: Path) -> None:
        """Keep it; if it doesn't exist, no command may make it."""
        place = Path(os.path.realpath(path.parent)) / path.name
        if os.path.lexists(place):
            self.protect_path(place)
        elif self.find_root(place):
            first = next(p for p in reversed((place, *place.parents)) if not os.path.lexists(p))
            self._pin_parents(first)
            self.absent[str(place)] = str(first)

    def protect_or_hold_placeholder(self, path: Path, content: bytes | None = None) -> None:
        """Keep it; if it doesn't exist, a placeholder stands there: git would obey what a command makes at once."""
        first = next((p for p in reversed((path, *path.parents)) if not os.path.lexists(p)), path)
        if first != path or not os.path.lexists(path) or is_placeholder(path, content):
            self.missing[first] = content if first == path else None
        self._pin_parents(first)
        self.mounts.add_read_only(first)

    def _pin_parents(self, path: Path) -> None:
        root = self.find_root(path)
        for parent in path.parents:
            if root is None or parent == root or root not in parent.parents:
                return
            self.mounts.pin_path(parent)

    def record_rebase_exec_lines(self, git: Path) -> None:
        self.programs.update(
            (str(git / name), read_rebase_exec_lines(str(git / name))) for name in _TODO_LISTS
        )

    def find_root(self, path: Path) -> Path | None:
        return max(
            (r for r in self.roots if path.is_relative_to(r)), key=lambda r: len(r.parts), default=None
        )


def survey_and_protect_roots(
    roots: Sequence[Path], env: Mapping[str, str], protected: ProtectedPaths
) -> Survey:
    """Survey the roots by walking their folders. Raises `SandboxError` for a link that a command could redirect."""
    found = Survey(roots)
    configs = [*system_and_user_git_config_paths(env)]
    for root in roots:
        found.mounts.add_writable(root)
    for root in roots:
        _reject_redirecting_links(root)
        _survey_and_protect_folders(root, found, protected.make_protection_kind_lookup(), configs)
        if not os.path.lexists(root / _DOTENV):
            found.protect_or_forbid_creation(root / _DOTENV)
        if not os.path.lexists(root / ".git"):
            found.protect_or_forbid_creation(root / ".git" / ALTERNATES)
        if (root / ".git").is_file():
            _protect_linked_worktree(root / ".git", found, configs)
    _protect_link_targets(found, protected)
    for path in (*program_search_folders(env), *protected.places):
        if found.find_root(path) and path not in roots:
            found.protect_or_forbid_creation(path)
    return found


def _reject_redirecting_links(root: Path) -> None:
    """Raises `SandboxError` for a link where Interlock's variables or git's repository are expected. Links with other
    protected names that a command turns are set aside."""
    for name in (_DOTENV, ".git"):
        if (root / name).is_symlink():
            raise SandboxError(
                f"{str(root / name)!r} is a link, and a sandboxed command could turn it; expected a file or folder."
                " Put what it leads to in its place, or run without the sandbox."
            )


def _survey_and_protect_folders(
    root: Path, survey: Survey, kinds: Callable[[str], ProtectionKind | None], configs: Sequence[Path]
) -> None:
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        survey.folders[folder] = settled_folder_stamp(folder)  # first: what comes later changes it
        entries = _list_entries_or_empty(folder)
        if looks_like_git_repository({fold_name(entry.name) for entry in entries}):
            _protect_bare_repository(Path(folder), survey)
        for entry in entries:
            name = fold_name(entry.name)
            is_dir = entry.is_dir(follow_symlinks=False)
            is_protected = name == ".git" or kinds(name) is not None
            if is_protected:
                survey.known[entry.path] = link_target_or_empty(entry.path)
            if name == ".git" and is_dir:
                _protect_git_directory(Path(entry.path), survey, configs)
            elif is_protected and is_dir and is_placeholder(Path(entry.path), None):  # of an older version
                del survey.known[entry.path]
                with suppress(OSError):
                    Path(entry.path).rmdir()
            elif is_protected:
                survey.protect_path(Path(entry.path))
            elif is_private_name(entry.name):
                real = Path(os.path.realpath(entry.path))
                if (
                    survey.find_root(real) and real.exists()
                ):  # outside the roots there is nothing to see anyway
                    survey.mounts.hide_path(real)
            elif is_dir and name != NOT_SEARCHED:
                pending.append(entry.path)


def _protect_link_targets(survey: Survey, protected: ProtectedPaths) -> None:
    """Protect what links below protected names lead to, and other names of the files there."""
    links = protected.open_link_index(survey.roots)
    for path in links.find_targets().paths:
        if NOT_SEARCHED not in path.parts:  # an installer puts packages there
            survey.protect_or_forbid_creation(path)
    several = set[tuple[int, int]]()
    for entry in (*map(Path, survey.known), *links.iterate_files_inside()):
        with suppress(OSError):
            status = os.lstat(entry)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                several.add((status.st_dev, status.st_ino))
    inodes = {inode for _, inode in several}
    for folder in survey.folders if several else ():
        for entry in _list_entries_or_empty(folder):
            if entry.inode() in inodes:
                status = entry.stat(follow_symlinks=False)
                if (status.st_dev, status.st_ino) in several:
                    survey.protect_path(Path(entry.path))


def _protect_bare_repository(git: Path, survey: Survey) -> None:
    """Mount a repository that isn't named `.git`: commands may push to it, and gain no rights from it."""
    survey.known[str(git)] = ""
    linked = (tree / name for tree in (git / "worktrees").glob("*") for name in ("commondir", "gitdir"))
    for path in (git / "config", git / "commondir", *linked):
        survey.protect_or_forbid_creation(path)
    for path in (git / "modules", git / "config.worktree", *(git / "worktrees").glob("*/config.worktree")):
        if os.path.lexists(path):
            survey.protect_path(path)
    survey.protect_or_hold_placeholder(git / "hooks")


def _protect_git_directory(
    git: Path, survey: Survey, configs: Sequence[Path], tree: Path | None = None
) -> None:
    """Mount a `.git` folder so that commands can work with it but gain no rights from it; `tree` is a work tree other
    than its parent. What git wouldn't accept as a whole repository is read-only."""
    survey.mounts.pin_path(git)
    config = git / "config"
    text = config.read_text(errors="replace") if config.is_file() else None
    if text is None or not (git / "HEAD").exists() or _ELSEWHERE.search(text):
        survey.protect_path(git)
        return
    for name in _EXECUTES:
        if os.path.lexists(git / name):
            survey.protect_path(git / name)
    survey.protect_or_hold_placeholder(git / "hooks")
    survey.protect_or_hold_placeholder(git / "commondir", HERE)
    if (git / "objects").is_dir():  # what it names is shown to commands (`list_borrowed_object_folders`)
        survey.protect_or_hold_placeholder(git / ALTERNATES, _BORROWS_NONE)
    if _WORKTREE_CONFIG.search(text):
        survey.protect_or_hold_placeholder(git / "config.worktree", _NOTHING)
    if not os.path.lexists(git / "modules"):
        survey.absent[str(git / "modules")] = str(git / "modules")
    survey.record_rebase_exec_lines(git)
    for source in (config, *configs):
        for path, configures in iterate_git_hook_and_include_paths(source, tree or git.parent):
            if path.is_relative_to(git):
                survey.protect_or_hold_placeholder(path, _NOTHING if configures else None)
            elif path not in survey.roots:
                survey.protect_or_forbid_creation(path)


def _protect_linked_worktree(git_file: Path, survey: Survey, configs: Sequence[Path]) -> None:
    """Handle a `.git` file, provided its repository confirms the worktree: the file alone must not open a folder."""
    linked = read_linked_worktree(Path(os.path.realpath(git_file.parent)))
    if linked is None:
        return
    own, common = linked.own, linked.common
    survey.mounts.add_writable(common)
    survey.mounts.add_writable(own)
    _protect_git_directory(common, survey, configs, git_file.parent)
    survey.record_rebase_exec_lines(own)
    for name in ("commondir", "gitdir"):
        survey.protect_path(own / name)
    if (own / "config.worktree").exists() or _WORKTREE_CONFIG.search(
        (common / "config").read_text(errors="replace")
    ):
        survey.protect_or_hold_placeholder(own / "config.worktree", _NOTHING)


def read_rebase_exec_lines(todo_file: str) -> list[str]:
    """Return the lines of a rebase's list that run a command."""
    try:
        return [line.decode(errors="replace") for line in _EXEC.findall(read_file(Path(todo_file)))]
    except OSError:
        return []


def link_target_or_empty(path: str) -> str:
    """Return what a link leads to as written, or an empty string if it is none."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


Stamp = tuple[int, int, int]


def settled_folder_stamp(folder: str) -> Stamp | None:
    """Return a value that differs once an entry of the folder is new or gone; None if that can't be known yet."""
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    # Clocks of file systems tick: a change right after another may leave the same time.
    settled = time.time_ns() - status.st_ctime_ns > _TICK_NS
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if settled else None


def _list_entries_or_empty(folder: str) -> list[os.DirEntry[str]]:
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
    """Return whether it is a placeholder, made by any run."""
    try:
        if content is not None:
            return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content
        return (
            path.is_dir() and path.stat().st_mode & _TELLING == _FOLDER & _TELLING and not any(path.iterdir())
        )
    except OSError:
        return False


@contextmanager
def hold_placeholders(missing: Mapping[Path, bytes | None]) -> Generator[None]:
    """Hold placeholders: path → file content, or None for a folder. Skips what nobody can create. Raises `OSError`."""
    with ExitStack() as stack:
        for path, content in missing.items():
            try:
                stack.enter_context(_hold_placeholder(path, content))
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
        yield


@contextmanager
def _hold_placeholder(path: Path, content: bytes | None) -> Generator[None]:
    descriptor = _create_locked_placeholder(path, content)
    try:
        yield
    finally:
        _close_and_remove_unless_held(descriptor, path, content)


def remove_leftover_placeholder(path: Path, content: bytes | None) -> None:
    """Remove the placeholder of a killed run, unless another holds it, too."""
    with suppress(OSError):
        _close_and_remove_unless_held(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), path, content
        )


def _close_and_remove_unless_held(descriptor: int, path: Path, content: bytes | None) -> None:
    """Close it, too."""
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete_if_placeholder(path, content)
    finally:
        os.close(descriptor)


def _create_locked_placeholder(path: Path, content: bytes | None) -> int:
    """Create, open and lock it, retrying if it is removed in between."""
    for _ in range(_TRIES):
        _create_placeholder_if_absent(path, content)
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


def _create_placeholder_if_absent(path: Path, content: bytes | None) -> None:
    if content is None:
        with suppress(FileExistsError):
            path.mkdir(_FOLDER)
        return
    with suppress(FileExistsError), path.open("xb") as file:
        file.write(content)


def _delete_if_placeholder(path: Path, content: bytes | None) -> None:
    if not is_placeholder(path, content):
        return  # filled by a person in the meantime
    with suppress(OSError):  # or just now
        if content is None:
            path.rmdir()
        else:
            path.unlink()
