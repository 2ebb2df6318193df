"""100 MB of shell output: a run stays small, and every byte can be read afterwards."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, os, resource, sys
from pathlib import Path
from interlock.engine import Options, run_sync

folder, line = Path(sys.argv[1]), sys.argv[2]
work = folder / "work"
work.mkdir(parents=True)
script = folder / "script.json"
script.write_text(json.dumps([
    {"tool_calls": [{"name": "run_shell_command", "args": {"command": line}}]},
    {"text": "done"},
    {"role": "summarizer", "text": "a great many lines"},
]))
events = [0]
options = Options(home=folder / "home", user_home=folder / "user", workspace=work, model=f"script:{script}",
                  approval_mode="yolo", env={"PATH": os.environ["PATH"]})
outcome = run_sync("main", {"prompt": "go"}, options=options, renderers=[lambda event: None])
answer = next(m["content"] for m in outcome.output["history"] if m["role"] == "tool")
print(json.dumps({
    "status": outcome.status,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "answer": answer,
}))
"""


def measured(folder: Path, command: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder), command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "megabytes",
    [
        pytest.param(25, marks=pytest.mark.sweep(divides=True)),  # in every part
        pytest.param(100, marks=pytest.mark.sweep),
    ],
)
def test_memory_does_not_grow_with_the_output_and_nothing_of_it_is_lost(
    megabytes: int, tmp_path: Path
) -> None:
    lines = megabytes * 1_000_000 // 50
    small = measured(tmp_path / "small", "seq 1 10")
    large = measured(tmp_path / "large", f"yes {'z' * 49} | head -n {lines}; echo THE END")
    print(small["peak_mb"], large["peak_mb"])
    assert large["status"] == "done"
    assert large["peak_mb"] - small["peak_mb"] < 0.6 * megabytes
    assert len(large["answer"]) < 10_000 and "a great many lines" in large["answer"]
    outputs = tmp_path / "large" / "home" / "outputs"
    (whole,) = [p for p in outputs.glob("*.txt") if p.stat().st_size > 1_000_000]
    assert str(whole) in large["answer"] and "grep_search" in large["answer"]
    assert whole.stat().st_size == lines * 50 + len("THE END\n")
    with whole.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        assert file.read() == b"THE END\n"
