"""transcript: the chain of immutable records, each named by the hash of its bytes and its parent.

Rules: `docs/internals.md#records`, `docs/internals.md#chains`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple, Protocol

from interlock.services.files.blobs import Blobs
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.errors import RunError
from interlock.state.messages import Message

FORMAT = "interlock-chain-1"


def record_hash(parent: str, body: bytes) -> str:
    """`sha256(format version, parent id, bytes)` in hex."""
    return hashlib.sha256(f"{FORMAT}\n{parent}\n".encode() + body).hexdigest()


def encode_message(message: Message) -> bytes:
    """Return the stored bytes: UTF-8 JSON without defaults, with arguments in the given order."""
    return message.model_dump_json(exclude_defaults=True).encode()


def parse_continued_head(root: bytes) -> str:
    """Return the head that a root record continues, or an empty string."""
    return json.loads(root)["root"]["continues"] or ""


class StoredRecord(NamedTuple):
    parent: str
    body: bytes
    """Empty if the bytes are in a file."""
    file: str | None
    """Name in `outputs/`."""


class ChainRecords(Protocol):
    def add_record(self, name: str, run: str, record: StoredRecord, body: bytes) -> None:
        """Write the record with the driver's next commit; if it is there already, nothing. `body`: all its bytes."""
        ...

    def find_record(self, name: str) -> StoredRecord | None: ...

    def blob_storage(self, outputs: Path) -> Blobs:
        """Where the bytes of long records are."""
        ...


class ChainTranscript:
    """Implements `Transcript` over the chain's rows."""

    def __init__(self, records: ChainRecords, outputs: Path, run: str, redact: Redactor = SHAPES) -> None:
        self._records = records
        self._blobs = records.blob_storage(outputs)
        self._run = run
        self.redact = redact
        self.recorded: Callable[[str, Message], Message] | None = None
        """In a replay: returns the recorded message that replaces one after this head."""
        self.origins: Sequence[str] = ()
        """In a replay: the runs that this one was forked from, whose chains it continues."""
        self._agent = self._call = ""
        self._cache: dict[str, tuple[str, Message | None]] = {}
        self._last: tuple[str, list[Message]] = ("", [])

    def append(self, head: str, messages: Sequence[Message], *, continues: str = "") -> str:
        """Add records after `head` (`""`: after a new root record, which stores `continues`); returns the new head."""
        if not head:
            head = self._write_record("", self._choose_root_record(continues or None), None)
        for message in map(self.redact.redact_message, messages):
            message = self.recorded(head, message) if self.recorded else message
            head = self._write_record(head, encode_message(message), message)
        return head

    def read(self, head: str) -> list[Message]:
        known, prefix = self._last
        new: list[Message] = []
        at = head
        while at and at != known:
            parent, message = self._load_record(at)
            if message is not None:
                new.append(message)
            at = parent
        found = prefix if at else []
        found.extend(reversed(new))
        self._last = (head, found)
        return list(found)

    def record_ids(self, head: str, count: int | None = None) -> list[str]:
        found: list[str] = []
        while head and len(found) != count:
            parent, message = self._load_record(head)
            if message is not None:
                found.append(head)
            head = parent
        return found[::-1]

    def find_continued_head(self, head: str) -> str:
        while parent := self._load_record(head)[0]:
            head = parent
        row = self._find_parent_and_body(head)
        return parse_continued_head(row[1]) if row and row[1] else ""

    def read_message(self, record: str) -> Message:
        _, message = self._load_record(record)
        if message is None:
            raise RunError(f"Record {record!r} is the root of a chain, not a message.")
        return message

    def verify_chain(self, head: str) -> Iterator[str]:
        """Yield a line per missing or modified record up to `head` and in the chains it continues."""
        while head:
            row = self._find_parent_and_body(head)
            if row is None:
                yield f"record {head} is missing"
                return
            parent, body = row
            if body is None or record_hash(parent, body) != head:
                yield f"record {head} was changed, or its file is missing"
                if not parent:
                    return
            head = parent or parse_continued_head(body or b"")

    def _choose_root_record(self, continues: str | None) -> bytes:
        own, *origins = (self._encode_root_record(run, continues) for run in (self._run, *self.origins))
        if not origins or self._find_parent_and_body(record_hash("", own)):
            return own
        return next((root for root in origins if self._find_parent_and_body(record_hash("", root))), own)

    def _encode_root_record(self, run: str, continues: str | None) -> bytes:
        root = {"run": run, "agent": self._agent, "continues": continues}
        return json.dumps({"root": {**root, "call": self._call} if self._call else root}).encode()

    def for_agent(self, agent: str, call: str) -> "ChainTranscript":
        """Return a view of the same records whose new chains name a sub-agent and the parent's call.

        `docs/internals.md#chains`.
        """
        own = copy(self)
        own._agent, own._call, own._last = agent, call, ("", [])
        return own

    def reuse_cache_of(self, other: "ChainTranscript") -> None:
        """Know the records that another transcript of the same store has read: they never change."""
        self._cache, self._last = other._cache, other._last

    def _write_record(self, parent: str, body: bytes, message: Message | None) -> str:
        name = record_hash(parent, body)
        if (
            self.recorded and name in self._cache
        ):  # a replay's store has it; elsewhere it may have been rolled back
            return name
        file = self._blobs.store_body_if_long(body)
        self._records.add_record(name, self._run, StoredRecord(parent, b"" if file else body, file), body)
        self._cache[name] = (parent, message)
        return name

    def _load_record(self, record: str) -> tuple[str, Message | None]:
        if record not in self._cache:
            row = self._find_parent_and_body(record)
            if row is None or row[1] is None:
                raise RunError(
                    f"Record {record!r} of the conversation, or its file in outputs/, is missing. "
                    f"Check the run with: interlock show {self._run} --verify"
                )
            parent, body = row
            message = Message.model_validate_json(body) if parent and body is not None else None
            self._cache[record] = (parent, message)
        return self._cache[record]

    def _find_parent_and_body(self, record: str) -> tuple[str, bytes | None] | None:
        row = self._records.find_record(record)
        return row and (row.parent, self._blobs.read_body(row.body, row.file))
