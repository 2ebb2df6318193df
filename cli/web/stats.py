"""stats: the page of what runs did and cost: a chart and a table, made here."""

import asyncio
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from interlock.cli.parsing import since
from interlock.cli.render.output import amount, dollars, elapsed
from interlock.cli.web.answers import Served
from interlock.state.text import visible

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums

_KEYS = ("day", "model", "workflow", "repository")
_WIDTH, _HEIGHT = 960, 180
_SHELL = Path(__file__).parent / "static" / "index.html"
_COLUMNS = ("runs", "turns", "tokens", "cost", "asked", "given", "refused", "waited", "failed")
_MAIN = """<main id="main" tabindex="-1"><h1 class="stats">Stats</h1>
<nav aria-label="Group by" class="row">The last 30 days by {keys}</nav>{chart}{table}</main>"""


async def stats(page: Served, request: Request) -> Response:
    by = request.query_params.get("by", "day")
    by = by if by in _KEYS else "day"
    found = await asyncio.to_thread(page.client.statistics, by, since("30d"))
    keys = " ".join(f"<b>{key}</b>" if key == by else f'<a href="/stats?by={key}">{key}</a>' for key in _KEYS)
    none = '<p class="soft">No runs in this time.</p>'
    table = "".join(_table(by, found)) if found else none
    shell = _SHELL.read_text().replace("<title>", "<title>Stats · ")
    before, _, rest = shell.partition("<main")
    main = _MAIN.format(keys=keys, chart="".join(_chart(found)), table=table)
    return HTMLResponse(f"{before}{main}{rest.partition('</main>')[2]}")


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
    step = _WIDTH / max(len(values), 12)
    yield f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{what}">'
    for place, (key, value) in enumerate(values.items()):
        height = value / most * _HEIGHT
        x, wide = place * step + step * 0.1, max(step * 0.8, 1)
        yield (
            f'<rect x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{wide:.1f}" height="{height:.1f}" '
            f'fill="currentColor"><title>{escape(visible(key))}: {shown(value)}</title></rect>'
        )
    first, last = next(iter(values)), [*values][-1]
    of = escape(visible(first if first == last else f"{first} to {last}"))
    yield f"</svg><figcaption class='soft'>{what}, {of}; at most {shown(most)}</figcaption></figure>"


def _tokens(number: float | None) -> str:
    return amount(int(number or 0))


def _table(by: str, found: Mapping[str, "Sums"]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{name}</th>' for name in (by, *_COLUMNS))
    yield '<div class="across" tabindex="0" role="region" aria-label="Table">'
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
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
        yield f"<tr>{''.join(f'<td>{escape(visible(str(cell)))}</td>' for cell in cells)}</tr>"
    yield "</tbody></table></div>"
