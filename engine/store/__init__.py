"""store: the SQLite file (WAL) that holds everything a run leaves behind: opening, reading, and its row formats."""

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from interlock.services.files.folders import private_directory, private_file
from interlock.services.sqlite import (
    BUSY_TIMEOUT_S,
    Buffered,
    StoreConnection,
    explain,
    explained,
    transaction,
)
from interlock.state.errors import InterlockError, StoreError, UserError

PARTS = (
    "interlock.db",
    "interlock.db-wal",
    "interlock.db-shm",
    *("outputs", "plans", "snapshots", "input", "index"),
)
"""What is in the state directory."""
SCHEMA_VERSION = 6
"""`PRAGMA user_version`; increases with every change an older Interlock can't read."""


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """`$INTERLOCK_HOME`, else `$XDG_STATE_HOME/interlock`, else `~/.local/state/interlock`."""
    if home := env.get("INTERLOCK_HOME"):
        return Path(home).expanduser().absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
    return Path(base).expanduser().absolute() / "interlock"


@contextmanager
def reading(home: Path) -> Generator[sqlite3.Connection | None]:
    """A read-only connection; None if there is no store yet. Raises `StoreError` in one line."""
    path = home / "interlock.db"
    if not path.exists():
        yield None
        return
    conn: sqlite3.Connection | None = None
    try:
        conn = sqlite3.connect(path, timeout=10)
        conn.row_factory = sqlite3.Row
        conn.execute("pragma query_only = 1")
        version = _version(conn, path)
        if 0 < version < SCHEMA_VERSION:
            Store(home).open()
        yield conn if version else None
    except sqlite3.DatabaseError as error:
        raise explain(error, path) from error
    finally:
        if conn is not None:
            conn.close()


def _version(conn: sqlite3.Connection, path: Path) -> int:
    (version,) = conn.execute("pragma user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"The store {str(path)!r} was written by a newer Interlock (version {version}, this one "
            f"reads {SCHEMA_VERSION}). Upgrade, or choose another with INTERLOCK_HOME."
        )
    return version


def select(home: Path, sql: str, *values: object) -> list[sqlite3.Row]:
    """The rows; empty if there is no store yet. Raises `StoreError` in one line."""
    with reading(home) as conn:
        return conn.execute(sql, values).fetchall() if conn else []


def insertion(table: str, row: Mapping[str, object], how: str = "insert") -> tuple[str, tuple[object, ...]]:
    """SQL that inserts a row (column → value), and its values. `how`: also `insert or replace`, `insert or ignore`."""
    return f"{how} into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", (*row.values(),)


def _number_requests(conn: sqlite3.Connection) -> None:
    """Give the requests of stores before version 6 their numbers, which were computed then."""
    if "number" not in {row[1] for row in conn.execute("pragma table_info(approvals)")}:
        conn.execute("alter table approvals add column number integer")
        conn.execute("update approvals set number = rowid")


_PAGE = 2048
"""Bytes; small, because a commit writes whole pages of many small tables."""
C = TypeVar("C", bound=StoreConnection)
_CHECKPOINT_TABLES = """
create table if not exists checkpoints (
    thread_id text not null, checkpoint_ns text not null default '', checkpoint_id text not null,
    parent_checkpoint_id text, type text, checkpoint blob, metadata blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id));
create table if not exists writes (
    thread_id text not null, checkpoint_ns text not null default '', checkpoint_id text not null,
    task_id text not null, idx integer not null, task_path text not null default '',
    channel text not null, type text, value blob,
    primary key (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)) without rowid;
"""
"""The tables of langgraph-checkpoint-sqlite 3.1.2. `writes` is `without rowid`, which saves a copy of its long keys;
`checkpoints` isn't: its rows of 1 KB would spill into overflow pages (measured: 2.8 MB for 0.7 MB).
"""


class Store:
    """The file, and connections to it. Each connection is opened and closed by one drive."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "interlock.db"
        self.outputs = home / "outputs"
        self.plans = home / "plans"
        """Plan files, in one folder per run."""

    def open(self) -> None:
        """Create the folder and the tables if missing. Raises `StoreError` in one line."""
        try:
            private_directory(self.outputs)
        except OSError as error:
            raise StoreError(
                f"Can't make the state directory {str(self.home)!r}: {error.strerror}. "
                "Choose another with INTERLOCK_HOME."
            ) from error
        with explained(self.path), closing(self.connect("FULL")) as conn:
            if _version(conn, self.path) < SCHEMA_VERSION:
                schema = files("interlock.engine.store").joinpath("schema.sql").read_text(encoding="utf-8")
                with transaction(conn):
                    for statement in (_CHECKPOINT_TABLES + schema).split(";\n"):
                        conn.execute(statement)
                    _number_requests(conn)
                    conn.execute(f"pragma user_version={SCHEMA_VERSION}")

    def connect(self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> StoreConnection:
        """A connection in autocommit mode: start transactions with `transaction`, and don't `await` inside them."""
        return self._connect(StoreConnection, synchronous)

    def connect_driver(self) -> Buffered:
        """A drive's connection: rows may be buffered until its next commit."""
        return self._connect(Buffered, "NORMAL")

    def _connect(self, kind: type[C], synchronous: str) -> C:
        with explained(self.path):
            with suppress(OSError):  # SQLite says why
                private_file(self.path)
            conn = kind(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                conn.execute(f"pragma page_size={_PAGE}")  # for a new file; existing ones keep theirs
                conn.execute("pragma journal_mode=wal")
                conn.execute(f"pragma synchronous={synchronous}")
                conn.remember()
            except BaseException:
                conn.close()
                raise
        return conn


@contextmanager
def diagnosed(path: Path) -> Generator[None]:
    """Like `explained`, but also blames unreadable rows for any other failure, as they are its most likely cause."""
    with explained(path):
        try:
            yield
        except (InterlockError, sqlite3.Error):
            raise
        except Exception as error:
            _raise_if_damaged(path, error)
            raise


_MOST = 3
"""Damaged rows an error lists; `doctor --store` lists all."""


def _raise_if_damaged(path: Path, error: Exception) -> None:
    """Raise `StoreError` if the store has unreadable rows; otherwise `error` is a bug."""
    from interlock.engine.store.damage import unreadable

    with reading(path.parent) as conn:
        found = list(unreadable(conn, path.parent / "outputs")) if conn else []
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        raise StoreError(
            f"The store {str(path)!r} is damaged: {'; '.join(found[:_MOST])}{more}. See all with: interlock doctor "
            "--store; remove a run with: interlock runs rm RUN; or move the store away to start anew. What failed, "
            f"if that isn't why: {type(error).__name__}: {error}"
        ) from error


_DEFLATED, _PRESET = "+deflate", "+deflate1"
"""Suffixes of a row's type: deflated without a dictionary, as earlier versions wrote it, and with `_NAMES`."""

_SHORT = 256
"""Size in bytes below which deflating gains nothing."""

_NAMES = (
    b"\x87\xa1v\x04\xa2ts\xd9 2026-\xa2id\xd9$1f1\xaechannel_values\xde\x00%\xa5agent\xa0\xa6hooked\xa0\xa4mode\xa0"
    b"\xa8protocol\xa6native\xa5label\xa4done\xa5asked\xd9@\xaahook_stage\xa0\xa9loop_keys\xdc\x00\x19\xac\xaaloop_"
    b"count\x00\xadloop_interval\x0f\xa9loop_next<\xaaloop_found\x80\xa4head\xd9@\xa5model\xaegemini-2.5-pro\xacsti"
    b"cky_model\xaegemini-2.5-pro\xb2last_prompt_tokens\xcd\x89y\xabunavailable\x80\xa9max_turnsd\xb1max_session_tu"
    b"rns\xff\xa7turn_no1\xadsession_turns1\xabturn_status\xa5calls\xa5reply\xd9@\xadfinish_reason\xa4stop\xa5error"
    b"\x80\xadapproval_mode\xa4yolo\xaaplan_phase\xa0\xa4stop\xa0\xaastopped_by\xa0\xa7refused\x80\xa6prompt\xa0"
    b"\xa4said\xa0\xa8fed_back\xc2\xabnoted_epoch\x01\xb2next_speaker_check\xc3\xa6status\xa7running\xaebranch:to:t"
    b"urn\xc0\xb0channel_versions\xde\x00(\xa9__start__\x02\xa6prompt\x03\xadapproval_modee\xa5model\x02\xa9max_tur"
    b"ns\x02\xb1max_session_turns\x02\xa4heade\xadsession_turnsd\xb2last_prompt_tokensd\xa4modee\xa8protocole\xa6ho"
    b"okede\xb5branch:to:open_prompt\x03\xa7turn_nod\xacsticky_model\\\xabturn_statusd\xa5errord\xa9loop_keysd\xaal"
    b"oop_count\\\xadloop_interval\\\xa9loop_next\\\xaaloop_foundd\xa4stope\xa6status\x03\xabunavailable\\\xaaplan_"
    b"phasee\xb2next_speaker_check\x03\xaahook_stage\x03\xa4said\\\xa8fed_back\x03\xa7refusede\xa5asked\x03\xa5labe"
    b"le\xaebranch:to:turne\xa5replyd\xadfinish_reasond\xafbranch:to:toolse\xa5agente\xaastopped_bye\xabnoted_epoch"
    b"e\xadversions_seen\x85\xa9__input__\x80\xa9__start__\x81\xa9__start__\x01\xabopen_prompt\x81\xb5branch:to:ope"
    b"n_prompt\x02\xa4turn\x81\xaebranch:to:turnc\xa5tools\x81\xafbranch:to:toolsd\xb0updated_channels\x9d\xa5agent"
    b"\xadapproval_mode\xaebranch:to:turn\xa4head\xa6hooked\xa5label\xa4mode\xabnoted_epoch\xaaplan_phase\xa8protoc"
    b"ol\xa7refused\xa4stop\xaastopped_by"
)
"""Deflate dictionary: a checkpoint of `main` without ids. Stored rows depend on it: add others under a new suffix."""


def packed(kind: str, data: bytes) -> tuple[str, bytes]:
    """Compress a row; returns its type and bytes."""
    if len(data) < _SHORT:
        return kind, data
    deflate = zlib.compressobj(zdict=_NAMES)
    return kind + _PRESET, deflate.compress(data) + deflate.flush()


def unpacked(kind: str, saved: bytes) -> tuple[str, bytes]:
    """Undo `packed`, also for rows of earlier versions."""
    if kind.endswith(_PRESET):
        return kind.removesuffix(_PRESET), _inflated(saved)
    if kind.endswith(_DEFLATED):
        return kind.removesuffix(_DEFLATED), zlib.decompress(saved)
    return kind, saved


def checkpoint_of(kind: str, saved: bytes) -> dict[str, Any]:
    """A checkpoint's plain values; LangGraph's own objects, such as a pending task, become True."""
    import ormsgpack

    def other(_code: int, _data: bytes) -> bool:
        return True

    data = unpacked(kind, saved)[1]
    return ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)


def _inflated(saved: bytes) -> bytes:
    inflate = zlib.decompressobj(zdict=_NAMES)
    data = inflate.decompress(saved)
    if not inflate.eof:  # zlib doesn't check this
        raise ValueError("the row ends too soon")
    return data


def read_options(conn: sqlite3.Connection, run: str) -> dict[str, Any]:
    row = conn.execute("select options from runs where run = ?", (run,)).fetchone()
    if row is None:
        raise UserError(f"Run {run!r} was removed meanwhile. List runs with: interlock runs --all")
    return json.loads(row[0])


def keep_rights(conn: sqlite3.Connection, run: str, rights: Mapping[str, Any]) -> None:
    """Update the run's persisted rules."""
    options = read_options(conn, run)
    if options.get("rights") != rights:
        with transaction(conn):
            text = json.dumps({**options, "rights": rights})
            conn.execute("update runs set options = ? where run = ?", (text, run))


def first_input(conn: sqlite3.Connection, run: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a run that has no checkpoint yet, with what is asked now; kept, because a replay reads it."""
    (text,) = conn.execute("select input from runs where run = ?", (run,)).fetchone()
    first: dict[str, Any] = json.loads(text)
    changed = {**first, **{name: value for name, value in asked.items() if name in first}}
    if changed != first:
        with transaction(conn):
            conn.execute("update runs set input = ? where run = ?", (json.dumps(changed), run))
    return changed


def note_error(conn: sqlite3.Connection, run: str, error: Mapping[str, str] | None) -> None:
    """Set the run's latest error; None clears it."""
    with transaction(conn):
        conn.execute(
            "update runs set error = ?, updated = ? where run = ?",
            (json.dumps(error) if error else None, time.time(), run),
        )
