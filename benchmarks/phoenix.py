"""phoenix: shows that arize-phoenix takes a run, resumed in another process, as a tree of model and tool calls.

`python -P benchmarks/phoenix.py [PHOENIX]`: a `phoenix` program that is installed already; otherwise it is installed
into a temporary environment, which takes minutes. It prints the tree that Phoenix's API gives back.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from fake_gemini.fake import FakeGemini

PATIENCE_S = 120
INTERLOCK = (sys.executable, "-P", "-c", "import sys; from interlock.cli.main import main; sys.exit(main())")
REPLIES = [
    {"text": "I look.", "calls": [{"name": "list_directory", "args": {"dir_path": "."}}]},
    {
        "text": "I write.",
        "calls": [{"name": "write_file", "args": {"file_path": "a.py", "content": "x = 1\n"}}],
    },
    {"text": "a.py is written."},
]
RULES = [{"match": {"schema": "next_speaker"}, "reply": '{"reasoning": "answered", "next_speaker": "user"}'}]
SEEN = (
    *("llm.model_name", "llm.provider", "llm.token_count.prompt"),
    *("llm.token_count.completion", "tool.name", "interlock.decision", "interlock.cost.usd"),
)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        return one.getsockname()[1]


def installed(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    subprocess.run((*pip, "arize-phoenix"), check=True)
    return str(folder / "bin" / "phoenix")


@contextmanager
def served(program: str, folder: Path) -> Generator[tuple[str, str]]:
    """Phoenix's addresses over HTTP and gRPC."""
    http, grpc = free_port(), free_port()
    env = {**os.environ, "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false"}
    env |= {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(http), "PHOENIX_GRPC_PORT": str(grpc)}
    with (folder / "phoenix.log").open("w") as log:
        server = subprocess.Popen((program, "serve"), env=env, stdout=log, stderr=log)
        url, until = f"http://127.0.0.1:{http}", time.monotonic() + PATIENCE_S
        try:
            while not _answers(f"{url}/healthz"):
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(
                        f"Phoenix doesn't start:\n{(folder / 'phoenix.log').read_text()[-2000:]}"
                    )
                time.sleep(0.5)
            yield url, f"http://127.0.0.1:{grpc}"
        finally:
            server.terminate()
            server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.HTTPError:
        return False


def runs(folder: Path, telemetry: dict[str, Any]) -> None:
    """A run that parks at a request, and its resume in another process."""
    model = FakeGemini({"rules": RULES, "replies": REPLIES})
    threading.Thread(target=model.serve, daemon=True).start()
    (folder / ".interlock").mkdir(parents=True)
    settings = {"telemetry": {"enabled": True, "logPrompts": True, **telemetry}}
    (folder / ".interlock" / "settings.json").write_text(json.dumps(settings))
    (folder / "work").mkdir()
    env = {**os.environ, **model.env, "HOME": str(folder), "INTERLOCK_HOME": str(folder / "state")}
    for words, expected in (
        (("-p", "Write a.py.", "-m", "gemini-2.5-pro"), 75),
        (("resume", "latest", "--approve", "all"), 0),
    ):
        done = subprocess.run(
            (*INTERLOCK, *words), cwd=folder / "work", env=env, capture_output=True, text=True
        )
        if done.returncode != expected or "Telemetry" in done.stderr:
            raise SystemExit(
                f"{words}: exit {done.returncode}, expected {expected}\n{done.stdout}{done.stderr}"
            )


def spans(url: str, number: int) -> list[dict[str, Any]]:
    """All spans of Phoenix's default project, once there are so many roots."""
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = httpx.get(f"{url}/v1/projects/default/spans", params={"limit": 1000}, timeout=30)
        found = answer.json()["data"] if answer.is_success else []
        if len({span["context"]["trace_id"] for span in found}) == number and _is_settled(found):
            return found
        if time.monotonic() > until:
            raise SystemExit(f"Phoenix has {len(found)} spans, and no {number} traces that have ended.")
        time.sleep(0.5)


def _is_settled(found: list[dict[str, Any]]) -> bool:
    return sum(span["name"].startswith("invoke_workflow") for span in found) % 2 == 0


def tree(found: list[dict[str, Any]], parent: str | None = None, depth: int = 0) -> Iterator[str]:
    for span in sorted((s for s in found if s["parent_id"] == parent), key=lambda s: s["start_time"]):
        told = {**span["attributes"], "kind": span["span_kind"]}
        about = " ".join(
            f"{name.rpartition('.')[2]}={told[name]}" for name in ("kind", *SEEN) if name in told
        )
        yield f"{'  ' * depth}{span['name']}  {about}"
        yield from tree(found, span["context"]["span_id"], depth + 1)


def check(found: list[dict[str, Any]]) -> None:
    """One trace is one run, with one root; the calls of models and tools are below its nodes, as what they are."""
    by_id = {span["context"]["span_id"]: span for span in found}
    roots = [span for span in found if span["parent_id"] not in by_id]
    assert len(roots) == 1, [root["name"] for root in roots]
    kinds = [(span["name"].split(" ")[0], span["span_kind"]) for span in found]
    for name, kind, least in (
        ("chat", "LLM", 3),
        ("execute_tool", "TOOL", 2),
        ("invoke_workflow", "AGENT", 2),
    ):
        seen = [k for n, k in kinds if n == name]
        assert len(seen) >= least and {*seen} == {kind}, (name, seen)
    for span in found:
        if span["name"].startswith(("chat", "execute_tool")):
            assert "›" in by_id[span["parent_id"]]["name"], span["name"]
    assert any(span["name"] == "approval write_file" for span in found)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = sys.argv[1] if len(sys.argv) > 1 else installed(folder / "venv")
        with served(program, folder) as (http, grpc):
            version = httpx.get(http).headers.get("x-phoenix-server-version", "?")
            runs(folder / "one", {"otlpEndpoint": http, "otlpProtocol": "http"})
            runs(folder / "two", {"otlpEndpoint": grpc, "otlpProtocol": "grpc"})
            found = spans(http, 2)
            for protocol, trace in zip(("HTTP", "gRPC"), dict.fromkeys(_traces(found)), strict=True):
                mine = [span for span in found if span["context"]["trace_id"] == trace]
                print(f"Phoenix {version}, over {protocol}: {len(mine)} spans")
                print("\n".join(tree(mine)))
                check(mine)


def _traces(found: list[dict[str, Any]]) -> Iterator[str]:
    """In the order in which they began."""
    for span in sorted(found, key=lambda s: s["start_time"]):
        yield span["context"]["trace_id"]


if __name__ == "__main__":
    main()
