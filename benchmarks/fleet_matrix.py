"""fleet_matrix: the runs of the fleet's benchmark, what people do with them, and the faults that happen to them."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fleet_lab import KINDS, QUEUE, Host, Model, Network, Proxy, runs_somewhere
from postgres_server import Server

_SETTLED_S = 10.0
"""Seconds after a kill, or the end of a pause, before a person believes what the disk says about a run."""
HURTS = ("kill a worker", "stop a worker", "kill a drive", "pause a drive")
APART, TOGETHER = ("cut a host", "pause a host", "kill a host"), ("pause a worker",)
CRASH, CUT = "crash of the database", "cut of everybody"
_PUT_BACK = ("workers", "nobody drives it; put back")
SIGNS = {
    **dict.fromkeys((*APART, "pause a worker", "pause a drive", "kill a worker"), _PUT_BACK),
    "kill a drive": ("workers", "its process died (SIGKILL)"),
    "stop a worker": ("workers", "Stopping: no new runs"),
    CRASH: ("server", "was not properly shut down"),
    CUT: ("workers", "Can't reach the store"),
}
"""Fault → in whose log it shows, and by what."""


def planned(faults: int, apart: bool, chance: random.Random) -> list[str]:
    """As many faults, each kind about as often; the database crashes in the middle, and later all are cut off."""
    kinds, plan = [*HURTS, *(APART if apart else TOGETHER)], list[str]()
    while len(plan) < faults - 2:
        plan += chance.sample(kinds, len(kinds))
    plan = plan[: faults - 2]
    plan.insert(len(plan) // 2, CRASH)
    plan.insert(len(plan) * 3 // 4, CUT)
    return plan


@dataclass
class Matrix:
    """A fleet, what is done to it, and what became of the runs."""

    folder: Path
    address: str
    env: dict[str, str]
    chance: random.Random
    hosts: list[Host]
    network: Network | None
    server: Server
    proxy: Proxy | None
    model: Model
    pauses: tuple[float, float] = (5, 40)
    """Seconds for which a worker or a host is away."""
    cut_s: float = 20
    """Seconds for which everybody is cut off."""
    runs: dict[str, int] = field(default_factory=dict[str, int])
    faults: Counter[str] = field(default_factory=Counter[str])
    asked: Counter[str] = field(default_factory=Counter[str])
    given_up: Counter[str] = field(default_factory=Counter[str])
    """Runs that died too often, and how often a person resumed them."""
    hurt: dict[str, tuple[int, float, float]] = field(default_factory=dict[str, tuple[int, float, float]])
    """Run whose driver was killed, paused or cut off: its epoch, when, and until when it stays away."""
    takeovers: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    """Seconds each, and whether the database was away meanwhile."""
    outages: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """From when to when it was."""
    later: list[tuple[float, Callable[[], object]]] = field(
        default_factory=list[tuple[float, Callable[[], object]]]
    )
    """What ends a fault, and when."""
    quiet: dict[str, float] = field(default_factory=dict[str, float])
    """Run → when the last of those who drove it died, or comes back."""
    before: dict[str, int] = field(default_factory=dict[str, int])
    """Fault → how often the logs showed its like before it came first."""
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
            home=self.home(),
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

    def home(self) -> Path:
        from interlock.engine.client import resolve_state_directory

        return resolve_state_directory(self.env)

    def decide(self) -> None:
        """Approve what waits; answer what a kill has hidden as a person would who looks at the disk."""
        from interlock.engine.client import Client, Decision, Options
        from interlock.engine.read import list_waiting_requests

        client = Client(Options(home=self.home(), user_home=Path(self.env["HOME"]), env=self.env))
        for request in list_waiting_requests(self.home()):
            fields = request.fields
            if fields["kind"] != "outcome":
                decision = Decision(request.id, "proceed_once")
            elif (outcome := self._happened(request.run, fields)) is None:
                continue
            else:
                self.asked[request.run] += 1
                self.note(f"{request.run}: {outcome} {fields['args']}")
                decision = Decision(
                    request.id, "proceed_once" if outcome == "redo" else "reject", text=outcome
                )
            self.tried("decide", partial(client.resume_sync, request.run, decisions=[decision]))
        given_up = "select run from runs where run = any(%s) and status = 'failed' and error like %s"
        for (run,) in self.rows(given_up, [[*self.runs], '%"died"%']):
            self.given_up[run] += self.tried("resume", partial(client.resume_sync, run))
            self.hurt.pop(run, None)  # it waited for a person

    def _happened(self, run: str, fields: Any) -> str | None:
        """What the disk says; None: who drove the run before, or what that one started, may still do it."""
        args = fields["args"]
        text = str(args.get("text") or args.get("command", "").partition("echo ")[2].partition(" ")[0])
        if time.monotonic() < self.quiet.get(run, 0) + _SETTLED_S or runs_somewhere(f"echo {text} >>"):
            return None
        where = self.folder / "odd.log" if "text" in args else self.counted
        lines = where.read_text().splitlines() if where.exists() else []
        return "skip" if text in lines or f"note {text}" in lines else "redo"

    def tried(self, what: str, act: Callable[[], object]) -> bool:
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

    def note(self, line: str) -> None:
        with (self.folder / "events.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {line}\n")

    # What happens to them

    def fault(self, kind: str) -> bool:
        """Do something bad to whoever drives a run, or to all; returns whether there was somebody."""
        before, begun = self.seen()[SIGNS[kind][1]], time.monotonic()
        if kind not in (CRASH, CUT):
            if not self._to_one(kind):
                return False
        elif kind == CRASH:
            self.server.restart()
        elif self.proxy:
            self.proxy.cut(self.cut_s)
        else:
            for host in self.hosts:
                if not host.cut:
                    self._away("cut a host", host, self.cut_s)
        if kind in (CRASH, CUT):
            self.outages.append((begun, time.monotonic() + (self.cut_s if kind == CUT else 0)))
        self.before.setdefault(kind, before)
        self.faults[kind] += 1
        self.note(kind)
        return True

    def _to_one(self, kind: str) -> bool:
        well = [host for host in self.hosts if not host.cut and not host.paused]
        found = [(host, drives) for host in well if (drives := self.drives(host))]
        if not found:
            return False
        host, drives = self.chance.choice(found)
        if kind.endswith("drive"):
            return self._to_a_drive(kind, drives)
        if (worker := host.worker_pid()) is None:
            return False  # it has just ended
        if kind == "stop a worker":
            _each({worker}, signal.SIGTERM)
        elif kind.startswith("kill"):
            self._hurt(host, drives, 0)
            host.kill() if kind == "kill a host" else _each({worker}, signal.SIGKILL)
        else:
            shortest, longest = self.pauses
            seconds = self.chance.uniform(shortest, max(longest, 90) if kind == "cut a host" else longest)
            self._away(kind, host, seconds)
        self.note(f"{kind}: host {host.number}, {[*drives]}")
        return True

    def _away(self, kind: str, host: Host, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._hurt(host, self.drives(host), seconds)
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
        run, pid = self.chance.choice([*drives.items()])
        seconds = self.chance.uniform(*self.pauses) if kind.startswith("pause") else 0
        self._hurt(None, {run: pid}, seconds)
        try:
            os.kill(pid, signal.SIGSTOP if seconds else signal.SIGKILL)
        except ProcessLookupError:
            return False
        if seconds:
            self.later.append((time.monotonic() + seconds, lambda: _each({pid}, signal.SIGCONT)))
        self.note(f"{kind}: {run}, {seconds:.0f} s")
        return True

    def _hurt(self, host: Host | None, drives: dict[str, int], away_s: float) -> None:
        now = time.monotonic()
        for run in {*drives, *(host.driven() if host else ())}:
            self.quiet[run] = max(self.quiet.get(run, 0), now + away_s)
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

    def epochs(self, runs: list[str], *, driven: bool = True) -> dict[str, int]:
        rows = self.rows(
            "select run, epoch from lease where run = any(%s) and held >= %s", [runs, int(driven)]
        )
        return dict(rows)

    def look(self) -> None:
        """Note which runs were taken over."""
        now = time.monotonic()
        newer = self.epochs([*self.hurt], driven=False)
        for run, (epoch, since, back) in [*self.hurt.items()]:
            if newer.get(run, epoch) > epoch:
                away = any(begun < now and since < end for begun, end in self.outages)
                self.takeovers.append((now - since, away))
                self.note(f"{run}: taken over after {now - since:.0f} s")
                self.hurt.pop(run, None)
            elif now > back:
                self.hurt.pop(run, None)  # its own driver goes on

    def rows(self, sql: str, values: list[Any] | None = None) -> list[Any]:
        import psycopg

        with psycopg.connect(self.address, connect_timeout=5) as conn:
            return conn.execute(sql.encode(), values).fetchall()

    def seen(self) -> dict[str, int]:
        """What shows that a fault came → how often the logs say it."""
        workers = "".join(log.read_text(errors="replace") for log in self.folder.glob("worker*.log"))
        logs = {"workers": workers, "server": (self.server.folder / "log").read_text(errors="replace")}
        return {words: logs[whose].count(words) for whose, words in SIGNS.values()}

    def clocks(self) -> Counter[int]:
        """By how many minutes the clock was off where a run's command ran → how many runs."""
        told = [path for path in self.folder.glob("work/*/clock") if path.stat().st_size]
        return Counter(round((int(path.read_text()) - path.stat().st_mtime) / 60) for path in told)

    def misdated(self) -> dict[str, int]:
        """Columns with times before the first row's, or after now, by the database's clock → how many."""
        columns = self.rows(
            "select table_name, column_name from information_schema.columns where table_schema = current_schema "
            "and data_type = 'double precision' and column_name ~ '(^|_)(at|created|updated|started)$'"
        )
        ((begun,),) = self.rows("select at from store_version order by at limit 1")
        off = "{0} < %s or {0} > extract(epoch from clock_timestamp()) + 2"
        found = dict[str, int]()
        for table, column in columns:
            where = off.format(column)
            ((count,),) = self.rows(f"select count(*) from {table} where {where}", [begun - 2])
            found |= {f"{table}.{column}": count} if count else {}
        return found

    def statuses(self) -> dict[str, str]:
        """Every run that was submitted → what its row says."""
        return dict(self.rows("select run, status from runs where run = any(%s)", [[*self.runs]]))


def _each(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
