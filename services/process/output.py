"""output: what a process wrote, in bounded memory. Head and tail are kept, every byte goes to a file."""

import codecs
import hashlib
import os
from collections import deque
from io import BufferedWriter
from pathlib import Path

from interlock.services.files.outputs import take_name
from interlock.services.secrets.redaction import Redactor
from interlock.services.secrets.stream import RedactingStream
from interlock.state.tooling import Outputs

_HEAD_SHARE = 0.2
"""Of the limit; the rest is for the tail, where a command says how it went (`pipelines.md` §9)."""
SPOOL_BYTES = 2**30
"""A command that never stops talking must not fill the disk: later bytes are dropped, and that is said."""


class ProcessOutput:
    """Decodes as it comes. While all of it fits in `limit` characters nothing is written to disk."""

    def __init__(self, limit: int, outputs: Outputs, redact: Redactor | None = None) -> None:
        self._limit, self._head_limit = limit, int(limit * _HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._outputs = outputs
        self._redacting = RedactingStream(redact.for_bytes()) if redact else None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._raw = bytearray()
        self._head = ""
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._total = 0
        self._spool: BufferedWriter | None = None
        self._spooled = 0
        self._digest = hashlib.sha256()
        self.note = ""
        """Why the file isn't complete, or isn't there."""

    def feed(self, chunk: bytes) -> str:
        """Take what came; the text that it completes."""
        if self._redacting:  # before anything is cut, kept or decoded
            chunk = self._redacting.feed(chunk.decode("latin-1")).encode("latin-1")
        return self._taken(chunk)

    def _taken(self, chunk: bytes) -> str:
        text = self._decoder.decode(chunk)
        self._keep_text(text)
        self._keep_bytes(chunk)
        return text

    def end(self) -> str:
        """No more will come; the replacement for a character that was cut off, if any."""
        rest = self._redacting.end().encode("latin-1") if self._redacting else b""
        last = self._taken(rest)
        text = self._decoder.decode(b"", final=True)
        self._keep_text(text)
        return last + text

    @property
    def omitted(self) -> int:
        """Characters left out of `text()`."""
        return max(0, self._total - self._limit)

    def text(self) -> str:
        """All of it, or the first 20 % and last 80 % of the limit around a line that says what is missing."""
        tail = "".join(self._tail)
        if not self.omitted:
            return self._head + tail
        return f"{self._head}\n[… {self.omitted:,} characters left out …]\n{tail[-self._tail_limit :]}"

    def save(self) -> Path | None:
        """Make the file with every byte durable (may take long), named by its content; None: nothing was left out."""
        if self._spool is None:
            return None
        try:
            self._spool.flush()
            os.fsync(self._spool.fileno())
            named = take_name(Path(self._spool.name), self._digest.hexdigest())
        except OSError as error:
            self._give_up(error)
            return None
        self._spool.close()
        self._spool = None
        return named

    def discard(self) -> None:
        """Close and remove the file, if it has not been saved."""
        if self._spool is not None:
            spool, self._spool = self._spool, None
            spool.raw.close()  # not `close`: what a full disk refused must not be tried again
            Path(spool.name).unlink(missing_ok=True)

    def _keep_text(self, text: str) -> None:
        self._total += len(text)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head, text = self._head + text[:room], text[room:]
        if text:
            self._tail.append(text)
            self._tail_chars += len(text)
        while self._tail_chars - len(self._tail[0] if self._tail else "") > self._tail_limit:
            self._tail_chars -= len(self._tail.popleft())

    def _keep_bytes(self, chunk: bytes) -> None:
        if self.note:
            return
        try:
            if self._spool is None:
                self._raw += chunk
                if not self.omitted:
                    return
                self._spool = self._outputs.new_spool().open("wb")
                chunk, self._raw = bytes(self._raw), bytearray()
            self._write(self._spool, chunk)
        except OSError as error:
            self._give_up(error)

    def _write(self, spool: BufferedWriter, chunk: bytes) -> None:
        kept = chunk[: SPOOL_BYTES - self._spooled]
        spool.write(kept)
        self._digest.update(kept)
        self._spooled += len(kept)
        if len(kept) < len(chunk):
            self.note = f"only the first {SPOOL_BYTES:,} bytes were kept"

    def _give_up(self, error: OSError) -> None:
        self.note = f"the full output could not be kept: {error.strerror or error}"
        self._raw = bytearray()
        self.discard()
