"""startup: time to the first output, and to the first model request, in folders with few and many files."""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_gemini.fake import FakeGemini

ROUNDS = 5
FILES = 50_000
_ENTRY = "import sys; from interlock.cli.main import main; sys.exit(main())"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", _ENTRY, *arguments]


def timed(argv: Sequence[str], env: dict[str, str], cwd: str) -> float:
    started = time.perf_counter()
    subprocess.run(argv, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def first_request(env: dict[str, str], cwd: str) -> float:
    """Seconds from starting the process to its first request at a loopback server."""
    seen = threading.Event()
    at: list[float] = []
    with FakeGemini([{"text": "done"}]) as fake:
        log = fake.log

        def noted(*args: object) -> int:
            if not at:
                at.append(time.perf_counter())
                seen.set()
            return log(*args)  # type: ignore[arg-type]

        fake.log = noted  # type: ignore[method-assign]
        started = time.perf_counter()
        subprocess.run(
            command("-p", "go", "-m", "gemini-2.5-pro"),
            env={**env, **fake.env},
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        if not seen.wait(1):
            raise SystemExit("no request was made")
    return at[0] - started


def fill(folder: Path, files: int) -> None:
    for number in range(files):
        if number % 100 == 0:
            (folder / f"d{number // 100}").mkdir()
        (folder / f"d{number // 100}" / f"f{number}.py").write_text(f"x = {number}\n")


def row(
    name: str,
    measure: Callable[[], float],
    baseline: float | None = None,
    what: str = "import langgraph.graph",
) -> float:
    values = [measure() for _ in range(ROUNDS)]
    middle = statistics.median(values)
    ratio = f"   {middle / baseline:5.2f} × {what}" if baseline else ""
    print(f"{name:44} {middle * 1000:7.0f} ms   (best {min(values) * 1000:.0f}){ratio}", flush=True)
    return middle


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "INTERLOCK_HOME": f"{folder}/state"}
        work = Path(folder) / "work"
        work.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)
        where = str(work)
        python = [sys.executable, "-P", "-c"]
        row("python -c pass", lambda: timed([*python, "pass"], env, where))
        graph = row("import langgraph.graph", lambda: timed([*python, "import langgraph.graph"], env, where))
        row(
            "  + langchain_google_genai",
            lambda: timed([*python, "import langgraph.graph, langchain_google_genai"], env, where),
            graph,
        )
        for words in ("--version", "--help", "runs", "approvals"):
            row(f"interlock {words}", partial(timed, command(words), env, where), graph)
        empty = row("start to first model request", lambda: first_request(env, where), graph)
        if sys.platform.startswith("linux"):
            subprocess.run(command("warm"), env=env, cwd=where, check=True)
            row("  from a warm process", lambda: first_request(env, where), empty, "an ordinary one")
            subprocess.run(command("warm", "--stop"), env=env, cwd=where, check=True)
        fill(work, FILES)
        row(f"  in {FILES:,} files", lambda: first_request(env, where), empty, "in an empty folder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
