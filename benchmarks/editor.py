"""editor: from an editor's start to the first answer, beside gemini-cli's, and from a model's token to the editor.

The model is a server on loopback, and each of its tokens says when it was sent.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from mcp_servers.npm import programs

ROUNDS = 5
TOKENS, GAP_S = 100, 0.02
_ENTRY = "import sys; from interlock.cli.main import main; sys.exit(main())"
_OURS = [sys.executable, "-P", "-c", _ENTRY, "acp", "-m", "gemini-2.5-pro"]


class Model(BaseHTTPRequestHandler):
    """Speaks as much of Gemini's protocol as one streamed answer takes."""

    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for _ in range(TOKENS):
            time.sleep(GAP_S)
            self._says(f"{time.monotonic_ns()} ", {})
        self._says("", {"finishReason": "STOP"})

    def _says(self, text: str, more: dict[str, Any]) -> None:
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
        self.wfile.write(f"data: {json.dumps({'candidates': [candidate]})}\r\n\r\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Agent:
    """An agent on pipes."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self._last = 0

    def asks(self, method: str, params: object) -> Iterator[tuple[float, dict[str, Any]]]:
        """Each frame up to the answer, with the time at which it came."""
        assert self.process.stdin and self.process.stdout
        self._last += 1
        frame = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            at = time.monotonic_ns() / 1e6
            came = json.loads(line)
            yield at, came
            if came.get("id") == self._last and "method" not in came:
                if "error" in came:
                    raise SystemExit(f"{method}: {came['error']['message']}")
                return
        raise SystemExit(f"{method}: the agent has left")

    def answer(self, method: str, params: object) -> Any:
        return [frame for _, frame in self.asks(method, params)][-1]["result"]


@contextmanager
def started(command: list[str], env: dict[str, str], cwd: Path) -> Iterator[tuple[Agent, float]]:
    """An agent that has answered `initialize`, and the milliseconds that this took from its start."""
    began = time.monotonic()
    agent = Agent(command, env, cwd)
    agent.answer("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    took = (time.monotonic() - began) * 1000
    try:
        yield agent, took
    finally:
        agent.process.kill()
        agent.process.communicate()


def delays(env: dict[str, str], cwd: Path) -> list[float]:
    """Milliseconds from the model to the editor, of each token."""
    found: list[float] = []
    with started(_OURS, env, cwd) as (agent, _):
        session = agent.answer("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "count"}]}
        for at, frame in agent.asks("session/prompt", prompt):
            update = frame.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "agent_message_chunk":
                found += [at - int(sent) / 1e6 for sent in update["content"]["text"].split()]
    if len(found) != TOKENS:
        raise SystemExit(f"{len(found)} tokens came of {TOKENS}")
    return found


def gemini() -> list[str]:
    """The command of gemini-cli; empty where npm can't install it."""
    try:
        return [str(programs() / "gemini"), "--acp"]
    except pytest.skip.Exception as why:
        print(f"gemini-cli: {why}")
        return []


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder, "work")
        cwd.mkdir()
        url = f"http://127.0.0.1:{server.server_port}"
        own = {"HOME": folder, "GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url}
        env = {"PATH": os.environ["PATH"], **own}
        agents = {"interlock": _OURS, **({"gemini-cli": found} if (found := gemini()) else {})}
        times: dict[str, list[float]] = {name: [] for name in agents}
        for number in range(ROUNDS + 1):  # in turns; the first warms up
            for name, command in agents.items():
                with started(command, env, cwd) as (_, took):
                    times[name] += [took] if number else []
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        for name, median in medians.items():
            print(f"start to the answer to initialize, {name:<10} {median:8.0f} ms")
        if "gemini-cli" in medians:
            print(f"interlock / gemini-cli {medians['interlock'] / medians['gemini-cli']:29.2f}")
        took = sorted(delays(env, cwd))
        print(f"token to editor, median {statistics.median(took):28.1f} ms")
        print(f"token to editor, 95 % {took[int(len(took) * 0.95)]:30.1f} ms")
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
