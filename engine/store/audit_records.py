"""audit_records: a record of the audit's chain, the hash that links it, and how the table has its key and body."""

import binascii
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


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
