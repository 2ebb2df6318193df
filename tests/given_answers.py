"""given_answers: a server that gives each request the same answer, and keeps what was asked."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from serving import Quiet, serving

SSE, JSON = "text/event-stream", "application/json"


class Refusing(ThreadingHTTPServer):
    """Gives each request the same answer. `body` may be events of a stream."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.kind, self.body, self.headers = 200, JSON, b"", dict[str, str]()
        self.asked: list[bytes] = []

    def give(self, body: Any, status: int = 200, kind: str = JSON, **headers: str) -> None:
        self.status, self.kind, self.headers = status, kind, headers
        self.body = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    @property
    def env(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}/v1"}


class _Handler(Quiet):
    server: Refusing

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        for name, value in {"Content-Type": self.server.kind, **self.server.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    pytest.importorskip("langchain_openai")
    with serving(Refusing()) as server:
        yield server
