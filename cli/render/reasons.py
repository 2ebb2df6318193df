"""reasons: why this model answered, and what else a run decided by itself."""

from collections.abc import Iterator
from pathlib import Path

from interlock.cli.render.paint import one_line
from interlock.engine.listing_reasons import reasons

_LABELS = {"use_model": "model", "note_loop": "loop"}
"""Nodes whose reasons people want to know without asking; the others are in --json."""


def reason_lines(home: Path, run: str) -> Iterator[str]:
    """One line for each, the label only where it changes."""
    shown = ""
    for found in reasons(home, run):
        label = _LABELS.get(found.node, "")
        if label:
            yield f"{label if label != shown else '':<8}{one_line(found.reason, 400)} (step {found.step})"
            shown = label
