"""What not everybody needs can be missing: without its folder its command is unknown in one line, and all else works.

Each case is a tree of its own, of links to the files of this one, in which processes find nothing of this one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from folders import put
from patience import HANG_S
from test_layout import MAY_IMPORT, ROOT

ENTRY = (sys.executable, "-P", "-c", "from interlock.cli.main import main; raise SystemExit(main())")
# The editable installation would find what is missing here.
ALONE = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")]
"""


class Tree:
    """Interlock without a folder, with a place to work in."""

    def __init__(self, tmp_path: Path, missing: str) -> None:
        self.missing, self.work = missing, tmp_path / "work"
        self.work.mkdir()
        for room in (*MAY_IMPORT, "docs"):
            for folder, _, files in os.walk(ROOT / room):
                part = Path(folder).relative_to(ROOT)
                if part.parts[: missing.count("/") + 1] == Path(missing).parts:
                    continue
                made = tmp_path / "tree" / "interlock" / part
                made.mkdir(parents=True)
                for file in files:
                    (made / file).symlink_to(Path(folder) / file)
        put(tmp_path / "tree" / "sitecustomize.py", ALONE)
        self.script = put(tmp_path / "script.json", [{"text": "It is done."}] * 9)
        self.env = {**os.environ, "PYTHONPATH": str(tmp_path / "tree"), "CI": "true"}
        self.docs = tmp_path / "tree" / "interlock" / "docs"

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*ENTRY, *words], cwd=self.work, env=self.env, text=True, stdout=subprocess.PIPE, **more
        )

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.work, env=self.env, text=True, capture_output=True, check=False, timeout=HANG_S
        )

    def has(self, folder: str) -> bool:
        return self.missing != folder


def repair(tree: Tree) -> None:
    """`make run`."""
    done = tree.run(sys.executable, "-P", str(tree.docs / "demo.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def call_api(tree: Tree) -> None:
    with tree.start("serve", "--port", "0", "-m", f"script:{tree.script}") as serving:
        try:
            assert serving.stdout
            url, _, token = serving.stdout.readline().split()[-1].partition("/#token=")
            with httpx.Client(base_url=url, headers={"x-api-key": token}, timeout=HANG_S) as http:
                assert "<html" in http.get("/").text
                done = http.post("/runs/wait", json={"assistant_id": "main", "input": {"prompt": "go"}})
                assert "It is done." in done.text, done.text
        finally:
            serving.terminate()


def edit(tree: Tree) -> None:
    with tree.start("acp", "-m", f"script:{tree.script}", stdin=subprocess.PIPE) as agent:
        assert agent.stdin and agent.stdout
        asked = [
            ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
            ("session/new", {"cwd": str(tree.work), "mcpServers": []}),
        ]
        said: list[str] = []

        def ask(number: int, method: str, params: object) -> Any:
            frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(frame), file=agent.stdin, flush=True)
            for line in agent.stdout or ():
                said.append(line)
                if (found := json.loads(line)).get("id") == number and "method" not in found:
                    return found["result"]
            raise AssertionError(said)

        answers = [ask(number, *one) for number, one in enumerate(asked, 1)]
        prompt = {"sessionId": answers[-1]["sessionId"], "prompt": [{"type": "text", "text": "go"}]}
        assert ask(9, "session/prompt", prompt)["stopReason"] == "end_turn"
        assert "It is done." in "".join(said)
        agent.stdin.close()


DOORS: dict[str, Callable[[Tree], None]] = {"": repair, "web": call_api, "acp": edit}
"""A run through each door, by the folder that has it."""
MISSING = {
    "web": "serve",
    "acp": "acp",
    "fleet": "worker",
    "telemetry": "",
    "engine/audit": "audit",
    "engine/diagrams": "diagram",
    "services/index": "",
    "services/mcp": "mcp",
    "tools/browser": "",
}
"""What may be missing, and the command that is unknown then; empty: none is."""


@pytest.mark.sweep
@pytest.mark.sqlite
@pytest.mark.parametrize("folder", MISSING)
def test_without_a_folder_its_command_is_unknown_and_every_other_door_works(
    folder: str, tmp_path: Path
) -> None:
    tree = Tree(tmp_path, folder)
    for room, run_through in DOORS.items():
        if tree.has(room):
            run_through(tree)
    told = tree.run(*ENTRY, "--help").stdout
    assert "interlock COMMAND" in told
    assert tree.run(*ENTRY, "doctor", "--json").stderr == ""
    if folder == "engine/diagrams":
        exported = tree.run(*ENTRY, "export", "latest", "--format", "md")
        assert exported.returncode == 0 and "## Path" in exported.stdout and "mermaid" not in exported.stdout
    if name := MISSING[folder]:
        done = tree.run(*ENTRY, name)
        assert (done.returncode, done.stdout) == (2, "") and f"\n  {name} " not in told
        assert done.stderr == (
            f"interlock: No command {name!r}: this installation lacks the folder interlock/{folder}/. "
            "Install Interlock again to get it.\n"
        )


@pytest.mark.sweep
@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("folder", "lacks"), [("fleet", "Runs in PostgreSQL need"), ("telemetry", "telemetry.enabled needs")]
)
def test_what_is_asked_of_a_missing_folder_is_refused_or_noted_in_one_line(
    folder: str, lacks: str, tmp_path: Path
) -> None:
    tree = Tree(tmp_path, folder)
    line = f"{lacks} the folder interlock/{folder}/, which this installation lacks. Install Interlock again to get it."
    words = ("run", "main", "go", "-m", f"script:{tree.script}")
    if folder == "telemetry":
        put(Path(tree.env["HOME"]) / ".gemini" / "settings.json", {"telemetry": {"enabled": True}})
        done = tree.run(*ENTRY, *words)
        assert (done.returncode, done.stdout) == (0, "It is done.\n") and done.stderr == f"warning: {line}\n"
        return
    tree.env["INTERLOCK_STORE"] = "postgresql://me@127.0.0.1:1/runs"
    for asked in (words, (*words, "--detach"), ("schedule", "list"), ("limits",), ("wait", "x")):
        done = tree.run(*ENTRY, *asked)
        assert (done.returncode, done.stdout, done.stderr) == (52, "", f"interlock: {line}\n"), asked
