"""figures: what a start, a turn and an end cost a user, as whole processes, beside the last release.

    python -P benchmarks/figures.py [--of CLONE] [--save NAME]

`--of`: measure another clone, in its own `.venv`. `--save`: keep the figures in `last_release.json` under this name.
The Gemini client talks to a server on loopback. Times are the least of several rounds; those of the release are scaled
by a floor that both measured, `import langgraph.graph`, for the machine may have been faster or busier then.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_gemini.fake import FakeGemini

ROUNDS, TURNS = 3, 40
RELEASE = Path(__file__).with_name("last_release.json")
_ENTRY = "import sys; from interlock.cli.main import main; sys.exit(main())"
_SETTINGS = {"model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True}}
"""Forty equal calls are a loop, and the next-speaker check would add a request."""
_READ = {"calls": [{"name": "read_file", "args": {"file_path": "a.txt"}}]}
_SHELL = {"calls": [{"name": "run_shell_command", "args": {"command": "cat a.txt"}}]}
_FLOOR = "import langgraph.graph, CPU ms"
_NO_TURNS = "a run without calls"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Ended(NamedTuple):
    """A process from its start to its end; times in ms."""

    cpu: float
    asked: list[float]
    """When the server saw its requests, from the start on."""
    wall: float
    written_kb: float
    """Blocks that it made the file system write; 0 in a file system without a disk."""
    tree_mb: float
    """The most that it and its children held in memory, as each request was seen."""


def command(*words: str, python: str = sys.executable) -> list[str]:
    return [python, "-P", "-c", _ENTRY, *words]


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "INTERLOCK_HOME": f"{folder}/state"}


def run(argv: list[str], folder: Path, replies: list[Any], *, kill: bool = False) -> Ended:
    """Run a program in `folder/work`, beside a model that gives these replies. `kill`: end it at its first request."""
    asked: list[float] = []
    held: list[int] = [0]
    with FakeGemini(replies) as fake, tempfile.TemporaryFile() as said:
        log = fake.log

        def noted(*args: Any) -> int:
            asked.append((time.perf_counter() - began) * 1000)
            if kill:
                process.kill()
            else:
                held.append(sum(map(_resident, _tree(process.pid))))
            return log(*args)

        fake.log = noted  # type: ignore[method-assign]
        env = {**environment(folder), **fake.env}
        began = time.perf_counter()
        process = subprocess.Popen(argv, cwd=folder / "work", env=env, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        wall = (time.perf_counter() - began) * 1000
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode and not (kill and asked):
            said.seek(0)
            raise SystemExit(f"{argv[-5:]} ended with {process.returncode}: {said.read()[-2000:].decode()}")
    cpu = (used.ru_utime + used.ru_stime) * 1000
    return Ended(cpu, asked, wall, used.ru_oublock / 2, max(held) / 2**20)


def _tree(pid: int) -> list[int]:
    try:
        listed = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except FileNotFoundError:
        return []
    return [pid, *(one for text in listed for child in text.split() for one in _tree(int(child)))]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except FileNotFoundError:
        return 0


def _round(python: str, folder: Path) -> dict[str, float]:
    def interlock(*words: str, replies: list[Any] | None = None, kill: bool = False) -> Ended:
        return run(command(*words, python=python), folder, replies or [], kill=kill)

    def driven(*replies: Any, kill: bool = False) -> Ended:
        words = ("-p", "go", "-m", "gemini-2.5-pro", "-y")
        return interlock(*words, replies=[*replies, {"text": "done"}], kill=kill)

    started, empty = driven(kill=True), driven()
    size = _kept(folder)
    read = driven(*[_READ] * TURNS)
    kept = (_kept(folder) - size) / TURNS / 1024
    shell = driven(*[_SHELL] * TURNS)
    return {
        _FLOOR: run([python, "-P", "-c", "import langgraph.graph"], folder, []).cpu,
        "--version, CPU ms": interlock("--version").cpu,
        "runs, CPU ms": interlock("runs").cpu,
        "diagram main --format svg, CPU ms": interlock("diagram", "main", "--format", "svg").cpu,
        "first request, CPU ms": started.cpu,
        "first request, ms": started.asked[0],
        _NO_TURNS: empty.cpu,
        "a read_file turn, CPU ms": read.cpu,
        "a read_file turn, ms": _gap(read),
        "a shell turn, CPU ms": shell.cpu,
        "a shell turn, ms": _gap(shell),
        f"{TURNS} shell turns, CPU ms": shell.cpu,
        "from the last request to the end, ms": empty.wall - empty.asked[-1],
        "written a read_file turn, KB": (read.written_kb - empty.written_kb) / TURNS,
        "kept a read_file turn, KB": kept,
        "memory of the tree, MB": shell.tree_mb,
    }


def _gap(ended: Ended) -> float:
    return statistics.median(b - a for a, b in pairwise(ended.asked))


def _kept(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "state").rglob("*") if file.is_file())


def measured(python: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".interlock").mkdir()
        (folder / ".interlock" / "settings.json").write_text(json.dumps(_SETTINGS))
        (folder / "work").mkdir()
        (folder / "work" / "a.txt").write_text("a line of some length, to be read\n" * 60)
        subprocess.run(["git", "init", "-q"], cwd=folder / "work", check=True)
        rounds = [_round(python, folder) for _ in range(ROUNDS + 1)][1:]  # the first one compiles
    least = {figure: min(one[figure] for one in rounds) for figure in rounds[0]}
    without = least.pop(_NO_TURNS)
    for turn in ("a read_file turn, CPU ms", "a shell turn, CPU ms"):
        least[turn] = (
            least[turn] - without
        ) / TURNS  # the least difference in a round would be that of the noise
    return {figure: round(value, 2) for figure, value in least.items()}


def show(here: dict[str, float], release: dict[str, Any]) -> None:
    then, speed = release["figures"], here[_FLOOR] / release["figures"][_FLOOR]
    print(f"{'':40} {'here':>8} {release['name']:>9} {'ratio':>7}")
    for figure, value in here.items():
        before = then[figure] * (speed if figure.endswith("ms") else 1) if figure in then else 0
        beside = f" {before:9.1f} {value / before:7.2f}" if before else ""
        print(f"{figure:40} {value:8.1f}{beside}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="What a start, a turn and an end cost, beside the last release."
    )
    parser.add_argument("--of", type=Path, metavar="CLONE", help="measure another clone")
    parser.add_argument("--save", metavar="NAME", help="keep the figures as the last release's")
    args = parser.parse_args(arguments or [])
    here = measured(str(args.of / ".venv/bin/python") if args.of else sys.executable)
    if args.save:
        RELEASE.write_text(json.dumps({"name": args.save, "figures": here}, indent=2) + "\n")
    show(here, json.loads(RELEASE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
