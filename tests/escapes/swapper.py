"""swapper: a process that constantly replaces directories and files with links and puts them back.

Arguments: the workspace, the directory outside.
"""

import shutil
import sys
from contextlib import suppress
from pathlib import Path


def swap(path: Path, target: Path) -> None:
    """Swap; both states last about as long as a check takes."""
    real = path.with_name(path.name + ".real")
    with suppress(OSError):  # here and below: a tool may have recreated what is briefly absent
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
