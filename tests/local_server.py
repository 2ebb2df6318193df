"""local_server: a server on this machine that speaks OpenAI's protocol, as llama.cpp, Ollama and vLLM do."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from serving import Quiet, serving


class Local(ThreadingHTTPServer):
    """Plays its `turns`: a status, chunks, or a text. GETs are answered from `pages`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.turns: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.pages: dict[str, Any] = {}

    @property
    def env(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}/v1"}

    def is_llama(self, window: int = 16_384) -> None:
        """Answer as llama.cpp's server does when it is asked what it is."""
        self.pages["/v1/models"] = {"data": [{"id": "qwen", "owned_by": "llamacpp"}]}
        self.pages["/props"] = {"default_generation_settings": {"n_ctx": window}}


class Handler(Quiet):
    server: Local

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        self.send_response(404 if page is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/show":
            return self.do_GET()
        helps = body.get("response_format", {}).get("json_schema", {}).get("name") == "next_speaker"
        if helps and not self.server.turns:
            turn: Any = '{"reasoning": "an answer", "next_speaker": "user"}'
        else:
            self.server.asked.append(body)
            turn = self.server.turns.pop(0)
        self.send_response(turn if isinstance(turn, int) else 200)
        self.send_header("Content-Type", "application/json" if isinstance(turn, int) else "text/event-stream")
        if isinstance(turn, int):
            self.send_header("Retry-After", "2")
        self.end_headers()
        if isinstance(turn, int):
            self.wfile.write(b'{"error": {"message": "scripted"}}')
            return
        for chunk in (
            [delta(role="assistant", content=turn), delta("stop")] if isinstance(turn, str) else turn
        ):
            frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "qwen", **chunk}
            self.wfile.write(f"data: {json.dumps(frame)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


@pytest.fixture
def local() -> Iterator[Local]:
    pytest.importorskip("langchain_openai")
    with serving(Local()) as server:
        yield server
