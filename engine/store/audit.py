"""audit: a hash chain over requests, decisions, intents, effects and changes of rules; each record is made with a key.

Triggers of our own connections, which nobody else has, note each audited row that changes; the commit that holds the
change holds its record. What the record says of a row is an SQL expression, so that a check compares it with the row.
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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from interlock.engine.store.tables import TABLE
from interlock.services.files.disk import make_private_directory, replace_private_file
from interlock.state.clock import unix_time
from interlock.state.errors import StoreError

VARIABLE = "INTERLOCK_AUDIT_KEY"
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
"""What precedes the 32 bytes of an ed25519 key in PKCS #8."""


class Key(NamedTuple):
    path: Path
    id: str
    """Eight hex digits."""
    mac: bytes
    """What records are made with; derived from the file."""


def key_of(folder: Path) -> Key:
    """The key of a store; made if it has none. Raises `StoreError` in one line."""
    chosen = os.environ.get(VARIABLE)
    return _read(Path(chosen).expanduser() if chosen else folder / "key", bool(chosen))


@lru_cache(maxsize=8)
def _read(path: Path, chosen: bool) -> Key:
    try:
        if not chosen and not path.exists():
            _make(path)
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"Can't use the audit key {str(path)!r}: {error.strerror}. Expected an ed25519 private key (PEM or "
            f"OpenSSH), readable by you; name another with {VARIABLE}."
        ) from error
    mac = hashlib.sha256(b"interlock audit\0" + data).digest()
    return Key(path, hashlib.sha256(mac).hexdigest()[:8], mac)


def _make(path: Path) -> None:
    make_private_directory(path.parent)
    text = base64.b64encode(_PKCS8 + secrets.token_bytes(32)).decode()
    replace_private_file(path, f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")


SCHEMA = """
create table if not exists audit (
    seq integer primary key,          -- from 1, without gaps
    at real not null,                 -- unix time
    kind text not null,
    run text not null,
    tbl text not null,                -- the row that it is about: table, and key as a JSON list
    key text not null,
    body text,                        -- JSON: what is recorded of the row; null: it was removed; or key and body,
                                      -- deflated, in base64
    hash text not null,               -- sha256 of the hash before and of the columns above
    mac text not null                 -- key id:HMAC of the hash
)
"""
REMOVED = "removed"
CUT_OFF = "cut off"
"""The chain once was longer: its end is gone, and the record says which."""
INHERITED = "inherited"
"""A fork's copy of a row of its parent."""


class Audited(NamedTuple):
    """What is recorded of a table's rows; `@` stands for the row."""

    kind: str
    """SQL expression: the record's kind."""
    body: str
    """Arguments of `json_object`; long or private values as `sha(…)`, several as `texts(…)`, one inside JSON as
    `part(…)`. What isn't recorded says nothing of who did what: a run's progress, and the engine's wiring."""
    changes: str = ""
    """Columns whose update counts; empty: any."""


_STATE = "case @.state when 'done' then 'effect' else @.state end"
AUDITED = {
    "runs": Audited(
        "'rules'",
        "'workflow', @.workflow, 'parent', @.parent, 'workspace', @.workspace, "
        "'subtask', @.subtask_of, 'input', sha(@.input), 'created', sha(texts(@.created)), "
        "'rights', sha(part(@.options, 'rights'))",
        "options, parent, subtask_of, workflow, workspace, input, created",
    ),
    "journal": Audited(
        _STATE,
        "'tool', @.tool, 'state', @.state, 'arguments', @.args_hash, 'changed', sha(@.args), "
        "'planned', sha(@.planned), 'result', sha(@.result), 'file', @.result_file, 'record', @.record, "
        "'times', sha(texts(@.epoch, @.intent_at, @.done_at))",
    ),
    "effects": Audited(
        _STATE,
        "'tool', @.place, 'state', @.state, 'attempt', @.attempt, 'type', @.type, 'result', sha(@.value), "
        "'times', sha(texts(@.epoch, @.intent_at, @.done_at))",
    ),
    "hook_calls": Audited(
        _STATE,
        "'tool', @.name, 'event', @.event, 'source', @.source, 'state', @.state, 'attempt', @.attempt, "
        "'command', sha(@.command), 'result', sha(@.reply), 'file', @.reply_file, 'place', @.place, "
        "'subject', sha(@.subject), 'idempotent', @.idempotent, "
        "'times', sha(texts(@.epoch, @.intent_at, @.done_at))",
    ),
    "decisions": Audited(
        "'decision'",
        "'by', part(@.body, 'by'), 'who', part(@.body, 'who'), 'choice', part(@.body, 'decision'), "
        "'rule', part(@.body, 'rule'), 'mode', part(@.body, 'mode'), 'whole', sha(@.body), "
        "'times', sha(texts(@.attempt, @.at))",
    ),
    "approvals": Audited(
        "case when @.superseded = 1 then 'withdrawn' when @.answer is null then 'request' else 'answer' end",
        "'tool', part(@.request, 'call', 'name'), 'shown', sha(@.request), 'who', @.answered_by, "
        "'door', part(@.answer, 'door'), 'choice', part(@.answer, 'choice'), 'whole', sha(@.answer), "
        "'rule', sha(@.rule), 'withdrawn', @.superseded, 'call', @.key, 'order', @.seq, "
        "'times', sha(texts(@.asked_at, @.answered_at))",
    ),
}


def key_expression(table: str, row: str = "@") -> str:
    return f"json_array({', '.join(f'{row}.{name}' for name in TABLE[table].key)})"


def body_of(table: str, row: str) -> str:
    """The SQL expression of what is recorded of a row."""
    return f"json_object({AUDITED[table].body})".replace("@", row)


def changed_body(table: str) -> str:
    """The SQL expression of what is recorded of a change from `old` to `new`: with what was there before.

    So nobody hides a change of a row behind a later change that Interlock makes.
    """
    return (
        f"json_object({AUDITED[table].body}, 'was', sha(".replace("@", "new") + f"{body_of(table, 'old')}))"
    )


def noting(table: str, event: Literal["insert", "update", "delete"], body: str) -> str:
    """The SQL call that notes a row's change; `body`: what is recorded of it."""
    row = "old" if event == "delete" else "new"
    kind = AUDITED[table].kind.replace("@", row)
    if event == "delete":
        kind = repr(REMOVED)
    elif event == "insert" and table == "runs":
        kind = "'begun'"
    return f"note('{table}', {kind}, {row}.{TABLE[table].owner}, {key_expression(table, row)}, {body})"


_NEWEST = "select seq, hash, (select hash from audit where seq = ?) from audit order by seq desc limit 1"


class Executes(Protocol):
    """A database's own connection."""

    def execute(self, sql: str, values: Sequence[object] = (), /) -> Any: ...
    def executemany(self, sql: str, rows: list[tuple[object, ...]], /) -> Any: ...


class Note(NamedTuple):
    table: str
    kind: str
    run: str
    key: str
    body: str | None


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mac_of(key: Key, digest: str) -> str:
    made = _keyed(key).copy()
    made.update(digest.encode())
    return f"{key.id}:{made.hexdigest()}"


@lru_cache(maxsize=8)
def _keyed(key: Key) -> hmac.HMAC:
    """To be copied: making one takes five times as long."""
    return hmac.new(key.mac, digestmod="sha256")


def folder_of(store: Path) -> Path:
    """Beside the store: the key, and the newest record's hash."""
    return store.parent / "audit"


def kept_head(folder: Path, key: Key) -> tuple[int, str] | None:
    """The newest record's number and hash, as noted beside the store; None: missing, changed, or another key's."""
    try:
        return _noted_head(_content(f"{folder}/head"), key)
    except (OSError, UnicodeError):
        return None


def _content(name: str) -> bytes:
    """Each transaction that is audited pays for it, and `Path.read_bytes` costs three times as much."""
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1000)
    finally:
        os.close(file)


@lru_cache(maxsize=8)
def _noted_head(data: bytes, key: Key) -> tuple[int, str] | None:
    newest = data.decode("ascii").split()
    whole = len(newest) == 3 and newest[0].isdigit() and mac_of(key, newest[1]) == newest[2]
    return (int(newest[0]), newest[1]) if whole else None


@dataclass
class Audit:
    """Appends what a connection's transactions change."""

    conn: Executes
    path: Path
    notes: list[Note] = field(default_factory=list[Note])
    _newest: tuple[int, str] = (0, "")
    """The newest record that was committed."""
    _unwritten: bool = False
    _told: str = ""
    """Hash of the newest record that was found cut off."""
    _uncommitted: tuple[tuple[int, str], str] | None = None
    """The newest record of the open transaction, and what was found cut off then."""

    @cached_property
    def _folder(self) -> Path:
        return folder_of(self.path)

    @cached_property
    def _key(self) -> Key:
        return key_of(self._folder)

    def note(self, table: str, kind: str, run: str, key: str, body: str | None) -> None:
        self.notes.append(Note(table, kind, run, key, body))

    def append(self) -> None:
        """Inside the transaction, right before its commit."""
        if self.notes:
            self.write(_sorted_out(self.notes))
            self.notes.clear()

    def write(self, notes: Iterable[Note]) -> None:
        key, now = self._key, unix_time()
        kept = kept_head(self._folder, key)
        seq, before, there = self.conn.execute(_NEWEST, (kept[0] if kept else 0,)).fetchone() or (0, "", None)
        rows: list[tuple[object, ...]] = []
        cut_off = [*self._cut_off(kept, there)]
        for note in (*cut_off, *notes):
            seq += 1
            columns = (seq, now, note.kind, note.run, note.table, note.key, note.body)
            before = hash_of(before, columns)
            rows.append((*columns[:5], *packed(note.key, note.body), before, mac_of(key, before)))
        self.conn.executemany("insert into audit values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        told = kept[1] if cut_off and kept else self._told
        self._uncommitted = (seq, before), told

    def taken_back(self) -> None:
        """The open transaction's changes are gone, and their records with them."""
        self.notes.clear()
        self._uncommitted = None

    def _cut_off(self, kept: tuple[int, str] | None, there: str | None) -> Iterable[Note]:
        """A record of the chain's lost end: the head beside the store is about to be overwritten.

        `there`: the hash in the chain where the head has its own.
        """
        if kept and kept[1] not in (there, self._told):
            yield Note("", CUT_OFF, "", "[]", json.dumps({"record": kept[0], "hash": kept[1]}))

    def committed(self, *, synced: bool) -> None:
        """Note the newest record beside the store, so that its end can't be cut off unnoticed."""
        if self._uncommitted:
            (self._newest, self._told), self._unwritten, self._uncommitted = self._uncommitted, True, None
        if self._unwritten and synced:
            seq, digest = self._newest
            line = f"{seq:020d} {digest} {mac_of(self._key, digest)}\n"
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


def _sorted_out(notes: list[Note]) -> Iterable[Note]:
    """A run's removal stands for that of its rows; rows that come with their run are a fork's."""
    gone = {n.run for n in notes if n.table == "runs" and n.kind == REMOVED}
    made = {n.run for n in notes if n.table == "runs" and n.kind == "begun"}
    for note in notes:
        if note.table == "runs" or note.run not in gone | made:
            yield note
        elif note.run in made:
            yield note._replace(kind=INHERITED)


def begin(conn: Executes, path: Path) -> Audit:
    """Begin the chain, inside the migration that made its table. It takes over, unverified, rows that had none."""
    make_private_directory(folder_of(path))  # for the head, wherever the key is
    made = Audit(conn, path)
    if conn.execute("select 1 from audit").fetchone() is None:
        found = [note for table in AUDITED for note in _taken_over(conn, table)]
        made.write([Note("", "store", "", "[]", json.dumps({"taken over unverified": len(found)})), *found])
    return made


def _taken_over(conn: Executes, table: str) -> Iterable[Note]:
    name, owner = key_expression(table, table), TABLE[table].owner
    for run, key, body in conn.execute(f"select {owner}, {name}, {body_of(table, table)} from {table}"):
        yield Note(table, "taken over unverified", run, key, body)


class Record(NamedTuple):
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
    def of(cls, row: Sequence[Any]) -> "Record":
        """As the table has it."""
        seq, at, kind, run, table, key, body, digest, mac = row
        return cls(seq, at, kind, run, table, *_unpacked(key, body), digest, mac)

    def expected(self, before: str) -> str:
        """The hash that it has after a record with the hash `before`."""
        return hash_of(before, self[:7])


_PACKED = "~"
_NAMES = (
    b'","place":0,"subject":"","idempotent":0,"attempt":1,"type":null,"event":"BeforeTool","source":"","command":"'
    b'["",0,"-.0"]\n{"by":"person","who":null,"choice":"allow","rule":"shipped rule default.toml:4","mode":"default",'
    b'"whole":"","times":""}",1]\n{"tool":"run_shell_command","state":"intent","arguments":"","changed":null,'
    b'"planned":null,"result":null,"file":null,"record":null,"times":""}read_file","state":"done","result":"","record":"'
)
"""Deflate dictionary. Stored records depend on it."""


def packed(key: str, body: str | None) -> tuple[str, str | None]:
    """Key and body as the table has them: both in the body, shorter. A text, as people's programs expect one."""
    if body is None:
        return key, body
    deflate = zlib.compressobj(zdict=_NAMES)
    data = deflate.compress(f"{key}\n{body}".encode(errors="surrogatepass")) + deflate.flush()
    return "", _PACKED + binascii.b2a_base64(data, newline=False).decode()


def _unpacked(key: str, body: str | None) -> tuple[str, str | None]:
    """Undo `packed`; what it didn't make stays as it is."""
    if key or not body or body[0] != _PACKED:
        return key, body
    inflate = zlib.decompressobj(zdict=_NAMES)
    try:
        data = inflate.decompress(binascii.a2b_base64(body[1:], strict_mode=True))
        found, _, text = data.decode(errors="surrogatepass").partition("\n")
    except (ValueError, zlib.error):
        return key, body
    return (found, text) if inflate.eof and not inflate.unused_data else (key, body)


def hash_of(before: str, columns: Iterable[object]) -> str:
    return hashlib.sha256(f"{before}\n{json.dumps([*columns])}".encode()).hexdigest()
