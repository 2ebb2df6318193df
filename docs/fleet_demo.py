"""fleet_demo: `make fleet`: PostgreSQL, two workers, ten repairs at once, and the page; needs no key and no network."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import demo
from postgres_server import Server

RUNS, WORKERS = 10, 2
INTERLOCK = [sys.executable, "-P", "-c", demo.ENTRY]
_SILENT_S = 120.0
"""Seconds without a run that parks or ends after which the demo has failed."""


@dataclass
class Demo:
    """What runs beside it, and where."""

    folder: Path
    env: dict[str, str]
    beside: list["subprocess.Popen[bytes]"] = field(default_factory=list["subprocess.Popen[bytes]"])

    def interlock(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            [*INTERLOCK, *words],
            cwd=at or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"interlock {shlex.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def start(self, *words: str) -> None:
        command, log = [*INTERLOCK, *words], (self.folder / f"{words[0]}-{len(self.beside)}.log").open("wb")
        self.beside.append(
            subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )

    def waiting(self, number: int) -> list[dict[str, str]]:
        """The open requests, once there are so many."""
        until, found = time.monotonic() + _SILENT_S, list[dict[str, str]]()
        while time.monotonic() < until:
            found = json.loads(self.interlock("approvals", "--json"))
            if len(found) >= number:
                return found
            time.sleep(1)
        sys.exit(
            f"After {_SILENT_S:g} s there are {len(found)} open requests, not {number}. Logs: {self.folder}"
        )

    def stop(self) -> None:
        for process in self.beside:
            process.terminate()
        for process in self.beside:
            process.wait(timeout=60)


def main(words: Sequence[str]) -> int:
    """`fleet_demo.py [--once]`: with `--once` it ends when the repairs are done, instead of serving the page."""
    folder, server = Path(tempfile.mkdtemp(prefix="interlock-fleet-")), Server()
    made = Demo(
        folder, {**os.environ, "INTERLOCK_HOME": str(folder / "state"), "INTERLOCK_STORE": server.start()}
    )
    keeps_logs = True
    try:
        ended = _shown(made, once="--once" in words)
        keeps_logs = False
        return ended
    except KeyboardInterrupt:
        keeps_logs = False
        return 0
    finally:
        made.stop()
        server.stop()
        if not keeps_logs:
            shutil.rmtree(folder)


def _shown(made: Demo, *, once: bool) -> int:
    print(f"PostgreSQL in a temporary folder: {made.env['INTERLOCK_STORE']}", flush=True)
    made.interlock("fleet", "init")
    for _ in range(WORKERS):
        made.start("worker", "--concurrency", "2")
    script = made.folder / "replies.yaml"
    script.write_bytes((Path(__file__).parent / "demo.yaml").read_bytes())
    model = ["-m", f"script:{script}", "--allowed-tools", "run_shell_command(python3 -m unittest)"]
    for number in range(RUNS):
        shop = made.folder / f"shop-{number + 1}"
        demo.make_repository(shop)
        made.interlock("run", "main", "--detach", *model, demo.PROMPT, at=shop)
    print(f"{RUNS} repairs are queued, {WORKERS} workers drive them. Each parks at its edit.", flush=True)
    requests = made.waiting(RUNS)
    kept, decided = requests[-1], requests[: None if once else -1]
    for request in decided:
        made.interlock("resume", request["run"], "--approve", "all")
    made.interlock("wait", *[request["run"] for request in decided])
    tests = [sys.executable, "-m", "unittest"]
    passed = [
        subprocess.run(tests, cwd=shop, capture_output=True, check=False)
        for shop in made.folder.glob("shop-*")
    ]
    repaired = sum(done.returncode == 0 for done in passed)
    print(f"{len(decided)} edits were approved; the tests of {repaired} repositories pass now.\n", flush=True)
    print(made.interlock("runs"), made.interlock("fleet"), sep="\n\n", flush=True)
    if once:
        return int(repaired != RUNS)
    print(f"\nRun {kept['run']} still waits for you. Decide on the page; Ctrl-C ends everything.", flush=True)
    return subprocess.run([*INTERLOCK, "serve"], cwd=made.folder, env=made.env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
