"""beside: what turns cost in another clone and here, one after the other: checkpoints and bytes, and CPU as a ratio.

    python -P benchmarks/beside.py OTHER_CLONE [ROUNDS]

The other clone has its own environment in `.venv`. Rows that it doesn't know, like an audit log, are listed apart.
CPU is that of turns 6 to 120, without the start; both clones find their modules compiled.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

HERE = Path(__file__).parent.parent
TURNS = 120
TABLES = ("checkpoints", "writes", "journal", "steps", "step_rows", "decisions", "model_calls", "approvals")
SCENES: dict[str, Any] = {
    "reads": [("read_file", {"file_path": "notes.txt"})],
    "edits": [("write_file", {"file_path": "made.txt", "content": "line {turn}\n"})],
    "two calls": [("read_file", {"file_path": "notes.txt"}), ("glob", {"pattern": "*.txt"})],
    "commands": [("run_shell_command", {"command": "echo {turn}"})],
    "mixed": [
        ("read_file", {"file_path": "notes.txt"}),
        ("write_file", {"file_path": "made.txt", "content": "line {turn}\n"}),
        ("run_shell_command", {"command": "echo {turn}"}),
    ],
    "answers": [],
}


def replies(scene: str) -> list[dict[str, Any]]:
    """A call with other arguments in each turn, so that nothing counts as a loop; answers go on by themselves."""
    if not SCENES[scene]:
        said = ["model"] * (TURNS - 1) + ["user"]
        verdicts = [json.dumps({"reasoning": "it says so", "next_speaker": speaker}) for speaker in said]
        return [
            *({"text": f"part {turn}"} for turn in range(TURNS)),
            *({"role": "next_speaker", "text": verdict} for verdict in verdicts),
        ]
    made = [
        {
            "text": f"step {turn}",
            "tool_calls": [
                {"name": name, "args": {key: text.replace("{turn}", str(turn)) for key, text in args.items()}}
                for name, args in SCENES[scene]
            ],
        }
        for turn in range(TURNS)
    ]
    return [*made, {"text": "done"}]


def measure(scene: str) -> dict[str, Any]:
    """Drive the turns in this process, whose `interlock` is the clone's."""
    from turns import drive

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work" / "notes.txt").write_text("a line of some length, to be read\n" * 60)
        (folder / "script.json").write_text(json.dumps(replies(scene)))
        env = {"PATH": os.environ["PATH"], "HOME": name}
        model, asks = f"script:{folder / 'script.json'}", not SCENES[scene]
        told = drive(folder, model, env, TURNS, asks=asks, approval_mode="yolo")
        with sqlite3.connect(folder / "home" / "interlock.db") as conn:
            found = {table: _rows(conn, table) for table in _tables(conn)}
    return {"status": told["status"], "cpu": sum(told["cpu"][5 : TURNS - 1]), "tables": found}


def _tables(conn: sqlite3.Connection) -> list[str]:
    return [row[0] for row in conn.execute("select name from sqlite_master where type = 'table'")]


def _rows(conn: sqlite3.Connection, table: str) -> tuple[int, int]:
    columns = [row[1] for row in conn.execute(f'pragma table_info("{table}")')]
    size = " + ".join(f'coalesce(length("{column}"), 0)' for column in columns)
    return conn.execute(f'select count(*), coalesce(sum({size}), 0) from "{table}"').fetchone()


def _in(clone: Path, scene: str) -> dict[str, Any]:
    command = [clone / ".venv/bin/python", "-P", __file__, "--scene", scene]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"{clone}, {scene}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def compare(other: Path, rounds: int) -> None:
    for clone in (other, HERE):
        _in(clone, "mixed")  # compiles its modules
    print(f"{'':10} {'checkpoints':>16} {'bytes of rows a turn':>22} {'new tables':>11} {'CPU, ratio':>11}")
    for scene in SCENES:
        pairs = [(_in(other, scene), _in(HERE, scene)) for _ in range(rounds)]
        before, after = pairs[-1]
        counts = [told["tables"]["checkpoints"][0] for told in (before, after)]
        sizes = [sum(told["tables"].get(t, (0, 0))[1] for t in TABLES) / TURNS for told in (before, after)]
        new = Counter({t: n for t, (_, n) in after["tables"].items() if t not in before["tables"]})
        ratios = [here["cpu"] / there["cpu"] for there, here in pairs]
        print(
            f"{scene:10} {counts[0]:>7} → {counts[1]:>6} {sizes[0]:>10.1f} → {sizes[1]:>8.1f}"
            f" {new.total() / TURNS:>11.1f} {median(ratios):>6.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
            f"  {before['status']}, {after['status']}"
        )


def main() -> int:
    if sys.argv[1:2] == ["--scene"]:
        print(json.dumps(measure(sys.argv[2])))
        return 0
    if not sys.argv[1:]:
        raise SystemExit("Which other clone? benchmarks/beside.py OTHER_CLONE [ROUNDS]")
    compare(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if sys.argv[2:] else 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
