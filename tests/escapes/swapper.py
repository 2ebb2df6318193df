"""swapper: a process that puts links in the place of directories and files, and takes them away, without a pause.

Arguments: the workspace, the directory outside.
"""

import shutil
import sys
from contextlib import suppress
from pathlib import Path


def swap(path: Path, target: Path) -> None:
    """Both stay for about the time that a check takes."""
    real = path.with_name(path.name + ".real")
    with suppress(OSError):  # a tool may have made anew what isn't there for a moment, here and below
        path.rename(real)
    with suppress(OSError):
        path.symlink_to(target)
    _wait(path)
    with suppress(OSError):
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    with suppress(OSError):
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
