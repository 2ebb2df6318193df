"""beyond: what a rule with a command prefix lets through, in words for `policy check` and `doctor`."""

from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import BaseModel

from interlock.services.policy.harmless import document

_UNKNOWN = "interpreters, -c, config files, output files or network: none of its arguments is known"


class _Row(BaseModel):
    run: tuple[str, ...]
    lets: dict[str, str]
    """What → by which arguments; empty: whatever it takes."""


class _Table(BaseModel):
    beyond: list[_Row]


@cache
def _rows() -> Mapping[tuple[str, ...], _Row]:
    rows = _Table.model_validate(document()).beyond
    return {tuple(name.split()): row for row in rows for name in row.run}


def lets_through(prefix: Sequence[str]) -> str:
    """Say what may follow the prefix; empty: nothing that matters."""
    sizes = range(len(prefix), 0, -1)
    row = next((row for size in sizes if (row := _rows().get(tuple(prefix[:size])))), None)
    if row is None:
        return _UNKNOWN
    return ", ".join(f"{what} ({how})" if how else what for what, how in row.lets.items())
