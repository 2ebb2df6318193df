"""turns: what a turn costs besides the model: time at turns 10, 100, 300 and 1,000, bytes of store, memory.

Drives the same 300 turns (one `read_file` of 2 KB each) twice: with a scripted model, which leaves our own overhead,
and through the Gemini client against a loopback server; the difference is the client's share.
"""

import asyncio
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_gemini.fake import FakeGemini

TURNS = 300
WINDOWS = {"10": range(6, 15), "100": range(95, 106), "300": range(289, 299)}
TABLES = ("checkpoints", "writes", "journal", "step_rows", "model_calls", "approvals")


LONG, EARLY, LATE = 1000, range(6, 15), range(989, 999)
"""The long run has a scripted model and short files, so that nothing is compressed."""


def drive(
    folder: Path, model: str, env: dict[str, str], turns: int = TURNS, *, asks: bool = False, **more: Any
) -> dict[str, Any]:
    """Run the turns in this process; returns the time of each. `asks`: the model whether it is done, too."""
    from interlock.engine import Options, run_sync
    from interlock.engine.store.steps import StepLog

    starts: list[float] = []
    spent: list[float] = []
    resident: list[int] = []
    written: list[int] = []
    started = StepLog.record_start

    def noted(self: StepLog, task: str, namespace: str, node: str, workflow: str) -> None:
        started(self, task, namespace, node, workflow)
        if node == "check_limits":
            starts.append(time.perf_counter())
            spent.append(time.process_time())
            resident.append(_resident())
            written.append(_written())

    StepLog.record_start = noted  # not a renderer: renderers get events in batches

    options = Options(
        home=folder / "home",
        user_home=folder,
        workspace=folder / "work",
        model=model,
        env=env,
        limits={"max_turns": turns + 10},
        # 300 equal calls are a loop, and the next-speaker check would add a request.
        overrides={"model": {"disableLoopDetection": True, "skipNextSpeakerCheck": not asks}},
        **more,
    )
    outcome = run_sync("main", {"prompt": "go"}, options=options)
    if outcome.status != "done":
        raise SystemExit(f"the benchmark's run ended as {outcome.status}: {outcome.error}")
    times = [(b - a) * 1000 for a, b in pairwise(starts)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    kb = (written[-1] - written[0]) / (len(written) - 1) / 1024
    return {
        "turns": times,
        "cpu": [(b - a) * 1000 for a, b in pairwise(spent)],
        "resident": resident,
        "peak_mb": peak,
        "written_kb": kb,
        "status": outcome.status,
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _written() -> int:
    """Bytes that this process has passed to the system to write."""
    return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])


def _bytes(store: Path) -> dict[str, Any]:
    conn = sqlite3.connect(store)
    per_table: dict[str, float] = {}
    for table in TABLES:
        columns = [r[1] for r in conn.execute(f"pragma table_info({table})")]
        size = "+".join(f'coalesce(length("{c}"), 0)' for c in columns)
        total = conn.execute(f"select coalesce(sum({size}), 0) from {table}").fetchone()[0]
        per_table[table] = total / TURNS
    sizes = [
        r[0]
        for r in conn.execute(
            "select length(checkpoint) + length(metadata) from checkpoints where checkpoint_ns = '' "
            "order by checkpoint_id"
        )
    ]
    conn.execute("pragma wal_checkpoint(truncate)")
    # Whole pages of every table except the chain, which holds the messages.
    pages = conn.execute(
        "select sum(pgsize) from dbstat where name not in ('chain', 'sqlite_autoindex_chain_1')"
    )
    besides = pages.fetchone()[0] / TURNS
    conn.close()
    growth = sum(sizes[2 * 290 : 2 * 300]) / sum(sizes[2 * 10 : 2 * 20])
    return {
        "rows_kb": sum(per_table.values()) / 1024,
        "file_kb": besides / 1024,
        "growth": growth,
        "largest": max(sizes),
    }


def fuse_nothing() -> None:
    """Give every node a superstep of its own, as LangGraph does by itself.

    `docs/internals.md#what-a-commit-waits-for`.
    """
    from interlock.graphs.supersteps import Wiring

    Wiring.allow_shared_superstep = lambda *_: None  # pyright: ignore


def _in_own_process(kind: str, url: str = "") -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, kind, url], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout)


def _measure(kind: str, url: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        lines = 3 if kind == "long" else 60
        (folder / "work" / "notes.txt").write_text("a line of some length, to be read\n" * lines)
        env = {"PATH": os.environ["PATH"], "HOME": name}
        if kind == "unfused":
            fuse_nothing()
        if kind in ("script", "long", "unfused"):
            turns = LONG if kind == "long" else TURNS
            (folder / "script.json").write_text(
                json.dumps([*[_reply("tool_calls")] * turns, {"text": "done"}])
            )
            told = drive(folder, f"script:{folder / 'script.json'}", env, turns)
        else:
            told = drive(
                folder, "gemini-2.5-pro", {**env, "GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url}
            )
        told |= _bytes(folder / "home" / "interlock.db")
    print(json.dumps(told))


def _reply(key: str) -> dict[str, Any]:
    return {"text": "on I go", key: [{"name": "read_file", "args": {"file_path": "notes.txt"}}]}


def plain_loop() -> float:
    """Milliseconds for the same work as a bare loop: read the file, append two messages to a JSON list on disk."""
    with tempfile.TemporaryDirectory() as name:
        file, log = Path(name) / "notes.txt", Path(name) / "log.jsonl"
        file.write_text("a line of some length, to be read\n" * 60)

        async def loop() -> float:
            started = time.perf_counter()
            for turn in range(TURNS):
                text = await asyncio.to_thread(file.read_text)
                with log.open("a") as out:
                    out.write(json.dumps({"turn": turn, "text": text}) + "\n")
            return (time.perf_counter() - started) * 1000 / TURNS

        return asyncio.run(loop())


def main() -> int:
    own = _in_own_process("script")
    with FakeGemini([*[_reply("calls")] * TURNS, {"text": "done"}]) as fake:
        whole = _in_own_process("gemini", fake.url)
    print(f"a plain loop that reads the file and appends a line: {plain_loop():.2f} ms a turn")
    print(f"{'':28}" + "".join(f"turn {name:>4}   " for name in WINDOWS))
    rows = {name: _window(told) for name, told in (("own", own), ("whole", whole))}
    print(f"{'own overhead, ms':28}" + "".join(f"{v:9.1f}   " for v in rows["own"]))
    print(f"{'with client and server, ms':28}" + "".join(f"{v:9.1f}   " for v in rows["whole"]))
    share = [w - o for o, w in zip(rows["own"], rows["whole"], strict=True)]
    print(f"{'client and server, ms':28}" + "".join(f"{v:9.1f}   " for v in share))
    print(
        f"store besides messages: {own['rows_kb']:.1f} KB of rows a turn ({own['file_kb']:.1f} KB with its pages)"
    )
    print(f"largest checkpoint of main: {own['largest']} bytes; turns 291-300 ÷ 11-20: {own['growth']:.3f}")
    grown = [(told["resident"][-1] - told["resident"][20]) / 2**20 for told in (own, whole)]
    print(
        f"memory: peak {own['peak_mb']:.0f} MB scripted, {whole['peak_mb']:.0f} MB with the Gemini client; "
        f"turn 300 less turn 20: {grown[0]:.1f} and {grown[1]:.1f} MB"
    )
    cpu = [sorted(told["cpu"])[TURNS // 2] for told in (own, _in_own_process("unfused"))]
    print(
        f"CPU a turn: {cpu[0]:.1f} ms; a superstep for each node: {cpu[1]:.1f} ms; ratio {cpu[1] / cpu[0]:.1f}"
    )
    long = _in_own_process("long")["cpu"]
    early, late = (sorted(long[i] for i in window) for window in (EARLY, LATE))
    first, last = early[len(early) // 2], late[len(late) // 2]
    print(f"CPU of turn 10: {first:.1f} ms; of turn {LONG:,}: {last:.1f} ms; ratio {last / first:.2f}")
    return 0


def _window(told: dict[str, Any]) -> list[float]:
    """Median of each window: the machine is noisy."""
    values: list[float] = []
    for window in WINDOWS.values():
        part = sorted(told["turns"][i] for i in window)
        values.append(part[len(part) // 2])
    return values


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _measure(sys.argv[1], sys.argv[2])
    else:
        sys.exit(main())
