"""stats: how long `interlock stats` takes over a month of 10,000 runs, beside `interlock runs` of an empty store."""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from interlock.engine.store import Store, put
from interlock.engine.store.runs import NewRun, insert_run

RUNS, CALLS, TIMES = 10_000, 5, 7
MODELS = ("gemini-2.5-pro", "gemini-3.5-flash", "openai:gpt-5")


def fill(home: Path) -> None:
    """Runs with five model calls each, and an approval in two of three."""
    store, chance, now = Store(home), random.Random(1), time.time()
    store.open()
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
            conn.execute(
                "update runs set created = ?, updated = ?, status = ?, error = ? where run = ?", values
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
                put(conn, "model_calls", {**call, "usd": 0.0042, "duration_ms": 900, "at": at + ordinal})
            if number % 3:
                request = {
                    "kind": "approval",
                    "call": {"id": "0.0", "name": "replace", "args": {"x": "y" * 400}},
                }
                row = {"id": f"{run}-1.1", "run": run, "key": "k", "asked_at": at, "interrupt": "i"}
                row |= {"answer": '{"choice":"proceed_once"}', "answered_at": at + 30, "answered_by": "me"}
                text = json.dumps(request, separators=(",", ":"))
                put(conn, "approvals", {**row, "request": text})


def best(home: Path, *words: str) -> tuple[float, float]:
    """Least wall time and least processor time, in milliseconds."""
    code = "import sys; from interlock.cli.main import main; sys.exit(main())"
    took: list[float] = []
    worked: list[float] = []
    for _ in range(TIMES):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            (sys.executable, "-P", "-c", code, *words),
            env={**os.environ, "INTERLOCK_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        took.append((time.perf_counter() - began) * 1000)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        worked.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return min(took), min(worked)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        Store(empty).open()
        fill(full)
        for home, words in (
            (empty, ("runs",)),
            *((full, ("stats", "--by", by)) for by in ("day", "model", "workflow", "repository")),
        ):
            least, worked = best(home, *words)
            where = "empty" if home == empty else f"{RUNS} runs"
            print(f"{where:<12} {' '.join(words):<22} {least:.0f} ms, of them processor {worked:.0f}")


if __name__ == "__main__":
    main()
