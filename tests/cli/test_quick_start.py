"""What the command line defers isn't needed by any run, and doesn't affect other programs."""

import subprocess
import sys
from pathlib import Path

_RUN = """
import gc, sys
from interlock.cli import main
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "run", "main", "go", "--model", "script:replies.json"]
assert main.main() == 0
assert gc.isenabled() and gc.get_freeze_count() > 100_000
for name in ("numpy", "aiosqlite", "langgraph.store.sqlite", "packaging.requirements", "rapidfuzz", "tree_sitter"):
    assert name not in sys.modules, f"{name} was read"
"""
_PROGRAM = """
import asyncio, gc, sys
from pathlib import Path
from pydantic import BaseModel
from interlock.engine import Options, run_sync
outcome = run_sync("main", {"prompt": "go"}, options=Options(home=Path("home"), model="script:replies.json"))
assert outcome.status == "done", outcome
assert gc.isenabled() and gc.get_threshold()[0] == 700 and not gc.get_freeze_count()
assert not BaseModel.model_config.get("defer_build")
"""


def python(program: str, folder: Path) -> None:
    (folder / "replies.json").write_text('[{"text": "done"}]')
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={"HOME": str(folder), "INTERLOCK_HOME": str(folder / "state"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_run_imports_no_package_that_it_does_not_need_and_collects_garbage_once_it_is_set_up(
    tmp_path: Path,
) -> None:
    python(_RUN, tmp_path)


def test_a_program_that_imports_interlock_keeps_pythons_own_ways(tmp_path: Path) -> None:
    python(_PROGRAM, tmp_path)
