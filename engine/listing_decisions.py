"""listing_decisions: what people were asked in a run, and what they said; sqlite3 alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlock.engine.listing_calls import has_decisions, stored_calls
from interlock.engine.store_file import reading

_OPEN_BATCHES = """
with recursive up (message, id) as (
    select distinct d.message, d.message from decisions d where d.run = ?1 and not exists (
        select 1 from journal j where j.run = d.run and j.message = d.message and j.idx = d.idx and j.state = 'done')
    union all select up.message, c.parent from up join chain c on c.id = up.id where c.parent <> '')
select m.body as message, m.file as message_file, c.body as root from up
join chain c on c.id = up.id and c.parent = '' join chain m on m.id = up.message
"""
"""Records whose calls were decided but aren't all done, each with the root of its chain, which names the agent."""


def open_calls(home: Path, run: str) -> dict[str, dict[str, Any]]:
    """Name of a call → {id, name, args} of calls that aren't done yet, and of those that were asked about."""
    with reading(home) as conn:
        if conn is None:
            return {}
        asked = conn.execute("select request from approvals where run = ? order by rowid", (run,)).fetchall()
        batches = conn.execute(_OPEN_BATCHES, (run,)).fetchall() if has_decisions(conn) else []
    found: dict[str, dict[str, Any]] = {}
    for row in batches:
        agent = json.loads(row["root"])["root"]["agent"]
        calls = stored_calls(home, row["message"], row["message_file"])
        found |= {call_name(agent, call["id"]): call for call in calls}
    requests = [json.loads(row["request"]) for row in asked]
    return found | {call_name(r.get("agent", ""), r["call"]["id"]): r["call"] for r in requests}


def call_name(agent: str, call_id: str) -> str:
    """A call within a run: ids are an agent's own."""
    return f"{agent}/{call_id}" if agent else call_id


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
