"""300 turns: the store grows evenly, a checkpoint stays small, memory stays flat."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from interlock.engine import Options, run_sync

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "turns.py"


def test_300_turns_cost_the_same_at_the_end_as_at_the_beginning() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "script", ""], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["resident"]) == 301
    assert told["growth"] <= 1.1
    assert told["largest"] <= 8192
    assert told["file_kb"] <= 10
    assert told["written_kb"] <= 150, "the log of the store, and the store from it"
    assert (told["resident"][-1] - told["resident"][20]) / 2**20 <= 30


def test_a_checkpoint_of_main_stays_small_with_20_calls_side_by_side(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("a line\n" * 300)
    calls = [
        {"name": "read_file", "args": {"file_path": "notes.txt", "start_line": n + 1}} for n in range(20)
    ]
    script = tmp_path / "s.json"
    script.write_text(json.dumps([{"tool_calls": calls}, {"text": "done"}]))
    options = Options(
        home=tmp_path / "home",
        user_home=tmp_path,
        workspace=work,
        model=f"script:{script}",
        env={"PATH": os.environ["PATH"]},
    )
    outcome = run_sync("main", {"prompt": "go"}, options=options)
    assert outcome.status == "done"
    conn = sqlite3.connect(options.home / "interlock.db")
    (largest,) = conn.execute(
        "select max(length(checkpoint) + length(metadata)) from checkpoints where checkpoint_ns = ''"
    ).fetchone()
    (left,) = conn.execute("select count(*) from checkpoints where checkpoint_ns <> ''").fetchone()
    conn.close()
    assert largest <= 8192
    assert left == 0, "rows of finished parts are dropped"
