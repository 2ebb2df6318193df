"""active_runs: the runs that wait for a person, run or are queued, and what each does now."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.client.git_branch import read_git_branch_or_commit
from interlock.engine.client.requests import request_headline, summarize_arguments
from interlock.engine.read import (
    Request,
    RunRow,
    find_last_node_or_graph_path,
    list_runs,
    list_waiting_requests,
)
from interlock.engine.read.calls import list_calls_under_way
from interlock.engine.store import queries

ACTIVE = ("waiting", "running", "queued")
"""Statuses of runs that aren't over and weren't cut off, in the order in which they are listed."""


class ActiveRun(NamedTuple):
    row: RunRow
    branch: str
    """Of its folder's git repository now; empty: it is in none."""
    activity: str
    """What it does now, or what it waits for, in one line."""
    since: float
    """Unix time, seconds, at which that began."""

    @property
    def json_fields(self) -> dict[str, Any]:
        return {**self.row._asdict(), "branch": self.branch, "activity": self.activity, "since": self.since}


def list_active_runs(home: Path, limit: int) -> list[ActiveRun]:
    """Runs that wait for a person, the longest wait first, then those that run, then the queued ones.

    `limit`: of each status, so many of the newest. Raises `StoreError`.
    """
    rows = {row.run: row for status in ACTIVE for row in list_runs(home, status, limit)}
    doing = _read_work_under_way(home, [row.run for row in rows.values() if row.status == "running"])
    asked: dict[str, list[Request]] = {}
    for request in list_waiting_requests(home):
        asked.setdefault(request.run, []).append(request)
    branch = cache(read_git_branch_or_commit)
    found = [
        ActiveRun(
            row, branch(Path(row.workspace)), *_describe_activity(home, row, doing, asked.get(row.run, []))
        )
        for row in rows.values()
    ]
    return sorted(found, key=lambda one: (ACTIVE.index(one.row.status), one.since))


def _describe_activity(
    home: Path, row: RunRow, doing: Mapping[str, tuple[str, float]], asked: list[Request]
) -> tuple[str, float]:
    if row.status == "running":
        return doing.get(row.run) or (find_last_node_or_graph_path(home, row.run) or "starting", row.updated)
    if row.status == "queued":
        return ("waits for its limit" if row.error else "waits for a worker"), row.updated
    if not asked:
        return "waits for its subtask", row.updated
    return f"{request_headline(asked[0].fields)}{_more_suffix(len(asked))}", asked[0].asked_at


def _read_work_under_way(home: Path, runs: list[str]) -> dict[str, tuple[str, float]]:
    """Run → what it does, and since when: its oldest tool call, else the model that it asks."""
    found = {
        row["run"]: (f"asks {row['model']}", row["at"])
        for row in queries.list_model_requests_under_way(home, runs)
    }
    calls = list_calls_under_way(home, runs)
    for run, number in Counter(call.run for call in calls).items():
        first = next(call for call in calls if call.run == run)
        about = f" {summarize_arguments(first.args)}" if first.args else ""
        found[run] = (f"{first.tool}{about}{_more_suffix(number)}", first.started)
    return found


def _more_suffix(number: int) -> str:
    return f" (and {number - 1} more)" if number > 1 else ""
