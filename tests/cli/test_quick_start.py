"""What the command line defers isn't needed by any run, is available on demand, and doesn't affect other programs."""

import subprocess
import sys
from pathlib import Path

_RUN = """
import gc, sys
from interlock.cli import main, quick_start
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "run", "main", "go", "--model", "script:replies.yaml"]
assert main.main() == 0
assert gc.isenabled() and gc.get_freeze_count() > 100_000
for name in quick_start.PACKAGES:
    package = sys.modules[name]
    assert isinstance(package, quick_start._Unread) and package._read, f"{name} was read"
for name in ("click", "zstandard", "httpx._main", "numpy", "aiosqlite", "langgraph.store.sqlite"):
    assert name not in sys.modules, f"{name} was read"
"""
_LATER = """
from interlock.cli import quick_start
quick_start.own_process = True
quick_start.begin()
import langgraph_sdk
assert callable(langgraph_sdk.get_client)
try:
    langgraph_sdk.no_such_name
except AttributeError as error:
    print(error)
from requests import HTTPError, get
import requests
assert callable(get) and requests.HTTPError is requests.exceptions.HTTPError
from httpx._main import main
import zstandard
assert main.name and zstandard.ZstdCompressor
"""
_PROGRAM = """
import asyncio, gc, sys
from pathlib import Path
from pydantic import BaseModel
from interlock.engine import Options, run_sync
outcome = run_sync("main", {"prompt": "go"}, options=Options(home=Path("home"), model="script:replies.yaml"))
assert outcome.status == "done", outcome
assert gc.isenabled() and gc.get_threshold()[0] == 700 and not gc.get_freeze_count()
assert not BaseModel.model_config.get("defer_build")
assert type(sys.modules["langgraph_sdk"]).__name__ == "module"
"""


def python(program: str, folder: Path) -> str:
    (folder / "replies.yaml").write_text("- text: done\n")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={"HOME": str(folder), "INTERLOCK_HOME": str(folder / "state"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_run_reads_none_of_the_packages_and_collects_garbage_once_it_is_set_up(tmp_path: Path) -> None:
    python(_RUN, tmp_path)


def test_whoever_takes_something_from_a_package_reads_it(tmp_path: Path) -> None:
    assert python(_LATER, tmp_path) == "module 'langgraph_sdk' has no attribute 'no_such_name'\n"


def test_a_program_that_imports_interlock_keeps_pythons_own_ways(tmp_path: Path) -> None:
    python(_PROGRAM, tmp_path)
