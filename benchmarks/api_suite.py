"""LangGraph's integration scripts for its SDK (libs/sdk-py/integration), against `interlock serve`.

    python -P benchmarks/api_suite.py REPOSITORY [URL]

REPOSITORY: a clone of langchain-ai/langgraph. URL: another server, with the scripts' four graphs. Prints which scripts
pass. Needs deepagents and langchain beside Interlock.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from api_lab import Ours

COMMIT = "f09cfe8ffc1eeffd68f4b628ed69c30f7cad229f"
PATIENCE_S = 120
"""Seconds after which a script counts as stuck."""


def played(scripts: Path, url: str) -> int:
    """Run each script; returns how many fail."""
    failed = 0
    for script in sorted(scripts.glob("test_*.py")):
        begun = time.monotonic()
        env = {**os.environ, "LANGGRAPH_INTEGRATION_URL": url}
        command = [sys.executable, str(script)]
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            said = "passes" if done.returncode == 0 else f"fails: {done.stderr.strip().splitlines()[-1]}"
        except subprocess.TimeoutExpired:
            said = f"is stuck after {PATIENCE_S} s"
        failed += said != "passes"
        print(f"{script.stem.removeprefix('test_'):14} {said} ({time.monotonic() - begun:.0f} s)", flush=True)
    return failed


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    with tempfile.TemporaryDirectory() as temp:
        archive = ["git", "-C", sys.argv[1], "archive", COMMIT, "libs/sdk-py/integration"]
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", temp], input=packed, check=True)
        there = Path(temp, "libs", "sdk-py", "integration")
        if sys.argv[2:]:
            return played(there / "scripts", sys.argv[2])
        ours = Ours(Path(temp, "work"), graphs=there)
        try:
            return played(there / "scripts", ours.url.replace("http://", f"http://x:{ours.token}@"))
        finally:
            ours.close()


if __name__ == "__main__":
    raise SystemExit(main())
