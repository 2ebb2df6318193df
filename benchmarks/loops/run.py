"""run: loop detection on sessions that loop and on sessions that only look like it: recall, false stops, waste.

Levels 1 and 2 are our own. Level 3 asks models, replaced here by judges that are right about nine times in ten (they
know the trace, and err by the seed), so its share shows the rule (turn 30, intervals, double check), not a model's
judgement. Nothing is tuned to a seed: the second run uses the date.
"""

import random
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parent))
from traces import Trace, traces

from interlock.nodes.loop_check import LoopReplay
from interlock.state.loop_check import LoopEvent

SEED = 4
LEGITIMATE, LOOPING = 1_008, 440
AIM_RECALL, AIM_FALSE = 0.95, 0.01
_EVENTS = TypeAdapter(list[LoopEvent])
_WRONG = 0.1
"""How often a judge is wrong about a trace."""


def detected(trace: Trace, judge: random.Random | None) -> tuple[int, str] | None:
    """Round and kind of the first detection. Every round is a turn of one prompt."""
    state = LoopReplay()
    for number, events in enumerate(trace.rounds):
        (turn,) = _EVENTS.validate_python([{"type": "turn"}])
        state.process_event(turn)
        if judge is not None and state.is_check_due:
            looping = trace.begins is not None and number >= trace.begins + 5
            state.apply_judgement(
                {"confidence": _confidence(judge, looping), "double": _confidence(judge, looping)}
            )
        for event in _EVENTS.validate_python(events):
            if state.at_event is None:
                state.process_event(event)
        if state.at_event is not None:
            return number, str(state.kind)
    return None


def _confidence(judge: random.Random, looping: bool) -> float:
    right = judge.random() >= _WRONG
    return judge.uniform(0.9, 1.0) if looping is right else judge.uniform(0.0, 0.6)


def measure(seed: int, with_judge: bool) -> tuple[float, float]:
    """Print a table; returns (recall, false stops)."""
    hits: dict[str, list[bool]] = defaultdict(list)
    wasted: dict[str, list[int]] = defaultdict(list)
    began = time.process_time()
    all_traces = traces(seed, LEGITIMATE, LOOPING)
    for number, trace in enumerate(all_traces):
        judge = random.Random(f"{seed} judge {number}") if with_judge else None
        found = detected(trace, judge)
        # Stopping before the loop begins is a false stop like any other, and no hit.
        right = found is not None and (trace.begins is None or found[0] >= trace.begins)
        hits[trace.kind].append(right)
        if right and found is not None and trace.begins is not None:
            wasted[trace.kind].append(found[0] - trace.begins + 1)
    looping = {t.kind for t in all_traces if t.begins is not None}
    print(f"seed {seed}, {'all three levels' if with_judge else 'levels 1 and 2 alone'}")
    for kind in dict.fromkeys(t.kind for t in all_traces):
        share = sum(hits[kind]) / len(hits[kind])
        if kind in looping:
            rounds = sum(wasted[kind]) / len(wasted[kind]) if wasted[kind] else 0
            print(f"  {kind:36} found {share:6.1%} of {len(hits[kind]):3}   rounds wasted {rounds:5.1f}")
        elif share:
            print(f"  {kind:36} stopped {share:5.1%} of {len(hits[kind]):3}")
    recall = _share(hits, looping)
    false = _share(hits, set(hits) - looping)
    numbers = [n for kind in looping for n in wasted[kind]]
    print(
        f"  recall {recall:.1%} of {LOOPING}, false stops {false:.2%} of {LEGITIMATE}, rounds wasted "
        f"{sum(numbers) / max(1, len(numbers)):.1f} on average; {time.process_time() - began:.1f} s of CPU"
    )
    return recall, false


def _share(hits: dict[str, list[bool]], kinds: set[str]) -> float:
    values = [hit for kind in kinds for hit in hits[kind]]
    return sum(values) / len(values)


def main() -> int:
    """Returns 1 if a goal is missed."""
    missed = False
    for seed in (SEED, int(datetime.now(UTC).strftime("%Y%m%d"))):
        measure(seed, with_judge=False)
        recall, false = measure(seed, with_judge=True)
        missed |= recall < AIM_RECALL or false > AIM_FALSE
    print(f"aims: recall ≥ {AIM_RECALL:.0%}, false stops ≤ {AIM_FALSE:.0%}: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
