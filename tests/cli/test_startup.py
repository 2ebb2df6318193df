"""A command-line process collects no garbage until it is set up, and that doesn't affect other programs."""

from pathlib import Path

from commands import python
from folders import put

REPLIES = [{"text": "done"}]
_RUN = """
import gc, sys
from interlock.cli import main
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "run", "main", "go", "--model", "script:replies.json"]
assert main.main() == 0
assert gc.isenabled() and gc.get_freeze_count() > 100_000
for name in (
    *("numpy", "aiosqlite", "langgraph.store.sqlite", "packaging.requirements", "rapidfuzz", "tree_sitter"),
    *("interlock.graphs.tools", "interlock.services.policy.policy", "interlock.services.shell.parse"),
    "interlock.engine.telemetry",
):
    assert name not in sys.modules, f"{name} was read"
"""
_PROGRAM = """
import gc
usual = gc.get_threshold()
import asyncio, sys
from pathlib import Path
from pydantic import BaseModel
from interlock.engine import Options, run_sync
outcome = run_sync("main", {"prompt": "go"}, options=Options(home=Path("home"), model="script:replies.json"))
assert outcome.status == "done", outcome
assert gc.isenabled() and gc.get_threshold() == usual and not gc.get_freeze_count()
assert not BaseModel.model_config.get("defer_build")
assert not {"mcp", "mcp_types", "jsonschema"} & {*sys.modules}, "read without an MCP server"
"""


def test_a_run_imports_no_package_that_it_does_not_need_and_collects_garbage_once_it_is_set_up(
    tmp_path: Path,
) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_RUN, tmp_path)


def test_a_program_that_imports_interlock_keeps_pythons_own_ways(tmp_path: Path) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_PROGRAM, tmp_path)
