"""fleet_figures: what a fleet costs without faults: a turn, decisions, lists in a large store, throughput.

`benchmarks/fleet.py --figures` prints them. On a shared machine only ratios within one run count.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from fleet_lab import INTERLOCK, QUEUE, Host, Model, cpu_of, laid_out
from postgres_server import Server

_ASKS = [
    {"tool_calls": [{"name": "run_shell_command", "args": {"command": "make release"}}]},
    {"text": "Done."},
]
_TURNS, _ROUNDS = 40, 5
_SMALL = 10
_RUNS, _PARKED = 100_000, 10_000
_DECISIONS, _DECIDERS = 400, 2
_THROUGHPUT, _STEP = 40, 9
_COPIES = """
set synchronous_commit = off;
create temp table one as select * from runs;
insert into runs select 'r' || lpad(n::text, 7, '0'), workflow, parent, subtask_of, '/work/' || n % 500, title,
    created - n, updated - n, case when n <= {parked} then 'open' else 'done' end,
    case when n <= {parked} then '' else 'done' end, step, options, input, error, '{queue}'
    from one, generate_series(1, {runs}) n;
create temp table asked as select * from approvals;
insert into approvals select 'r' || lpad(n::text, 7, '0') || '-1.0', 'r' || lpad(n::text, 7, '0'), key, request,
    asked_at - n, interrupt, answer, answered_at, answered_by, rule, superseded, number, seq
    from asked, generate_series(1, {parked}) n;
create temp table calls as select * from model_calls limit 1;
insert into model_calls select 'r' || lpad(n::text, 7, '0'), agent, role, ordinal, task || n, request_hash, record,
    model, finish_reason, problem, input_tokens, output_tokens, cached_tokens, written_tokens, thought_tokens, usd,
    duration_ms, at - n from calls, generate_series(1, {runs}) n;
"""
_TABLES = "select relname from pg_stat_user_tables where relname not like 'procrastinate%' order by relname"


def main() -> int:
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for part in (_turns, _one_run, _large_store, _throughput):
        server = Server("-c max_connections=200")
        try:
            with tempfile.TemporaryDirectory() as folder:
                part(server, Path(folder))
        finally:
            server.stop()
    print(f"load of this machine: {os.getloadavg()[0]:.1f}", flush=True)
    return 0


def _turns(server: Server, folder: Path) -> None:
    """The same turns on both databases, in turn, in this process."""
    from interlock.engine import Options, run_sync
    from interlock.engine.store import prepare_state_directory_for_store

    (folder / "work").mkdir()
    (folder / "work" / "a.txt").write_text("x" * 2000)
    read = {"tool_calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]}
    homes = {
        "SQLite": folder / "sqlite",
        "PostgreSQL": prepare_state_directory_for_store(folder / "home", server.start()),
    }

    def took(home: Path, turns: int) -> tuple[float, float]:
        (folder / "script.json").write_text(json.dumps([*[read] * turns, {"text": "Done."}]))
        options = Options(
            home=home,
            user_home=folder,
            workspace=folder / "work",
            model=f"script:{folder / 'script.json'}",
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            overrides={"model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True}},
        )
        begun, cpu = time.perf_counter(), time.process_time()
        if run_sync("main", {"prompt": "go"}, options=options).status != "done":
            sys.exit("a run of the bench failed")
        return time.perf_counter() - begun, time.process_time() - cpu

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in homes}
    for number in range(_ROUNDS + 1):
        for name, home in homes.items():
            short, long = took(home, 1), took(home, 1 + _TURNS)
            if number:  # the first round warms up
                found[name].append(((long[0] - short[0]) / _TURNS, (long[1] - short[1]) / _TURNS))
    each = {name: [median(part) * 1000 for part in zip(*times, strict=True)] for name, times in found.items()}
    for name, (passed, cpu) in each.items():
        print(f"a turn on {name:10}: {passed:.1f} ms, of which {cpu:.1f} ms are this process's CPU")
    ratio = each["PostgreSQL"][0] / each["SQLite"][0]
    print(f"PostgreSQL / SQLite: {ratio:.2f} (aim: 1.5 at most)", flush=True)


def _one_run(server: Server, folder: Path) -> None:
    """Rows and bytes that a run with an edit and a command leaves."""
    import psycopg

    env = _commands(server, folder)
    script = folder / "script.json"
    edit = {"name": "write_file", "args": {"file_path": "a.txt", "content": "a\n"}}
    script.write_text(json.dumps([{"tool_calls": [edit]}, _ASKS[0], {"text": "Done."}]))
    (work := folder / "work").mkdir()
    for _ in range(_SMALL):
        _run(env, work, "-p", "release it", "-y", "--skip-trust", "-m", f"script:{script}")
    with psycopg.connect(env["INTERLOCK_STORE"], autocommit=True) as conn:
        names = [name for (name,) in conn.execute(_TABLES)]
        sized = "select '{0}', count(*), coalesce(sum(pg_column_size(t.*)), 0) from {0} t"
        found = [row for name in names for row in conn.execute(sized.format(name).encode())]
    rows, size = (sum(row[place] for row in found) / _SMALL for place in (1, 2))
    print(
        f"a run with an edit and a command: {rows:.0f} rows, {size / 1000:.1f} KB without indexes", flush=True
    )
    for name, number, taken in sorted(found, key=lambda row: -row[2])[:6]:
        print(f"  {name:24} {number / _SMALL:6.1f} rows {taken / _SMALL / 1000:8.1f} KB")


def _large_store(server: Server, folder: Path) -> None:
    """Whole commands, beside one that needs no store; then decisions."""
    import psycopg

    env = _commands(server, folder)
    script = folder / "script.json"
    script.write_text(json.dumps(_ASKS))
    _run(env, folder, "-p", "release it", "-m", f"script:{script}")
    with psycopg.connect(env["INTERLOCK_STORE"], autocommit=True) as conn:
        conn.execute("alter table runs disable trigger user; alter table approvals disable trigger user")
        conn.execute(_COPIES.format(runs=_RUNS, parked=_PARKED, queue=QUEUE).encode())
        conn.execute("alter table runs enable trigger user; alter table approvals enable trigger user")
        conn.execute("vacuum analyze")
    for words in (("--version",), ("runs",), ("approvals",), ("runs", "--status", "waiting"), ("fleet",)):
        took = median(_run(env, folder, *words) for _ in range(5))
        print(f"interlock {' '.join(words):24} {took * 1000:6.0f} ms", flush=True)
    home = Path(env["INTERLOCK_HOME"])
    for name, read in _lists(home, env["INTERLOCK_STORE"]).items():
        print(
            f"{name} in a process that runs already: {_median_ms(read):.0f} ms (aim: 300 at most)", flush=True
        )
    share = _DECISIONS // _DECIDERS
    starts = [1 + n * share for n in range(_DECIDERS)]
    with ProcessPoolExecutor(_DECIDERS, get_context("spawn")) as pool:
        decide = partial(decided, dict(env))
        [*pool.map(decide, [_PARKED - n for n in range(_DECIDERS)], [1] * _DECIDERS)]  # they import first
        begun = time.perf_counter()
        [*pool.map(decide, starts, [share] * _DECIDERS)]
        rate = share * _DECIDERS / (time.perf_counter() - begun)
    print(f"{rate:.0f} decisions a second by {_DECIDERS} processes (aim: 200)", flush=True)


def _lists(home: Path, address: str) -> dict[str, Callable[[], object]]:
    from interlock.engine.read import list_runs, list_waiting_requests
    from interlock.engine.store import Store, prepare_state_directory_for_store

    store = prepare_state_directory_for_store(home, address)
    conn = Store(store).connect()
    return {
        "runs": lambda: list_runs(store, limit=20),
        "runs --status waiting": lambda: list_runs(store, "waiting", limit=20),
        "approvals --all": lambda: list_waiting_requests(store),
        "approvals": lambda: list_waiting_requests(store, limit=20),
        "a worker's sweep": lambda: conn.jobs.list_possibly_abandoned_runs(12.0),
    }


def _median_ms(act: Callable[[], object]) -> float:
    times = list[float]()
    for _ in range(6):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return median(times[1:]) * 1000


def decided(env: dict[str, str], first: int, number: int) -> None:
    """Approve the requests of so many runs, each with its job."""
    from interlock.engine.client import Client, Decision, Options, resolve_state_directory

    client = Client(Options(home=resolve_state_directory(env), user_home=Path(env["HOME"]), env=env))
    for run in (f"r{n:07}" for n in range(first, first + number)):
        client.resume_sync(run, decisions=[Decision(f"{run}-1.0", "proceed_once")])


def _throughput(server: Server, folder: Path) -> None:
    """Runs a second with more and more workers, a model that takes 100 ms, and no other wait to speak of."""
    from interlock.engine.client import Client, Options, resolve_state_directory
    from interlock.fleet.setup import create_store_and_queue

    store = server.start()
    for workers in (1, 2, 4, 8):
        place = folder / str(workers)
        env = laid_out(place, Model(place / "count.txt", (100, 100)), store)
        home = resolve_state_directory(env)
        create_store_and_queue(home)
        hosts = [Host(n, place, env) for n in range(workers)]
        for host in hosts:
            atexit.register(host.kill)
            host.start()
        while (
            sum((place / f"worker{host.number}.log").read_text().count("Worker for") for host in hosts)
            < workers
        ):
            time.sleep(0.1)
        names = list[str]()
        cpu, server_cpu, begun = cpu_of(place, drives=True), cpu_of(server.folder), time.perf_counter()
        for number in range(0, _THROUGHPUT * _STEP, _STEP):
            (work := place / "work" / str(number)).mkdir()
            more: dict[str, Any] = {"approval_mode": "yolo", "skip_trust": True, "queue": QUEUE}
            options = Options(
                home, workspace=work, user_home=Path(env["HOME"]), env=env, model="gemini-2.5-flash", **more
            )
            names.append(Client(options).start_sync("main", {"prompt": f"work {number} edit"}).run)
        while _over(store, names) < _THROUGHPUT:
            time.sleep(0.1)
        passed = time.perf_counter() - begun
        spent = [
            (now - was) / _THROUGHPUT
            for now, was in ((cpu_of(place, drives=True), cpu), (cpu_of(server.folder), server_cpu))
        ]
        print(
            f"{workers} workers, two runs at a time each: {_THROUGHPUT / passed:.2f} runs/s; CPU a run: "
            f"{spent[0]:.2f} s in workers, {spent[1]:.2f} s in PostgreSQL; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        for host in hosts:
            host.kill()


def _over(store: str, names: list[str]) -> int:
    import psycopg

    with psycopg.connect(store) as conn:
        sql = "select count(*) from runs where run = any(%s) and status in ('done', 'failed')"
        row = conn.execute(sql, [names]).fetchone()
    return row[0] if row else 0


def _commands(server: Server, folder: Path) -> dict[str, str]:
    """The environment of commands on an empty database with a queue."""
    store = {"INTERLOCK_STORE": server.start(), "INTERLOCK_HOME": str(folder / "state")}
    env = {**os.environ, "HOME": str(folder), **store}
    _run(env, folder, "fleet", "init")
    return env


def _run(env: dict[str, str], folder: Path, *words: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [*INTERLOCK, *words], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 75):
        sys.exit(f"interlock {' '.join(words)}: {done.stderr}")
    return time.perf_counter() - begun
