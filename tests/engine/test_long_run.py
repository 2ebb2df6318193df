"""300 turns: the store grows evenly, a checkpoint stays small, memory stays flat."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import Place

from interlock.engine.store import select_rows

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "turns.py"


@pytest.mark.sqlite
@pytest.mark.sweep(divides=True)  # in every part
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
    place, script = Place(tmp_path), tmp_path / "s.json"
    (place.work / "notes.txt").write_text("a line\n" * 300)
    args = ({"file_path": "notes.txt", "start_line": n + 1} for n in range(20))
    calls = [{"name": "read_file", "args": given} for given in args]
    script.write_text(json.dumps([{"tool_calls": calls}, {"text": "done"}]))
    place.run("main", {"prompt": "go"}, model=f"script:{script}")
    sizes = "select max(length(checkpoint) + length(metadata)) from checkpoints where checkpoint_ns = ''"
    ((largest,),) = select_rows(tmp_path / "home", sizes)
    ((left,),) = select_rows(tmp_path / "home", "select count(*) from checkpoints where checkpoint_ns <> ''")
    assert largest <= 8192
    assert left == 0, "rows of finished parts are dropped"
