"""fleet_watchers: people on another host than the one that asked wait for the fleet's runs, and list them."""

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet_lab import INTERLOCK

_AT_ONCE = 10
"""Runs that one command waits for."""
_LATE_S = 60.0
"""Seconds after the end of the last run within which every command must have returned."""
_AGAIN_S = 5.0
"""Seconds before a person waits again for a run that parked."""
_ENDS = ("done", "failed", "cancelled")
_ELSEWHERE = ("unshare", "--uts", "sh", "-ec", 'hostname elsewhere; exec "$@"', "sh")
"""Runs what follows on a host of another name; needs root."""


@dataclass
class Watchers:
    """Waits for runs from a host that drives none and asked for none."""

    folder: Path
    env: Mapping[str, str]
    said: dict[str, str] = field(default_factory=dict[str, str])
    """Run → how `interlock wait` said that it ended."""
    again: int = 0
    """Commands that returned before their runs were over: they parked, or the store was away."""
    _seen: set[str] = field(default_factory=set[str])
    _due: list[str] = field(default_factory=list[str])
    _next: float = 0.0
    """When those that are due are waited for again."""
    _waiting: "dict[subprocess.Popen[str], list[str]]" = field(default_factory=dict)

    def follow(self, runs: Iterable[str]) -> None:
        """Begin to wait for runs that are new, and go on with those that a command left."""
        for process in [process for process in self._waiting if process.poll() is not None]:
            self._take_result(process)
        new = [run for run in runs if run not in self._seen]
        self._seen.update(new)
        self._due += new
        while len(self._due) >= _AT_ONCE and time.monotonic() > self._next:
            self._begin_wait()

    def finish(self, statuses: Mapping[str, str]) -> bool:
        """Wait for every command, as long as a person would; print, and return whether anything is shown wrongly."""
        end = time.monotonic() + _LATE_S
        while time.monotonic() < end and {*statuses} - {*self.said}:
            self.follow(statuses)
            if self._due and time.monotonic() > self._next:
                self._begin_wait()
            time.sleep(0.5)
        for process in self._waiting:
            process.kill()
        wrong = self._find_wrong(statuses)
        print(
            f"on another host: {len(self.said)} runs were waited for, {len(wrong)} are shown wrongly; "
            f"{self.again} waits were begun again"
        )
        for run, how in wrong.items():
            print(f"  {run}, {statuses[run]}: {how}")
        return bool(wrong)

    def _find_wrong(self, statuses: Mapping[str, str]) -> dict[str, str]:
        """Runs that are shown otherwise than their rows say, or never returned → how."""
        listed = self._output_of("runs", "--all", "--json")
        shown = {row["run"]: row["status"] for row in json.loads(listed)}
        found = {run: f"listed as {shown.get(run)}" for run in statuses if shown.get(run) != statuses[run]}
        # One that failed may have been resumed after its end was told.
        waits = {run: self.said.get(run, "never returned") for run in statuses}
        unlike = {run: said for run, said in waits.items() if said not in (statuses[run], "failed")}
        return found | {run: f"wait: {said}" for run, said in unlike.items()}

    def _begin_wait(self) -> None:
        runs, self._due = self._due[:_AT_ONCE], self._due[_AT_ONCE:]
        with (self.folder / "watchers.log").open("a") as log:
            process = subprocess.Popen(
                [*_ELSEWHERE, *INTERLOCK, "wait", "--json", *runs],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                text=True,
            )
        self._waiting[process] = runs

    def _take_result(self, process: "subprocess.Popen[str]") -> None:
        runs = self._waiting.pop(process)
        assert process.stdout
        told = process.stdout.read()
        rows: list[dict[str, Any]] = json.loads(told) if told else []
        self.said |= {row["run"]: row["status"] for row in rows if row["status"] in _ENDS}
        left = [run for run in runs if run not in self.said]
        if left:
            self.again += 1
            self._due += left
            self._next = time.monotonic() + _AGAIN_S

    def _output_of(self, *words: str) -> str:
        command = [*_ELSEWHERE, *INTERLOCK, *words]
        done = subprocess.run(
            command, env=dict(self.env), cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{words} on another host: {done.stderr}")
        return done.stdout
