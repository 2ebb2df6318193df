"""forks: the rows of a fork, copied from its parent's (`engine.md` 21)."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from interlock.engine.store import Store, explained, read_options, select
from interlock.engine.store.checkpoints import RootCheckpoint
from interlock.engine.store.connection import Connection
from interlock.engine.store.places import move_requests
from interlock.engine.store.tables import TABLES, Table


def is_open(home: Path, run: str) -> bool:
    """Whether the run exists and has work left."""
    return bool(select(home, "select 1 from runs where run = ? and status not in ('done', 'cancelled')", run))


def unmade(home: Path, parent: str, step: int) -> list[tuple[str, Path]]:
    """Forks at this step that were never driven, with their folders: a kill may have cut one off before its folder."""
    query = "select run, workspace from runs where parent = ? and step = ? and updated = created"
    return [(run, Path(folder)) for run, folder in select(home, query, parent, step)]


def copy_run(
    home: Path,
    parent: str,
    fork: str,
    at: RootCheckpoint,
    row: Mapping[str, Any],
    *,
    whole: bool,
    moved: bool,
) -> None:
    """Copy the parent's rows up to a step in one transaction; a second call changes nothing.

    `row`: changed columns of the run's own row. `whole`: the parent is parked there, so what waits is copied, too.
    `moved`: the fork works in another folder, which the requests that wait then name.
    """
    if select(home, "select 1 from runs where run = ?", fork):
        return
    store = Store(home)
    names = {"fork": fork, "run": parent, "step": at.step, "made": at.made, "id": at.id}
    changes = {"runs": {**row, "parent": parent, "queue": None}, "snapshots": {"inherited": 1}}
    with explained(store.path), closing(store.connect("FULL")) as conn, conn.transaction():
        for table in TABLES:
            if table.forked is not None:
                _copy(conn, table, names, changes.get(table.name, {}), whole)
        if moved:
            (old,) = conn.execute("select workspace from runs where run = ?", (parent,)).fetchone()
            move_requests(conn, fork, old, row["workspace"])


def _copy(
    conn: Connection, table: Table, names: Mapping[str, Any], changes: Mapping[str, Any], whole: bool
) -> None:
    columns = [column.name for column in conn.columns(table.name)]
    replaced = {table.owner: names["fork"], **changes}
    made: dict[str, str] = {name: f":new_{name}" for name in replaced}
    if table.name == "approvals":  # their ids contain the run's
        made["id"] = ":fork || substr(id, length(run) + 1)"
    chosen = ", ".join(made.get(name, name) for name in columns)
    which = "true" if whole else str(table.forked)
    conn.execute(
        f"insert into {table.name} ({', '.join(columns)}) select {chosen} from {table.name} "
        f"where {table.owner} = :run and ({which})",
        {**names, **{f"new_{name}": value for name, value in replaced.items()}},
    )


def change_newest(
    home: Path, run: str, options: Mapping[str, Any], change: Callable[[dict[str, Any]], None]
) -> None:
    """Change some of the run's options, and the values of its newest root checkpoint, in one transaction."""
    from interlock.engine.store.saver import Serde

    serde, newest = Serde(), "where thread_id = ? and checkpoint_ns = '' order by checkpoint_id desc limit 1"
    with closing(Store(home).connect()) as conn, conn.transaction():
        kept = {**read_options(conn, run), **options}
        conn.execute("update runs set options = ? where run = ?", (json.dumps(kept), run))
        select_newest = f"select checkpoint_id, type, checkpoint from checkpoints {newest}"
        name, *saved = conn.execute(select_newest, (run,)).fetchone()
        checkpoint = serde.loads_typed((saved[0], saved[1]))
        change(checkpoint["channel_values"])
        conn.execute(
            "update checkpoints set type = ?, checkpoint = ? "
            "where thread_id = ? and checkpoint_ns = '' and checkpoint_id = ?",
            (*serde.dumps_typed(checkpoint), run, name),
        )
