"""audit: reads the record of who decided what, finds what was altered in it, and signs its newest entry.

`engine/store/audit.py` writes it. An installation can lack this folder; records are written all the same.
"""

import base64
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.engine.store import open_reader
from interlock.engine.store.audit import (
    AUDITED,
    CUT_OFF,
    REMOVED,
    VARIABLE,
    AuditKey,
    AuditRecord,
    audited_body_text,
    audited_key_text,
    compute_keyed_mac,
    find_newest_audit_record,
    list_audit_records,
    load_or_create_audit_key,
    read_audited_rows,
    read_saved_head,
)
from interlock.engine.store.connection import Connection, sha256_hex
from interlock.engine.store.integrity import find_changed_or_missing_messages
from interlock.engine.store.tables import TABLE
from interlock.state.clock import unix_time
from interlock.state.errors import StoreError, UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_Rows = dict[tuple[str, str], AuditRecord]


def read_audit_records(home: Path, since: float = 0.0, run: str | None = None) -> Iterator[AuditRecord]:
    """Yield the chain's records from a time on (unix, seconds), of a run or of all."""
    with open_reader(home) as conn:
        if conn is not None:
            yield from (record for record in list_audit_records(conn, since) if run in (None, record.run))


def sign_newest_record(home: Path) -> dict[str, Any]:
    """Return the newest record's number and hash, signed. Raises `UserError` where there is none."""
    with open_reader(home) as conn:
        newest = find_newest_audit_record(conn) if conn else None
    if not newest:
        raise UserError(
            "There is no audit record yet: nothing has run. Start with: interlock -p 'what to do'"
        )
    made: dict[str, Any] = {"seq": newest[0], "hash": newest[1], "at": round(unix_time(), 3)}
    public, signature = public_key_and_signature(
        load_or_create_audit_key(home / "audit"), _head_text_to_sign(made)
    )
    return {**made, "key": public, "signature": signature}


def _head_text_to_sign(audit_head: Mapping[str, Any]) -> bytes:
    return f"interlock audit {audit_head['seq']} {audit_head['hash']} {audit_head['at']}".encode()


def find_audit_problems(home: Path, kept_heads: tuple[Mapping[str, Any], ...] = ()) -> tuple[int, list[str]]:
    """Return how many records there are, and a line for each that was changed, removed, inserted or moved.

    `kept_heads`: signed ones that were kept elsewhere.
    """
    key = load_or_create_audit_key(home / "audit")
    newest = read_saved_head(home / "audit", key)  # read first: what is committed meanwhile comes after it
    known = public_key_and_signature(key, b"")[0] if kept_heads else ""
    with open_reader(home) as conn:
        if conn is None:
            return 0, ["there is no store"] if newest or kept_heads else []
        conn.execute_raw("begin")
        chain = [*list_audit_records(conn)]
        found = [*_find_broken_records(chain, key), *_find_cut_off_ends(chain, newest)]
        for one in kept_heads:
            found += _find_kept_head_problems(chain, one, known)
        return len(chain), [
            *found,
            *_find_differing_rows(conn, chain),
            *find_changed_or_missing_messages(home, conn),
        ]


def _describe_record(record: AuditRecord) -> str:
    return f"record {record.seq} ({record.kind}, run {record.run or '-'})"


def _find_broken_records(chain: list[AuditRecord], key: AuditKey) -> Iterator[str]:
    seq, before, others = 0, "", dict[str, list[AuditRecord]]()
    for record in chain:
        if record.seq != seq + 1:
            yield f"records {seq + 1} to {record.seq - 1} were removed, before {_describe_record(record)}"
        elif record.expected_hash(before) != record.hash:
            yield f"{_describe_record(record)} was changed, inserted or moved"
        elif not record.mac.startswith(f"{key.id}:"):
            others.setdefault(record.mac[:8], []).append(record)
        elif not hmac.compare_digest(compute_keyed_mac(key, record.hash), record.mac):
            yield f"{_describe_record(record)} was made without the key"
        seq, before = record.seq, record.hash
    for other, made in others.items():
        yield _describe_records_of_other_key(made, other, key)


def _describe_records_of_other_key(made: list[AuditRecord], other: str, key: AuditKey) -> str:
    """One line for all: with a key of its own for each host, they are most of the chain."""
    which = f"{_describe_record(made[0])} was"
    if len(made) > 1:
        which = f"{len(made)} records, from {_describe_record(made[0])} to {_describe_record(made[-1])}, were"
    return (
        f"{which} made with another key, {other!r}; {str(key.path)!r} is {key.id!r}. "
        f"Put the other one back; if another host made them, name one key for all hosts in {VARIABLE}"
    )


def _find_cut_off_ends(chain: list[AuditRecord], saved_head: tuple[int, str] | None) -> Iterator[str]:
    for record in chain:
        if record.kind == CUT_OFF:
            where = _describe_record(record)
            yield f"the chain's end was cut off before {where}, which says what it was: {record.body}"
    if saved_head is None:
        yield "audit/head, beside the store, is missing, was changed, or was made with another key"
    elif _record_hash_at(chain, saved_head[0]) != saved_head[1]:
        yield f"the chain's end was cut off or replaced: it once had record {saved_head[0]}, {saved_head[1][:12]}…"


def _record_hash_at(chain: list[AuditRecord], seq: int) -> str:
    return next((record.hash for record in reversed(chain) if record.seq == seq), "")


def _find_kept_head_problems(
    chain: list[AuditRecord], kept_head: Mapping[str, Any], store_key: str
) -> Iterator[str]:
    try:
        whole = kept_head["key"] == store_key and is_signature_valid(
            kept_head["key"], kept_head["signature"], _head_text_to_sign(kept_head)
        )
        seq, digest = int(kept_head["seq"]), str(kept_head["hash"])
    except (KeyError, TypeError, ValueError):
        whole, seq, digest = False, 0, ""
    if not whole:
        yield f"the head of record {seq} that was kept elsewhere isn't signed with this store's key"
    elif _record_hash_at(chain, seq) != digest:
        yield f"the chain isn't the one whose record {seq} was signed: it was cut off or replaced"


def _find_differing_rows(conn: Connection, chain: list[AuditRecord]) -> Iterator[str]:
    latest: _Rows = {}
    yield from _fill_rows_and_find_unrecorded_changes(chain, latest)
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


def _fill_rows_and_find_unrecorded_changes(chain: list[AuditRecord], rows: _Rows) -> Iterator[str]:
    """Fill in the newest record of each row that should be there. Yields rows that changed between two records."""
    of_run: dict[str, set[tuple[str, str]]] = {}
    for record in chain:
        place = (record.table, record.key)
        if record.kind == REMOVED:
            gone = of_run.pop(record.run, set()) if record.table == "runs" else {place}
            for one in gone:
                rows.pop(one, None)
        elif record.table:
            if (before := rows.get(place)) and not _is_consistent_with_previous(before, record):
                yield f"a row of {record.table!r} was changed before {_describe_record(record)}: {record.key}"
            rows[place] = record
            of_run.setdefault(record.run, set()).add(place)


_WAS = re.compile(r',\s*"was"\s*:\s*"([0-9a-f]{64})"\s*}$')


def _is_consistent_with_previous(previous: AuditRecord, record: AuditRecord) -> bool:
    """Whether a record of a change found what the row's record before says. An earlier version recorded less."""
    was = _WAS.search(record.body or "")
    body = _WAS.sub("}", previous.body or "")
    if not was or {*_parse_body_or_empty(body)} != {*_parse_body_or_empty(record.body)} - {"was"}:
        return True
    return was[1] == sha256_hex(body.encode(errors="surrogatepass"))


def _differing_names(recorded: str | None, now: str) -> list[str]:
    """Names whose values differ; what an earlier version didn't record, nobody knows."""
    then, there = _parse_body_or_empty(recorded), _parse_body_or_empty(now)
    return [name for name in then if name != "was" and then[name] != there.get(name)]


def _parse_body_or_empty(body: str | None) -> dict[str, Any]:
    try:
        return dict(json.loads(body or "{}"))
    except (ValueError, TypeError):  # not ours: `_find_broken_records` names the record
        return {}


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


def public_key_and_signature(key: AuditKey, text: bytes) -> tuple[str, str]:
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
