"""traces: sessions that loop and sessions that only look like it, known by construction, made from a seed.

A trace is a list of rounds, a round a list of `loop-check` events; a looping one says in which round its loop begins.
"""

import random
from dataclasses import dataclass

from legitimate import LEGITIMATE
from looping import LOOPING
from maker import Maker, Round


@dataclass(frozen=True)
class Trace:
    kind: str
    rounds: list[Round]
    begins: int | None
    """Round in which the loop begins; None: no loop."""


def traces(seed: int, legitimate: int, looping: int) -> list[Trace]:
    """At least that many of each, spread evenly over the kinds."""
    found: list[Trace] = []
    for kinds, least in ((LEGITIMATE, legitimate), (LOOPING, looping)):
        for number in range(-(-least // len(kinds)) * len(kinds)):
            kind = list(kinds)[number % len(kinds)]
            made = kinds[kind](Maker(random.Random(f"{seed} {kind} {number}")))
            rounds, begins = made if isinstance(made, tuple) else (made, None)
            found.append(Trace(kind, rounds, begins))
    return found
