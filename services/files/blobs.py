"""blobs: bodies too long for a row, as files named by their own hash, in `outputs/` beside the store."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from interlock.services.files.filesystem import store_file

T = TypeVar("T")
INLINE_BYTES = 8192
"""Longer bodies are stored in files (`design.md`)."""


@dataclass(frozen=True)
class Blobs:
    """The files of one store."""

    folder: Path

    def keep(self, body: bytes) -> str | None:
        """Store a long body, durable before a row names it; returns the file's name. None: it fits into the row."""
        if len(body) <= INLINE_BYTES:
            return None
        name = hashlib.sha256(body).hexdigest() + ".json"
        store_file(self.folder, name, body)
        return name

    def read(self, own: T | None, file: str | None) -> T | bytes | None:
        """The body of a row: its own, or that of the file it names; None: the file is gone."""
        if file is None:
            return own
        with suppress(FileNotFoundError):
            return (self.folder / file).read_bytes()
        return None
