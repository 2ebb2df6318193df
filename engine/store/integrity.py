"""integrity: finds what in the store is unreadable or was altered; `doctor --store`, `show --verify`."""

import base64
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interlock.engine.store import Store, open_reader
from interlock.engine.store.audit import (
    AUDITED,
    CUT_OFF,
    REMOVED,
    VARIABLE,
    AuditKey,
    Record,
    audited_body_text,
    audited_key_text,
    compute_keyed_mac,
    load_audit_key,
    read_audited_rows,
    read_saved_head,
)
from interlock.engine.store.blobs import open_blob_storage
from interlock.engine.store.connection import Column, Connection, sha256_hex
from interlock.engine.store.tables import TABLE, TABLES
from interlock.services.files.blobs import Blobs, inflate_body
from interlock.state.clock import unix_time
from interlock.state.errors import StoreError, UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_Check = Callable[[Any], object]


def find_unreadable_rows(
    conn: Connection, outputs: Path, told: Callable[[int, int], None] = lambda _done, _total: None
) -> Iterator[str]:
    """One line per row, of any table, with a value its column can't hold. `told`: rows read, and rows in all."""
    blobs, done = open_blob_storage(conn, outputs), 0
    total = sum(conn.execute(f"select count(*) from {table.name}").fetchone()[0] for table in TABLES)
    for table in TABLES:
        checks = {name: _load_reader(where) for name, where in table.holds.items()}
        columns = conn.columns(table.name)
        for values in conn.execute(f"select {', '.join(c.name for c in columns)} from {table.name}"):
            row = dict(zip((c.name for c in columns), tuple(values), strict=True))
            told(done := done + 1, total)
            wrong = [c.name for c in columns if not _fits_column(row[c.name], c)]
            wrong += [
                n for n, check in checks.items() if n not in wrong and not _is_readable(check, row, n, blobs)
            ]
            if wrong:
                yield f"{', '.join(wrong)} of a row of {table.name!r}, run {row[table.owner]!r}"


def _load_reader(where: str) -> _Check:
    module, _, name = where.partition(":")
    found = getattr(import_module(module), name)
    return getattr(found, "model_validate_json", found)


def _fits_column(value: object, column: Column) -> bool:
    """Check the type: SQLite accepts anything in any column."""
    return isinstance(value, column.kind) if value is not None else not column.needed


def _is_readable(check: _Check, row: dict[str, Any], name: str, blobs: Blobs) -> bool:
    try:
        value = row[name]
        if value is not None and name.endswith("file"):
            value = blobs.load(value) or b""
        if value is not None:
            check((row["type"], value) if name in ("checkpoint", "value") else value)
    except Exception:  # readers fail in any way on bytes they don't expect
        return False
    return True


def parse_mapping(text: str | bytes) -> dict[str, Any]:
    value: object = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"no mapping: {text!r}")
    return cast("dict[str, Any]", value)


def check_list(text: str) -> None:
    if not isinstance(json.loads(text), list):
        raise TypeError(f"no list: {text!r}")


def record(body: bytes) -> None:
    from interlock.state.messages import Message  # deferred: lists import this module, and need no messages

    body = inflate_body(body)
    if body and "root" not in parse_mapping(body):  # empty: the record is in a file
        Message.model_validate_json(body)


def format_error(text: str) -> str:
    value = parse_mapping(text)
    return f"{value['type']}: {value['message']}"


def damaged_pages(home: Path, *, quick: bool = False) -> list[str]:
    """What the database finds wrong with its file; `quick`: at most one line, and indexes aren't compared."""
    with open_reader(home) as conn:
        return Store(home).database.damaged_pages(conn, quick=quick) if conn else []


def damage(home: Path, run: str) -> Iterator[str]:
    """One line per conversation record that is missing or was altered."""
    from interlock.services.transcript import head_continued_by_root, record_hash

    with open_reader(home) as conn:
        if conn is None:
            return
        blobs = open_blob_storage(conn, home / "outputs")
        rows = conn.execute(
            "select id, parent, body, file from chain where run = $1 order by id", (run,)
        ).fetchall()
        known = {row["id"] for row in conn.execute("select id from chain")}
        head = _newest_record(home, conn, run)
        for row in rows:
            body = blobs.read_body(row["body"], row["file"])
            if not isinstance(body, bytes) or record_hash(row["parent"], body) != row["id"]:
                yield f"record {row['id'][:12]}… was changed, or its file is missing"
            elif not row["parent"] and (old := head_continued_by_root(body)) and old not in known:
                yield f"record {old[:12]}… is missing; the chain {row['id'][:12]}… continues it"
            if row["parent"] and row["parent"] not in known:
                yield f"record {row['parent'][:12]}… is missing; {row['id'][:12]}… follows it"
        if head and head not in known:
            yield f"record {head[:12]}…, the newest of the conversation, is missing"


def _newest_record(home: Path, conn: Connection, run: str) -> str:
    """The newest record of the run's conversation; before its first checkpoint, its first record."""
    row = conn.execute(
        "select 1 from checkpoints where thread_id = $1 and checkpoint_ns = ''", (run,)
    ).fetchone()
    if row:
        from interlock.engine.store.checkpoints import read_state_at_step

        return str(read_state_at_step(home, run).get("head") or "")
    (first,) = conn.execute("select input from runs where run = $1", (run,)).fetchone()
    begun = parse_mapping(first)
    return str(begun.get("head") or begun.get("prompt") or "")


_Rows = dict[tuple[str, str], Record]


def records(home: Path, since: float = 0.0, run: str | None = None) -> Iterator[Record]:
    """The chain's records from a time on (unix, seconds), of a run or of all."""
    with open_reader(home) as conn:
        if conn is not None:
            for row in conn.execute("select * from audit where at >= $1 order by seq", (since,)):
                if run in (None, row["run"]):
                    yield Record.of(row)


def head(home: Path) -> dict[str, Any]:
    """The newest record's number and hash, signed. Raises `UserError` where there is none."""
    with open_reader(home) as conn:
        query = "select seq, hash from audit order by seq desc limit 1"
        row: tuple[int, str] | None = conn.execute(query).fetchone() if conn else None
    if not row:
        raise UserError(
            "There is no audit record yet: nothing has run. Start with: interlock -p 'what to do'"
        )
    made: dict[str, Any] = {"seq": row[0], "hash": row[1], "at": round(unix_time(), 3)}
    public, signature = sign(load_audit_key(home / "audit"), _signed_text(made))
    return {**made, "key": public, "signature": signature}


def _signed_text(made: Mapping[str, Any]) -> bytes:
    return f"interlock audit {made['seq']} {made['hash']} {made['at']}".encode()


def verify(home: Path, heads: tuple[Mapping[str, Any], ...] = ()) -> tuple[int, list[str]]:
    """How many records there are, and a line for each that was changed, removed, inserted or moved.

    `heads`: signed ones that were kept elsewhere.
    """
    key = load_audit_key(home / "audit")
    newest = read_saved_head(home / "audit", key)  # read first: what is committed meanwhile comes after it
    known = sign(key, b"")[0] if heads else ""
    with open_reader(home) as conn:
        if conn is None:
            return 0, ["there is no store"] if newest or heads else []
        conn.stored("begin")
        chain = [Record.of(row) for row in conn.execute("select * from audit order by seq")]
        found = [*_find_broken_records(chain, key), *_find_cut_off_ends(chain, newest)]
        for one in heads:
            found += _check_kept_head(chain, one, known)
        return len(chain), [*found, *_find_differing_rows(conn, chain), *_find_differing_messages(home, conn)]


def _describe_record(record: Record) -> str:
    return f"record {record.seq} ({record.kind}, run {record.run or '-'})"


def _find_broken_records(chain: list[Record], key: AuditKey) -> Iterator[str]:
    seq, before, others = 0, "", dict[str, list[Record]]()
    for record in chain:
        if record.seq != seq + 1:
            yield f"records {seq + 1} to {record.seq - 1} were removed, before {_describe_record(record)}"
        elif record.expected(before) != record.hash:
            yield f"{_describe_record(record)} was changed, inserted or moved"
        elif not record.mac.startswith(f"{key.id}:"):
            others.setdefault(record.mac[:8], []).append(record)
        elif not hmac.compare_digest(compute_keyed_mac(key, record.hash), record.mac):
            yield f"{_describe_record(record)} was made without the key"
        seq, before = record.seq, record.hash
    for other, made in others.items():
        yield _describe_records_of_other_key(made, other, key)


def _describe_records_of_other_key(made: list[Record], other: str, key: AuditKey) -> str:
    """One line for all: with a key of its own for each host, they are most of the chain."""
    which = f"{_describe_record(made[0])} was"
    if len(made) > 1:
        which = f"{len(made)} records, from {_describe_record(made[0])} to {_describe_record(made[-1])}, were"
    return (
        f"{which} made with another key, {other!r}; {str(key.path)!r} is {key.id!r}. "
        f"Put the other one back; if another host made them, name one key for all hosts in {VARIABLE}"
    )


def _find_cut_off_ends(chain: list[Record], newest: tuple[int, str] | None) -> Iterator[str]:
    for record in chain:
        if record.kind == CUT_OFF:
            where = _describe_record(record)
            yield f"the chain's end was cut off before {where}, which says what it was: {record.body}"
    if newest is None:
        yield "audit/head, beside the store, is missing, was changed, or was made with another key"
    elif _hash_at(chain, newest[0]) != newest[1]:
        yield f"the chain's end was cut off or replaced: it once had record {newest[0]}, {newest[1][:12]}…"


def _hash_at(chain: list[Record], seq: int) -> str:
    return next((record.hash for record in reversed(chain) if record.seq == seq), "")


def _check_kept_head(chain: list[Record], kept_head: Mapping[str, Any], store_key: str) -> Iterator[str]:
    try:
        whole = kept_head["key"] == store_key and is_signature_valid(
            kept_head["key"], kept_head["signature"], _signed_text(kept_head)
        )
        seq, digest = int(kept_head["seq"]), str(kept_head["hash"])
    except (KeyError, TypeError, ValueError):
        whole, seq, digest = False, 0, ""
    if not whole:
        yield f"the head of record {seq} that was kept elsewhere isn't signed with this store's key"
    elif _hash_at(chain, seq) != digest:
        yield f"the chain isn't the one whose record {seq} was signed: it was cut off or replaced"


def _find_differing_rows(conn: Connection, chain: list[Record]) -> Iterator[str]:
    latest: _Rows = {}
    yield from _follow_records(chain, latest)
    for table in AUDITED:
        for row in read_audited_rows(conn, table):
            run, key = row[TABLE[table].owner], audited_key_text(table, row, conn.json_form)
            now = audited_body_text(table, row, conn.json_form)
            record = latest.pop((table, key), None)
            if record is None:
                yield f"a row of {table!r} was inserted, run {run}: no record is about {key}"
            elif record.run != run or (record.body != now and _differing_names(record.body, now)):
                changed = "the run" if record.run != run else ", ".join(_differing_names(record.body, now))
                where = f"{changed} of {key}; see {_describe_record(record)}"
                yield f"a row of {table!r} was changed, run {record.run}: {where}"
    for (table, key), record in latest.items():
        yield f"a row of {table!r} was removed, run {record.run}: {key}; see {_describe_record(record)}"


def _follow_records(chain: list[Record], rows: _Rows) -> Iterator[str]:
    """Fill in the newest record of each row that should be there. Yields rows that changed between two records."""
    of_run: dict[str, set[tuple[str, str]]] = {}
    for record in chain:
        place = (record.table, record.key)
        if record.kind == REMOVED:
            gone = of_run.pop(record.run, set()) if record.table == "runs" else {place}
            for one in gone:
                rows.pop(one, None)
        elif record.table:
            if (before := rows.get(place)) and not _follows_record(before, record):
                yield f"a row of {record.table!r} was changed before {_describe_record(record)}: {record.key}"
            rows[place] = record
            of_run.setdefault(record.run, set()).add(place)


_WAS = re.compile(r',\s*"was"\s*:\s*"([0-9a-f]{64})"\s*}$')


def _follows_record(before: Record, record: Record) -> bool:
    """Whether a record of a change found what the row's record before says. An earlier version recorded less."""
    was = _WAS.search(record.body or "")
    body = _WAS.sub("}", before.body or "")
    if not was or {*_parse_body(body)} != {*_parse_body(record.body)} - {"was"}:
        return True
    return was[1] == sha256_hex(body.encode(errors="surrogatepass"))


def _differing_names(recorded: str | None, now: str) -> list[str]:
    """Names whose values differ; what an earlier version didn't record, nobody knows."""
    then, there = _parse_body(recorded), _parse_body(now)
    return [name for name in then if name != "was" and then[name] != there.get(name)]


def _parse_body(body: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(body or "{}"))
    except (ValueError, TypeError):  # not ours: `_find_broken_records` names the record
        return {}


def _find_differing_messages(home: Path, conn: Connection) -> Iterator[str]:
    """Calls and results are named by the hashes of their messages, which this compares with the messages."""
    from interlock.services.transcript import record_hash

    blobs = open_blob_storage(conn, home / "outputs")
    known: set[str] = set()
    for name, run, parent, body, file in conn.execute("select id, run, parent, body, file from chain"):
        known.add(name)
        data = blobs.read_body(body, file)
        if not isinstance(data, bytes) or record_hash(parent, data) != name:
            yield f"message {name[:12]}… of run {run} was changed, or its file is missing"
    for run, name in conn.execute(
        "select run, message from journal union select run, record from journal where record is not null"
    ):
        if name not in known:
            yield f"message {name[:12]}… of run {run} is missing"


def _load_private_key(key: AuditKey) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    data = key.path.read_bytes()
    load = load_ssh_private_key if b"OPENSSH" in data else load_pem_private_key
    try:
        found = load(data, None)
    except (ValueError, TypeError) as error:
        raise StoreError(f"Can't read the audit key {str(key.path)!r}: {error}.") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise StoreError(f"The audit key {str(key.path)!r} isn't an ed25519 key.")
    return found


def sign(key: AuditKey, text: bytes) -> tuple[str, str]:
    """Public key and signature, both base64."""
    private = _load_private_key(key)
    public = private.public_key().public_bytes_raw()
    return base64.b64encode(public).decode(), base64.b64encode(private.sign(text)).decode()


def is_signature_valid(public: str, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(public)).verify(base64.b64decode(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
