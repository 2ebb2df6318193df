"""fleet: many runs on many workers while workers, drives and the database are killed, paused and stopped at random.

    .venv/bin/python -P benchmarks/fleet.py --runs 50 --workers 4 --seconds 60

Starts PostgreSQL in a temporary folder (`docs/postgres_server.py`).
Each run edits a file and runs a command that counts itself on disk; where a
kill hides whether the command ran, a person looks at the disk and answers. Prints how many runs were lost, doubled,
stuck and asked about, how many faults were made, and how long takeovers took; exit code 1 if anything was lost,
doubled or stuck, or if no fault came.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from postgres_server import Server

INTERLOCK = [str(Path(sys.executable).with_name("interlock"))]
SCRIPT = """\
- tool_calls: [{{name: write_file, args: {{file_path: made-{n}.txt, content: "{n}\\n"}}}}]
- tool_calls: [{{name: run_shell_command, args: {{command: "sleep 0.{pause}; echo {n} >> count.txt"}}}}]
- text: "Done {n}."
"""


@dataclass
class Fleet:
    """Workers, what is done to them, and what became of the runs."""

    folder: Path
    env: dict[str, str]
    chance: random.Random
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list["subprocess.Popen[bytes]"])
    faults: Counter[str] = field(default_factory=Counter[str])
    asked: Counter[str] = field(default_factory=Counter[str])
    orphaned: dict[str, float] = field(default_factory=dict[str, float])
    """Runs whose driver was killed, and when."""
    takeovers: list[float] = field(default_factory=list[float])

    def interlock(self, *words: str) -> str:
        done = subprocess.run(
            [*INTERLOCK, *words],
            env=self.env,
            cwd=self.folder / "work",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.stdout if done.returncode == 0 else self._failed(words, done.stdout + done.stderr)

    def _failed(self, words: tuple[str, ...], said: str) -> str:
        print(f"  interlock {' '.join(words[:3])}: {said.strip()[:200]}")
        return ""

    def work(self, number: int) -> None:
        while len(self.workers) < number:
            with (self.folder / f"worker{len(self.faults)}.log").open("a") as log:
                command = [*INTERLOCK, "worker", "--concurrency", "2"]
                self.workers.append(
                    subprocess.Popen(command, env=self.env, stdout=log, stderr=log, cwd=self.folder / "work")
                )

    def jobs(self) -> list[dict[str, object]]:
        found = self.interlock("fleet", "--json")
        return json.loads(found)["jobs"] if found else []

    def fault(self, number: int) -> None:
        """Do something bad to a random worker or drive."""
        driven = [job for job in self.jobs() if job["driver"]]
        kind = self.chance.choice(("kill a worker", "kill a drive", "pause a drive", "stop a worker"))
        if kind.endswith("worker"):
            worker = self.workers.pop(self.chance.randrange(len(self.workers)))
            worker.send_signal(signal.SIGKILL if kind.startswith("kill") else signal.SIGTERM)
            if kind.startswith("kill"):
                self.orphaned.update({str(job["run"]): time.monotonic() for job in driven})
                worker.wait()
        elif not driven:
            return
        else:
            job = self.chance.choice(driven)
            pid = int(str(job["driver"]).rpartition(":")[2])
            try:
                os.kill(pid, signal.SIGKILL if kind.startswith("kill") else signal.SIGSTOP)
            except ProcessLookupError:
                return
            self.orphaned[str(job["run"])] = time.monotonic()
            if kind.startswith("pause"):
                subprocess.Popen(
                    ["sh", "-c", f"sleep {self.chance.randint(3, 25)}; kill -CONT {pid} 2>/dev/null"]
                )
        self.faults[kind] += 1
        self.work(number)

    def look(self) -> None:
        """Note takeovers, and answer what a kill has hidden, as a person who looks at the disk would."""
        for job in self.jobs():
            if job["driver"] and str(job["run"]) in self.orphaned:
                self.takeovers.append(time.monotonic() - self.orphaned.pop(str(job["run"])))
        found = self.interlock("approvals", "--json")
        for request in json.loads(found) if found else []:
            self.asked[request["run"]] += 1
            number = str(request["args"].get("command", "")).partition("echo ")[2].partition(" ")[0]
            happened = number in (self.folder / "work" / "count.txt").read_text().split()
            answer = f"{request['id']}={'skip' if happened else 'redo'}"
            self.interlock("resume", request["run"], "--answer", answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60, help="how long faults are made")
    parser.add_argument("--every", type=float, default=2, help="seconds between two faults")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    with contextlib.ExitStack() as end:
        folder = Path(tempfile.mkdtemp(prefix="interlock-fleet-"))
        if args.keep:
            print(folder)
        else:
            end.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        for part in ("work", "home", "scripts"):
            (folder / part).mkdir()
        (folder / "work" / "count.txt").touch()
        server = Server()
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("INTERLOCK_")},
            "HOME": str(folder / "home"),
            "INTERLOCK_STORE": server.start(),
        }
        fleet = Fleet(folder, env, random.Random(args.seed))
        try:
            return _matrix(args, fleet, server)
        finally:
            for worker in fleet.workers:
                worker.kill()
                worker.wait()
            server.stop()


def _matrix(args: argparse.Namespace, fleet: Fleet, server: Server) -> int:
    fleet.interlock("fleet", "init")
    fleet.work(args.workers)
    begun, runs = time.monotonic(), dict[int, str]()
    for number in range(args.runs):
        script = fleet.folder / "scripts" / f"{number}.yaml"
        script.write_text(SCRIPT.format(n=number, pause=fleet.chance.randint(1, 9)))
        flags = ("--detach", "-y", "--skip-trust", "-m", f"script:{script}")
        runs[number] = fleet.interlock("run", "main", *flags, f"do {number}").strip()
    next_fault, restarted = time.monotonic(), False
    while (statuses := _statuses(fleet)) and any(s not in ("done", "failed") for s in statuses.values()):
        passed = time.monotonic() - begun
        if passed > args.seconds + 300:
            break
        if passed < args.seconds and time.monotonic() >= next_fault:
            fleet.fault(args.workers)
            next_fault = time.monotonic() + args.every
        if passed > args.seconds / 2 and not restarted:
            server.restart()
            fleet.faults["restart the database"], restarted = 1, True
        fleet.work(args.workers)
        fleet.look()
    count = Counter((fleet.folder / "work" / "count.txt").read_text().split())
    done = [n for n, run in runs.items() if statuses.get(run) == "done"]
    lost = [n for n in done if not count[str(n)]]
    doubled = [n for n in runs if count[str(n)] > 1]
    stuck = [n for n, run in runs.items() if statuses.get(run) not in ("done", "failed")]
    failed = [n for n, run in runs.items() if statuses.get(run) == "failed"]
    times = sorted(fleet.takeovers)
    told = (
        f"{len(times)} takeovers, p50 {times[len(times) // 2]:.0f} s, p95 {times[int(len(times) * 0.95)]:.0f} s"
        if times
        else "no takeover seen"
    )
    print(
        f"{len(runs)} runs in {time.monotonic() - begun:.0f} s: {len(done)} done, {len(lost)} lost, "
        f"{len(doubled)} doubled, {len(stuck)} stuck, {len(failed)} failed; asked about {sum(fleet.asked.values())}; "
        f"{sum(fleet.faults.values())} faults {dict(fleet.faults)}; {told}"
    )
    return 1 if lost or doubled or stuck or failed or not fleet.faults else 0


def _statuses(fleet: Fleet) -> dict[str, str]:
    found = fleet.interlock("runs", "--all", "--json")
    return {row["run"]: row["status"] for row in json.loads(found)} if found else {"": "unknown"}


if __name__ == "__main__":
    sys.exit(main())
