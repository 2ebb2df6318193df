"""scale: a large store, a large tree and a long session, through the commands that people type.

    python -P benchmarks/scale.py [PART…] [--of CLONE] [--times N]

Parts: `store` (100,000 runs, 10,000 open requests), `tree` (100,000 files in a git repository, and in none), `small`
(the first change among 2,500 files, while other processes keep every core busy), `session` (`export` and `replay` of a
run of 2,000 turns, beside one of 500). `--of`: measure another clone, too, in its own `.venv`, by turns. Times are the
least of the rounds, in seconds; CPU is user and system, with children. The data are made in TMPDIR.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

RUNS, OPEN, FILES, FEW, TURNS, FEWER = 100_000, 10_000, 100_000, 2_500, 2_000, 500
ENTRY = "import sys; from interlock.cli.main import main; sys.exit(main())"
SETTINGS = {"model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True}}


class Took(NamedTuple):
    wall: float
    cpu: float


_NONE = Took(0, 0)


class Version(NamedTuple):
    name: str
    python: str
    folder: Path
    """Of its own state directories."""

    def env(self, home: str) -> dict[str, str]:
        place = {"HOME": str(self.folder / "user"), "INTERLOCK_HOME": str(self.folder / home)}
        return {"PATH": os.environ["PATH"], "TMPDIR": tempfile.gettempdir(), **place}

    def argv(self, *words: str) -> list[str]:
        return [self.python, "-P", "-c", ENTRY, *words]

    def fill(self, what: str, *words: str) -> None:
        """Make a state directory with this version, in another process."""
        argv = [self.python, "-P", __file__, "--fill", what, str(self.folder / what), *words]
        subprocess.run(argv, check=True, env=self.env(what))


def ended(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[Took, bytes]:
    """Run a program to its end; returns its time and what it printed."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (said, errors):
            file.seek(0)
        if process.returncode:
            raise SystemExit(f"{argv[-6:]} ended with {process.returncode}: {errors.read()[-2000:].decode()}")
        return Took(wall, used.ru_utime + used.ru_stime), said.read()


Measured = Callable[[Version], Took]


def compare(what: str, versions: Sequence[Version], times: int, do: Measured, floor: Took = _NONE) -> Took:
    """Print the least of each version, by turns, less a floor; returns that of the first."""
    found: dict[str, list[Took]] = {one.name: [] for one in versions}
    for _ in range(times):
        for one in versions:
            found[one.name].append(do(one))
    return show(what, found, floor)


def show(what: str, found: Mapping[str, Sequence[Took]], floor: Took = _NONE) -> Took:
    least = {name: Took(*map(min, zip(*times, strict=True))) for name, times in found.items()}
    rest = {name: Took(t.wall - floor.wall, t.cpu - floor.cpu) for name, t in least.items()}
    print(f"{what:<46}", *(f"{name} {t.wall:.3f} s, CPU {t.cpu:.3f} s;" for name, t in rest.items()), end=" ")
    if len(rest) > 1:
        new, old = rest.values()
        print(f"ratio {new.wall / old.wall:.2f}, CPU {new.cpu / old.cpu:.2f}", end="")
    print(flush=True)
    return next(iter(least.values()))


# A large store


def fill_store(home: Path) -> None:
    """Runs with two model calls each; every tenth is parked with an open request."""
    from interlock.engine.store import Store
    from interlock.engine.store.runs import NewRun, insert_run

    rng, now = random.Random(1), time.time()
    store = Store(home).create_or_migrate()
    command = {"id": "0.0", "name": "run_shell_command", "args": {"command": "make release " + "x" * 300}}
    request = {
        "key": "k",
        "kind": "approval",
        "what": "approval",
        "call": command,
        "agent": "",
        "asked": 1,
        "reason": "commands ask",
        "preview": "make release\n" * 20,
        "always": {},
        "note": None,
        "choices": ["proceed_once", "proceed_always", "modify", "reject", "cancel"],
        "questions": [],
    }
    options = {"model": "gemini-2.5-pro", "approval_mode": "default", "rights": {"x": "y" * 1000}}
    with closing(store.connect()) as conn:
        insert_run(conn, NewRun("r", "main", "/work", "do it", options, {"prompt": "p" * 64}))
        columns = [column.name for column in conn.list_columns("runs")]
        row = dict(zip(columns, conn.execute("select * from runs").fetchone(), strict=True))
    # The store's own connection would add each row to the audit.
    with closing(sqlite3.connect(store.path)) as conn, conn:
        conn.execute("delete from runs")
        rows: list[list[Any]] = []
        calls: list[tuple[Any, ...]] = []
        asked: list[tuple[Any, ...]] = []
        leases: list[tuple[Any, ...]] = []
        for number in range(RUNS):
            name, at = f"{rng.randrange(16**6):06x}{number:05}", now - number * 60
            parked = number % (RUNS // OPEN) == 0
            own = {"run": name, "workspace": f"/work/p{number % 500}", "created": at - 60, "updated": at}
            own |= {"status": "open" if parked else "done", "outcome": "" if parked else "done"}
            own |= {"title": f"repair number {number}"}
            if number % 20 == 7:  # a fork
                own["parent"] = rows[-1][0]
            rows.append([{**row, **own}[column] for column in columns])
            leases.append((name, "host", "boot", 1, "1", 1, 5, 0))
            made = ("gemini-2.5-pro", 9000, 300, 0, 0, 9, 0.01, 900, at)
            calls += [(name, "", "main", n, f"t{n}", "h", "r", *made) for n in range(2)]
            if parked:
                asked.append((f"{name}-1.1", name, "k", json.dumps(request), at, f"i{number}", 1, 1))
        names = (
            "run, agent, role, ordinal, task, request_hash, record, model, input_tokens, output_tokens, "
            "cached_tokens, written_tokens, thought_tokens, usd, duration_ms, at"
        )
        for table, named, values in (
            ("runs", ", ".join(columns), rows),
            ("lease", "run, host, boot, pid, started, epoch, beat, held", leases),
            ("model_calls", names, calls),
            ("approvals", "id, run, key, request, asked_at, interrupt, number, seq", asked),
        ):
            sql = f"insert into {table} ({named}) values ({', '.join('?' * len(values[0]))})"
            conn.executemany(sql, values)


def large_store(versions: Sequence[Version], folder: Path, times: int) -> None:
    (work := folder / "empty").mkdir()
    newest = ""
    for one in versions:
        one.fill("store")
        said = ended(one.argv("runs", "--json"), work, one.env("store"))[1]
        newest = json.loads(said)[0]["run"]  # the same in all

    def command(*words: str) -> Measured:
        return lambda one: ended(one.argv(*words), work, one.env("store"))[0]

    def nothing(one: Version) -> Took:
        return ended([one.python, "-P", "-c", "pass"], work, one.env("store"))[0]

    floor = compare("an interpreter: python -c pass", versions, times * 3, nothing)
    for words in (("runs",), ("approvals",), ("runs", "--status", "waiting"), ("show", newest)):
        compare(f"beyond it: {' '.join(words)[:24]}", versions, times * 3, command(*words), floor)
    for words in (("runs", "--json"), ("approvals", "--json"), ("runs", "--all"), ("approvals", "--all")):
        compare(" ".join(words), versions, times, command(*words))
    _programs(versions, work, times)


_TEN = {"limit": 10, "select": ["thread_id", "status"]}
_ASKED: dict[str, Any] = {
    "threads/search": _TEN,
    "threads/search, metadata": {**_TEN, "metadata": {"graph_id": "main"}},
    "threads/search, status": {**_TEN, "status": "interrupted"},
    "threads/search, offset 50,000": {**_TEN, "offset": 50_000},
    "threads/count": {},
    "threads/count, status": {"status": "idle"},
}


def _programs(versions: Sequence[Version], work: Path, times: int) -> None:
    """LangGraph's API over the large store: one server of each version."""
    found: dict[str, dict[str, list[Took]]] = {name: {} for name in _ASKED}
    for one in versions:
        with _serving(one, work) as (pid, post):
            for name, body in _ASKED.items():
                for _ in range(times):
                    began, cpu = time.perf_counter(), _cpu_of(pid)
                    post(f"/{name.partition(',')[0]}", body)
                    took = Took(time.perf_counter() - began, _cpu_of(pid) - cpu)
                    found[name].setdefault(one.name, []).append(took)
    for name, took in found.items():
        show(f"POST {name}", took)


@contextmanager
def _serving(version: Version, work: Path) -> Generator[tuple[int, Callable[[str, Any], Any]]]:
    argv, env = version.argv("serve", "--port", "0", "--skip-trust"), version.env("store")
    with subprocess.Popen(argv, cwd=work, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url, _, token = server.stdout.readline().split()[-1].partition("/#token=")

        def post(path: str, body: Any) -> Any:
            headers = {"x-api-key": token, "content-type": "application/json"}
            asked = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(asked) as reply:
                return json.loads(reply.read())

        try:
            yield server.pid, post
        finally:
            server.terminate()


def _cpu_of(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, parts[11:13])) / os.sysconf("SC_CLK_TCK")


# Large and small trees


def fill_tree(folder: Path, files: int, *, repository: bool) -> None:
    """So many files with `.gitignore` and the one that a run adds: of more than 100,000 there are no snapshots."""
    rng = random.Random(1)
    for number in range(files - 2):
        file = folder / f"package{number % 100}" / f"part{number // 100 % 20}" / f"file{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes(rng.randint(100, 3000)).hex().encode())
    (folder / ".gitignore").write_text("*.pyc\n/build/\n")
    if repository:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "all")):
            subprocess.run(["git", *words], cwd=folder, check=True)


_WRITE = [{"tool_calls": [{"name": "write_file", "args": {"file_path": "new.txt", "content": "x"}}]}]
_GLOB = [{"tool_calls": [{"name": "glob", "args": {"pattern": "**/file9*9.py"}}]}]


_HOMES = count()


def _driven(folder: Path, replies: Sequence[Any], prompt: str = "go") -> Callable[[Path], Measured]:
    """A run in a new state directory, with these replies."""
    script = folder / f"script{next(_HOMES)}.json"
    script.write_text(json.dumps([*replies, {"text": "done"}]))

    def of(work: Path) -> Measured:
        def run(one: Version) -> Took:
            argv = one.argv("-p", prompt, "-m", f"script:{script}", "-y", "--skip-trust", "-o", "json")
            took, _ = ended(argv, work, one.env(home := f"driven{next(_HOMES)}"))
            shutil.rmtree(one.folder / home)
            (work / "new.txt").unlink(missing_ok=True)
            return took

        return run

    return of


def large_tree(versions: Sequence[Version], folder: Path, times: int) -> None:
    for kind in ("a repository", "no repository"):
        work = folder / kind.replace(" ", "-")
        fill_tree(work, FILES, repository=kind == "a repository")
        floor = compare(f"a run without calls, {kind}", versions, times, _driven(folder, [])(work))
        for what, replies, prompt in (
            ("glob", _GLOB, "go"),
            ("@file77777.py", [], "see @file77777.py"),
            ("the first change", _WRITE, "go"),
        ):
            do = _driven(folder, replies, prompt)(work)
            compare(f"{what}, beyond that, {kind}", versions, times, do, floor)
        shutil.rmtree(work)


def small_tree(versions: Sequence[Version], folder: Path, times: int) -> None:
    fill_tree(work := folder / "few", FEW, repository=True)
    burn = [sys.executable, "-c", "while True: pass"]
    burning = [subprocess.Popen(burn) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        floor = compare(
            f"a run without calls, {FEW:,} files, busy", versions, times, _driven(folder, [])(work)
        )
        compare("the first change, beyond that", versions, times, _driven(folder, _WRITE)(work), floor)
    finally:
        for process in burning:
            process.kill()
            process.wait()


# A long session

_TURNS_A_PROMPT = 50


def fill_session(home: Path, work: str, turns: str) -> None:
    """A run of so many turns, a prompt for every fifty of them: of four turns three read a file, and one edits."""
    from interlock.engine import Options, resume_sync, run_sync

    script = home.with_suffix(".json")
    replies = list[Any]()
    for number in range(int(turns)):
        name, args = "read_file", {"file_path": "a.txt"}
        if number % 4 == 3:
            name, args = "write_file", {"file_path": f"made{number % 40}.txt", "content": f"{number}\n"}
        replies.append({"tool_calls": [{"name": name, "args": args}]})
        if number % _TURNS_A_PROMPT == _TURNS_A_PROMPT - 1:
            replies[-1] = {"text": f"That was turn {number}."}
    script.write_text(json.dumps(replies))
    options = Options(
        home=home,
        workspace=Path(work),
        model=f"script:{script}",
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
    )
    run = run_sync("main", {"prompt": "prompt 0"}, options=replace(options, approval_mode="yolo")).run
    for number in range(1, int(turns) // _TURNS_A_PROMPT):
        if (ended := resume_sync(run, prompt=f"prompt {number}", options=options)).status != "done":
            raise SystemExit(f"turn {number} failed: {ended}")


def long_session(versions: Sequence[Version], folder: Path, times: int) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "a.txt").write_text("a line of some length, to be read\n" * 20)
    for turns in (FEWER, TURNS):
        for one in versions:
            one.fill(f"session{turns}", str(folder / "work"), str(turns))
        for words in (("export", "latest"), ("export", "latest", "--format", "json"), ("replay", "latest")):

            def command(one: Version, words: tuple[str, ...] = words, home: str = f"session{turns}") -> Took:
                return ended(one.argv(*words), folder / "work", one.env(home))[0]

            compare(f"{' '.join(words)}: {turns:,} turns", versions, times, command)


PARTS = {"store": large_store, "tree": large_tree, "small": small_tree, "session": long_session}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A large store, a large tree and a long session.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--of", type=Path, metavar="CLONE", help="measure this clone, too, in its own .venv")
    parser.add_argument("--times", type=int, default=3, help="rounds, of which the least counts")
    parser.add_argument("--fill", nargs="+", metavar="WHAT", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments or [])
    if args.fill:
        what, home, *words = args.fill
        (fill_store if what == "store" else fill_session)(Path(home), *words)
        return 0
    for part in args.parts or PARTS:
        print(f"-- {part}; load of this machine: {os.getloadavg()[0]:.1f}", flush=True)
        with tempfile.TemporaryDirectory(prefix="scale-") as name:
            folder, pythons = Path(name), {"now": sys.executable}
            if args.of:
                pythons["before"] = str(args.of / ".venv/bin/python")
            versions = [Version(each, python, folder / each) for each, python in pythons.items()]
            for one in versions:
                settings = one.folder / "user" / ".interlock" / "settings.json"
                settings.parent.mkdir(parents=True)
                settings.write_text(json.dumps(SETTINGS))
            PARTS[part](versions, folder, args.times)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
