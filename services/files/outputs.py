"""outputs: `outputs/` in the state directory, content-addressed files that are durable before anything names them."""

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.services.secrets.redaction import SHAPES, Redactor

_OWNER_FILE = 0o600
_OWNER_DIRECTORY = 0o700
_NAME_LENGTH = 32
"""Hex digits of the sha256 in a name: 128 bits."""


@dataclass
class OutputFiles:
    """Implements `Outputs`. Only the owner can read what is in it."""

    state_directory: Path
    redact: Redactor = SHAPES

    @property
    def directory(self) -> Path:
        return self.state_directory / "outputs"

    def save(self, data: bytes, suffix: str = ".txt") -> Path:
        """Keep `data`; the same bytes have the same name. On return file and folder are on the disk."""
        self._make()
        if suffix == ".txt":
            data = self.redact.for_bytes()(data.decode("latin-1")).encode("latin-1")
        path = self.directory / (hashlib.sha256(data).hexdigest()[:_NAME_LENGTH] + suffix)
        store_file(self.directory, path.name, data)
        return path

    def new_spool(self) -> Path:
        """As `Outputs.new_spool`: an empty file with a name of its own."""
        self._make()
        path = self.directory / f"spool-{secrets.token_hex(8)}.txt"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_FILE))
        return path

    def _make(self) -> None:
        from interlock.services.files.filesystem import make_directories

        make_directories(self.directory, _OWNER_DIRECTORY)
        self.directory.chmod(_OWNER_DIRECTORY)


def store_file(folder: Path, name: str, data: bytes) -> None:
    """Keep `data` under a name that stands for these bytes; file and folder are on the disk before a row names it."""
    # Here: it brings all tools along, and chains are read by commands that write nothing.
    from interlock.services.files.filesystem import locked, replace_file, sync_directory

    path = folder / name
    with locked(folder):
        if _holds(path, data):
            os.utime(path)
            sync_directory(folder)
        else:
            replace_file(path, data)


def take_name(spool: Path, digest: str) -> Path:
    """Name a file, whose bytes are on the disk, by its sha256 in hex."""
    from interlock.services.files.filesystem import locked, sync_directory

    named = spool.with_name(f"{digest[:_NAME_LENGTH]}.txt")
    with locked(spool.parent):
        spool.replace(named)
    sync_directory(spool.parent)
    return named


def remove_untouched(path: Path, since: float) -> None:
    """Remove a file, unless it was stored later than `since` (Unix time): then somebody is about to name it."""
    from interlock.services.files.filesystem import locked

    with locked(path.parent), suppress(FileNotFoundError):
        if path.stat().st_mtime <= since:
            path.unlink()


def _holds(path: Path, data: bytes) -> bool:
    """A name can be there without its bytes after a power cut; then it is written again."""
    try:
        if path.stat().st_size != len(data) or path.read_bytes() != data:
            return False
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    return True
