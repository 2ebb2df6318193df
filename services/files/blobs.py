"""blobs: bodies too long for a row of a store, as files."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from interlock.services.files.filesystem import sha256, store_file

T = TypeVar("T")
INLINE_BYTES = 8192
"""Longer bodies of rows are stored in files (`design.md`)."""


@dataclass(frozen=True)
class Blobs:
    """Bodies too long for a row, as files of a store's `outputs/`, named by their own hash."""

    folder: Path

    def keep(self, body: bytes) -> str | None:
        """Store a long body, durable before a row names it; returns the file's name. None: it fits into the row."""
        if len(body) <= INLINE_BYTES:
            return None
        name = sha256(body) + ".json"
        self.store(name, body)
        return name

    def read(self, own: T | None, file: str | None) -> T | bytes | None:
        """The body of a row: its own, or that of the file it names; None: the file is gone."""
        return own if file is None else self.load(file)

    def store(self, name: str, body: bytes) -> None:
        """Store a file under its name, durable before a row names it."""
        store_file(self.folder, name, body)

    def load(self, name: str) -> bytes | None:
        """The bytes of a file; None: it is gone."""
        with suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None
