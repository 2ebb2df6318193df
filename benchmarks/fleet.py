"""fleet: many runs on many workers while workers, drives, hosts and the database are killed, paused, cut off, stopped.

    .venv/bin/python -P benchmarks/fleet.py                      # 200 runs, 4 workers, faults for 5 minutes
    .venv/bin/python -P benchmarks/fleet.py --sample             # 50 runs, faults for 60 s
    .venv/bin/python -P benchmarks/fleet.py --namespaces         # each worker on a host of its own; needs root

Starts PostgreSQL in a temporary folder (`docs/postgres_server.py`), a server on loopback that plays Gemini with 20 to
200 ms, and workers as processes. Each run edits a file and runs a command that counts itself on disk; a quarter of
them waits for a person's approval at each step, a quarter does its work in a subtask, a quarter also calls an MCP
server. Where a kill hides whether an effect happened, a person looks at the disk and answers. Prints how many runs
were lost, doubled, stuck and asked about, which faults came, how long takeovers took, and which processes are left;
exit code 1 if anything was lost, doubled, stuck or left, or if nothing happened.
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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parent))
from fleet_lab import KINDS, QUEUE, Host, Model, Network, Proxy, left_in
from postgres_server import Server, installed

SERVER = Path(__file__).parents[1] / "tests" / "mcp_servers" / "odd.py"
_PATIENCE_S = 600
"""Seconds after the last fault within which every run must be over."""
_SETTLED_S = 20.0
"""Seconds a host must be well again before a person believes what its disk says."""


@dataclass
class Matrix:
    """A fleet, what is done to it, and what became of the runs."""

    folder: Path
    address: str
    env: dict[str, str]
    chance: random.Random
    hosts: list[Host]
    network: Network | None
    runs: dict[str, int] = field(default_factory=dict[str, int])
    faults: Counter[str] = field(default_factory=Counter[str])
    asked: Counter[str] = field(default_factory=Counter[str])
    hurt: dict[str, tuple[int, float, float]] = field(default_factory=dict[str, tuple[int, float, float]])
    """Run whose driver was killed, paused or cut off: its epoch, when, and until when it stays away."""
    takeovers: list[float] = field(default_factory=list[float])
    later: list[tuple[float, Callable[[], object]]] = field(
        default_factory=list[tuple[float, Callable[[], object]]]
    )
    """What ends a fault, and when."""
    away_until: float = 0.0
    """When the last paused or cut-off host is well again."""
    troubles: Counter[str] = field(default_factory=Counter[str])

    @property
    def counted(self) -> Path:
        return self.folder / "count.txt"

    # What people do

    def submit(self, number: int) -> None:
        """Start a run; its number says what it does."""
        from interlock.engine.client import Client, Options

        kind = KINDS[number % len(KINDS)]
        work = self.folder / "work" / str(number)
        work.mkdir(exist_ok=True)
        # The try before may have been cut off after its commit.
        if there := self.rows("select run from runs where workspace = %s and parent is null", [str(work)]):
            self.runs[there[0][0]] = number
            return
        options = Options(
            home=self._home(),
            user_home=Path(self.env["HOME"]),
            workspace=work,
            env=self.env,
            model="gemini-2.5-flash",
            approval_mode="default" if kind == "asks" else "yolo",
            skip_trust=True,
            queue=QUEUE,
        )
        given = {"prompt": f"work {number} {kind}"} | ({"mode": "orchestrator"} if kind == "task" else {})
        outcome = Client(options).start_sync("task" if kind == "task" else "main", given)
        self.runs[outcome.run] = number

    def _home(self) -> Path:
        from interlock.engine.client import state_home

        return state_home(self.env)

    def decide(self) -> None:
        """Approve what waits; answer what a kill has hidden as a person would who looks at the disk."""
        from interlock.engine.client import Client, Decision, Options
        from interlock.engine.read import waiting_requests

        client = Client(Options(home=self._home(), user_home=Path(self.env["HOME"]), env=self.env))
        for request in waiting_requests(self._home()):
            fields = request.fields
            if fields["kind"] != "outcome":
                decision = Decision(request.id, "proceed_once")
            elif time.monotonic() < self.away_until + _SETTLED_S:
                continue  # a host that is away may still do it
            else:
                self.asked[request.run] += 1
                decision = Decision(request.id, "proceed_once", text=self._happened(fields))
            self._tried("decide", partial(client.go_on_sync, request.run, decisions=[decision]))

    def _happened(self, fields: Any) -> str:
        args = fields["args"]
        text = str(args.get("text") or args.get("command", "").partition("echo ")[2].partition(" ")[0])
        where = self.folder / "odd.log" if "text" in args else self.counted
        words = where.read_text().split() if where.exists() else []
        return "skip" if text in words else "redo"

    def _tried(self, what: str, act: Callable[[], object]) -> bool:
        """As people do: an error of the database or a decision that came too late is told, and tried again."""
        import psycopg

        from interlock.state.errors import InterlockError

        try:
            act()
        except (InterlockError, psycopg.Error) as error:
            self.troubles[f"{what}: {type(error).__name__}"] += 1
            with (self.folder / "troubles.log").open("a") as log:
                log.write(f"{what}: {error}\n")
            return False
        return True

    # What happens to them

    def fault(self) -> bool:
        """Do something bad to a random host, worker or drive; returns whether there was one."""
        kinds = ["kill a worker", "stop a worker", "kill a drive", "pause a drive"]
        kinds += ["cut a host", "pause a host", "kill a host"] if self.network else ["pause a worker"]
        kind = self.chance.choice(kinds)
        well = [host for host in self.hosts if not host.cut and not host.paused and host.worker_pid()]
        if not well:
            return False
        host = self.chance.choice(well)
        drives, seconds = self.drives(host), 0.0
        if kind.endswith("drive"):
            return self._to_a_drive(kind, drives)
        if kind == "stop a worker":
            os.kill(host.worker_pid() or 0, signal.SIGTERM)
        elif kind.startswith("kill"):
            self._note(drives, 0)
            host.kill() if kind == "kill a host" else os.kill(host.worker_pid() or 0, signal.SIGKILL)
        else:
            seconds = self.chance.uniform(5, 90 if kind == "cut a host" else 40)
            self._note(drives, seconds)
            self._away(kind, host, seconds)
        self.faults[kind] += 1
        return True

    def _away(self, kind: str, host: Host, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.away_until = max(self.away_until, end)
        if kind == "cut a host":
            assert self.network
            self.network.cut(host.number)
            host.cut = True
        else:
            worker = host.worker_pid()
            host.paused = {worker} if kind == "pause a worker" and worker else set(host.processes())
            _each(host.paused, signal.SIGSTOP)
        self.later.append((end, lambda: self._back(host)))

    def _back(self, host: Host) -> None:
        if host.cut and self.network:
            self.network.heal(host.number)
        _each(host.paused, signal.SIGCONT)
        host.cut, host.paused = False, set()

    def _to_a_drive(self, kind: str, drives: dict[str, int]) -> bool:
        if not drives:
            return False
        run, pid = self.chance.choice([*drives.items()])
        seconds = self.chance.uniform(3, 25) if kind.startswith("pause") else 0
        self._note({run: pid}, seconds)
        try:
            os.kill(pid, signal.SIGSTOP if seconds else signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.faults[kind] += 1
        if seconds:
            self.later.append((time.monotonic() + seconds, lambda: _each({pid}, signal.SIGCONT)))
        return True

    def _note(self, drives: dict[str, int], away_s: float) -> None:
        now = time.monotonic()
        with contextlib.suppress(Exception):  # the database may be away, too: then this one isn't measured
            for run, epoch in self.epochs([*drives]).items():
                self.hurt[run] = (epoch, now, now + away_s if away_s else float("inf"))

    def drives(self, host: Host) -> dict[str, int]:
        import psycopg

        try:
            return host.drives(self.rows("select run, host, pid from lease where held = 1"))
        except psycopg.Error:  # the database is away, too
            return {}

    def end_faults(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        due = [end for end in self.later if all_of_them or end[0] <= now]
        for one in due:
            self.later.remove(one)
            one[1]()

    def epochs(self, runs: list[str]) -> dict[str, int]:
        rows = self.rows("select run, epoch from lease where run = any(%s) and held = 1", [runs])
        return dict(rows)

    def look(self) -> None:
        """Note which runs were taken over."""
        now = time.monotonic()
        newer = self.epochs([*self.hurt])
        for run, (epoch, since, back) in [*self.hurt.items()]:
            if newer.get(run, epoch) > epoch:
                self.takeovers.append(now - since)
                del self.hurt[run]
            elif now > back:
                del self.hurt[run]  # its own driver goes on

    def rows(self, sql: str, values: list[Any] | None = None) -> list[Any]:
        import psycopg

        with psycopg.connect(self.address, connect_timeout=5) as conn:
            return conn.execute(sql.encode(), values).fetchall()

    def statuses(self) -> dict[str, str]:
        """Every run that was submitted → what its row says."""
        return dict(self.rows("select run, status from runs where run = any(%s)", [[*self.runs]]))


def _each(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> int:
    args = _arguments()
    if args.sample and installed() is None:
        print("skipped: PostgreSQL's server isn't installed")
        return 0
    if args.namespaces and os.getuid() != 0:
        sys.exit("--namespaces makes networks and needs root.")
    print(f"seed {args.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # it ends what it started
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="interlock-fleet-"))
        folder.chmod(0o755)
        if args.keep:
            print(folder, flush=True)
        else:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        network = stack.enter_context(Network(args.workers)) if args.namespaces else None
        listen = f"127.0.0.1,{network.address}.1" if network else "127.0.0.1"
        server = Server(f"-c listen_addresses={listen} -c max_connections=200")
        stack.callback(server.stop)
        address = server.start()
        proxy = None if network else Proxy(server.port)
        if network:
            _let_in(server, network)
        matrix = _made(args, folder, address, server, proxy, network)
        try:
            return _shaken(args, matrix, server, proxy)
        finally:
            matrix.end_faults(all_of_them=True)
            for host in matrix.hosts:
                host.kill()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=2, help="runs at a time on each worker")
    parser.add_argument("--seconds", type=float, default=300, help="how long faults are made")
    parser.add_argument("--every", type=float, default=2, help="seconds between two faults")
    parser.add_argument("--sample", action="store_true", help="50 runs and 60 s; skipped without PostgreSQL")
    parser.add_argument("--namespaces", action="store_true", help="each worker on a host of its own")
    parser.add_argument("--skew", type=int, default=3600, help="seconds by which hosts' clocks differ")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    args = parser.parse_args()
    if args.sample:
        args.runs, args.seconds = 50, 60
    return args


def _let_in(server: Server, network: Network) -> None:
    with (server.folder / "data" / "pg_hba.conf").open("a") as file:
        file.write(f"host all all {network.address}.0/24 trust\n")
    server.reload()


def _made(
    args: argparse.Namespace,
    folder: Path,
    address: str,
    server: Server,
    proxy: Proxy | None,
    network: Network | None,
) -> Matrix:
    for part in ("work", "home/.interlock"):
        (folder / part).mkdir(parents=True)
    (folder / "count.txt").touch()
    odd = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER)],
        "env": {"ODD_LOG": str(folder / "odd.log")},
    }
    (folder / "home/.interlock/settings.json").write_text(json.dumps({"mcpServers": {"odd": odd}}))
    model = Model(folder / "count.txt")
    at = f"{network.address}.1" if network else "127.0.0.1"
    store = address.replace(f"127.0.0.1:{server.port}", f"{at}:{proxy.port if proxy else server.port}")
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("INTERLOCK_", "GEMINI_", "GOOGLE_"))},
        "HOME": str(folder / "home"),
        "GEMINI_API_KEY": "a-key-for-loopback",
        "GOOGLE_GEMINI_BASE_URL": f"http://{at}:{model.server_address[1]}",
        "INTERLOCK_STORE": store,
    }
    hosts = [
        Host(
            n,
            folder,
            env,
            namespace=network.space(n) if network else "",
            skew_s=args.skew * (0, 1, -1)[n % 3] if network else 0,
            concurrency=args.concurrency,
        )
        for n in range(args.workers)
    ]
    return Matrix(folder, address, env, random.Random(args.seed), hosts, network)


def _shaken(args: argparse.Namespace, matrix: Matrix, server: Server, proxy: Proxy | None) -> int:
    from interlock.engine.client.fleet import Fleet

    Fleet(matrix._home()).set_up()
    begun, over = time.monotonic(), threading.Event()
    people = threading.Thread(target=_people, args=(args, matrix, over), daemon=True)
    people.start()
    disasters = _disasters(args, server, proxy, matrix)
    next_fault = begun
    while True:
        now = time.monotonic()
        for host in matrix.hosts:
            if not host.paused:
                host.start()
        if now - begun < args.seconds:
            next(disasters, None)
            if now >= next_fault and matrix.fault():
                next_fault = now + args.every
        matrix.end_faults(all_of_them=now - begun >= args.seconds + 90)
        try:
            matrix.look()
            statuses = matrix.statuses()
        except Exception as error:
            matrix.troubles[f"look: {type(error).__name__}"] += 1
            statuses = {}
        ended = [run for run, status in statuses.items() if status in ("done", "failed")]
        if len(ended) == args.runs or now - begun > args.seconds + _PATIENCE_S:
            break
        time.sleep(0.2)
    over.set()
    people.join()
    return _told(args, matrix, server, statuses, time.monotonic() - begun)


def _people(args: argparse.Namespace, matrix: Matrix, over: threading.Event) -> None:
    """Submit the runs over the first two thirds of the faults, and decide what is asked."""
    begun = time.monotonic()
    number = 0
    while not over.is_set():
        due = args.runs * min(1.0, (time.monotonic() - begun + 5) / (args.seconds * 2 / 3))
        if number < due:
            number += matrix._tried("submit", partial(matrix.submit, number))
        if number >= due or number % 10 == 0:
            matrix._tried("look", matrix.decide)
            over.wait(0.3)


def _disasters(
    args: argparse.Namespace, server: Server, proxy: Proxy | None, matrix: Matrix
) -> Iterator[None]:
    """The database crashes in the middle; later every connection is cut for a while."""
    begun = time.monotonic()
    while time.monotonic() - begun < args.seconds / 2:
        yield
    server.restart()
    matrix.faults["crash of the database"] += 1
    while time.monotonic() - begun < args.seconds * 3 / 4:
        yield
    if proxy:
        proxy.cut(20)
        matrix.faults["cut of every connection"] += 1


def _told(
    args: argparse.Namespace, matrix: Matrix, server: Server, statuses: dict[str, str], passed: float
) -> int:
    for host in matrix.hosts:
        pid = host.worker_pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
    for host in matrix.hosts:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if host.worker is not None:
                host.worker.wait(timeout=45)
    time.sleep(1)
    left = left_in(matrix.folder)
    count = Counter(matrix.counted.read_text().split())
    notes = (
        Counter(w for w in (matrix.folder / "odd.log").read_text().split() if w.isdigit())
        if (matrix.folder / "odd.log").exists()
        else Counter[str]()
    )
    numbers = {number: run for run, number in matrix.runs.items()}
    done = [n for n, run in numbers.items() if statuses.get(run) == "done"]
    served = [n for n in numbers if KINDS[n % len(KINDS)] == "server"]
    made = {n for n in numbers if (matrix.folder / "work" / str(n) / f"made-{n}.txt").exists()}
    lost = [n for n in done if not count[str(n)] or n not in made] + [
        n for n in served if n in done and not notes[str(n)]
    ]
    lost += [n for n in range(args.runs) if n not in numbers]
    doubled = [n for n in numbers if count[str(n)] > 1 or notes[str(n)] > 1]
    failed = [n for n, run in numbers.items() if statuses.get(run) == "failed"]
    stuck = [n for n, run in numbers.items() if statuses.get(run) not in ("done", "failed")]
    times = sorted(matrix.takeovers)
    kills = sum(number for kind, number in matrix.faults.items())
    log = (server.folder / "log").read_text(errors="replace")
    seen = {
        "recovered": log.count("was not properly shut down"),
        "clients lost": log.count("unexpected EOF") + log.count("could not receive data"),
    }
    print(
        f"{len(numbers)} runs in {passed:.0f} s: {len(done)} done, {len(lost)} lost, {len(doubled)} doubled, "
        f"{len(stuck)} stuck, {len(failed)} failed, {sum(matrix.asked.values())} asked, {len(left)} processes left"
    )
    print(f"{kills} faults: {json.dumps(matrix.faults)}; in PostgreSQL's log: {json.dumps(seen)}")
    if matrix.troubles:
        print(f"what people were told: {json.dumps(matrix.troubles)}")
    if times:
        print(
            f"{len(times)} takeovers: p50 {times[len(times) // 2]:.1f} s, p95 {times[int(len(times) * 0.95)]:.1f} s, "
            f"longest {times[-1]:.1f} s"
        )
    _explained(matrix, {"lost": lost, "doubled": doubled, "failed": failed, "stuck": stuck})
    if left:
        for pid in left:
            with contextlib.suppress(OSError):
                print("left:", pid, Path(f"/proc/{pid}/cmdline").read_bytes()[:200])
                os.kill(pid, signal.SIGKILL)
    nothing = not done or not times or not seen["recovered"] or len(matrix.faults) < 4
    if nothing:
        print("Nothing happened: too few faults, takeovers or runs to show anything.")
    return int(bool(lost or doubled or stuck or failed or left or nothing))


def _explained(matrix: Matrix, wrong: dict[str, list[int]]) -> None:
    numbers = {number: run for run, number in matrix.runs.items()}
    for what, found in wrong.items():
        for n in found[:10]:
            run = numbers.get(n, "")
            rows = matrix.rows("select status, outcome, step, error from runs where run = %s", [run])
            print(f"  {what}: {n} ({KINDS[n % len(KINDS)]}), run {run}: {rows}")


if __name__ == "__main__":
    sys.exit(main())
