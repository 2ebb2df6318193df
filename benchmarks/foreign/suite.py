"""suite: LangGraph's own tests of its engine, with our saver in the place of LangGraph's in-memory one.

    python benchmarks/foreign/suite.py REPOSITORY [PYTEST ARGUMENT …]

REPOSITORY: a clone of langchain-ai/langgraph. Every test that is given a checkpointer runs twice, with LangGraph's
in-memory saver and with the one that drives somebody's graph here. Prints how many pass, and which only fail with
ours. Needs langgraph-checkpoint-postgres, psycopg[binary], psycopg_pool, redis, pycryptodome, syrupy, pytest-mock,
langchain and langgraph-cli[inmem] beside Interlock's `[dev]`, and no pytest-asyncio.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
COMMIT = "f09cfe8ffc1eeffd68f4b628ed69c30f7cad229f"
"""Its tests belong to LangGraph 1.2.11."""


def run(tests: Path, saver: str, args: list[str]) -> dict[str, str]:
    """Test → `passed`, or the first line of its failure."""
    report = tests / f"{saver}.xml"
    switches = (
        "-p",
        "suite_saver",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(tests),
        "-q",
    )
    command = [sys.executable, "-P", "-m", "pytest", *switches, f"--junitxml={report}", *(args or ["tests"])]
    env = {"SUITE_SAVER": saver, "NO_DOCKER": "true", "LANGGRAPH_STRICT_MSGPACK": "true"}
    env |= {"PYTHONPATH": f"{tests}{os.pathsep}{HERE}"}
    subprocess.run(command, cwd=tests, env={**os.environ, **env}, stdout=sys.stderr, check=False)
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [one for kind in ("failure", "error") if (one := case.find(kind)) is not None]
        skipped = case.find("skipped") is not None
        line = (wrong[0].get("message") or "failed").partition("\n")[0] if wrong else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = "skipped" if skipped else line
    return found


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    repository, args = Path(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as temp:
        archive = ["git", "-C", str(repository), "archive", COMMIT, "libs/langgraph/tests"]
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", temp], input=packed, check=True)
        tests = Path(temp, "libs", "langgraph")
        theirs, ours = (run(tests, saver, args) for saver in ("memory", "interlock"))
    for name, found in sorted(ours.items()):
        if found not in ("passed", "skipped"):
            also = "" if theirs.get(name) == "passed" else " (with LangGraph's own, too)"
            print(f"{name}{also}: {found[:150]}")
    for saver, all_found in (("LangGraph's saver", theirs), ("Interlock's saver", ours)):
        ran = [one for one in all_found.values() if one != "skipped"]
        print(f"{saver}: {ran.count('passed')} of {len(ran)} pass")


if __name__ == "__main__":
    main()
