"""swapper: a process that puts links in the place of directories and files, and takes them away, without a pause.

Arguments: the workspace, the directory outside.
"""

import contextlib
import shutil
import sys
from pathlib import Path


def swap(path: Path, target: Path) -> None:
    """Both stay for about the time that a check takes."""
    real = path.with_name(path.name + ".real")
    path.rename(real)
    try:
        path.symlink_to(target)
    except FileExistsError:  # a tool has made it anew meanwhile
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        _wait(path)
        path.unlink()
    with contextlib.suppress(OSError):  # as above: the next round finds it made anew
        real.rename(path)
    _wait(path)


def _wait(path: Path) -> None:
    for _ in range(20):
        path.exists()


def main(root: Path, outside: Path) -> None:
    sys.stdout.write("swapping\n")
    sys.stdout.flush()
    while True:
        swap(root / "top", outside)
        swap(root / "a/b", outside / "b")
        swap(root / "flat/secret.txt", outside / "secret.txt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
