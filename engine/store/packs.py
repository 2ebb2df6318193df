"""packs: snapshots of files as rows, beside PostgreSQL: what is new in each, as a pack of git's."""

from collections.abc import Iterable
from pathlib import Path

from interlock.engine.store import reading
from interlock.engine.store.blobs import blob, put_blob
from interlock.engine.store.connection import Connection
from interlock.services.snapshots.snapshots import Repository

_AT_ONCE = 500
"""Most names in a query."""
_WITH_BASES = """
with recursive needed (name, base) as (
    select name, base from blobs where name = ? and part = 0
    union select b.name, b.base from blobs b join needed n on b.name = 'snapshots/' || n.base and b.part = 0
) select name from needed
"""


def keep_commit(conn: Connection, repository: Repository, commit: str) -> None:
    """Store a snapshot with the connection's next commit: what is new since its newest ancestor in the store."""
    if not conn.blobs or _stored(conn, [commit]):
        return
    earlier = repository.ancestors(commit)
    parts = (earlier[start : start + _AT_ONCE] for start in range(0, len(earlier), _AT_ONCE))
    base = next((found for part in parts if (found := _stored(conn, part))), "")
    put_blob(conn, f"snapshots/{commit}", repository.pack_of(commit, base), repository.name, base)


def _stored(conn: Connection, commits: list[str]) -> str:
    """The first of these commits that is in the store."""
    names = [f"snapshots/{commit}" for commit in commits]
    places = ", ".join("?" * len(names))
    found = conn.execute(f"select name from blobs where part = 0 and name in ({places})", names).fetchall()
    known = {name for (name,) in found}
    return next((c for c, name in zip(commits, names, strict=True) if name in known), "")


def bring_commit(conn: Connection, repository: Repository, commit: str) -> None:
    """Make sure that the repository has a snapshot that perhaps another host took."""
    if not conn.blobs or not repository.lacking([commit]):
        return
    names = [name for (name,) in conn.execute(_WITH_BASES, (f"snapshots/{commit}",)).fetchall()]
    wanted = repository.lacking([name.removeprefix("snapshots/") for name in names])
    repository.add_packs([blob(conn, f"snapshots/{name}") or b"" for name in wanted])


def brought(home: Path, folder: Path, commits: Iterable[str]) -> Repository:
    """A repository of `snapshots/`, with these snapshots."""
    repository = Repository(folder)
    with reading(home) as conn:
        if conn is not None:
            for commit in commits:
                bring_commit(conn, repository, commit)
    return repository
