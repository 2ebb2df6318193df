"""listing_decisions: what people were asked in a run, and what they said; sqlite3 alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlock.engine.store_file import reading


def answered(home: Path, run: str) -> Iterator[dict[str, Any]]:
    """Requests that were answered: id, tool, what was chosen, by whom, when."""
    with reading(home) as conn:
        rows = (
            []
            if conn is None
            else conn.execute(
                "select id, request, answer, answered_at, answered_by from approvals where run = ? "
                "and answer is not null order by rowid",
                (run,),
            ).fetchall()
        )
    for row in rows:
        request, answer = json.loads(row["request"]), json.loads(row["answer"])
        yield {
            "id": row["id"],
            "tool_name": request["call"]["name"],
            "choice": answer["choice"],
            "feedback": answer.get("feedback"),
            "text": answer.get("text"),
            "by": row["answered_by"] or "",
            "at": row["answered_at"],
        }
