"""recorded: a server as a run knew it: what is kept of it, and what stands in its place in a replay, where nothing is
started or asked."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter

from interlock.services.mcp.client import Listing, Session
from interlock.services.mcp.connection import Connection, UnavailableError
from interlock.services.mcp.spec import ServerSpec
from interlock.state.mcp import ServerStatus

_WHY = "The run didn't ask it that, so a replay has no answer of it"


@dataclass(frozen=True)
class _Known:
    status: ServerStatus = "not started"
    problem: str = ""
    version: str = ""
    instructions: str = ""
    listing: Listing = field(default_factory=Listing)


_KNOWN = TypeAdapter(_Known)


def known(one: Connection) -> dict[str, Any]:
    """JSON-like: what a run is told of a server."""
    view = one.view()
    told = _Known(one.status, one.problem, view.version, view.instructions, one.listing)
    return _KNOWN.dump_python(told, mode="json", exclude_defaults=True)


class RecordedConnection(Connection):
    """A server of a run that is over."""

    def __init__(self, spec: ServerSpec, told: str, workspace: Path) -> None:
        """`told`: JSON of what `known` gave; empty: the run never asked for it."""
        super().__init__(spec, _never, workspace)
        self._was = _KNOWN.validate_json(told or "{}")
        self.listing, self.problem = self._was.listing, self._was.problem or spec.problem
        self._version, self._instructions = self._was.version, self._was.instructions

    @property
    def status(self) -> ServerStatus:
        return "disabled" if self.spec.disabled else self._was.status

    async def ready(self) -> None:
        """It never will be more than it was."""

    async def live(self) -> Session:
        raise UnavailableError(_WHY)


def _never(_: object) -> NoReturn:
    raise AssertionError("a replay starts no server")
