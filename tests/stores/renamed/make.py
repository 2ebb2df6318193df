"""make: makes runs whose next node has another name by now (`Graph.renamed`), as the version before stores them.

`python -P tests/stores/renamed/make.py NAME` writes `NAME.tar.xz`. Run it with a version that has these nodes.
"""

import json
import os
import sqlite3
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from langgraph.runtime import get_runtime

from interlock.engine import Options, run_sync
from interlock.engine.store.steps import StepLog
from interlock.engine.store.workspaces import record_undo_note

LONG = "\n".join(f"line {number} of a long output" for number in range(12_000))
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Read it."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "name": "read_file", "args": {"file_path": "a.txt"}}],
    },
    {"role": "tool", "tool_call_id": "1", "name": "read_file", "content": LONG},
    {"role": "assistant", "content": "It is long."},
    {"role": "user", "content": "So it is."},
]
RUNS: dict[str, tuple[str, dict[str, Any], str]] = {
    "note_undone": ("main", {"prompt": "Do it."}, "mask_tool_outputs"),
    "parse_json": (
        "tools",
        {"text": '```json\n{"name": "read_file", "args": {"path": "a.txt"}}\n```', "protocol": "json"},
        "json",
    ),
    "keep_truncated": (
        "compress",
        {"history": TALK, "token_limit": 100_000, "last_prompt_tokens": 60_000, "failed_at_tokens": 60_000},
        "truncate_old_outputs",
    ),
}
"""Run, named as the node that it stands before → workflow, input, and the node or route that it is stopped after."""


def options(folder: Path) -> Options:
    """The same for whoever makes the store and whoever resumes its runs."""
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "a.txt").write_text("one\n")
    script = folder / "script.json"
    script.write_text(json.dumps([{"expect": "The user undid it", "text": "I see."}]))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return Options(home=folder / "home", user_home=folder, workspace=work, fake=script, env=env)


def stopping_after(place: str) -> None:
    """Ask the run to stop when a node has ended, or a router has returned a label."""
    ended, routed = StepLog.record_end, StepLog.record_route

    def stop(found: str) -> None:
        control = get_runtime().control
        if found == place and control is not None:
            control.request_drain("stopped")

    def at_end(self: StepLog, task: str, *more: Any) -> None:
        stop(self.find_node_of_task(task))
        ended(self, task, *more)

    def at_route(self: StepLog, task: str, label: str) -> None:
        stop(label)
        routed(self, task, label)

    StepLog.record_end, StepLog.record_route = at_end, at_route


def make(folder: Path, run: str) -> None:
    workflow, given, place = RUNS[run]
    stopping_after(place)
    if run == "note_undone":
        record_undo_note(folder / "home", run, "The user undid it")
    run_sync(workflow, given, options=options(folder), run_id=run)


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        for run in RUNS:
            if (pid := os.fork()) == 0:
                try:
                    make(folder, run)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
        conn = sqlite3.connect(folder / "home" / "interlock.db")
        conn.execute("pragma wal_checkpoint(truncate)")
        conn.close()
        with tarfile.open(Path(__file__).resolve().with_name(f"{name}.tar.xz"), "w:xz") as out:
            for part in ("home", "work"):
                out.add(folder / part, part)


if __name__ == "__main__":
    main(sys.argv[1])
