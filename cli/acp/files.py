"""files: reads and writes of a run that go through the editor, which knows what isn't saved."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from interlock.cli.acp.wire import RpcError, Wire, mapping

_PATIENCE_S = 10.0
"""Seconds for the client's answer; then the file on disk counts."""


class ClientFiles:
    """The client's `fs/*` methods, as far as it offers them (`Buffers`). Not for use in the wire's own event loop."""

    def __init__(self, wire: Wire, session: str, client: Mapping[str, Any]) -> None:
        self._offers = mapping(client.get("fs"))
        self._wire, self._session, self._loop = wire, session, asyncio.get_running_loop()

    def text(self, path: Path) -> str | None:
        answer = self._asked("readTextFile", "fs/read_text_file", path)
        content = mapping(answer).get("content")
        return content if isinstance(content, str) else None

    def write(self, path: Path, text: str) -> None:
        self._asked("writeTextFile", "fs/write_text_file", path, content=text)

    def _asked(self, offer: str, method: str, path: Path, **more: str) -> Any:
        """The client's answer; None: it doesn't offer this, refuses, knows no such file, or doesn't answer."""
        if self._offers.get(offer) is not True:
            return None
        request = self._wire.request(method, {"sessionId": self._session, "path": str(path), **more})
        answer = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return answer.result(_PATIENCE_S)
        except (RpcError, CancelledError):
            return None
        except TimeoutError:
            answer.cancel()
            return None
