"""audit: a hash chain over requests, decisions, intents, effects and changes of rules; each record is made with a key.

Our connections, which write rows in one way only, note each audited row that they change; the commit that holds the
change holds its record. What the record says of a row is a function of the row, so that a check compares both.
The key is ed25519: made at the first start, or a user's (`INTERLOCK_AUDIT_KEY`).
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from interlock.engine.store.connection import Connection, JsonFormat, Rows, sha256_hex
from interlock.engine.store.tables import TABLE, Plus, Row, Write, where_sql
from interlock.services.files.disk import make_private_directory, replace_private_file
from interlock.state.clock import unix_time
from interlock.state.errors import StoreError


def _hash_value(value: Any) -> str | None:
    if value is None:
        return None
    return sha256_hex(value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass"))


def _json_value_at(text: Any, *names: str) -> str | None:
    """A value inside JSON; null where there is none, and in a damaged row."""
    with suppress(ValueError, TypeError, KeyError):
        value = _parse_json(text)
        for name in names:
            value = value[name]
        return value if value is None or isinstance(value, str) else json.dumps(value)
    return None


@lru_cache(maxsize=1)  # several parts of one text are asked for in turn
def _parse_json(text: Any) -> Any:
    return json.loads(text)


_TIMES = ("numbers", "epoch", "intent_at", "done_at")
AUDITED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "runs": {
        "workflow": ("value", "workflow"),
        "parent": ("value", "parent"),
        "workspace": ("value", "workspace"),
        "subtask": ("value", "subtask_of"),
        "input": ("hash", "input"),
        "created": ("numbers", "created"),
        "rights": ("hash", "options", "rights"),
    },
    "journal": {
        "tool": ("value", "tool"),
        "state": ("value", "state"),
        "arguments": ("value", "args_hash"),
        "changed": ("hash", "args"),
        "planned": ("hash", "planned"),
        "result": ("hash", "result"),
        "file": ("value", "result_file"),
        "record": ("value", "record"),
        "times": _TIMES,
    },
    "effects": {
        "tool": ("value", "place"),
        "state": ("value", "state"),
        "attempt": ("value", "attempt"),
        "type": ("value", "type"),
        "result": ("hash", "value"),
        "times": _TIMES,
    },
    "hook_calls": {
        "tool": ("value", "name"),
        "event": ("value", "event"),
        "source": ("value", "source"),
        "state": ("value", "state"),
        "attempt": ("value", "attempt"),
        "command": ("hash", "command"),
        "result": ("hash", "reply"),
        "file": ("value", "reply_file"),
        "place": ("value", "place"),
        "subject": ("hash", "subject"),
        "idempotent": ("value", "idempotent"),
        "times": _TIMES,
    },
    "decisions": {
        "by": ("value", "body", "by"),
        "who": ("value", "body", "who"),
        "choice": ("value", "body", "decision"),
        "rule": ("value", "body", "rule"),
        "mode": ("value", "body", "mode"),
        "whole": ("hash", "body"),
        "times": ("numbers", "attempt", "at"),
    },
    "approvals": {
        "tool": ("value", "request", "call", "name"),
        "shown": ("hash", "request"),
        "who": ("value", "answered_by"),
        "door": ("value", "answer", "door"),
        "choice": ("value", "answer", "choice"),
        "whole": ("hash", "answer"),
        "rule": ("hash", "rule"),
        "withdrawn": ("value", "superseded"),
        "call": ("value", "key"),
        "order": ("value", "seq"),
        "times": ("numbers", "asked_at", "answered_at"),
    },
}
"""Table → what is recorded of its rows: `value` of a column, or of a place in its JSON; `hash` of a long or private
one; `numbers`: the hash of several. The rest says nothing of who did what: a run's progress, and the engine's wiring.
"""
_COLUMNS = {
    table: tuple(
        dict.fromkeys(
            (
                *TABLE[table].key,
                TABLE[table].owner,
                *(name for how, *names in body.values() for name in names[: None if how == "numbers" else 1]),
            )
        )
    )
    for table, body in AUDITED.items()
}
"""Table → the columns that a record about a row is made of, its key and its owner among them."""


def _column_defaults(table: str) -> Row:
    """Return what a new row has in columns that aren't given."""
    return {**dict.fromkeys(_COLUMNS[table]), **({"superseded": 0, "seq": 0} if table == "approvals" else {})}


def _record_kind(table: str, row: Row) -> str:
    if table == "approvals":
        return "withdrawn" if row["superseded"] == 1 else "request" if row["answer"] is None else "answer"
    if table in ("runs", "decisions"):
        return "rules" if table == "runs" else "decision"
    return "effect" if row["state"] == "done" else str(row["state"])


def audited_key_text(table: str, row: Row, json_format: JsonFormat) -> str:
    """Return the key of a row, as records have it."""
    return json_format.to_json([row[name] for name in TABLE[table].key])


def audited_body_text(table: str, row: Row, json_format: JsonFormat, **more: str) -> str:
    """Return what is recorded of a row."""
    body: dict[str, object] = {}
    for name, (how, column, *inside) in AUDITED[table].items():
        if how == "numbers":
            body[name] = json_format.hash_row_numbers(row, column, *inside)
        else:
            value = _json_value_at(row[column], *inside) if inside else row[column]
            body[name] = _hash_value(value) if how == "hash" else value
    return json_format.to_json({**body, **more})


def is_audited(write: Write) -> bool:
    """Whether a write may change what is recorded of a row."""
    columns = _COLUMNS.get(write.tables[0])
    return columns is not None and (write.kind != "update" or not write.row.keys().isdisjoint(columns))


VARIABLE = "INTERLOCK_AUDIT_KEY"
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
"""What precedes the 32 bytes of an ed25519 key in PKCS #8."""


class AuditKey(NamedTuple):
    path: Path
    id: str
    """Eight hex digits."""
    mac: bytes
    """What records are made with; derived from the file."""


def load_or_create_audit_key(folder: Path) -> AuditKey:
    """The key of a store; made if it has none. Raises `StoreError` in one line."""
    chosen = os.environ.get(VARIABLE)
    return _read_or_create_key_file(Path(chosen).expanduser() if chosen else folder / "key", bool(chosen))


@lru_cache(maxsize=8)
def _read_or_create_key_file(path: Path, must_exist: bool) -> AuditKey:
    try:
        if not must_exist and not path.exists():
            _create_key_file(path)
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"Can't use the audit key {str(path)!r}: {error.strerror}. Expected an ed25519 private key (PEM or "
            f"OpenSSH), readable by you; name another with {VARIABLE}."
        ) from error
    mac = hashlib.sha256(b"interlock audit\0" + data).digest()
    return AuditKey(path, hashlib.sha256(mac).hexdigest()[:8], mac)


def _create_key_file(path: Path) -> None:
    make_private_directory(path.parent)
    text = base64.b64encode(_PKCS8 + secrets.token_bytes(32)).decode()
    replace_private_file(path, f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")


REMOVED = "removed"
CUT_OFF = "cut off"
"""The chain once was longer: its end is gone, and the record says which."""
INHERITED = "inherited"
"""A fork's copy of a row of its parent."""
_NEWEST = (
    "select seq, hash, (select hash from audit where seq = $1) from audit "
    "where seq = (select max(seq) from audit)"
)


class AuditNote(NamedTuple):
    table: str
    kind: str
    run: str
    key: str
    body: str | None

    @classmethod
    def for_row(
        cls, table: str, kind: str, row: Row, json_format: JsonFormat, body: str | None
    ) -> "AuditNote":
        return cls(table, kind, str(row[TABLE[table].owner]), audited_key_text(table, row, json_format), body)


def compute_keyed_mac(key: AuditKey, digest: str) -> str:
    made = _hmac_of_key(key).copy()
    made.update(digest.encode())
    return f"{key.id}:{made.hexdigest()}"


@lru_cache(maxsize=8)
def _hmac_of_key(key: AuditKey) -> hmac.HMAC:
    """To be copied: making one takes five times as long."""
    return hmac.new(key.mac, digestmod="sha256")


def audit_directory(store: Path) -> Path:
    """Beside the store: the key, and the newest record's hash."""
    return store.parent / "audit"


def read_saved_head(folder: Path, key: AuditKey) -> tuple[int, str] | None:
    """The newest record's number and hash, as noted beside the store; None: missing, changed, or another key's."""
    try:
        return _parse_saved_head(_read_file_start(f"{folder}/head"), key)
    except (OSError, UnicodeError):
        return None


def _read_file_start(name: str) -> bytes:
    """Each transaction that is audited pays for it, and `Path.read_bytes` costs three times as much."""
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1000)
    finally:
        os.close(file)


@lru_cache(maxsize=8)
def _parse_saved_head(data: bytes, key: AuditKey) -> tuple[int, str] | None:
    newest = data.decode("ascii").split()
    whole = len(newest) == 3 and newest[0].isdigit() and compute_keyed_mac(key, newest[1]) == newest[2]
    return (int(newest[0]), newest[1]) if whole else None


@dataclass
class AuditWriter:
    """Appends what a connection's transactions change."""

    conn: Connection
    path: Path
    _changes: list[tuple[Write, Rows | None]] = field(default_factory=list[tuple[Write, Any]])
    """Writes of audited rows in the open transaction, and the rows as they were before."""
    _newest: tuple[int, str] = (0, "")
    """The newest record that was committed."""
    _unwritten: bool = False
    _told: str = ""
    """Hash of the newest record that was found cut off."""
    _uncommitted: tuple[tuple[int, str], str] | None = None
    """The newest record of the open transaction, and what was found cut off then."""

    @cached_property
    def _folder(self) -> Path:
        return audit_directory(self.path)

    @cached_property
    def _key(self) -> AuditKey:
        return load_or_create_audit_key(self._folder)

    def note_write(self, write: Write) -> None:
        """Inside the transaction, right before a write: keep what the audited rows are that it changes."""
        table, before = write.tables[0], None
        if write.where:
            where, values = where_sql(write.where)
            sql = f"select {', '.join(_COLUMNS[table])} from {table} where {where}{self.conn.change_lock}"
            before = self.conn.execute_pipelined(sql, values)
        self._changes.append((write, before))

    def append_noted_writes(self) -> None:
        """Inside the transaction, right before its commit."""
        notes = [note for write, before in self._changes for note in self._notes_on_write(write, before)]
        self._changes.clear()
        if notes:
            self.write_records(_summarize_run_notes(notes))

    def _notes_on_write(self, write: Write, before: Rows | None) -> Iterator[AuditNote]:
        table, form = write.tables[0], self.conn.json_form
        rows = _to_row_mappings(table, before) if before else []
        if write.kind == "insert" and not rows:
            row = {**_column_defaults(table), **self._stored_values(write)}
            kind = "begun" if table == "runs" else _record_kind(table, row)
            yield AuditNote.for_row(table, kind, row, form, audited_body_text(table, row, form))
        for old in rows if write.on_conflict != "keep" else ():
            if write.kind == "delete":
                yield AuditNote.for_row(table, REMOVED, old, form, None)
                continue
            new = {**old, **self._stored_values(write, old)}
            body, was = audited_body_text(table, new, form), audited_body_text(table, old, form)
            if body != was:
                # So nobody hides a change of a row behind a later change that Interlock makes.
                body = audited_body_text(table, new, form, was=sha256_hex(was.encode(errors="surrogatepass")))
                yield AuditNote.for_row(table, _record_kind(table, new), new, form, body)

    def _stored_values(self, write: Write, old: Row = MappingProxyType({})) -> dict[str, object]:
        """The written values as the database has them then."""
        return {
            name: old[name] + value.by if isinstance(value, Plus) else self.conn.to_stored_value(value)  # pyright: ignore[reportOperatorIssue,reportUnknownVariableType]
            for name, value in write.row.items()
        }

    def write_records(self, notes: Iterable[AuditNote]) -> None:
        key, now = self._key, unix_time()
        kept = read_saved_head(self._folder, key)
        self.conn.lock_audit()
        newest = self.conn.execute_raw(_NEWEST, (kept[0] if kept else 0,)).fetchone()
        seq, before, there = newest or (0, "", None)
        rows: list[tuple[object, ...]] = []
        cut_off = [*self._make_cut_off_notes(kept, there)]
        for note in (*cut_off, *notes):
            seq += 1
            columns = (seq, now, note.kind, note.run, note.table, note.key, note.body)
            before = compute_chain_hash(before, columns)
            rows.append(
                (
                    *columns[:5],
                    *pack_audit_record(note.key, note.body),
                    before,
                    compute_keyed_mac(key, before),
                )
            )
        self.conn.execute_many("insert into audit values ($1, $2, $3, $4, $5, $6, $7, $8, $9)", rows)
        told = kept[1] if cut_off and kept else self._told
        self._uncommitted = (seq, before), told

    def discard_notes(self) -> None:
        """The open transaction's changes are gone, and their records with them."""
        self._changes.clear()
        self._uncommitted = None

    def _make_cut_off_notes(
        self, saved_head: tuple[int, str] | None, stored_hash: str | None
    ) -> Iterable[AuditNote]:
        """A record of the chain's lost end: the head beside the store is about to be overwritten.

        `stored_hash`: the hash in the chain where the head has its own.
        """
        if saved_head and saved_head[1] not in (stored_hash, self._told):
            yield AuditNote(
                "", CUT_OFF, "", "[]", json.dumps({"record": saved_head[0], "hash": saved_head[1]})
            )

    def save_head_after_commit(self, *, synced: bool) -> None:
        """Note the newest record beside the store, so that its end can't be cut off unnoticed."""
        if self._uncommitted:
            (self._newest, self._told), self._unwritten, self._uncommitted = self._uncommitted, True, None
        if self._unwritten and synced:
            seq, digest = self._newest
            line = f"{seq:020d} {digest} {compute_keyed_mac(self._key, digest)}\n"
            with suppress(OSError):  # a full disk: the next one says it
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                file = os.open(self._folder / "head", flags, 0o600)
                try:
                    # One length, one write: a kill leaves the old or the new.
                    os.pwrite(file, line.encode(), 0)
                    os.fsync(file)
                finally:
                    os.close(file)
            self._unwritten = False


def _summarize_run_notes(notes: list[AuditNote]) -> Iterable[AuditNote]:
    """A run's removal stands for that of its rows; rows that come with their run are a fork's."""
    gone = {n.run for n in notes if n.table == "runs" and n.kind == REMOVED}
    made = {n.run for n in notes if n.table == "runs" and n.kind == "begun"}
    for note in notes:
        if note.table == "runs" or note.run not in gone | made:
            yield note
        elif note.run in made:
            yield note._replace(kind=INHERITED)


def start_audit_chain(conn: Connection, path: Path) -> AuditWriter:
    """Begin the chain, inside the migration that made its table. It takes over, unverified, rows that had none."""
    make_private_directory(audit_directory(path))  # for the head, wherever the key is
    made = AuditWriter(conn, path)
    if conn.execute_raw("select 1 from audit").fetchone() is None:
        found = [
            AuditNote.for_row(
                table,
                "taken over unverified",
                row,
                conn.json_form,
                audited_body_text(table, row, conn.json_form),
            )
            for table in AUDITED
            for row in read_audited_rows(conn, table)
        ]
        made.write_records(
            [AuditNote("", "store", "", "[]", json.dumps({"taken over unverified": len(found)})), *found]
        )
    return made


def read_audited_rows(conn: Connection, table: str) -> list[Row]:
    """Return every row of a table, with the columns that records are made of."""
    return _to_row_mappings(table, conn.execute_raw(f"select {', '.join(_COLUMNS[table])} from {table}"))


def _to_row_mappings(table: str, found: Rows) -> list[Row]:
    return [dict(zip(_COLUMNS[table], row, strict=True)) for row in found.fetchall()]


class AuditRecord(NamedTuple):
    seq: int
    at: float
    kind: str
    run: str
    table: str
    key: str
    body: str | None
    hash: str
    mac: str

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "AuditRecord":
        """As the table has it."""
        seq, at, kind, run, table, key, body, digest, mac = row
        return cls(seq, at, kind, run, table, *_unpack_audit_record(key, body), digest, mac)

    def expected_hash(self, previous_hash: str) -> str:
        """The hash that it has after a record with the hash `previous_hash`."""
        return compute_chain_hash(previous_hash, self[:7])


def list_audit_records(conn: Connection, since: float = 0.0) -> Iterator[AuditRecord]:
    """Yield the chain's records in their order, from a time on (unix, seconds)."""
    for row in conn.execute("select * from audit where at >= $1 order by seq", (since,)):
        yield AuditRecord.from_row(row)


def find_newest_audit_record(conn: Connection) -> tuple[int, str] | None:
    """Return number and hash of the chain's newest record; None: there is none."""
    return conn.execute("select seq, hash from audit order by seq desc limit 1").fetchone()


_PACKED = "~"
_NAMES = (
    b'","place":0,"subject":"","idempotent":0,"attempt":1,"type":null,"event":"BeforeTool","source":"","command":"'
    b'["",0,"-.0"]\n{"by":"person","who":null,"choice":"allow","rule":"shipped rule default.toml:4","mode":"default",'
    b'"whole":"","times":""}",1]\n{"tool":"run_shell_command","state":"intent","arguments":"","changed":null,'
    b'"planned":null,"result":null,"file":null,"record":null,"times":""}read_file","state":"done","result":"","record":"'
)
"""Deflate dictionary. Stored records depend on it."""


def pack_audit_record(key: str, body: str | None) -> tuple[str, str | None]:
    """Return key and body as the table has them: both in the body, shorter. A text, as people's programs expect one."""
    if body is None:
        return key, body
    deflate = zlib.compressobj(zdict=_NAMES)
    data = deflate.compress(f"{key}\n{body}".encode(errors="surrogatepass")) + deflate.flush()
    return "", _PACKED + binascii.b2a_base64(data, newline=False).decode()


def _unpack_audit_record(key: str, body: str | None) -> tuple[str, str | None]:
    """Return key and body as they were before `pack_audit_record`; what it didn't pack stays as it is."""
    if key or not body or body[0] != _PACKED:
        return key, body
    inflate = zlib.decompressobj(zdict=_NAMES)
    try:
        data = inflate.decompress(binascii.a2b_base64(body[1:], strict_mode=True))
        found, _, text = data.decode(errors="surrogatepass").partition("\n")
    except (ValueError, zlib.error):
        return key, body
    return (found, text) if inflate.eof and not inflate.unused_data else (key, body)


def compute_chain_hash(previous_hash: str, columns: Iterable[object]) -> str:
    return hashlib.sha256(f"{previous_hash}\n{json.dumps([*columns])}".encode()).hexdigest()
