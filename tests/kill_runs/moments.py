"""moments: fail points before and after every commit, every effect and every node of a child process."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Moments:
    """Lists moments in `file`, or kills this process at one of them and records which there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at: int | None = None
        self._seen = 0

    def note(self) -> None:
        self._patch()
        self._file.touch()

    def kill_at(self, moment: int) -> Callable[[], None]:
        self._at = moment
        return self._patch

    def _here(self, where: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # heartbeats: their number depends on how busy the machine is
        self._seen += 1
        if self._at is None:
            with self._file.open("a") as file:
                file.write(f"{where}\n")
        elif self._seen == self._at:
            self._file.write_text(where)
            os.kill(os.getpid(), signal.SIGKILL)

    def _patch(self) -> None:
        from interlock.engine.store import steps
        from interlock.engine.store.sqlite import SqliteConnection
        from interlock.services.files import blobs, filesystem
        from interlock.services.files import calls as file_calls
        from interlock.services.mcp import servers
        from interlock.services.process import processes

        self._around(SqliteConnection, "commit", "commit")
        if "KILL_STORE" in os.environ:
            from interlock.fleet.postgres import PostgresConnection

            self._around(PostgresConnection, "commit", "commit")
        self._around(file_calls, "write_keeping_file", "write")
        for written in (blobs, filesystem):
            self._around(written, "store_content", "output file")
        # Between two nodes, when the first one's writes wait for a commit.
        self._around(steps.StepLog, "record_end", "the end of a node")
        self._around_async(processes.SupervisedProcesses, "run", "command")
        self._around_async(servers.Servers, "call_tool", "call of a server")

    def _around_async(self, owner: Any, name: str, what: str) -> None:
        function = getattr(owner, name)

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._here(f"before {what}")
            ended = await function(*args, **kwargs)
            self._here(f"after {what}")
            return ended

        setattr(owner, name, wrapped)

    def _around(self, module: Any, name: str, what: str) -> None:
        function = getattr(module, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._here(f"before {what}")
            result = function(*args, **kwargs)
            self._here(f"after {what}")
            return result

        setattr(module, name, wrapped)
        _replace_everywhere(function, wrapped)


_DURABLE = ("after commit", "after write", "after output file", "after command", "after call of a server")
"""These change the disk or the world. Kills between two of them leave the same state."""


def one_of_each_state(moments: list[str]) -> list[int]:
    """Moments, counted from 1: one per distinct state, alternately early and late."""
    states: list[list[int]] = [[]]
    for number, where in enumerate(moments, 1):
        if where in _DURABLE:
            states.append([])
        states[-1].append(number)
    return [same[place % len(same)] for place, same in enumerate(states) if same]


def _replace_everywhere(old: Any, new: Any) -> None:
    """Replace every copy of a function: modules import them by name."""
    import sys

    for name, module in list(sys.modules.items()):
        if name.startswith("interlock."):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)
