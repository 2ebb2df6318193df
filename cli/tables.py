"""tables: lists for people, or as JSON for programs."""

import sys
from collections.abc import Sequence
from typing import Any

from interlock.cli.render.paint import Paint, cut, visible
from interlock.cli.render.stdout import write_json


def show(rows: Sequence[Sequence[str]], header: Sequence[str] = (), flexible: int = -1) -> None:
    """Aligned columns on stdout; on a terminal the `flexible` one is cut so that a row is one line."""
    paint = Paint(sys.stdout)
    table = [
        [visible(cell).replace("\n", " ") for cell in row]
        for row in ([header] if header else []) + list(rows)
    ]
    if not table:
        return
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    if paint.terminal and (over := sum(widths) + 2 * len(widths) - paint.width) > 0:
        widths[flexible] = max(widths[flexible] - over, 12)
    for number, row in enumerate(table):
        cells = [f"{cut(cell, width):<{width}}" for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        paint.print(paint(line, "dim") if header and number == 0 else line)


def show_json(value: Any) -> None:
    write_json(value, 2)
