"""start_kills: `kill -9` of starters, keepers, their commands, supervisors and the warm process, at random moments.

Usage: python -P benchmarks/start_kills.py [KILLS] [SEED]. Half of the runs are cold. A kill counts if it hit a
living process. After each, the run is resumed until it has ended. It fails where that doesn't happen, a run isn't
listed, an effect is missing or doubled unasked, a process is left, or the next start doesn't work.
"""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ENTRY = str(Path(sys.executable).with_name("interlock"))
VICTIMS: dict[str, dict[str, Callable[[int, int], list[int]]]] = {
    "warm": {
        "starter": lambda starter, _: [starter],
        "keeper": lambda _, warm: below(warm, 1),
        "command": lambda _, warm: below(warm, 2),
        "supervisor": lambda _, warm: below(warm, 3, 9),
        "warm process": lambda _, warm: [warm],
    },
    "cold": {
        "starter": lambda starter, _: [starter],
        "supervisor": lambda starter, _: below(starter, 1, 9),
    },
}
"""Whom to kill, and where it is found: from the starter and the warm process."""
LONGEST_S = 300.0
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
SCRIPT = [
    {"tool_calls": [{"name": "write_file", "args": {"file_path": "made.txt", "content": "made\n"}}]},
    {
        "tool_calls": [
            {"name": "run_shell_command", "args": {"command": "echo once >> count.txt; sleep 0.05"}}
        ]
    },
    {"text": "Done."},
]


def below(pid: int, first: int, last: int = 0) -> list[int]:
    """The descendants of a process, from one generation to another; by default of one alone."""
    found, generation = list[int](), [pid]
    for number in range(1, max(first, last) + 1):
        generation = [child for one in generation for child in children(one)]
        found += generation if number >= first else []
    return found


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Place:
    """A folder with a warm process of its own."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "INTERLOCK_HOME": str(folder / "state")}
        self.env = {how: {**env, "XDG_RUNTIME_DIR": str(folder / how)} for how in VICTIMS}
        for made in (self.work, *(folder / how for how in VICTIMS)):
            made.mkdir(mode=0o700)
        (self.work / "script.json").write_text(json.dumps(SCRIPT))
        self._warm, self.known = 0, set[str]()
        self.takes = {how: self._taken(how) for how in VICTIMS}
        """How long a run takes that isn't killed."""
        self.known = {*self.new()}

    def _taken(self, how: str) -> float:
        self.warm() if how == "warm" else None
        started = time.monotonic()
        self.start(how, "-y", "-p", "go", "-m", "script:script.json").communicate()
        return time.monotonic() - started

    def start(self, how: str, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [ENTRY, *words],
            cwd=self.work,
            env=self.env[how],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def told(self, how: str, *words: str) -> str:
        return self.start(how, *words).communicate(timeout=LONGEST_S)[0]

    def warm(self) -> int:
        """The warm process, which a start from here is handed over to."""
        if not self._warm or ended(self._warm):
            told = json.loads(self.told("warm", "warm", "--json"))
            assert told["warm"], told
            self._warm = int(told["process"])
        return self._warm

    def new(self) -> dict[str, str]:
        """Runs that weren't listed before the last kill, and their status."""
        listed = json.loads(self.told("cold", "runs", "--all", "--json"))
        return {row["run"]: row["status"] for row in listed if row["run"] not in self.known}


def one(place: Place, dice: random.Random) -> str:
    """Kill one process of one run; returns whose, or an empty string: it had ended. Raises `AssertionError`."""
    for name in ("count.txt", "made.txt"):
        (place.work / name).unlink(missing_ok=True)
    how = dice.choice([*VICTIMS])
    whom = dice.choice([*VICTIMS[how]])
    warm = place.warm()
    until = time.monotonic() + dice.uniform(0, place.takes[how])
    starter = place.start(how, "-y", "-p", "go", "-m", "script:script.json")
    killed = _killed(lambda: VICTIMS[how][whom](starter.pid, warm), until, starter.pid, dice)
    starter.communicate(timeout=LONGEST_S)
    assert killed != warm or starter.returncode == 0, f"without the warm process: {starter.returncode}"
    found = place.new()
    place.known |= {*found}
    assert len(found) == 1 or (killed and not found), f"{how} {whom}: {len(found)} runs are listed"
    for run, status in found.items():
        _resumed(place, how, run, status)
    _gone(warm)
    return f"{how}: {whom}{'' if found else ', before the run'}" if killed else ""


def _killed(victims: Callable[[], list[int]], until: float, starter: int, dice: random.Random) -> int | None:
    """Kill one of them, at that moment or once there is one; returns which."""
    while time.monotonic() < until or not (found := victims()):
        if ended(starter):
            return None
        time.sleep(0.003)
    pid = dice.choice(found)
    if ended(pid) or ended(starter):
        return None
    os.kill(pid, signal.SIGKILL)
    return pid


def _resumed(place: Place, how: str, run: str, status: str) -> None:
    """Resume it until it has ended, and look at its effects."""
    asked = False
    for _ in range(5):
        if status in ("done", "failed"):
            break
        asked |= status == "waiting"
        # An outcome that the kill left unknown is asked about.
        place.told(how, "resume", run, "-y", *(("--answer", "1=redo") if status == "waiting" else ()))
        status = json.loads(place.told("cold", "show", run, "--json"))["status"]
    assert status == "done", (how, run, status)
    count = (place.work / "count.txt").read_text().count("once")
    assert (place.work / "made.txt").read_text() == "made\n", (how, run)
    assert count == 1 or (asked and count == 2), (how, run, asked, count)


def _gone(warm: int) -> None:
    """Whatever loses its parent becomes a child of this process."""
    until = time.monotonic() + 20
    while left := [pid for pid in below(os.getpid(), 1, 9) if pid != warm or ended(pid)]:
        for pid in left:
            if ended(pid) and pid in children(os.getpid()):
                os.waitpid(pid, 0)
        assert time.monotonic() < until, [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in left]
        time.sleep(0.02)


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # a shell's job in the background ignores them, and starts cold
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    dice, found, bad = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        while found.total() + len(bad) < kills:
            try:
                whom = one(place, dice)
            except AssertionError as error:
                bad.append(f"kill {found.total() + len(bad)}: {error}")
                print(bad[-1], flush=True)
            else:
                found.update([whom] if whom else [])
        place.told("warm", "warm", "--stop")
    for whom, times in sorted(found.items()):
        print(f"{times:5}  {whom}")
    print(f"{len(bad)} of {kills} hurt something")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
