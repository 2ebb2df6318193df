"""store: everything a run leaves behind: which database holds it, opening, reading, and its row formats.

It is SQLite (WAL) in the state directory, or PostgreSQL on a server that the directory names.
"""

import json
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self, cast

from interlock.engine.optional_rooms import load_fleet_entry
from interlock.engine.store.address import ADDRESS, address_of
from interlock.engine.store.connection import Adapter, Changes, Connection
from interlock.engine.store.seals import PROGRESS, resealed
from interlock.engine.store.sqlite import Sqlite
from interlock.services.files.disk import BUSY_TIMEOUT_S, make_private_directory
from interlock.state.clock import unix_time
from interlock.state.errors import STOPPED, StoreError, UserError
from interlock.state.text import replace_surrogates


def adapter_of(path: Path) -> Adapter:
    """Raises `StoreError` if the state directory is another user's, as under `sudo -u` with HOME kept."""
    try:
        (path.parent / ADDRESS).lstat()
    except PermissionError as error:
        raise StoreError(
            f"Can't read the state directory {str(path.parent)!r}: {error.strerror}. "
            "Choose another with INTERLOCK_HOME."
        ) from error
    except OSError:
        return Sqlite(path)
    scheme = address_of(path).partition(":")[0] or "postgresql"
    adapter: type[Adapter] = load_fleet_entry("interlock.stores", scheme, "Runs in PostgreSQL need")
    return adapter(path)


def explained(path: Path) -> AbstractContextManager[None]:
    """Convert errors of the database and the disk to one line that says what to do."""
    return adapter_of(path).explained()


def changes(home: Path) -> Changes:
    return adapter_of(home / "interlock.db").changes()


@contextmanager
def reading(home: Path) -> Generator[Connection | None]:
    """A read-only connection; None if there is no store yet. Raises `StoreError` in one line."""
    database = adapter_of(home / "interlock.db")
    with database.explained():
        if (conn := database.connect_reader()) is None:
            yield None
            return
        with closing(conn):
            current = database.is_current(conn)
            if current is False:
                Store(home).open()
            yield None if current is None else conn


def select(home: Path, sql: str, *values: object) -> list[Any]:
    """The rows; empty if there is no store yet. Raises `StoreError` in one line.

    An id that was typed, or the name of a folder, may have bytes that aren't UTF-8: no row has them.
    """
    values = tuple(replace_surrogates(value) if isinstance(value, str) else value for value in values)
    with reading(home) as conn:
        return conn.execute(sql, values).fetchall() if conn else []


def among(place: int = 1) -> str:
    """Return what `listed_as_keys` lists, for `in`: SQLite takes 32,766 parameters, PostgreSQL 65,535.

    `place`: the parameter's number.
    """
    return f"(select key from json_each(${place}))"


def listed_as_keys(values: Iterable[str]) -> str:
    """Return one parameter that lists any number of texts; both databases read the keys of a JSON object alike."""
    return json.dumps(dict.fromkeys(map(replace_surrogates, values)))


class Store:
    """The database, and connections to it. Each connection is opened and closed by one drive."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "interlock.db"
        self.database = adapter_of(self.path)
        self.blobs = self.database.connection.blobs
        """Whether it keeps long bodies, plans and snapshots in rows (`blobs.py`)."""
        self.outputs = home / "outputs"
        self.plans = home / "plans"
        """Plan files, in one folder per run."""

    def open(self) -> Self:
        """Create the folder and the tables if missing. Raises `StoreError` in one line."""
        try:
            make_private_directory(self.outputs)
        except OSError as error:
            raise StoreError(
                f"Can't make the state directory {str(self.home)!r}: {error.strerror}. "
                "Choose another with INTERLOCK_HOME."
            ) from error
        with self.database.explained(), closing(self.database.connect("FULL")) as conn:
            if not self.database.is_current(conn):
                self.database.migrate(conn)
        return self

    def connect(
        self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL", *, patience_s: float = BUSY_TIMEOUT_S
    ) -> Connection:
        """A connection in autocommit mode: don't `await` inside its transactions."""
        return self.database.connect(synchronous, patience_s=patience_s)

    @contextmanager
    def writing(self, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> Generator[Connection]:
        """A transaction on a connection of its own. Raises `StoreError` in one line."""
        with self.database.explained(), closing(self.connect(synchronous)) as conn, conn.transaction():
            yield conn

    def connect_driver(self) -> Connection:
        """A drive's connection: rows may be buffered until its next commit."""
        return self.database.connect("NORMAL", buffers=True)


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
    """A checkpoint's plain values: objects become what they are made of, LangGraph's own, such as a `Send`, True."""
    import ormsgpack

    def other(_code: int, data: bytes) -> Any:
        made: Any = ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)
        parts = cast("list[Any]", made) if isinstance(made, list) else []
        if len(parts) < 3 or str(parts[0]).startswith("langgraph."):
            return True
        if parts[1] == "OwnForm" and str(parts[0]).startswith("interlock."):
            return f"(stored by the graph's own serializer: {parts[2]['kind']})"
        return sorted(parts[2], key=repr) if parts[1] in ("set", "frozenset") else parts[2]

    data = unpacked(kind, saved)[1]
    return ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)


def _inflated(saved: bytes) -> bytes:
    inflate = zlib.decompressobj(zdict=_NAMES)
    data = inflate.decompress(saved)
    if not inflate.eof:  # zlib doesn't check this
        raise ValueError("the row ends too soon")
    return data


def read_options(conn: Connection, run: str) -> dict[str, Any]:
    row = conn.execute("select options from runs where run = $1", (run,), tables=("runs",)).fetchone()
    if row is None:
        raise UserError(f"Run {run!r} was removed meanwhile. List runs with: interlock runs --all")
    return json.loads(row[0])


def options_of(home: Path, run: str) -> dict[str, Any]:
    """`read_options` of a store that is there. Raises `StoreError` in one line."""
    with reading(home) as conn:
        assert conn is not None
        return read_options(conn, run)


def kept_repository(conn: Connection, run: str) -> dict[str, str]:
    """What a run's options say of its git repository; empty: it works in a folder."""
    return read_options(conn, run).get("repository") or {}


def keep_option(conn: Connection, run: str, name: str, value: Mapping[str, Any] | str | bool) -> None:
    """Update one of the run's persisted options, such as `rights`, its rules, or `limits`."""
    if read_options(conn, run).get(name) != value:
        with conn.transaction(), nullcontext() if name in PROGRESS else resealed(conn, run):
            text = json.dumps({**read_options(conn, run), name: value})
            conn.update("runs", {"options": text}, {"run": run})


def change_first_input(conn: Connection, run: str, text: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a run that has no checkpoint yet, with what is asked now; kept, because a replay reads it."""
    first: dict[str, Any] = json.loads(text)
    changed = {**first, **{name: value for name, value in asked.items() if name in first}}
    if changed != first:
        with conn.transaction(), resealed(conn, run):
            conn.update("runs", {"input": json.dumps(changed)}, {"run": run})
    return changed


def stopped(kind: str, run: str) -> dict[str, str]:
    """The error of a run that was stopped."""
    return {"type": kind, "message": f"{STOPPED[kind]} Go on with: interlock resume {run}"}


def forget_error(conn: Connection, run: str) -> None:
    """How the run ended before says nothing of a drive that goes on with it."""
    if conn.execute(
        "select 1 from runs where run = $1 and error is not null", (run,), tables=("runs",)
    ).fetchone():
        note_error(conn, run, None)


def note_error(conn: Connection, run: str, error: Mapping[str, str] | None) -> None:
    """Set the run's latest error; None clears it."""
    with conn.transaction():
        row = {"error": json.dumps(error) if error else None, "updated": unix_time()}
        conn.update("runs", row, {"run": run})
