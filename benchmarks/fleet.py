"""fleet: many runs on many workers while workers, drives, hosts and the database are killed, paused, cut off, stopped.

    .venv/bin/python -P benchmarks/fleet.py                      # 200 runs, 4 workers, 100 faults
    .venv/bin/python -P benchmarks/fleet.py --sample             # 50 runs, 14 faults, about a minute
    .venv/bin/python -P benchmarks/fleet.py --namespaces         # each worker on a host of its own; needs root
    .venv/bin/python -P benchmarks/fleet.py --figures            # lists, a turn, decisions, throughput

Starts PostgreSQL in a temporary folder (`docs/postgres_server.py`), a server on loopback that plays Gemini with 20 to
200 ms, and workers as processes. Each run edits a file and runs a command that counts itself on disk; a quarter of
them waits for a person's approval at each step, a quarter does its work in a subtask, a quarter also calls an MCP
server. Where a kill hides whether an effect happened, a person looks at the disk and answers. The next fault comes once
runs got further and somebody drives one, and the last run is submitted after the last fault. With root, people on
a host that asked for none wait for the runs there. Prints how many runs were lost, doubled, stuck, shown wrongly and
asked about, which faults came, how long takeovers took, and which processes are left; exit code 1 if anything was lost,
doubled, stuck, shown wrongly or left, if a fault shows in no log, or if nothing was taken over.
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
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parent))
from fleet_lab import KINDS, Host, Model, Network, Proxy, laid_out, left_in
from fleet_matrix import CRASH, CUT, SIGNS, Matrix, planned
from fleet_watchers import Watchers
from postgres_server import Server, installed

_PATIENCE_S = 1200
"""Seconds after the last fault within which every run must be over."""
_STEPS, _SLOW_S = 4, 60.0
"""Requests to the model between two faults, so that runs get on however busy the machine is; most seconds without."""
_AHEAD = 0.2
"""Part of the runs that is submitted before the faults that it takes part in."""


def main() -> int:
    args = _arguments()
    if args.sample and installed() is None:
        print("skipped: PostgreSQL's server isn't installed")
        return 0
    if args.figures:
        import fleet_figures

        return fleet_figures.main()
    if args.namespaces and os.getuid() != 0:
        sys.exit("--namespaces makes networks and needs root.")
    if args.sample and not args.namespaces:
        print("Without network namespaces: the workers share this host's network and clock.")
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
            return _shaken(args, matrix)
        finally:
            matrix.end_faults(all_of_them=True)
            for host in matrix.hosts:
                host.kill()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=2, help="runs at a time on each worker")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60, help="after these no more faults come")
    parser.add_argument("--every", type=float, default=2, help="least seconds between two faults")
    parser.add_argument(
        "--sample", action="store_true", help="50 runs, 14 short faults; skipped without PostgreSQL"
    )
    parser.add_argument(
        "--figures", action="store_true", help="no faults: what lists, turns and decisions take"
    )
    parser.add_argument("--namespaces", action="store_true", help="each worker on a host of its own")
    parser.add_argument("--skew", type=int, default=3600, help="seconds by which hosts' clocks differ")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    args = parser.parse_args()
    if args.sample:
        args.runs, args.faults, args.minutes = 50, 14, 4
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
    model = Model(folder / "count.txt", (20, 60) if args.sample else (20, 200))
    at = f"{network.address}.1" if network else "127.0.0.1"
    store = address.replace(f"127.0.0.1:{server.port}", f"{at}:{proxy.port if proxy else server.port}")
    env = laid_out(folder, model, store, at)
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
    short = {"pauses": (18, 20), "cut_s": 8} if args.sample else {}
    return Matrix(
        folder, address, env, random.Random(args.seed), hosts, network, server, proxy, model, **short
    )


def _shaken(args: argparse.Namespace, matrix: Matrix) -> int:
    from interlock.fleet.setup import create_store_and_queue

    create_store_and_queue(matrix.home())
    begun, over = time.monotonic(), threading.Event()
    plan = planned(args.faults, bool(matrix.network), matrix.chance)
    people = threading.Thread(target=_people, args=(args.runs, matrix, plan, over), daemon=True)
    people.start()
    last_fault, asked, calm, statuses = begun, 0, 0, dict[str, str]()
    watchers = Watchers(matrix.folder, matrix.env) if os.getuid() == 0 else None
    while True:
        now = time.monotonic()
        for host in matrix.hosts:
            if not host.paused:
                host.start()
        idle = now - last_fault < args.every or matrix.model.asked < asked + _STEPS
        if plan and not (idle and now - last_fault < _SLOW_S) and matrix.fault(plan[0]):
            last_fault, asked = time.monotonic(), matrix.model.asked
            del plan[0]
        if now - begun > args.minutes * 60:
            plan[:] = [kind for kind in plan if kind in (CRASH, CUT)]  # these hurt whoever is there
        matrix.end_faults()
        matrix.tried("look", matrix.look)
        if watchers:
            watchers.follow([*matrix.runs])
        if matrix.tried("look", lambda: statuses.update(matrix.statuses())):
            ended = [run for run, status in statuses.items() if status in ("done", "failed")]
            if plan and len(ended) == len(matrix.runs) == args.runs - 1:
                print(
                    f"{len(plan)} faults left out: of {args.runs} runs none was left to meet them", flush=True
                )
                plan.clear()
            if not plan and not matrix.hurt and not matrix.takeovers and len(ended) < args.runs:
                plan.append("kill a worker")  # whoever was hurt had just ended
            calm = calm + 1 if not plan and len(ended) == args.runs else 0
            if calm > 15:  # a person may still resume what was given up
                break
        if now - last_fault > _PATIENCE_S:
            break
        time.sleep(0.5)
    over.set()
    people.join()
    passed = time.monotonic() - begun
    misshown = watchers is not None and watchers.finish(statuses)
    return _told(args, matrix, statuses, passed) | misshown


def _people(runs: int, matrix: Matrix, plan: list[str], over: threading.Event) -> None:
    """Submit the runs as the faults come, and decide what is asked. The last run comes after the last fault."""
    number, faults = 0, len(plan)
    while not over.is_set():
        came = 1 - len(plan) / faults
        due = (
            runs if not plan and (matrix.takeovers or matrix.hurt) else min(runs - 1, runs * (came + _AHEAD))
        )
        while number < due and matrix.tried("submit", partial(matrix.submit, number)):
            number += 1
            if number % 10 == 0:
                break
        matrix.tried("decide", matrix.decide)
        over.wait(0.5)


def _told(args: argparse.Namespace, matrix: Matrix, statuses: dict[str, str], passed: float) -> int:
    _stop(matrix.hosts)
    left, wrong = left_in(matrix.folder), _wrong(args.runs, matrix, statuses)
    done = sum(status == "done" for status in statuses.values())
    times = sorted(seconds for seconds, _ in matrix.takeovers)
    apart = sorted(seconds for seconds, away in matrix.takeovers if not away)
    found = ", ".join(f"{len(numbers)} {what}" for what, numbers in wrong.items())
    asked = sum(matrix.asked.values())
    print(
        f"{len(matrix.runs)} runs in {passed:.0f} s: {done} done, {found}, {asked} asked, {len(left)} processes left"
    )
    print(f"{matrix.faults.total()} faults: {json.dumps(matrix.faults)}; load {os.getloadavg()[0]:.1f}")
    seen = matrix.seen()
    print(f"in the logs: {json.dumps(seen)}")
    if matrix.given_up:
        print(f"given up after three deaths, and resumed by a person: {json.dumps(matrix.given_up)}")
    if matrix.troubles:
        print(f"what people were told: {json.dumps(matrix.troubles)}")
    for which, some in (("", times), (" outside outages of the database", apart)):
        if some:
            p50, p95 = some[len(some) // 2], some[int(len(some) * 0.95)]
            print(f"{len(some)} takeovers{which}: p50 {p50:.1f} s, p95 {p95:.1f} s, longest {some[-1]:.1f} s")
    clocks, misdated = matrix.clocks(), matrix.misdated()
    print(
        f"commands by how many minutes their host's clock was off: {json.dumps(dict(sorted(clocks.items())))}"
    )
    if misdated:
        print(f"times that the database's clock never showed: {json.dumps(misdated)}")
    _explained(matrix, wrong)
    for pid in left:
        with contextlib.suppress(OSError):
            print("left:", pid, Path(f"/proc/{pid}/cmdline").read_bytes()[:200])
            os.kill(pid, signal.SIGKILL)
    unseen = [kind for kind, before in matrix.before.items() if seen[SIGNS[kind][1]] <= before]
    nothing = bool(
        unseen or not times or not done or {host.skew_s // 60 for host in matrix.hosts} - {*clocks}
    )
    if nothing:
        print(f"Nothing happened: faults that show in no log: {unseen}, {len(times)} takeovers, {done} done.")
    return int(any(wrong.values()) or bool(left or misdated) or nothing)


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
    log = matrix.folder / "odd.log"
    count = Counter(matrix.counted.read_text().split())
    lines = log.read_text().splitlines() if log.exists() else []
    noted = Counter(line.removeprefix("note ") for line in lines if line.startswith("note "))
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
