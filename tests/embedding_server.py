"""embedding_server: embeddings over HTTP on loopback, like OpenAI's and Gemini's endpoints.

A text's vector counts synonyms together, so a question can be near a chunk that shares no word with it.
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from serving import Quiet, serving

MEANINGS = ("car vehicle automobile", "delete remove erase", "user account person", "tax vat duty", "x")


def vector(text: str) -> list[float]:
    words = re.findall(r"[a-z]+", text.lower())
    return [sum(word in means.split() for word in words) + 0.01 for means in MEANINGS]


class EmbeddingServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.answers: list[int] = []
        """Statuses to return before the vectors, one per request."""
        self.length = len(MEANINGS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["texts"]]


class _Handler(Quiet):
    server: EmbeddingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        gemini = "requests" in body
        texts = [r["content"]["parts"][0]["text"] for r in body["requests"]] if gemini else body["input"]
        tasks = {r.get("taskType") for r in body["requests"]} if gemini else set()
        self.server.requests.append(
            {"path": self.path, "texts": texts, "tasks": tasks, "headers": dict(self.headers)}
        )
        status = self.server.answers.pop(0) if self.server.answers else 200
        vectors = [(vector(text) * 3)[: self.server.length] for text in texts]
        if status != 200:
            answer: Any = {"error": {"code": status, "message": "busy", "status": "UNAVAILABLE"}}
        elif gemini:
            answer = {"embeddings": [{"values": v} for v in vectors]}
        else:
            answer = {"data": [{"index": i, "embedding": v} for i, v in reversed([*enumerate(vectors)])]}
        self.answer(status, json.dumps(answer).encode())


@contextmanager
def embedding_server() -> Generator[EmbeddingServer]:
    with serving(EmbeddingServer()) as server:
        yield server
