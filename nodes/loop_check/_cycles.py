"""_cycles: level 1: the same calls, again and again."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.state.loop_check import LONGEST_CYCLE, REPEATS

_SHOWN = 200
"""Characters of a call's arguments that people and the model are told."""


def call_key(name: str, args: Mapping[str, Any]) -> str:
    """A hash of the name and of the arguments in the order given; short, because 25 of them are in every checkpoint."""
    given = json.dumps(args, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(f"{name}:{given}".encode()).hexdigest()[:12]


def remembered(keys: Sequence[str], key: str) -> list[str]:
    """The keys with one more; as many as the longest cycle needs."""
    return [*keys, key][-REPEATS * LONGEST_CYCLE :]


def cycle(keys: Sequence[str]) -> int:
    """Length of the cycle that the last keys are 5 repetitions of; 0: they are none."""
    for length in range(1, LONGEST_CYCLE + 1):
        last = keys[-REPEATS * length :]
        if len(last) == REPEATS * length and all(last[i] == last[i % length] for i in range(len(last))):
            return length
    return 0


def told(names: Sequence[str], length: int, args: Mapping[str, Any]) -> str:
    """The cycle in words; `names` are those of the calls so far, `args` are those of the last one."""
    names = names[-length:]
    given = json.dumps(args, ensure_ascii=False)
    given = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
    if length == 1:
        return f"the call {names[0]} {given} was made {REPEATS} times in a row"
    last = f"the last was {names[-1]} {given}"
    return f"the same {length} calls were made {REPEATS} times in a row: {', '.join(names)}; {last}"
