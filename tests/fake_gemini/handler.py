"""handler: the HTTP side: paths, errors, server-sent events and their failures."""

import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from fake_gemini.history import refused
from fake_gemini.response import merged, responses, shortened
from fake_gemini.script import facts

if TYPE_CHECKING:
    from fake_gemini.fake import FakeGemini

_PATH = re.compile(r"/(?:v[0-9][a-z0-9]*/)?models(?:/(?P<model>[^:/]+))?(?::(?P<method>\w+))?")
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_HANG_S = 600


class Handler(BaseHTTPRequestHandler):
    """One connection. `fake` is set by the server's subclass."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: "FakeGemini"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing on stderr."""

    def do_GET(self) -> None:
        path = _PATH.fullmatch(urlsplit(self.path).path)
        if path is None:
            self._error(404, f"fake_gemini: no such path {self.path}")
            return
        known = [path["model"]] if path["model"] else ["gemini-2.5-pro", "gemini-2.5-flash"]
        models = [
            {"name": f"models/{m}", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536} for m in known
        ]
        self._json(200, models[0] if path["model"] else {"models": models})

    def do_POST(self) -> None:
        try:
            self._post()
        except ConnectionError:
            self.close_connection = True  # the client went away

    def _post(self) -> None:
        url = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = _PATH.fullmatch(url.path)
        if path is None or path["method"] not in ("generateContent", "streamGenerateContent"):
            self._error(404, f"fake_gemini: no such path {self.path}")
            return
        number = self.fake.log(path["method"], path["model"], body, dict(self.headers))
        if not self.headers.get("x-goog-api-key"):
            self._error(403, "Method doesn't allow unregistered callers.")
        else:
            self._generate(
                path["model"], body, number, stream="alt=sse" in url.query, query=parse_qs(url.query)
            )

    def _generate(
        self, model: str, body: Mapping[str, Any], number: int, *, stream: bool, query: Any
    ) -> None:
        options = self.fake.script.options
        wrong = None
        if options.get("strict", True):
            wrong = refused(body.get("contents", []), signatures=options.get("require_signatures", False))
        if wrong is not None:
            self._error(400, wrong)
            return
        reply = self.fake.script.choose(facts(body, model), body)
        if reply is None:
            self._error(400, "fake_gemini: the script is used up", "FAKE_EXHAUSTED")
            return
        time.sleep(reply.get("delay", 0))
        if reply.get("hang"):
            self._hang()
        elif "error" in reply:
            self._scripted_error(reply["error"])
        else:
            most = body.get("generationConfig", {}).get("maxOutputTokens")
            chunks = responses(shortened(reply, most), model, len(json.dumps(body)), number)
            if stream:
                self._stream(chunks, reply)
            else:
                self._json(200, merged(chunks))

    def _stream(self, chunks: list[dict[str, Any]], reply: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index in range(len(chunks) + 1):
            if reply.get("cut_after") == index:
                self._cut()
                return
            if reply.get("garbage_after") == index:
                self._event(b"{not json")
            if index < len(chunks):
                time.sleep(reply.get("chunk_delay", 0) if index else 0)
                self._event(json.dumps(chunks[index]).encode())
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: bytes) -> None:
        line = b"data: " + data + b"\r\n\r\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()

    def _cut(self) -> None:
        """Send a reset instead of an orderly end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _hang(self) -> None:
        """Wait until the client goes away."""
        self.connection.settimeout(_HANG_S)
        self.connection.recv(1)
        self.close_connection = True

    def _scripted_error(self, error: Any) -> None:
        given: Mapping[str, Any] = {"code": error} if isinstance(error, int) else error
        details = list(given.get("details", []))
        if "retry_delay" in given:
            info = {
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": f"{given['retry_delay']}s",
            }
            details.append(info)
        headers = {"Retry-After": str(given["retry_after"])} if "retry_after" in given else {}
        message = given.get("message", f"scripted {given['code']}")
        self._error(given["code"], message, given.get("status"), details, headers, given.get("html"))

    def _error(
        self,
        code: int,
        message: str,
        status: str | None = None,
        details: Any = (),
        headers: Mapping[str, str] | None = None,
        html: str | None = None,
    ) -> None:
        error = {"code": code, "message": message, "status": status or _STATUS.get(code, "UNKNOWN")}
        body = {"error": {**error, "details": list(details)} if details else error}
        self._send(code, html.encode() if html else json.dumps(body).encode(), headers or {})

    def _json(self, code: int, body: Any) -> None:
        self._send(code, json.dumps(body).encode(), {})

    def _send(self, code: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
