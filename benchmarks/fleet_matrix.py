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

from fleet_lab import KINDS, QUEUE, Host, Network

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
        from interlock.engine.client import state_home

        return state_home(self.env)

    def decide(self) -> None:
        """Approve what waits; answer what a kill has hidden as a person would who looks at the disk."""
        from interlock.engine.client import Client, Decision, Options
        from interlock.engine.read import waiting_requests

        client = Client(Options(home=self.home(), user_home=Path(self.env["HOME"]), env=self.env))
        for request in waiting_requests(self.home()):
            fields = request.fields
            if fields["kind"] != "outcome":
                decision = Decision(request.id, "proceed_once")
            elif time.monotonic() < self.away_until + _SETTLED_S:
                continue  # a host that is away may still do it
            else:
                self.asked[request.run] += 1
                decision = Decision(request.id, "proceed_once", text=self._happened(fields))
            self.tried("decide", partial(client.go_on_sync, request.run, decisions=[decision]))

    def _happened(self, fields: Any) -> str:
        args = fields["args"]
        text = str(args.get("text") or args.get("command", "").partition("echo ")[2].partition(" ")[0])
        where = self.folder / "odd.log" if "text" in args else self.counted
        words = where.read_text().split() if where.exists() else []
        return "skip" if text in words else "redo"

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
