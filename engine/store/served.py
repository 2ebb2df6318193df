"""served: what programs see through the API: threads, drives, assistants (by UUID), and tokens (by name).

A `prompt`, by its run, is a drive that a person asked for on the page, as long as it waits or works.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlock.engine.store import Store, put, select
from interlock.state.clock import unix_time

Kind = Literal["thread", "drive", "assistant", "token", "prompt"]
_COLUMNS = "id, thread, run, body, at"


class Served(NamedTuple):
    id: str
    thread: str
    run: str
    body: dict[str, Any]
    at: float


def served(home: Path, kind: Kind, id: str) -> Served | None:
    rows = select(home, f"select {_COLUMNS} from served where kind = ? and id = ?", kind, id)
    return _of(rows[0]) if rows else None


def all_served(home: Path, kind: Kind, *, thread: str = "") -> list[Served]:
    """The newest first; `thread`: only its own."""
    where, values = (" and thread = ?", [thread]) if thread else ("", [])
    sql = f"select {_COLUMNS} from served where kind = ?{where} order by at desc, id desc"
    return [_of(row) for row in select(home, sql, kind, *values)]


def serve(
    home: Path, kind: Kind, id: str, body: Mapping[str, Any], *, thread: str = "", run: str = ""
) -> Served:
    """Add a row. Raises the database's error if there is one of this id."""
    made = Served(id, thread, run, dict(body), unix_time())
    with Store(home).open().writing("FULL") as conn:
        put(conn, "served", {"kind": kind, **made._asdict(), "body": json.dumps(body)})
    return made


def change(home: Path, kind: Kind, id: str, fields: Mapping[str, Any], run: str | None = None) -> None:
    """Set fields of a row's body, and the run that it is about; nothing if it is gone."""
    with Store(home).writing("FULL") as conn:
        row = conn.execute("select body, run from served where kind = ? and id = ?", (kind, id)).fetchone()
        if row is None:
            return
        body = json.dumps({**json.loads(row[0]), **fields})
        conn.execute(
            "update served set body = ?, run = ? where kind = ? and id = ?",
            (body, row[1] if run is None else run, kind, id),
        )


def unserve(home: Path, kind: Kind, id: str) -> bool:
    """Remove a row; False: there is none."""
    with Store(home).open().writing("FULL") as conn:
        return bool(conn.execute("delete from served where kind = ? and id = ?", (kind, id)).rowcount)


def _of(row: Any) -> Served:
    id, thread, run, body, at = row
    return Served(id, thread, run, json.loads(body), at)
