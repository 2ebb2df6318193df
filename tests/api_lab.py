"""`interlock serve` in a folder with graphs of LangGraph's, for tests of its API."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import warm
from folders import put
from patience import HANG_S, until

INTERLOCK = (sys.executable, "-P", "-c", "from interlock.cli.main import main; raise SystemExit(main())")
GRAPHS = Path(__file__).parent / "api_graphs"
EDIT = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
REPLIES = [{"text": "I fix it.", "tool_calls": [{"name": "replace", "args": EDIT}]}, {"text": "Fixed."}]


class Ours:
    """`interlock serve` in a folder with the graphs."""

    def __init__(self, folder: Path, *flags: str, graphs: Path = GRAPHS) -> None:
        self.folder = folder
        shutil.copytree(graphs, folder)
        (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        put(folder.parent / "script.json", REPLIES)
        self.env = {**os.environ, "HOME": str(folder.parent), "INTERLOCK_HOME": str(folder.parent / "home")}
        self._flags = ("--skip-trust", "-m", f"script:{folder.parent / 'script.json'}", *flags)
        self.serve()

    def serve(self, port: int = 0) -> None:
        words = ["serve", "--port", str(port), *self._flags]
        self.process = warm.Warm(words, cwd=self.folder, env=self.env, stdout=subprocess.PIPE)
        assert self.process.stdout
        self.url, _, self.token = self.process.stdout.readline().split()[-1].partition("/#token=")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, token: str | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"x-api-key": token or self.token}, timeout=HANG_S)

    def tokens(self, *words: str) -> str:
        """What `interlock serve token …` prints."""
        done = warm.run(["serve", "token", *words], cwd=self.folder, env=self.env)
        done.check_returncode()
        return done.stdout.strip()

    def kill(self) -> None:
        """End it at once; its drives go on."""
        self.process.kill()
        self._gone()

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self) -> None:
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@contextmanager
def langgraphs_server(folder: Path, graphs: Mapping[str, str], **settings: Any) -> Iterator[str]:
    """The address of LangGraph's own server (`langgraph dev`) with these graphs."""
    put(folder / "langgraph.json", {"dependencies": ["."], "graphs": graphs, **settings})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    quiet = {
        "LANGSMITH_TRACING": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGGRAPH_NO_VERSION_CHECK": "true",
    }
    env = {**os.environ, **quiet, "HOME": str(folder), "INTERLOCK_STUDIO_HOME": str(folder / "state")}
    flags = ("--no-browser", "--no-reload", "--allow-blocking", "--port", url.rpartition(":")[2])
    command = [Path(sys.executable).with_name("langgraph"), "dev", *flags]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        until(lambda: _answers(url) or running.poll() is not None, "the server")
        assert running.poll() is None, (folder / "log").read_text()[-3000:]
        yield url
    finally:
        running.terminate()
        running.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ok").is_success
    except httpx.TransportError:
        return False
