"""blobs: long bodies of a store's rows: deflated, and as files where they are too long for a row."""

import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from interlock.services.files.filesystem import sha256, store_content
from interlock.state.errors import StoreError

T = TypeVar("T")
INLINE_BYTES = 8192
"""Longer bodies of rows are stored in files (`docs/internals.md#files-before-rows`)."""
_WORDS = (
    b'{"role":"user","content":"{"role":"tool","content":"Error: ","tool_call_id":"0.0","name":"write_file","status":'
    b'"error"}","new_string":"","old_string":"","content":"{"pattern":"{"name":"glob","grep_search","replace",'
    b'"run_shell_command","args":{"command":"Output: (empty)\\nExit Code: 0\\n","tool_call_id":"1.0","name":'
    b'"read_file","status":"success"}{"role":"assistant","content":"","thought":"","signature":"","tool_calls":[{"id":"0.0","name":'
    b'"read_file","args":{"file_path":"'
)
"""Deflate dictionary: what messages consist of. Stored rows depend on it."""


def deflate_if_shorter(body: bytes) -> bytes:
    """Return JSON as a row has it: shorter where that is possible."""
    deflate = zlib.compressobj(1, zdict=_WORDS)
    made = deflate.compress(body) + deflate.flush()
    return made if len(made) < len(body) else body


def inflate_if_deflated(stored: bytes) -> bytes:
    """Return what was deflated; what `deflate_if_shorter` didn't make stays as it is."""
    if stored[:1] != b"x":  # JSON begins otherwise
        return stored
    try:
        inflate = zlib.decompressobj(zdict=_WORDS)
        body = inflate.decompress(stored)
    except zlib.error:
        return stored
    return body if inflate.eof else stored


@dataclass(frozen=True)
class Blobs:
    """Bodies too long for a row, as files of a store's `outputs/`, named by their own hash."""

    folder: Path

    def store_body_if_long(self, body: bytes) -> str | None:
        """Store a long body, durable before a row names it, and return the file's name. None: it fits into the row."""
        if len(body) <= INLINE_BYTES:
            return None
        name = sha256(body) + ".json"
        self.store_named_body(name, body)
        return name

    def read_body(self, inline_body: T | None, file_name: str | None) -> T | bytes | None:
        """Return the body of a row: its own, or that of the file it names; None: the file is gone."""
        if file_name is not None:
            return self.load_named_body(file_name)
        return inflate_if_deflated(inline_body) if isinstance(inline_body, bytes) else inline_body

    def read_text(self, inline_text: str | None, file_name: str | None, description: str) -> str | None:
        """Return the text of a row, its own or that of its file. Raise `StoreError` that says `description` is missing
        if the file is gone."""
        if file_name is None:
            return inline_text
        if (body := self.load_named_body(file_name)) is None:
            raise StoreError(f"{description} is missing: {file_name!r} in {str(self.folder)!r}.")
        return body.decode()

    def store_named_body(self, name: str, body: bytes) -> None:
        """Store a file under its name, durable before a row names it."""
        store_content(self.folder, name, body)

    def load_named_body(self, name: str) -> bytes | None:
        """Return the bytes of a file; None: it is gone."""
        with suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None
