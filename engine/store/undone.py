"""undone: what a person took back of a run's changes: kept with the run, and told to the model in its next turn."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from interlock.engine.store import Store, select
from interlock.engine.store.places import add_note


class Undone(NamedTuple):
    at: float
    """Unix time."""
    text: str
    told: bool
    """Whether the conversation has it."""


def note_undone(home: Path, run: str, text: str) -> None:
    """Keep what a person took back."""
    store = Store(home)
    store.open()
    with closing(store.connect("FULL")) as conn, conn.transaction():
        add_note(conn, run, text)


def undone(home: Path, run: str) -> list[Undone]:
    """What was taken back, in order."""
    rows = select(home, "select at, text, record is not null from undone where run = ? order by seq", run)
    return [Undone(at, text, bool(told)) for at, text, told in rows]


def carry_over(home: Path, run: str, fork: str) -> None:
    """Let a fork in the same folder tell its model, too, what the run's own hasn't heard yet."""
    if all(one.told for one in undone(home, fork)):
        for text in [one.text for one in undone(home, run) if not one.told]:
            note_undone(home, fork, text)
