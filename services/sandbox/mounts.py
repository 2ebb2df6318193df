"""mounts: what stands where in a sandbox, as bubblewrap's arguments; what lies deeper is mounted later."""

import os
from pathlib import Path


class Mounts:
    """Path → how it is mounted. Whatever isn't below one of them isn't there."""

    def __init__(self) -> None:
        self._how: dict[Path, list[str]] = {}

    def system(self, path: Path) -> None:
        """Read only, or the link that it is."""
        if path.is_symlink():
            self._how[path] = ["--symlink", str(path.readlink()), str(path)]
        else:
            self.read_only(path)

    def read_only(self, path: Path) -> None:
        self._how[path] = ["--ro-bind-try", str(path), str(path)]

    def writable(self, path: Path) -> None:
        self._how[path] = ["--bind-try", str(path), str(path)]

    def pin(self, path: Path) -> None:
        """Let `path` be what it is, but no longer be moved away: what is mounted below it stays where it is."""
        if path not in self._how:
            self.writable(path)

    def hide(self, path: Path) -> None:
        """A folder is empty, a file can't be opened; neither can be removed or replaced."""
        if path.is_dir():
            self._how[path] = ["--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            self._how[path] = ["--ro-bind", os.devnull, str(path)]

    def scratch(self, path: Path) -> None:
        """An empty folder of its own, gone with the command."""
        self._how[path] = ["--tmpfs", str(path)]

    def update(self, other: "Mounts") -> None:
        """What `other` says counts."""
        self._how.update(other._how)

    def shows(self, path: Path) -> bool:
        """Something at or above `path` is mounted as it is on this machine."""
        above = [self._how[p] for p in (path, *path.parents) if p in self._how]
        return bool(above) and "bind" in above[0][0]

    def arguments(self) -> list[str]:
        by_depth = sorted(self._how, key=lambda path: (len(path.parts), path))
        return [argument for path in by_depth for argument in self._how[path]]
