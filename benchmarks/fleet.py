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
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parent))
from fleet_lab import KINDS, Host, Model, Network, Proxy, left_in
from fleet_matrix import Matrix
from postgres_server import Server, installed

SERVER = Path(__file__).parents[1] / "tests" / "mcp_servers" / "odd.py"
_PATIENCE_S = 600
"""Seconds after the last fault within which every run must be over."""


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

    Fleet(matrix.home()).set_up()
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
            number += matrix.tried("submit", partial(matrix.submit, number))
        if number >= due or number % 10 == 0:
            matrix.tried("look", matrix.decide)
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
    _stop(matrix.hosts)
    left, wrong = left_in(matrix.folder), _wrong(args.runs, matrix, statuses)
    done = sum(status == "done" for status in statuses.values())
    times = sorted(matrix.takeovers)
    log = (server.folder / "log").read_text(errors="replace")
    seen = {
        "recovered": log.count("was not properly shut down"),
        "clients lost": log.count("unexpected EOF") + log.count("could not receive data"),
    }
    found = ", ".join(f"{len(numbers)} {what}" for what, numbers in wrong.items())
    asked = sum(matrix.asked.values())
    print(
        f"{len(matrix.runs)} runs in {passed:.0f} s: {done} done, {found}, {asked} asked, {len(left)} processes left"
    )
    kinds = json.dumps(matrix.faults)
    print(f"{matrix.faults.total()} faults: {kinds}; in PostgreSQL's log: {json.dumps(seen)}")
    if matrix.troubles:
        print(f"what people were told: {json.dumps(matrix.troubles)}")
    if times:
        p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
        print(f"{len(times)} takeovers: p50 {p50:.1f} s, p95 {p95:.1f} s, longest {times[-1]:.1f} s")
    _explained(matrix, wrong)
    for pid in left:
        with contextlib.suppress(OSError):
            print("left:", pid, Path(f"/proc/{pid}/cmdline").read_bytes()[:200])
            os.kill(pid, signal.SIGKILL)
    nothing = not done or not times or not seen["recovered"] or len(matrix.faults) < 4
    if nothing:
        print("Nothing happened: too few faults, takeovers or runs to show anything.")
    return int(bool(any(wrong.values()) or left or nothing))


def _stop(hosts: list[Host]) -> None:
    for host in hosts:
        if pid := host.worker_pid():
            os.kill(pid, signal.SIGTERM)
    for host in hosts:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if host.worker is not None:
                host.worker.wait(timeout=45)
    time.sleep(1)


def _wrong(runs: int, matrix: Matrix, statuses: dict[str, str]) -> dict[str, list[int]]:
    """What went wrong → the numbers of the runs, by what stands on the disk."""
    notes = matrix.folder / "odd.log"
    count = Counter(matrix.counted.read_text().split())
    noted = Counter(notes.read_text().split()) if notes.exists() else Counter[str]()
    numbers = {number: statuses.get(run) for run, number in matrix.runs.items()}

    def is_lost(number: int) -> bool:
        made = (matrix.folder / "work" / str(number) / f"made-{number}.txt").exists()
        served = KINDS[number % len(KINDS)] != "server" or noted[str(number)]
        return number not in numbers or (
            numbers[number] == "done" and not (count[str(number)] and made and served)
        )

    return {
        "lost": [n for n in range(runs) if is_lost(n)],
        "doubled": [n for n in numbers if count[str(n)] > 1 or noted[str(n)] > 1],
        "stuck": [n for n, status in numbers.items() if status not in ("done", "failed")],
        "failed": [n for n, status in numbers.items() if status == "failed"],
    }


def _explained(matrix: Matrix, wrong: dict[str, list[int]]) -> None:
    numbers = {number: run for run, number in matrix.runs.items()}
    for what, found in wrong.items():
        for n in found[:10]:
            run = numbers.get(n, "")
            rows = matrix.rows("select status, outcome, step, error from runs where run = %s", [run])
            print(f"  {what}: {n} ({KINDS[n % len(KINDS)]}), run {run}: {rows}")


if __name__ == "__main__":
    sys.exit(main())
