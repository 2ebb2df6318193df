"""servers: the language servers of one drive: started at the first edit of such a file, ended with the drive."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.language_servers.lost import ServerLostError
from interlock.services.language_servers.problems import Problem, describe_problems, find_new_problems
from interlock.services.language_servers.table import InstalledServer, ServerFinder
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.errors import RunError
from interlock.state.events import Emit, ErrorEvent

if TYPE_CHECKING:
    from interlock.services.language_servers.server import LanguageServer

_SERVER = "interlock.services.language_servers.server"
_LARGEST = 500_000
"""Characters; comparing more of it, before and after, takes longer than a second."""


@dataclass
class _Started:
    """A server, or one that was given up."""

    installed: InstalledServer
    running: "asyncio.Task[LanguageServer]"
    """Raises `ServerLostError`."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Edits are checked one after the other: an answer belongs to the text that was sent last."""
    is_lost: bool = False


class LanguageServers:
    """Implements `ProblemFinder`."""

    def __init__(
        self,
        finder: ServerFinder,
        *,
        processes: SupervisedProcesses,
        display_path: Callable[[Path], str],
        emit: Emit,
    ) -> None:
        self._finder, self._processes, self._display_path, self._emit = finder, processes, display_path, emit
        self._started: dict[tuple[str, Path], _Started] = {}
        self._checks: set[asyncio.Task[str | None]] = set()

    def has_server_for(self, path: Path) -> bool:
        return self._finder.has_server_for(path)

    def start_check(self, path: Path, before: str | None, after: str) -> asyncio.Task[str | None]:
        """See `ProblemFinder.start_check`."""
        task = asyncio.create_task(self._check(path, before, after))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        return task

    async def close(self) -> None:
        """End the servers, and checks that aren't finished."""
        for check in self._checks:
            check.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        await asyncio.gather(*(self._end(started) for started in self._started.values()))

    async def _check(self, path: Path, before: str | None, after: str) -> str | None:
        if max(len(before or ""), len(after)) > _LARGEST:
            return ""
        installed = await asyncio.to_thread(self._finder.find_servers, path)
        servers = [self._get_or_start(one) for one in installed]
        if all(one.is_lost for one in servers):
            return None
        found = await asyncio.gather(*(self._check_with(one, path, before, after) for one in servers))
        problems = [problem for some in found for problem in some]
        return describe_problems(self._display_path(path), problems) if problems else ""

    def _get_or_start(self, installed: InstalledServer) -> _Started:
        key = installed.name, installed.folder
        if key not in self._started:
            self._started[key] = _Started(installed, asyncio.create_task(self._start(installed)))
        return self._started[key]

    async def _start(self, installed: InstalledServer) -> "LanguageServer":
        try:
            program = await self._processes.start_with_pipes(
                installed.command, cwd=installed.folder, env=installed.server.env
            )
        except RunError as error:
            raise ServerLostError(str(error)) from error
        await asyncio.to_thread(import_module, _SERVER)  # while the server is starting
        from interlock.services.language_servers.server import LanguageServer  # half a second: imported above

        server = LanguageServer(installed, program)
        try:
            await server.start()
        except BaseException:
            await server.close()
            raise
        return server

    async def _check_with(
        self, started: _Started, path: Path, before: str | None, after: str
    ) -> list[Problem]:
        """Return what one server finds. A server that can't be used is reported once, and asked no more."""
        async with started.turn:
            if started.is_lost:
                return []
            try:
                server = await asyncio.shield(started.running)
                return await _find_what_edit_brought(server, path, before, after)
            except ServerLostError as error:
                why = str(error)
            except Exception as error:  # whatever a server makes pygls do, the edit isn't to blame
                why = f"an error in its messages: {error!r}"
            message = f"Language server {started.installed.name!r} is left out from here on: {why}"
            self._emit(ErrorEvent(severity="warning", message=message))
            await self._end(started)
            return []

    async def _end(self, started: _Started) -> None:
        if started.is_lost:
            return
        started.is_lost = True
        if not started.running.done():
            started.running.cancel()
        server = (await asyncio.gather(started.running, return_exceptions=True))[0]
        if not isinstance(server, BaseException):
            await server.close()


async def _find_what_edit_brought(
    server: "LanguageServer", path: Path, before: str | None, after: str
) -> list[Problem]:
    """Return problems that the server finds in `after`, and not in `before`.

    What looks new is looked at once more, in both texts: the first answer of a server that is still reading the project
    can be incomplete, and one about the text before can arrive after the next was sent.
    """
    server.close_removed_files()
    known = None if before is None else server.known_problems(path, before)
    found = await server.find_problems(path, after)
    if not found or before is None:
        return found
    new = found if known is None else await asyncio.to_thread(find_new_problems, known, before, found, after)
    if not new:
        return []
    old = await server.find_problems(path, before, again=True)
    found = await server.find_problems(path, after, again=True)
    confirmed = await asyncio.to_thread(find_new_problems, old, before, found, after)
    return [problem for problem in confirmed if problem in new]
