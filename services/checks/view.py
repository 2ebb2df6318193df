"""view: a workspace as it is today, ignored files included, with some files as they were; what is written there is gone
with it.

An overlay is mounted over the workspace for one command where the system lets users do that, so that all paths are as
usual. Else, and for commands in a sandbox, the workspace is copied. A view lies in the state directory and is locked
while its owner lives; those of killed runs are removed by the next run.
"""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.services.checks import VIEWS
from interlock.services.checks.view_program import StoredFile, restore_or_remove_files
from interlock.services.files.disk import make_private_directory

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); import view_program; view_program.main(*sys.argv[1:])"
)
_CLONE = 0x40049409  # FICLONE of linux/fs.h
_SCRIPT_BYTES = 1 << 16
_TRY_S = 20


Before = tuple[str, int, bytes]
"""Path relative to the workspace, type and permissions, bytes or a link's target. Mode 0: it wasn't there."""


@dataclass(frozen=True)
class View:
    """One view of a workspace."""

    root: Path
    """Where the command runs: the workspace's own path, or that of a copy."""
    prefix: Sequence[str]
    """What goes before the command."""


@contextmanager
def open_view_with_restored_files(
    workspace: Path,
    files: Iterable[Before],
    home: Path,
    *,
    force_copy: bool,
    check_cancelled: Callable[[], None],
) -> Generator[View]:
    """Yield a view in which these files are as before, removed after the block.

    `force_copy`: no mount. `check_cancelled` raises to give up while a workspace is being copied. Blocks. Raises
    `OSError`.
    """
    with _temporary_view_folder(workspace, home) as folder:
        listed = [
            _write_stored_file(folder / f"file-{number}", *before) for number, before in enumerate(files)
        ]
        if not force_copy and (found := _try_create_overlay_view(workspace, listed, folder)):
            yield found
            return
        root = folder / workspace.name
        _copy_and_relocate_folder(workspace, root, workspace, root, check_cancelled)
        restore_or_remove_files(str(root), listed)
        yield View(root, ())


def _write_stored_file(content_file: Path, path: str, mode: int, data: bytes) -> StoredFile:
    content_file.write_bytes(data)
    return StoredFile(path, mode, str(content_file))


def remove_leftover_views(home: Path) -> None:
    """Remove what killed runs have left."""
    for folder in (home / VIEWS).glob("*"):
        with suppress(OSError), (folder / "lock").open() as lock:  # gone, or of a run that lives
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_view(folder)


@contextmanager
def _temporary_view_folder(workspace: Path, home: Path) -> Generator[Path]:
    base = home / VIEWS
    if home.is_relative_to(workspace):  # an overlay can't lie in itself
        base = Path(os.path.realpath(tempfile.gettempdir()))
    else:
        make_private_directory(base)
    folder = Path(tempfile.mkdtemp(prefix="interlock-", dir=base))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            _remove_view(folder)


def _try_create_overlay_view(workspace: Path, files: Sequence[StoredFile], folder: Path) -> View | None:
    """Return a view through a mount; None if there can't be one here."""
    if not sys.platform.startswith("linux"):
        return None
    (folder / "memory").mkdir()
    for memory in (False, True):  # a file system may not bear what an overlay writes
        base = folder / ("memory" if memory else "disk")
        upper, work = base / "upper", base / "work"
        if not memory:
            upper.mkdir(parents=True)
            work.mkdir()
            upper.chmod(stat.S_IMODE(workspace.stat().st_mode))
        plan = folder / "plan.json"
        plan.write_text(
            json.dumps(
                {"folders": [[str(workspace), str(upper), str(work)]], "files": files, "memory": memory}
            ),
            encoding="utf-8",
        )
        prefix = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parent), str(plan)]
        with suppress(subprocess.TimeoutExpired):
            tried = subprocess.run(prefix, cwd="/", capture_output=True, check=False, timeout=_TRY_S)
            if tried.returncode == 0:
                return View(workspace, prefix)
    return None


def _copy_and_relocate_folder(
    source: Path, target: Path, source_root: Path, copy_root: Path, check_cancelled: Callable[[], None]
) -> None:
    """Copy a folder, sharing blocks where the file system can. Links and scripts that name `source_root` lead to
    `copy_root`."""
    target.mkdir(mode=0o700)
    with os.scandir(source) as entries:
        for entry in entries:
            check_cancelled()
            made = target / entry.name
            if entry.is_symlink():
                link = Path(entry.path).readlink()
                made.symlink_to(
                    copy_root / link.relative_to(source_root) if link.is_relative_to(source_root) else link
                )
            elif entry.is_dir(follow_symlinks=False):
                if not Path(entry.path).samefile(copy_root.parent):
                    _copy_and_relocate_folder(Path(entry.path), made, source_root, copy_root, check_cancelled)
            elif entry.is_file(follow_symlinks=False):
                with suppress(PermissionError):  # the command couldn't read it either
                    _copy_and_relocate_file(entry, made, os.fsencode(source_root), os.fsencode(copy_root))
    shutil.copystat(source, target, follow_symlinks=False)


def _copy_and_relocate_file(
    entry: os.DirEntry[str], target_path: Path, source_root: bytes, copy_root: bytes
) -> None:
    with Path(entry.path).open("rb") as source, target_path.open("wb") as target:
        try:
            fcntl.ioctl(target, _CLONE, source.fileno())
        except OSError:
            shutil.copyfileobj(source, target, 1 << 20)
    status = entry.stat(follow_symlinks=False)
    if status.st_size < _SCRIPT_BYTES and (status.st_mode & stat.S_IXUSR or entry.name.endswith(".pth")):
        data = target_path.read_bytes()
        if data.startswith(b"#!" + source_root + b"/") or entry.name.endswith(".pth"):
            target_path.write_bytes(
                data.replace(source_root + b"/", copy_root + b"/").replace(
                    source_root + b"\n", copy_root + b"\n"
                )
            )
    shutil.copystat(entry.path, target_path, follow_symlinks=False)


def _remove_view(folder: Path) -> None:
    """Remove a view, also what its command has closed; its lock last."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            inner = os.path.join(path, name)  # noqa: PTH118 - of os.walk
            with suppress(OSError):
                if not os.path.islink(inner):  # noqa: PTH114 - of os.walk
                    os.chmod(inner, 0o700)  # noqa: PTH101 - of os.walk
    for entry in folder.iterdir():
        if entry.name != "lock":
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    (folder / "lock").unlink()
    folder.rmdir()
