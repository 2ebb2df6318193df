"""listing_reasons: why a run's nodes decided as they did, read with sqlite3 alone."""

from pathlib import Path
from typing import NamedTuple

from interlock.engine.store_file import reading


class Reason(NamedTuple):
    """What a node said of its decision."""

    step: int
    """The root step that it led to."""
    workflow: str
    node: str
    reason: str


def reasons(home: Path, run: str) -> list[Reason]:
    """In the order in which the nodes ended."""
    with reading(home) as conn:
        if conn is None:
            return []
        rows = conn.execute(
            "select root_step + 1, workflow, node, reason from steps where run = ? and reason is not null "
            "order by seq",
            (run,),
        ).fetchall()
    return [Reason(*row) for row in rows]
