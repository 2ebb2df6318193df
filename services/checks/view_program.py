"""view_program: a program that mounts a view over a workspace, restores files there, and runs a command in it.

The mount is an overlay in namespaces of the program's own: what the command writes lands in a folder beside it, nobody
else sees it, and it is gone with the command. It starts in milliseconds: imports nothing of the house.
"""

import ctypes
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, NoReturn

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class StoredFile(NamedTuple):
    """A file as it was."""

    path: str
    """Relative to the view's root."""
    mode: int
    """Type and permissions; 0: it wasn't there."""
    data: str
    """The file that holds its bytes, or a link's target."""


def restore_or_remove_files(root: str, files: Iterable[StoredFile]) -> None:
    """Put files into a view, each newer than the one before. Raises `OSError`."""
    begun_ns = time.time_ns()
    for number, file in enumerate(files):
        *folders, name = file.path.split("/")
        with _Folder(root, folders, make=bool(file.mode)) as folder:
            if folder is not None:
                _restore_or_remove_file(folder, name, file, begun_ns + number * 1000)


class _Folder:
    """A folder of the view, entered without following links: what isn't a folder on the way is replaced by one."""

    def __init__(self, root: str, names: list[str], *, make: bool) -> None:
        self._root, self._names, self._make = root, names, make

    def __enter__(self) -> int | None:
        self._held: int | None = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for name in self._names:
            outer = self._held
            self._held = self._open_or_make_subfolder(outer, name)
            os.close(outer)
            if self._held is None:
                return None
        return self._held

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            os.close(self._held)

    def _open_or_make_subfolder(self, folder: int, name: str) -> int | None:
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not self._make:
                return None
        except OSError:  # a link or a file
            if not self._make:
                return None
            os.unlink(name, dir_fd=folder)
        os.mkdir(name, 0o755, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _restore_or_remove_file(folder: int, name: str, file: StoredFile, modified_ns: int) -> None:
    _remove_entry(folder, name)
    if name.endswith(".py"):
        _remove_compiled_python(folder, name.removesuffix(".py"))
    if not file.mode:
        return
    with open(file.data, "rb") as source:  # noqa: PTH123 - a path of the program's own
        if stat.S_ISLNK(file.mode):
            os.symlink(source.read(), name, dir_fd=folder)
            return
        # Made now, so that nothing that was built from today's file counts as newer.
        with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as made:
            shutil.copyfileobj(source, made)
            os.fchmod(made.fileno(), stat.S_IMODE(file.mode))
            made.flush()
            os.utime(made.fileno(), ns=(modified_ns, modified_ns))


def _remove_entry(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(name, dir_fd=folder)


def _remove_compiled_python(folder: int, stem: str) -> None:
    """Remove what Python compiled of today's file: it compares whole seconds and sizes only."""
    with suppress(OSError):
        cache = os.open("__pycache__", _FOLDER, dir_fd=folder)
        try:
            for name in os.listdir(cache):  # noqa: PTH208 - by descriptor
                if name.startswith(f"{stem}."):
                    os.unlink(name, dir_fd=cache)
        finally:
            os.close(cache)


_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_C = ctypes.CDLL(None, use_errno=True)


def main(plan_file: str, *command: str) -> NoReturn:
    """Enter the view that a file plans and run the command, if any; exits with 125 and a line if there can't be one."""
    try:
        with open(plan_file, encoding="utf-8") as file:  # noqa: PTH123 - starts in milliseconds without pathlib
            view = json.load(file)
        _enter_user_and_mount_namespaces()
        for root, upper, work in view["folders"]:
            if view["memory"]:
                _mount(b"tmpfs", os.path.dirname(upper), b"tmpfs", "mode=700")  # noqa: PTH120 - see above
                os.mkdir(upper)  # noqa: PTH102 - see above
                os.mkdir(work)  # noqa: PTH102 - see above
            held = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in (root, upper, work)]
            lower, up, at = (f"/proc/self/fd/{one}" for one in held)  # a path may hold colons and commas
            _mount(b"overlay", root, b"overlay", f"lowerdir={lower},upperdir={up},workdir={at},userxattr")
            for one in held:
                os.close(one)
        restore_or_remove_files(view["folders"][0][0], (StoredFile(*one) for one in view["files"]))
        os.chdir(view["folders"][0][0])
    except OSError as error:
        sys.stderr.write(f"No view of the workspace: {error}\n")
        os._exit(125)
    if not command:
        os._exit(0)
    os.execvp(command[0], command)


def _enter_user_and_mount_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    if _C.unshare(_NEWUSER | _NEWNS):
        raise _last_os_error("unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - see above
            file.write(text)
    if _C.mount(b"none", b"/", None, _PRIVATE, None):
        raise _last_os_error("mount")


def _mount(source: bytes, target: str, kind: bytes, options: str) -> None:
    if _C.mount(source, os.fsencode(target), kind, 0, options.encode()):
        raise _last_os_error(f"mount {kind.decode()}")


def _last_os_error(action: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{action}: {os.strerror(number)}")
