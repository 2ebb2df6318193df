"""health: what is wrong with the store: its pages, its rows, and the records of every run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from interlock.engine.client import Client
from interlock.engine.store import ADDRESS, STATE_DIRECTORY_PARTS, open_reader
from interlock.engine.store.integrity import blame_damaged_rows, damage, damaged_pages, find_unreadable_rows
from interlock.state.events import Progress

__all__ = ["OURS", "Finding", "damaged_pages", "examine_store"]

OURS = (*STATE_DIRECTORY_PARTS, ADDRESS)
"""What Interlock keeps in the state directory."""


class Finding(NamedTuple):
    level: str
    """ok | note | problem"""
    what: str
    text: str


def examine_store(home: Path, told: Callable[[Progress], None] = lambda _progress: None) -> Iterator[Finding]:
    """Read every record of the store; rows that disagree with the checkpoints are made again.

    `told` hears of each row and run that is read.
    """

    def make_progress_callback(what: str, unit: str) -> Callable[[int, int], None]:
        return lambda done, total: told(Progress(what=what, done=done, total=total, unit=unit))

    with open_reader(home) as conn:
        if conn is None:
            return
        damaged = damaged_pages(home)
        yield from (Finding("problem", "pages", line) for line in damaged)
        if not damaged:
            yield Finding("ok", "pages", "ok")
        rows = list(find_unreadable_rows(conn, home / "outputs", make_progress_callback("reading", "rows")))
    yield from (Finding("problem", "rows", f"{line} can't be read") for line in rows)
    if not rows:
        from interlock.engine.rebuild import rebuild_rows

        yield from (
            Finding("note", "mended", line)
            for line in rebuild_rows(home, make_progress_callback("comparing", "runs"))
        )
    verifying = make_progress_callback("verifying", "runs")
    with blame_damaged_rows(home / "interlock.db"):
        runs, records = Client.for_this_user().runs(), list[tuple[str, str]]()
        for number, run in enumerate(runs, 1):
            verifying(number, len(runs))
            records += [(run.run, line) for line in damage(home, run.run)]
    yield from (Finding("problem", "records", f"run {run}: {line}") for run, line in records)
