"""What the command line defers isn't needed by any run, and doesn't affect other programs."""

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
    *("opentelemetry.sdk", "interlock.engine.telemetry"),
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
_DATA = """
import dataclasses, inspect, types
from interlock.cli import quick_start
quick_start.own_process = True
texts = []
if create := getattr(dataclasses, "_create_fn", None):
    def noted(name, *how, **options):
        texts.append(name)
        return create(name, *how, **options)
    dataclasses._create_fn = noted
quick_start.import_lightly()

texts.clear()

@dataclasses.dataclass(frozen=True, order=True)
class Point:
    'Without this, dataclass asks for the signature, to write one.'
    x: int
    of: "Point | None" = None

@dataclasses.dataclass(frozen=True, slots=True)
class Place(Point):
    'Has its own.'
    name: str = ""

assert not texts
one, same, two = Point(1), Point(1), Point(2)
assert not create or texts == ["__init__"], texts
assert one == same != two and one < two >= one and len({one, same, two}) == 2 and one != (1, None)
assert repr(Point(1, one)) == "Point(x=1, of=Point(x=1, of=None))"
for change in (lambda: setattr(one, "x", 3), lambda: delattr(one, "x")):
    try:
        change()
    except dataclasses.FrozenInstanceError as error:
        assert "field 'x'" in str(error)
    else:
        raise AssertionError("it isn't frozen")
assert dataclasses.replace(one, x=2) == two and Point.__eq__.__qualname__ == "Point.__eq__"
assert type(vars(Point)["__init__"]) is type(vars(Point)["__eq__"]) is types.FunctionType
assert len(texts) == len({*texts}), texts
assert [*inspect.signature(Place).parameters] == ["x", "of", "name"]
assert Place(1, name="a").name == "a" and Place.__init__.__qualname__ == "Place.__init__"
"""

_MODELS = """
from inspect import signature
from typing import Annotated
from interlock.cli import quick_start
quick_start.own_process = True
quick_start.import_lightly()
from langchain_core.tools import InjectedToolCallId, tool
from pydantic import BaseModel

class Old(BaseModel):
    a: int

assert [*signature(Old).parameters] == ["a"]

class New(Old):
    b: "Late"

class Late(BaseModel):
    c: int

assert [*signature(New).parameters] == ["a", "b"] and [*signature(Old).parameters] == ["a"]
assert not hasattr(Old(a=1), "__signature__")

@tool
def noted(text: str, call: Annotated[str, InjectedToolCallId]) -> str:
    "Note a text."
    return f"{text} {call}"

made = noted.invoke({"name": "noted", "args": {"text": "x"}, "id": "7", "type": "tool_call"})
assert made.content == "x 7", made
"""


def test_a_run_imports_no_package_that_it_does_not_need_and_collects_garbage_once_it_is_set_up(
    tmp_path: Path,
) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_RUN, tmp_path)


def test_a_program_that_imports_interlock_keeps_pythons_own_ways(tmp_path: Path) -> None:
    put(tmp_path / "replies.json", REPLIES)
    python(_PROGRAM, tmp_path)


def test_a_data_class_whose_methods_are_compiled_late_is_as_it_would_be_otherwise(tmp_path: Path) -> None:
    python(_DATA, tmp_path)


def test_a_model_whose_schema_is_built_late_has_its_signature_and_a_tool_its_injected_arguments(
    tmp_path: Path,
) -> None:
    python(_MODELS, tmp_path)
