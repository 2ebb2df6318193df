"""A command-line process collects no garbage until it is set up, and that doesn't affect other programs."""

from pathlib import Path

from commands import python
from folders import put

REPLIES = [{"text": "done"}]
_RUN = """
import gc, sys
from interlock.cli import main
main._is_traced = lambda: True  # come back here
sys.argv = ["interlock", "run", "main", "go", "--model", "script:replies.json"]
assert main.main() == 0
assert gc.isenabled() and gc.get_freeze_count() > 100_000
for name in (
    *("numpy", "aiosqlite", "langgraph.store.sqlite", "packaging.requirements", "rapidfuzz", "tree_sitter"),
    *("interlock.graphs.tools", "interlock.services.policy.policy", "interlock.services.shell.parse"),
    "interlock.telemetry",
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
_SCHEMAS = """
from importlib import import_module
from pkgutil import iter_modules
from pydantic import BaseModel
import interlock.state, interlock.tools.table, interlock.nodes.loop_check, interlock.services.hooks.hook_replies
for module in iter_modules(interlock.state.__path__, "interlock.state."):
    import_module(module.name)

def below(model):
    for one in model.__subclasses__():
        yield one
        yield from below(one)

ours = [one for one in below(BaseModel) if one.__module__.startswith("interlock.")]
assert len(ours) > 200
built = {one.__name__ for one in ours if one.__pydantic_complete__}
assert built <= {"OutputRule", "GroupRule", "Mode", "ToolResult"}, built  # tables of ours hold some of each
"""


def test_a_run_imports_no_package_that_it_does_not_need_and_collects_garbage_once_it_is_set_up(
    tmp_path: Path,
) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_RUN, tmp_path)


def test_a_program_that_imports_interlock_keeps_pythons_own_ways(tmp_path: Path) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_PROGRAM, tmp_path)


def test_importing_our_models_builds_no_schema_but_of_those_that_tables_hold(tmp_path: Path) -> None:
    python(_SCHEMAS, tmp_path)
