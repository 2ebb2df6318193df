"""stats: what runs did and cost, as the page draws it: bars and a table, with their figures as text."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from interlock.cli.parsing import since
from interlock.cli.render.output import amount, dollars, elapsed
from interlock.web.served import Served

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums

_KEYS = ("day", "model", "workflow", "repository")
_COLUMNS = ("runs", "turns", "tokens", "cached", "cost", "asked", "given", "refused", "waited", "failed")


async def stats(page: Served, request: Request) -> dict[str, Any]:
    by = request.query_params.get("by", "day")
    by = by if by in _KEYS else "day"
    found = await asyncio.to_thread(page.client.statistics, by, since("30d"))
    rows = [[key, *_cells(sums)] for key, sums in found.items()]
    return {"by": by, "keys": _KEYS, "columns": [by, *_COLUMNS], "rows": rows, "chart": _chart(found)}


def _chart(found: Mapping[str, "Sums"]) -> dict[str, Any]:
    """A bar for each key: its cost, or its tokens where no cost is known."""
    what, values = "Cost", {key: sums.usd for key, sums in found.items()}
    if not any(values.values()):
        what = "Tokens"
        values = {key: float(sums.input_tokens + sums.output_tokens) for key, sums in found.items()}
    most = max(values.values(), default=0.0)
    bars = [
        {"key": key, "part": value / most, "shown": _figure(what, value)}
        for key, value in values.items()
        if most
    ]
    return {"what": what, "most": _figure(what, most), "bars": bars}


def _figure(what: str, value: float) -> str:
    return dollars(value) if what == "Cost" else amount(int(value))


def _cells(sums: "Sums") -> list[str]:
    failed = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.failures.items()))
    cells: tuple[Any, ...] = (
        *(sums.runs, sums.turns, amount(sums.input_tokens + sums.output_tokens)),
        "" if sums.cached_share is None else f"{sums.cached_share:.0%}",
        dollars(sums.usd if sums.usd or not sums.unpriced else None),
        *(sums.asked, sums.given, sums.refused, elapsed(sums.waited_s) if sums.asked else "", failed or 0),
    )
    return [str(cell) for cell in cells]
