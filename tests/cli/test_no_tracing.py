"""LangSmith's stand-in has everything a run uses, says what the library says, and makes way for it."""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from commands import python
from fake_gemini.fake import FakeGemini
from scripted import call

from interlock.cli.quick_start import LANGSMITH, TAKEN

_RUN = """
import sys
from interlock.cli import main, quick_start
main._is_watched = lambda: True  # come back here
sys.argv = ["interlock", "-p", "go", "-m", "gemini-2.5-pro", "-y"]
assert main.main() == 0
taken = [m for m in sys.modules if m.partition(".")[0] == "langsmith" and m not in quick_start.TAKEN]
assert quick_start.is_left_out() and not taken, f"a run takes more of the library: {taken}"
"""
_ANSWERS = """
import sys
from interlock.cli import quick_start
quick_start.leave_tracing_out()
import langsmith
from langsmith import get_tracing_context as ours, utils
said = ours(), utils.tracing_is_enabled()
from langsmith import traceable, get_tracing_context as theirs, utils
import langsmith
assert not quick_start.is_left_out() and langsmith.__file__ and langsmith.traceable is traceable
assert (theirs(), bool(utils.tracing_is_enabled())) == said, (theirs(), utils.tracing_is_enabled(), said)
"""
_NOT_IN_RUNS = {"tracers/evaluation.py", "document_loaders/langsmith.py", "pregel/remote.py"}


def test_a_run_with_a_call_and_a_streamed_answer_takes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("42")
    replies = [{"calls": [call("read_file", file_path="a.txt")]}, {"text": "It is 42."}]
    with FakeGemini([*replies, {"text": '{"reasoning": "done", "next_speaker": "user"}'}]) as fake:
        python(_RUN, tmp_path, env={**fake.env, "LANGSMITH_TRACING": "true"})


def test_whoever_takes_anything_else_gets_the_library_turned_off(tmp_path: Path) -> None:
    python(_ANSWERS, tmp_path, env={"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "x"})


def test_all_names_that_langchain_and_langgraph_import_are_there() -> None:
    """Except names needed only for types, and those in modules that no run loads."""
    known = {*TAKEN, *(f"{module}.{name}" for module, names in TAKEN.items() for name in names)}
    files = [
        (file, file.relative_to(root).as_posix())
        for package in ("langchain_core", "langgraph", "langchain_google_genai")
        if (spec := find_spec(package))
        for root in map(Path, spec.submodule_search_locations or ())
        for file in root.rglob("*.py")
    ]
    assert len(files) > 200
    texts = [(name, file.read_text()) for file, name in files if name not in _NOT_IN_RUNS]
    missing = {
        f"{name}: {taken}"
        for name, text in texts
        if LANGSMITH in text
        for taken in _imported(ast.parse(text))
        if taken not in known
    }
    assert not missing


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == LANGSMITH)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == LANGSMITH:
            yield from (f"{node.module}.{a.name}" for a in node.names)
        else:
            yield from _imported(node)
