"""blobs: what is too long for a row, and snapshots: files beside SQLite, rows beside PostgreSQL, without files.

What a run in a clone leaves is in rows of both: its patch, and the commits of its own.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from interlock.engine.store import (
    Store,
    encode_json_keys_parameter,
    explain_store_errors,
    json_keys_subquery_sql,
    open_reader,
)
from interlock.engine.store.connection import Connection
from interlock.engine.store.tables import Condition
from interlock.services.files.blobs import Blobs
from interlock.services.files.disk import make_private_directory, require_path_below
from interlock.services.files.filesystem import replace_private_file_holding_lock, store_content
from interlock.state.clock import unix_time

if TYPE_CHECKING:
    from interlock.services.snapshots.snapshots import ShadowRepository

_PIECE = 1 << 20
"""Longer ones are stored in pieces of this size."""


@dataclass(frozen=True)
class RowBlobs(Blobs):
    """`Blobs` as rows; each is committed with the row that names it."""

    conn: Connection

    def store_named_body(self, name: str, body: bytes) -> None:
        store_blob(self.conn, f"outputs/{name}", body)

    def load_named_body(self, name: str) -> bytes | None:
        return load_blob(self.conn, f"outputs/{name}")


def open_blob_storage(conn: Connection, outputs: Path) -> Blobs:
    """Where a store's long bodies are. `outputs`: its folder for them."""
    return RowBlobs(outputs, conn) if conn.blobs else Blobs(outputs)


def store_blob(conn: Connection, name: str, body: bytes | BinaryIO, owner: str = "", base: str = "") -> None:
    """With the connection's next commit. A plan, or a clone's commits, replace those before; others with the name have
    the same bytes.
    """
    if name.startswith(("plans/", "commits/")):
        conn.delete("blobs", {"name": name, "part": Condition(">", 0)})
    file = BytesIO(body) if isinstance(body, bytes) else body
    part, piece = 0, file.read(_PIECE)
    while piece or not part:
        row = {"name": name, "part": part, "body": piece, "owner": owner, "base": base, "at": unix_time()}
        conn.insert("blobs", row, "replace")
        part, piece = part + 1, file.read(_PIECE)


def load_blob(conn: Connection, name: str) -> bytes | None:
    rows = conn.execute(
        "select body from blobs where name = $1 order by part", (name,), tables=("blobs",)
    ).fetchall()
    return b"".join(bytes(body) for (body,) in rows) if rows else None


def load_run_patch(home: Path, run: str) -> bytes | None:
    """The patch that a run on a git repository left; None: it left none."""
    with open_reader(home) as conn:
        return load_blob(conn, f"patches/{run}") if conn is not None else None


def delete_outputs_stored_before(conn: Connection, names: Iterable[str], cutoff: float) -> None:
    """Remove these unless they were stored after `cutoff` (Unix time): then a row is about to name them."""
    for name in names:
        conn.delete("blobs", {"name": f"outputs/{name}", "at": Condition("<=", cutoff)})


def delete_blobs_of_owner(conn: Connection, kind: str, owner: str) -> None:
    conn.delete("blobs", {"owner": owner, "name": Condition("like", f"{kind}/%")})


def store_output_file(store: Store, path: Path) -> None:
    """Store a file that a tool wrote to `outputs/`, durable on return."""
    with (
        explain_store_errors(store.path),
        path.open("rb") as file,
        closing(store.connect_for_driver()) as conn,
        conn.transaction(synced=True),
    ):
        store_blob(conn, f"outputs/{path.name}", file)


def fetch_output_file_if_stored(store: Store, name: str) -> None:
    """Write the file of `outputs/` with this name that another host stored, if there is one."""
    require_path_below(store.outputs, name)
    with explain_store_errors(store.path), closing(store.connect()) as conn:
        body = load_blob(conn, f"outputs/{name}")
    if body is not None:
        store_content(store.outputs, name, body)


def store_changed_plans(conn: Connection, run: str, plans: Path, stored_mtimes: dict[Path, int]) -> None:
    """Store the plans that changed, with the connection's next commit. `stored_mtimes`: when those that are stored
    changed."""
    for path in plans.rglob("*.md"):
        with suppress(FileNotFoundError):
            if stored_mtimes.get(path) != (changed := path.stat().st_mtime_ns):
                name, body = str(path.relative_to(plans)), path.read_bytes()
                store_blob(conn, f"plans/{run}/{name}", body, owner=run)
                _record_synced_plan_hash(plans, name, body)
                stored_mtimes[path] = changed


def read_plans(conn: Connection, home: Path, run: str) -> Iterator[tuple[str, bytes]]:
    """The name below `plans/RUN`, and the bytes, of each plan."""
    if not conn.blobs:
        folder = require_path_below(home / "plans", run)
        yield from ((str(p.relative_to(folder)), p.read_bytes()) for p in folder.rglob("*") if p.is_file())
        return
    prefix = f"plans/{run}/"
    for (name,) in conn.execute(
        "select name from blobs where owner = $1 and part = 0 and name like $2",
        (run, f"{prefix}%"),
        tables=("blobs",),
    ).fetchall():
        yield name.removeprefix(prefix), load_blob(conn, name) or b""


def fetch_plans_keeping_local_edits(conn: Connection, home: Path, run: str) -> None:
    """Write the run's plans to its folder of them, as the store has them, except what somebody edited here since."""
    plans = require_path_below(home / "plans", run)
    for name, body in read_plans(conn, home, run):
        file, digest = require_path_below(plans, name), sha256(body).hexdigest()
        if (
            file.exists()
            and _read_synced_plan_hashes(plans).get(name) == digest != sha256(file.read_bytes()).hexdigest()
        ):
            continue
        store_plan(None, home, run, name, body)
        _record_synced_plan_hash(plans, name, body)


_IN_COMMON = ".in-store"
"""In the folder of a run's plans: the hash of each when this host and the store last had the same."""


def _read_synced_plan_hashes(plans: Path) -> dict[str, str]:
    try:
        return json.loads((plans / _IN_COMMON).read_bytes())
    except FileNotFoundError:
        return {}


def _record_synced_plan_hash(plans: Path, name: str, body: bytes) -> None:
    if (known := _read_synced_plan_hashes(plans)).get(name) != (digest := sha256(body).hexdigest()):
        replace_private_file_holding_lock(plans / _IN_COMMON, json.dumps({**known, name: digest}).encode())


def store_plan(conn: Connection | None, home: Path, run: str, name: str, body: bytes) -> None:
    """Store a plan; with a connection, in its store."""
    if conn is not None and conn.blobs:
        store_blob(conn, f"plans/{run}/{name}", body, owner=run)
        return
    file = require_path_below(home / "plans" / run, name)
    make_private_directory(file.parent)
    replace_private_file_holding_lock(file, body)


def copy_plans_to_fork(home: Path, run: str, fork: str) -> None:
    """Give a fork the plans of its parent."""
    with Store(home).write_transaction() as conn:
        for name, body in [*read_plans(conn, home, run)]:
            store_plan(conn, home, fork, name, body)


_AT_ONCE = 500
"""Most names in a query."""
_WITH_BASES = """
with recursive needed (name, base) as (
    select name, base from blobs where name = $1 and part = 0
    union select b.name, b.base from blobs b join needed n on b.name = 'snapshots/' || n.base and b.part = 0
) select name from needed
"""


def store_snapshot_if_missing(conn: Connection, repository: "ShadowRepository", commit: str) -> None:
    """Store a snapshot with the connection's next commit: what is new since its newest ancestor in the store."""
    if conn.blobs and not find_first_stored_commit(conn, [commit]):
        base = find_first_stored_commit(conn, repository.ancestors(commit))
        store_snapshot_pack(conn, repository, commit, base, repository.pack_snapshot(commit, base))


def find_first_stored_commit(conn: Connection, commits: Sequence[str]) -> str:
    """The first of these commits that is in the store; empty: none is."""
    for start in range(0, len(commits), _AT_ONCE):
        names = [f"snapshots/{commit}" for commit in commits[start : start + _AT_ONCE]]
        sql = f"select name from blobs where part = 0 and name in {json_keys_subquery_sql()}"
        known = {
            name
            for (name,) in conn.execute(
                sql, (encode_json_keys_parameter(names),), tables=("blobs",)
            ).fetchall()
        }
        if found := next((name for name in names if name in known), ""):
            return found.removeprefix("snapshots/")
    return ""


def store_snapshot_pack(
    conn: Connection, repository: "ShadowRepository", commit: str, base: str, pack: bytes
) -> None:
    """`pack`: of what is new since the commit `base`."""
    store_blob(conn, f"snapshots/{commit}", pack, repository.name, base)


def fetch_snapshot_if_missing(conn: Connection, repository: "ShadowRepository", commit: str) -> None:
    """Make sure that the repository has a snapshot that perhaps another host took."""
    if not conn.blobs or not repository.find_missing_snapshots([commit]):
        return
    names = [
        name for (name,) in conn.execute(_WITH_BASES, (f"snapshots/{commit}",), tables=("blobs",)).fetchall()
    ]
    wanted = repository.find_missing_snapshots([name.removeprefix("snapshots/") for name in names])
    repository.add_packs([load_blob(conn, f"snapshots/{name}") or b"" for name in wanted])


def open_repository_with_snapshots(home: Path, folder: Path, commits: Iterable[str]) -> "ShadowRepository":
    """A repository of `snapshots/`, with these snapshots."""
    from interlock.services.snapshots.snapshots import ShadowRepository

    repository = ShadowRepository(folder)
    with open_reader(home) as conn:
        if conn is not None:
            for commit in commits:
                fetch_snapshot_if_missing(conn, repository, commit)
    return repository


_KEPT = re.compile(rb"\b(?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt\b")
"""Names given by `services/files/filesystem.py`, in texts for the model."""
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
"""Checked because a damaged row may name anything."""


def record_files_named_by_row(conn: Connection, run: str, body: bytes, file: str | None) -> None:
    """List the files that a row names: in its text, and the one that holds the text. With the row's own commit."""
    for name in _extract_output_file_names(body, file):
        conn.insert("named_files", {"name": name, "run": run}, "keep")


def _extract_output_file_names(body: bytes, file: str | None) -> set[str]:
    found = {name.decode() for name in _KEPT.findall(body)} if b".txt" in body else set[str]()
    return found | {file} if file is not None and _RECORD.fullmatch(file) else found


def list_files_named_by_run(conn: Connection, outputs: Path, run: str) -> set[str]:
    """Names in `outputs/` held by the records of a run."""
    if not _is_file_list_complete(conn):  # a store of an earlier version
        return _find_files_named_in_rows(conn, outputs, run)
    return {
        name for (name,) in conn.execute("select name from named_files where run = $1", (run,)).fetchall()
    }


def filter_files_named_by_any_run(conn: Connection, outputs: Path, names: Collection[str]) -> set[str]:
    """Which of these the rows of any run name. Inside a transaction: it completes the list of an earlier version."""
    if names and not _is_file_list_complete(conn):
        _record_files_of_all_runs(conn, outputs)
    query = f"select distinct name from named_files where name in {json_keys_subquery_sql()}"
    return {name for (name,) in conn.execute(query, (encode_json_keys_parameter(names),)).fetchall()}


def record_files_named_by_run(conn: Connection, outputs: Path, run: str) -> None:
    """List what a run's rows name that are left."""
    for name in _find_files_named_in_rows(conn, outputs, run):
        conn.insert("named_files", {"name": name, "run": run}, "keep")


def _is_file_list_complete(conn: Connection) -> bool:
    """Whether all runs are listed: not if some are of a version that had no list."""
    return conn.execute("select 1 from named_files where name = '' and run = ''").fetchone() is not None


def _record_files_of_all_runs(conn: Connection, outputs: Path) -> None:
    runs = conn.execute("select run from runs union select run from chain").fetchall()
    for (run,) in runs:
        record_files_named_by_run(conn, outputs, run)
    conn.insert("named_files", {"name": "", "run": ""}, "keep")


def _find_files_named_in_rows(conn: Connection, outputs: Path, run: str) -> set[str]:
    rows = [
        *conn.execute("select body, file from chain where run = $1", (run,)),
        *conn.execute("select result, result_file from journal where run = $1", (run,)),
        *conn.execute("select '', reply_file from hook_calls where run = $1", (run,)),
    ]
    found, blobs = set[str](), open_blob_storage(conn, outputs)
    for text, file in rows:
        named = file if isinstance(file, str) and _RECORD.fullmatch(file) else None
        body = blobs.read_body(text, named) or text or b""
        found |= _extract_output_file_names(
            body if isinstance(body, bytes) else str(body).encode(errors="replace"), named
        )
    return found
