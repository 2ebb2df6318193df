"""figures: times, amounts and places as people read them."""

import time
from pathlib import Path


def elapsed(seconds: float) -> str:
    """`12 ms`, `1.2 s`, `45 s`, `3 min`, `2 h 05`, `3 d`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f}"
    return f"{seconds / 86_400:.0f} d"


def ago(then: float, now: float | None = None) -> str:
    """How long ago; `then` is Unix time."""
    seconds = max((time.time() if now is None else now) - then, 0)
    return "just now" if seconds < 10 else f"{elapsed(seconds)} ago"


def amount(n: int) -> str:
    """`950`, `12.3k`, `1.20M`."""
    if n < 1000:
        return str(n)
    return f"{n / 1000:.1f}k" if n < 999_950 else f"{n / 1_000_000:.2f}M"


def place(folder: str) -> str:
    """A folder, below the home directory as `~/…`."""
    home = str(Path.home())
    return "~" + folder[len(home) :] if folder == home or folder.startswith(home + "/") else folder


def diff_stat(diff: str) -> str:
    """`+3 −1` of a unified diff; empty when it is none."""
    body = [line for line in diff.splitlines() if not line.startswith(("+++ ", "--- "))]
    added = sum(line.startswith("+") for line in body)
    removed = sum(line.startswith("-") for line in body)
    if not diff.startswith("--- ") and "\n--- " not in diff:
        return ""
    return " ".join(part for part in (f"+{added}" * bool(added), f"−{removed}" * bool(removed)) if part)
