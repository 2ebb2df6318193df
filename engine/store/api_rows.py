"""api_rows: what programs see through the API: threads, drives, assistants (by UUID), and tokens (by name).

A `prompt`, by its run, is a drive that a person asked for on the page, as long as it waits or works. `interlock serve`
obeys these rows: it lets tokens in, and drives what waits. So they are in a file of its own host, also where the runs
are on a server: whoever may start runs there could write them otherwise.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from interlock.engine.store import Store, read_store_address, select_rows
from interlock.state.clock import unix_time

Kind = Literal["thread", "drive", "assistant", "token", "prompt"]
_COLUMNS = "id, thread, run, body, at"


class ApiRow(NamedTuple):
    id: str
    thread: str
    run: str
    body: dict[str, Any]
    at: float


def _api_rows_directory(home: Path) -> Path:
    """The state directory whose file has the rows."""
    return home / "served" if read_store_address(home / "interlock.db") else home


def find_api_row(home: Path, kind: Kind, id: str) -> ApiRow | None:
    rows = select_rows(
        _api_rows_directory(home), f"select {_COLUMNS} from served where kind = $1 and id = $2", kind, id
    )
    return _to_api_row(rows[0]) if rows else None


def list_api_rows(home: Path, kind: Kind, *, thread: str = "") -> list[ApiRow]:
    """The newest first; `thread`: only its own."""
    where, values = (" and thread = $2", [thread]) if thread else ("", [])
    sql = f"select {_COLUMNS} from served where kind = $1{where} order by at desc, id desc"
    return [_to_api_row(row) for row in select_rows(_api_rows_directory(home), sql, kind, *values)]


def has_separate_api_rows_file(home: Path) -> bool:
    """Whether the rows are in a file of their own, so that no query of runs sees them."""
    return _api_rows_directory(home) != home


def insert_api_row(
    home: Path, kind: Kind, id: str, body: Mapping[str, Any], *, thread: str = "", run: str = ""
) -> ApiRow:
    """Add a row. Raises the database's error if there is one of this id."""
    made = ApiRow(id, thread, run, dict(body), unix_time())
    with Store(_api_rows_directory(home)).create_or_migrate().write_transaction("FULL") as conn:
        conn.insert("served", {"kind": kind, **made._asdict(), "body": json.dumps(body)})
    return made


def update_api_row_if_exists(
    home: Path, kind: Kind, id: str, fields: Mapping[str, Any], run: str | None = None
) -> None:
    """Set fields of a row's body, and the run that it is about; nothing if it is gone."""
    with Store(_api_rows_directory(home)).write_transaction("FULL") as conn:
        row = conn.execute("select body, run from served where kind = $1 and id = $2", (kind, id)).fetchone()
        if row is None:
            return
        body = json.dumps({**json.loads(row[0]), **fields})
        about = {"body": body, "run": row[1] if run is None else run}
        conn.update("served", about, {"kind": kind, "id": id})


def remove_api_row(home: Path, kind: Kind, id: str) -> bool:
    """Remove a row; False: there is none."""
    with Store(_api_rows_directory(home)).create_or_migrate().write_transaction("FULL") as conn:
        return bool(conn.delete("served", {"kind": kind, "id": id}).rowcount)


def delete_separate_api_rows_of_run(home: Path, run: str) -> None:
    """Remove what is about a run; where the runs are, too, they go with its other rows."""
    if (place := _api_rows_directory(home)) != home and select_rows(
        place, "select 1 from served where run = $1", run
    ):
        with Store(place).write_transaction("FULL") as conn:
            conn.delete("served", {"run": run})


def _to_api_row(row: Any) -> ApiRow:
    id, thread, run, body, at = row
    return ApiRow(id, thread, run, json.loads(body), at)
