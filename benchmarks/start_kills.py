"""start_kills: `kill -9` of starters, their commands, supervisors and the warm process, at random moments of warm runs.

Usage: .venv/bin/python -P benchmarks/start_kills.py [KILLS] [SEED]. After each kill the run is resumed until it has
ended; it fails where that doesn't happen, an effect is missing, or doubled unasked, or a process is left.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ENTRY = str(Path(sys.executable).with_name("interlock"))
WHOM = ("starter", "fork", "supervisor", "warm process")
LONGEST_S = 120.0
SCRIPT = [
    {"tool_calls": [{"name": "write_file", "args": {"file_path": "made.txt", "content": "made\n"}}]},
    {
        "tool_calls": [
            {"name": "run_shell_command", "args": {"command": "echo once >> count.txt; sleep 0.05"}}
        ]
    },
    {"text": "Done."},
]


def folder_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    parents = {int(found.name): parent(int(found.name)) for found in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for one in found:
        found += [child for child, its in parents.items() if its == one]
    return found[1:]


class Place:
    """A folder with a warm process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "INTERLOCK_HOME": str(folder / "state")}
        self.env["XDG_RUNTIME_DIR"] = str(folder / "run")
        for made in (self.work, folder / "run"):
            made.mkdir(mode=0o700)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [ENTRY, *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def told(self, *words: str) -> str:
        return self.start(*words).communicate(timeout=LONGEST_S)[0]

    def warm(self) -> int:
        told = json.loads(self.told("warm", "--json"))
        assert told["warm"], told
        return int(told["process"])

    def left(self) -> list[int]:
        """Processes in this folder: the warm process is in none."""
        found = [int(one.name) for one in Path("/proc").glob("[0-9]*")]
        return [pid for pid in found if folder_of(pid) == str(self.work)]


def one(place: Place, dice: random.Random) -> str:
    """Kill one process of one run; returns whose, and raises `AssertionError` for what the kill left."""
    (place.work / "count.txt").unlink(missing_ok=True)
    (place.work / "made.txt").unlink(missing_ok=True)
    warm, before = place.warm(), {row["run"] for row in json.loads(place.told("runs", "--all", "--json"))}
    starter = place.start("-y", "-p", "go", "-m", f"script:{place.folder / 'script.json'}")
    time.sleep(dice.uniform(0, 0.8))
    whom = dice.choice(WHOM)
    candidates = {"starter": [starter.pid], "warm process": [warm]}
    forks = below(warm)
    candidates |= {"fork": forks[:2], "supervisor": forks[2:]}
    for pid in dice.sample(candidates[whom], min(1, len(candidates[whom]))):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            whom = "nothing"
    starter.communicate(timeout=LONGEST_S)
    rows = [row for row in json.loads(place.told("runs", "--all", "--json")) if row["run"] not in before]
    for row in rows:
        asked = False
        for _ in range(5):
            status = json.loads(place.told("show", row["run"], "--json"))["status"]
            if status in ("done", "failed"):
                break
            asked |= status == "waiting"
            # An outcome that the kill left unknown is asked about.
            place.told("resume", row["run"], "-y", *(("--answer", "1=redo") if status == "waiting" else ()))
        assert status == "done", (whom, row["run"], status)
        count = (place.work / "count.txt").read_text().count("once")
        assert (place.work / "made.txt").read_text() == "made\n", whom
        assert count == 1 or (asked and count == 2), (whom, row["run"], asked, count)
    until = time.monotonic() + 10
    while (left := place.left()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left, (whom, left)
    return whom if rows else f"{whom}, before the run"


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", flush=True)
    dice, found, bad = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for number in range(kills):
            try:
                found[one(place, dice)] += 1
            except AssertionError as error:
                bad.append(f"kill {number}: {error}")
                print(bad[-1], flush=True)
        place.told("warm", "--stop")
    for whom, times in sorted(found.items()):
        print(f"{times:5}  {whom}")
    print(f"{len(bad)} of {kills} hurt something")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
