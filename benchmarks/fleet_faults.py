"""fleet_faults: what `fleet.py` doesn't do to PostgreSQL: full disks, and a failover to a synchronous standby.

    .venv/bin/python -P benchmarks/fleet_faults.py all      # or some of: disk wal failover; each takes a minute

In each scene a worker drives runs of mixed work when the fault comes. Prints a line a scene: how many runs were lost,
doubled and asked about; then a line on the scenes that this machine doesn't allow. Exit code 1 if any run was lost or
doubled, if a command on the way wasn't told of the fault in one line, if nothing was tried, or if a scene broke.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
sys.path.insert(0, str(Path(__file__).parent))
from fleet_lab import INTERLOCK, Host, Model, laid_out
from fleet_matrix import Matrix
from postgres_server import Server

_RUNS, _PATIENCE_S, _FULL_S = 8, 180.0, 12.0
_BURN = (
    "create table if not exists burnt (n int); insert into burnt select generate_series(1, 100000); select 1"
)
_MEGABYTES = {"data": 80, "wal": 24}


def main() -> int:
    names = [name for name in sys.argv[1:] if name != "all"] or [*SCENES]
    if unknown := {*names} - {*SCENES}:
        sys.exit(f"No scene {', '.join(sorted(unknown))}; there are: all, {', '.join(SCENES)}.")
    why = {name: _hindrance(name) for name in names}
    failed = [name for name in names if not why[name] and not _passes(name)]
    if skipped := [f"{name} ({reason})" for name, reason in why.items() if reason]:
        print(f"skipped: {', '.join(skipped)}", flush=True)
    return int(bool(failed) or all(why.values()))


def _hindrance(name: str) -> str:
    """Why this machine doesn't allow a scene; empty: it does."""
    with contextlib.ExitStack() as stack:
        server = Server()
        stack.callback(_ended, server)
        if name == "failover":
            return "" if (server.programs / "pg_basebackup").exists() else "there is no pg_basebackup"
        try:
            _small_disks(server)
        except (OSError, subprocess.CalledProcessError):
            return "it mounts small disks, which needs root and a system that lets it"
    return ""


def _passes(name: str) -> bool:
    try:
        return _scene(name)
    except Exception as error:  # the others are tried nevertheless
        print(f"{name}: broke: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return False


def _scene(name: str) -> bool:
    from interlock.fleet.setup import create_store_and_queue

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-fleet-")))
        server, spare = Server(), Server()
        for one in (server, spare):
            stack.callback(_ended, one)
        if name == "failover":
            address = server.start()
            spare.follow(server)
            with (server.folder / "data" / "postgresql.auto.conf").open("a") as file:
                file.write("synchronous_standby_names = 'spare'\nsynchronous_commit = off\n")
            server.reload()
        else:
            _small_disks(server)
            address = server.start("-X", str(server.folder / "wal"), "--wal-segsize=1")
        # The first that takes writes: the standby, once it is promoted.
        here = f"127.0.0.1:{server.port}"
        both = address.replace(here, f"{here},127.0.0.1:{spare.port}" if name == "failover" else here)
        store = f"{both}?target_session_attrs=read-write"
        env = laid_out(folder, model := Model(folder / "count.txt", (300, 1200)), store)
        stack.callback(model.server_close)
        stack.callback(model.shutdown)
        host = Host(0, folder, env, concurrency=4)
        matrix = Matrix(folder, store, env, Random(0), [host], None, server, None, model)
        create_store_and_queue(matrix.home())
        for number in range(_RUNS):
            matrix.submit(number)
        stack.callback(host.kill)
        host.start()
        begun = time.monotonic()
        while not matrix.counted.read_text():
            if time.monotonic() - begun > _PATIENCE_S:
                raise TimeoutError("no run got anywhere before the fault")
            time.sleep(0.1)
        return _ends(name, matrix, SCENES[name](matrix, spare))


def _small_disks(server: Server) -> None:
    for place, size in _MEGABYTES.items():
        (at := server.folder / place).mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=700", "tmpfs", at]
        subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)
        shutil.chown(at, server.folder.owner())


def _ends(name: str, matrix: Matrix, told: bool) -> bool:
    until, statuses = time.monotonic() + _PATIENCE_S, dict[str, str]()
    while time.monotonic() < until and (len(statuses) < _RUNS or {*statuses.values()} != {"done"}):
        matrix.hosts[0].start()
        matrix.tried("decide", matrix.decide)
        matrix.tried("look", lambda: statuses.update(matrix.statuses()))
        time.sleep(1)
    count = Counter(matrix.counted.read_text().split())
    lost = [n for run, n in matrix.runs.items() if statuses.get(run) != "done" or not count[str(n)]]
    twice = [n for n, times in count.items() if times > 1]
    asked = matrix.asked.total()
    for number in twice:
        run = next(run for run, n in matrix.runs.items() if str(n) == number)
        columns = "tool, attempt, state, epoch, intent_at, done_at"
        rows = matrix.rows(f"select {columns} from journal where run = %s order by intent_at", [run])
        print(f"  doubled: {number}, run {run}: {rows}; {(matrix.folder / 'events.log').read_text()}")
    print(
        f"{name}: {_RUNS} runs, {len(lost)} lost, {len(twice)} doubled, {asked} asked; told: {told}",
        flush=True,
    )
    return bool(told and not lost and not twice)


def _ended(server: Server) -> None:
    if (server.folder / "data" / "postmaster.pid").exists():
        server.crash()
    for place in _MEGABYTES:
        subprocess.run(["umount", "-l", server.folder / place], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(server.folder, ignore_errors=True)


def _is_told(matrix: Matrix, words: str) -> bool:
    """Whether somebody who starts a run is told of the fault in one line."""
    command = [*INTERLOCK, "run", "main", "--detach", "--queue", "bench", "nothing"]
    done = subprocess.run(
        command, env=matrix.env, cwd=matrix.folder, capture_output=True, text=True, check=False
    )
    return done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1


def _filled(place: Path) -> Path:
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def _disk(matrix: Matrix, _spare: Server) -> bool:
    filler = _filled(matrix.server.folder / "data")
    time.sleep(_FULL_S)
    told = _is_told(matrix, "No space left on the server")
    filler.unlink()
    return told


def _wal(matrix: Matrix, _spare: Server) -> bool:
    """A full disk for the log is a panic: the server stays down until somebody starts it."""
    filler = _filled(matrix.server.folder / "wal")
    while matrix.tried("burn", lambda: matrix.rows(_BURN)):
        pass
    time.sleep(_FULL_S)
    told = _is_told(matrix, "Can't reach the store")
    filler.unlink()
    matrix.server.again()
    return told


def _failover(matrix: Matrix, spare: Server) -> bool:
    matrix.server.crash()
    # A drive without the database stops its command after 6 s. Before that, nobody says what became of it.
    matrix.quiet.update(dict.fromkeys(matrix.runs, time.monotonic()))
    told = _is_told(matrix, "Can't reach the store")
    spare.promote()
    return told


SCENES: dict[str, Callable[[Matrix, Server], bool]] = {"disk": _disk, "wal": _wal, "failover": _failover}

if __name__ == "__main__":
    sys.exit(main())
