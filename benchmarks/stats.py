"""stats: how long `interlock stats` takes over a month of 10,000 runs, beside `interlock runs`, as whole processes."""

import json
import random
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from figures import command, run

from interlock.engine.store import Store
from interlock.engine.store.runs import NewRun, insert_run

RUNS, CALLS, TIMES = 10_000, 5, 7
MODELS = ("gemini-2.5-pro", "gemini-3.5-flash", "openai:gpt-5")


def fill(home: Path) -> None:
    """Runs with five model calls each, and an approval in two of three."""
    store, chance, now = Store(home), random.Random(1), time.time()
    store.create_or_migrate()
    with closing(store.connect()) as conn, conn.transaction():
        for number in range(RUNS):
            run, at = f"r{number:05}", now - chance.random() * 30 * 86_400
            insert_run(conn, NewRun(run, "main", f"/work/p{number % 20}", "do it", {}, {}))
            status = "failed" if number % 20 == 0 else "done"
            values = (
                at,
                at + 60,
                status,
                '{"type": "api", "message": "no"}' if status == "failed" else None,
                run,
            )
            conn.execute_raw(
                "update runs set created = $1, updated = $2, status = $3, error = $4 where run = $5", values
            )
            for ordinal in range(CALLS):
                tokens = {
                    "input_tokens": 9_000,
                    "output_tokens": 300,
                    "cached_tokens": 8_000,
                    "thought_tokens": 100,
                }
                call = {
                    "run": run,
                    "agent": "",
                    "role": "main",
                    "ordinal": ordinal,
                    "task": f"t{ordinal}",
                    **tokens,
                }
                call |= {
                    "request_hash": "h",
                    "record": "r",
                    "model": chance.choice(MODELS),
                    "finish_reason": "stop",
                }
                conn.insert("model_calls", {**call, "usd": 0.0042, "duration_ms": 900, "at": at + ordinal})
            if number % 3:
                request = {
                    "kind": "approval",
                    "call": {"id": "0.0", "name": "replace", "args": {"x": "y" * 400}},
                }
                row = {"id": f"{run}-1.1", "run": run, "key": "k", "asked_at": at, "interrupt": "i"}
                row |= {"answer": '{"choice":"proceed_once"}', "answered_at": at + 30, "answered_by": "me"}
                text = json.dumps(request, separators=(",", ":"))
                conn.insert("approvals", {**row, "request": text})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        for place in (empty, full):
            (place / "work").mkdir(parents=True)
        Store(empty / "state").create_or_migrate()
        fill(full / "state")
        rows = [(empty, ("runs",)), (full, ("runs",))]
        rows += [(full, ("stats", "--by", by)) for by in ("day", "model", "workflow", "repository")]
        # In turns, so that what else the machine does meets all of them.
        found = [[run(command(*words), place, []) for place, words in rows] for _ in range(TIMES)]
        least = [
            (min(one[n].wall for one in found), min(one[n].cpu for one in found)) for n in range(len(rows))
        ]
        for (home, words), (took, worked) in zip(rows, least, strict=True):
            where, first = "empty" if home == empty else f"{RUNS} runs", least[0]
            ratio = f"{took / first[0]:.1f} and {worked / first[1]:.1f} times the first"
            print(f"{where:<12} {' '.join(words):<22} {took:.0f} ms, processor {worked:.0f} ms: {ratio}")


if __name__ == "__main__":
    main()
