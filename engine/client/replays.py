"""replays: a run beside its replay, step by step, for a front end to draw."""

from itertools import zip_longest
from typing import Any

from interlock.engine.client import Client


def beside(client: Client, run: str, swap: str | None = None) -> dict[str, Any]:
    """Replay a run; each step with the nodes on both sides, and whether nodes and state are the same.

    Raises `UserError`.
    """
    from interlock.engine.travel.replay import points

    made = client.replay(run, swap=swap)
    pairs = zip_longest(points(client.home, made.run), made.points)
    return {
        "steps": [
            {
                "step": (old or new).step,
                "recorded": old.nodes if old else None,
                "replayed": new.nodes if new else None,
                "same": bool(old and new and (old.nodes, old.state) == (new.nodes, new.state)),
            }
            for old, new in pairs
        ],
        "divergence": made.divergence,
        "recorded_s": made.recorded_s,
        "replayed_s": made.replayed_s,
    }
