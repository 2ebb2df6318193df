"""start_kills: `kill -9` of starters, forks, supervisors and the warm process, at random moments of warm and cold runs.

Usage: python -P benchmarks/start_kills.py [KILLS] [SEED]. A kill counts if it hit a living process. A run is killed up
to four times, as it begins and as it is resumed, then resumed until it has ended. It fails where that doesn't happen,
the run isn't listed, an effect is missing unreported or doubled unasked, a process is left, or the next start fails.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ENTRY = str(Path(sys.executable).with_name("interlock"))
HOW = ("warm", "cold")
VICTIMS: dict[tuple[str, str], tuple[int, Callable[[int, int], list[int]]]] = {
    ("warm", "starter"): (3, lambda starter, _: [starter]),
    ("warm", "fork"): (3, lambda _, warm: [pid for pid in below(warm, 1) if pid not in ahead(warm)]),
    ("warm", "fork ahead"): (1, lambda _, warm: ahead(warm)),
    ("warm", "supervisor"): (3, lambda _, warm: supervisors(below(warm, 2, 9))),
    ("warm", "warm process"): (1, lambda _, warm: [warm]),
    ("cold", "starter"): (2, lambda starter, _: [starter]),
    ("cold", "supervisor"): (2, lambda starter, _: supervisors(below(starter, 1, 9))),
}
"""Whom to kill, how often in proportion, and where it is found: from the starter and the warm process."""
START = ("-y", "-p", "go", "-m", "script:script.json")
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


def supervisors(pids: Sequence[int]) -> list[int]:
    """Those of a run's processes that aren't its command's: a command that is killed has ended with a signal."""
    found = list[int]()
    for pid in pids:
        with suppress(OSError):
            found += [pid] if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def ahead(warm: int) -> list[int]:
    """The fork that waits to become a start, or has just become one: it is still of the warm process's session."""
    found = list[int]()
    for pid in children(warm):
        with suppress(OSError):
            found += [pid] if os.getsid(pid) != pid else []
    return found


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
        self.env = {how: {**env, "XDG_RUNTIME_DIR": str(folder / how)} for how in HOW}
        for made in (self.work, *(folder / how for how in HOW)):
            made.mkdir(mode=0o700)
        (self.work / "script.json").write_text(json.dumps(SCRIPT))
        self._warm, self.known = 0, set[str]()
        self.takes = {how: self._taken(how) for how in HOW}
        """About how long a run takes that isn't killed; each corrects it, as the machine may be busier."""

    def _taken(self, how: str) -> float:
        self.warm() if how == "warm" else None
        started = time.monotonic()
        self.start(how, *START).communicate()
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
        """Runs that aren't known yet, and their status."""
        listed = json.loads(self.told("warm", "runs", "--all", "--json"))
        return {row["run"]: row["status"] for row in listed if row["run"] not in self.known}


def one(place: Place, dice: random.Random) -> list[str]:
    """Kill processes of one run, up to four times; returns whose. Raises `AssertionError`."""
    for name in ("count.txt", "made.txt"):
        (place.work / name).unlink(missing_ok=True)
    hit, run, status, redone = list[str](), "", "", 0
    for kill in [*[True] * dice.randint(1, 4), *[False] * 4]:
        words = ("resume", run, "-y") if run else START
        if status == "waiting":  # it asks about an outcome that a kill left unknown
            redone += 1
            (asked,) = json.loads(place.told("warm", "approvals", run, "--json"))
            words = (*words, "--answer", f"{asked['id']}=redo")
        if kill:
            hit += killed(place, dice, words)
        else:
            place.told("warm", *words)
        found = place.new()
        assert len(found) == 1 or (hit and not found), f"{hit}: {len(found)} runs are listed"
        run, status = next(iter(found.items()), ("", ""))
        if status == "done":
            break
    assert status == "done", (hit, run, status)
    made, counted = (place.work / name for name in ("made.txt", "count.txt"))
    assert made.exists() and made.read_text() == "made\n", (hit, run)
    count = counted.read_text().count("once") if counted.exists() else 0
    assert count <= 1 + redone, (hit, run, count, redone)
    # What is about to become the command still looks like its supervisor, and may be hit instead.
    assert count or "SIGKILL" in place.told("warm", "show", run, "--calls"), (hit, run)
    _gone(place.warm())
    return hit


def killed(place: Place, dice: random.Random, words: Sequence[str]) -> list[str]:
    """Kill one process of a start, some time after it appeared; returns whose, or nothing: it had ended."""
    (chosen,) = dice.choices([*VICTIMS], [often for often, _ in VICTIMS.values()])
    how, whom = chosen
    warm = place.warm()
    starter = place.start(how, *words)
    while not VICTIMS[chosen][1](starter.pid, warm) and not ended(starter.pid):
        time.sleep(0.003)
    time.sleep(dice.uniform(0, place.takes[how] / (4 if whom == "supervisor" else 1)))
    found = [pid for pid in VICTIMS[chosen][1](starter.pid, warm) if not ended(pid)]
    pid = dice.choice(found) if found and not ended(starter.pid) else 0
    place.takes[how] *= 1.1 if pid else 0.7
    if pid:
        os.kill(pid, signal.SIGKILL)
    said = starter.communicate(timeout=LONGEST_S)[1]
    assert starter.returncode >= 0 or (pid and pid != warm), (how, whom, starter.returncode, said)
    return [f"{how}: {whom}"] if pid else []


def _gone(warm: int) -> None:
    """Whatever loses its parent becomes a child of this process."""
    until = time.monotonic() + 20
    while left := [pid for pid in below(os.getpid(), 1, 9) if pid not in (warm, *ahead(warm)) or ended(pid)]:
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
        while found.total() < kills:
            before = found.total() // 50
            place.known |= {*place.new()}
            try:
                found.update(one(place, dice))
            except AssertionError as error:
                bad.append(f"after {found.total()} kills: {error}")
                print(bad[-1], flush=True)
            if found.total() // 50 > before:
                print(dict(found), flush=True)
        place.told("warm", "warm", "--stop")
    for whom, times in sorted(found.items()):
        print(f"{times:5}  {whom}")
    print(f"{found.total()} kills; {len(bad)} runs were hurt")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
