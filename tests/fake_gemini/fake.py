"""fake: the server, on its own thread."""

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any

from fake_gemini.handler import Handler
from fake_gemini.script import Script


@dataclass(frozen=True)
class Asked:
    """One request, as the server saw it."""

    method: str
    model: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def contents(self) -> list[dict[str, Any]]:
        return self.body["contents"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class FakeGemini:
    """`with FakeGemini([{"text": "hi"}]) as fake: fake.url; fake.requests; fake.play([...])`."""

    def __init__(self, script: Mapping[str, Any] | Sequence[Any] = ()) -> None:
        self.script = Script(script)
        self.requests: list[Asked] = []
        self._lock = threading.Lock()
        handler = type("BoundHandler", (Handler,), {"fake": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.serve, daemon=True)

    @property
    def env(self) -> dict[str, str]:
        """Environment for a client of this server."""
        return {"GEMINI_API_KEY": "a-key-for-loopback", "GOOGLE_GEMINI_BASE_URL": self.url}

    def play(self, script: Mapping[str, Any] | Sequence[Any]) -> None:
        """Start over with another script."""
        with self._lock:
            self.script = Script(script)
            self.requests.clear()

    def log(self, method: str, model: str, body: dict[str, Any], headers: dict[str, str]) -> int:
        """Keep a request; returns its number."""
        shown = {k.lower(): "***" if k.lower() == "x-goog-api-key" else v for k, v in headers.items()}
        with self._lock:
            self.requests.append(Asked(method, model, body, shown))
            return len(self.requests)

    def serve(self) -> None:
        """Serve until `shutdown`."""
        self._server.serve_forever(poll_interval=0.02)

    def __enter__(self) -> "FakeGemini":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
