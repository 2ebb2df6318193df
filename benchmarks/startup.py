"""startup: time to the first output, and to the first model request, in folders with few and many files."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from figures import command, environment, run

ROUNDS = 5
FILES = 50_000


def ended(argv: list[str], folder: Path) -> float:
    return run(argv, folder, []).wall


def first_request(folder: Path) -> float:
    """Milliseconds from starting the process to its first request at a loopback server."""
    return run(command("-p", "go", "-m", "gemini-2.5-pro"), folder, [{"text": "done"}]).asked[0]


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
    print(f"{name:44} {middle:7.0f} ms   (best {min(values):.0f}){ratio}", flush=True)
    return middle


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (work := folder / "work").mkdir()
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)

        def importing(code: str) -> Callable[[], float]:
            return lambda: ended([sys.executable, "-P", "-c", code], folder)

        row("python -c pass", importing("pass"))
        graph = row("import langgraph.graph", importing("import langgraph.graph"))
        both = importing("import langgraph.graph, langchain_google_genai")
        row("  + langchain_google_genai", both, graph)
        for words in ("--version", "--help", "runs", "approvals"):
            row(f"interlock {words}", partial(ended, command(words), folder), graph)
        empty = row("start to first model request", lambda: first_request(folder), graph)
        if sys.platform.startswith("linux"):
            subprocess.run(command("warm"), env=environment(folder), cwd=work, check=True)
            row("  from a warm process", lambda: first_request(folder), empty, "an ordinary one")
            subprocess.run(command("warm", "--stop"), env=environment(folder), cwd=work, check=True)
        fill(work, FILES)
        row(f"  in {FILES:,} files", lambda: first_request(folder), empty, "in an empty folder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
