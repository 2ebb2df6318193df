"""stats: the page of what runs did and cost: a chart and a table, made here, without a script."""

import asyncio
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from interlock.cli.parsing import since
from interlock.cli.render.output import amount, dollars, elapsed
from interlock.engine.client import Client

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums

_KEYS = ("day", "model", "workflow", "repository")
_WIDTH, _HEIGHT, _GAP = 960, 180, 20
_COLUMNS = ("runs", "turns", "tokens", "cost", "asked", "given", "refused", "waited", "failed")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stats · Interlock</title><link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/page.css">
</head><body><header><nav aria-label="Pages"><a href="/">Inbox</a> <a href="/all">Runs</a>
<a href="/start">Start</a> <a href="/flows">Workflows</a> <a href="/stats" aria-current="page">Stats</a></nav></header>
<main id="main"><h1>Stats</h1><p class="row">The last 30 days by {keys}</p>{chart}{table}</main></body></html>
"""


class _Served(Protocol):
    @property
    def client(self) -> Client: ...


async def stats(page: _Served, request: Request) -> Response:
    by = request.query_params.get("by", "day")
    by = by if by in _KEYS else "day"
    found = await asyncio.to_thread(page.client.statistics, by, since("30d"))
    keys = " ".join(f"<b>{key}</b>" if key == by else f'<a href="/stats?by={key}">{key}</a>' for key in _KEYS)
    none = '<p class="soft">No runs in this time.</p>'
    made = _PAGE.format(
        keys=keys, chart="".join(_chart(found)), table="".join(_table(by, found)) if found else none
    )
    return HTMLResponse(made)


def _chart(found: Mapping[str, "Sums"]) -> Iterator[str]:
    """A bar for each key: its cost, or its tokens where no cost is known."""
    costs = {key: sums.usd for key, sums in found.items()}
    what, shown, values = "Cost", dollars, costs
    if not any(costs.values()):
        what, shown = "Tokens", _tokens
        values = {key: float(sums.input_tokens + sums.output_tokens) for key, sums in found.items()}
    most = max(values.values(), default=0.0)
    if not most:
        return
    step = _WIDTH / len(values)
    yield f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT + _GAP}" role="img" aria-label="{what}">'
    for place, (key, value) in enumerate(values.items()):
        height = value / most * (_HEIGHT - _GAP)
        x, wide = place * step + step * 0.1, max(step * 0.8, 1)
        yield (
            f'<rect x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{wide:.1f}" height="{height:.1f}" '
            f'fill="currentColor"><title>{escape(key)}: {shown(value)}</title></rect>'
        )
    first, last = next(iter(values)), [*values][-1]
    for x, anchor, text in ((0, "start", first), (_WIDTH, "end", last if last != first else "")):
        yield f'<text x="{x}" y="{_HEIGHT + 15}" font-size="13" text-anchor="{anchor}" fill="currentColor">'
        yield f"{escape(text)}</text>"
    yield f"</svg><figcaption>{what}; at most {shown(most)}</figcaption></figure>"


def _tokens(number: float | None) -> str:
    return amount(int(number or 0))


def _table(by: str, found: Mapping[str, "Sums"]) -> Iterator[str]:
    yield f"<table><thead><tr>{''.join(f'<th>{name}</th>' for name in (by, *_COLUMNS))}</tr></thead><tbody>"
    for key, sums in found.items():
        failed = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.failures.items()))
        cells: tuple[Any, ...] = (
            *(key, sums.runs, sums.turns, amount(sums.input_tokens + sums.output_tokens)),
            dollars(sums.usd if sums.usd or not sums.unpriced else None),
            *(
                sums.asked,
                sums.given,
                sums.refused,
                elapsed(sums.waited_s) if sums.asked else "",
                failed or 0,
            ),
        )
        yield f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
    yield "</tbody></table>"
