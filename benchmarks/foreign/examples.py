"""examples: runs the examples of LangGraph's documentation, from their source unchanged, killed at every commit.

    python benchmarks/foreign/examples.py REPOSITORY [NAME …]

REPOSITORY: a clone of langchain-ai/langgraph. Of each page in `pages.py` the code blocks that make the graph are
taken word for word, without the lines that install, ask for keys, draw, print or drive. Models, search and embeddings
are scripted (`scripted.py`). Each graph runs in LangGraph itself, by `interlock run` and `resume`, and killed before
and after every commit: all must end the same. Needs langchain, langchain-openai, langchain-anthropic,
langchain-community, langchain-tavily, langchain-experimental, langgraph-supervisor, langgraph-swarm and langmem.
"""

# pyright: basic, reportMissingImports=false

import argparse
import ast
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pages import COMMIT, EXAMPLES, Example
from scripted import Scripted, install

from interlock.cli.main import main as main_of_interlock
from interlock.engine import Decision, Options
from interlock.engine.workflows import find_workflow
from interlock.graphs.foreign_requests import format_payload_for_display, to_json_value
from interlock.testing import Stage, kill_everywhere

install()

_DRIVES = frozenset(
    {"invoke", "ainvoke", "stream", "astream", "get_state", "get_state_history", "pretty_print", "draw_png"}
)
_SHOWS = frozenset({"display", "print", "getpass", "_set_env", "_set_if_undefined"})


def source(repository: Path, example: Example) -> str:
    """The example as a module: its blocks, with other lines than those of definitions left blank."""
    kind, _, package = example.page.partition(":")
    if kind == "package":
        text = str(metadata(package).get_payload())
    else:
        shown = ["git", "-C", str(repository), "show", f"{COMMIT}:docs/docs/{example.page}"]
        text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    found = _cells(text) if example.page.endswith(".ipynb") else _fenced(text)
    driven: set[str] = set()
    return "\n\n".join(_definitions(found[number], driven) for number in example.blocks)


def _cells(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def _fenced(text: str) -> list[str]:
    """The Python blocks of a page in Markdown, without the indentation of a tab they are in."""
    found: list[str] = []
    lines: list[str] | None = None
    indent, language = 0, ""
    for line in text.split("\n"):
        fence = re.match(r"(\s*)```(\w*)", line)
        if fence and lines is None:
            lines, indent, language = [], len(fence[1]), fence[2]
        elif fence and lines is not None:
            found += ["\n".join(lines)] if language in ("python", "py") else []
            lines = None
        elif lines is not None:
            lines.append(line[indent:])
    return found


def _definitions(block: str, driven: set[str]) -> str:
    """The block without what drives; `driven`: names of what it has made so far, which may be used no further."""
    lines = [("" if line.startswith(("%", "!")) else line) for line in block.split("\n")]
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for statement in compile("\n".join(lines), "page", "exec", flags=flags).body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        made = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        if not _drives(statement, driven):
            driven -= made
            continue
        driven |= made
        end = statement.end_lineno or statement.lineno
        lines[statement.lineno - 1 : end] = [""] * (end - statement.lineno + 1)
    return "\n".join(lines)


def _drives(statement: ast.stmt, driven: set[str]) -> bool:
    """Whether a statement does something else than define."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    nodes = [*ast.walk(statement)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return bool(methods & _DRIVES or names & _SHOWS or read & driven)


def run(example: Example, file: Path, folder: Path, every: int) -> str:
    """Run it in every way, in this process and its children; what was shown, in a line. Raises `AssertionError`."""
    Scripted.values = example.values
    name = f"{file}:{example.graph}"
    workflow, _ = find_workflow(name, Options(home=folder / "none"))

    def stage(place: Path) -> Stage:
        return Stage(place, given={"context": example.context or None})

    def person(request: Any) -> Decision:
        return Decision(request["id"], "proceed_once", text=_text(_answer(example, request["preview"])))

    theirs = _aside(lambda: asyncio.run(_in_langgraph(workflow, example)))
    by_commands, kills = _by_commands(example, file, folder / "cli"), 0
    if every:
        kills = kill_everywhere(stage, name, example.input, folder / "kills", person=person, every=every)
    asked: list[Any] = []
    outcome = stage(folder / "own").play(name, example.input, lambda r: asked.append(r) or person(r))
    assert outcome.status == "done", outcome.error
    _same(outcome.output, theirs, "LangGraph")
    _same(outcome.output, by_commands, "interlock run")
    drawn = f", asked {len(asked)}×" if asked else ""
    return f"{len(workflow.graph.nodes) - 1} nodes{drawn}; {kills} kills"


def _aside(made: Callable[[], Any]) -> Any:
    """The result of a function, JSON-like, in a child: a page's own store would remember."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writing, json.dumps(made(), default=str).encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        found = told.read()
    os.waitpid(pid, 0)
    return json.loads(found)


def _answer(example: Example, text: str) -> Any:
    return next(answer for part, answer in example.answers.items() if part in text)


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


async def _in_langgraph(workflow: Any, example: Example) -> Any:
    """The output of the same graph in LangGraph, with its in-memory saver."""
    graph = workflow.graph.copy({"checkpointer": InMemorySaver()})
    config: Any = {"configurable": {"thread_id": "1", **example.context}}
    given: Any = workflow.graph_input(
        workflow._default_initial_state(workflow.validate_input(dict(example.input)), None), {}
    )
    while True:
        found = await graph.ainvoke(given, config, context=workflow.validate_context(example.context))
        state = await graph.aget_state(config)
        if not state.tasks:
            shown = to_json_value(found)
            return shown if isinstance(shown, dict) else {"output": shown}
        answers = {
            item.id: _answer(example, format_payload_for_display(item.value)) for item in state.interrupts
        }
        given = Command(resume=answers) if answers else None


def _by_commands(example: Example, file: Path, folder: Path) -> Any:
    """The output by `interlock run` and `interlock resume`, each a process of its own."""
    context = ("--context", json.dumps(dict(example.context))) if example.context else ()
    given = ("--input", json.dumps(dict(example.input)))
    code, said = _interlock(folder, "run", f"{file}:{example.graph}", *given, *context)
    while code == 75:
        waiting = said["pending_approvals"]
        texts = [(one["id"], _text(_answer(example, one["preview"]))) for one in waiting]
        approved = [one["id"] for one in waiting if one["kind"] == "approval"]
        decided = [
            part for name, text in texts if name not in approved for part in ("--answer", f"{name}={text}")
        ]
        decided += [part for name in approved for part in ("--approve", name)]
        code, said = _interlock(folder, "resume", said["session_id"], *decided)
    return said


def _interlock(folder: Path, *args: str) -> tuple[int, Any]:
    """A command, in a child that has imported already: its exit code, and the JSON that it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = folder / "shown"
    if (pid := os.fork()) == 0:
        os.chdir(folder)
        os.environ["HOME"] = str(folder)
        os.dup2(os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.argv = ["interlock", *args, "-o", "json"]
        try:
            main_of_interlock()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 75), f"interlock {args[0]} exits with {code}"
    return code, json.loads(shown.read_text())


_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _same(ours: Any, theirs: Any, where: str) -> None:
    mine, other = (_numbered(json.dumps(_filled(one), sort_keys=True, default=str)) for one in (ours, theirs))
    differ = (i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b)
    place = max(0, next(differ, min(len(mine), len(other))) - 80)
    assert mine == other, f"{where} ends differently: {other[place:][:300]}\nhere: {mine[place:][:300]}"


def _filled(value: Any) -> Any:
    """Without the fields of a message that are empty: a run's output has none."""
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in value.items() if one is not None}
    return [_filled(one) for one in value] if isinstance(value, list) else value


def _numbered(text: str) -> str:
    """Random ids of messages, in their order."""
    known: dict[str, str] = {}
    return _RANDOM.sub(lambda found: known.setdefault(found[0], f"id{len(known)}"), text)


_PATIENCE_S = 900
"""An example that loops for ever ends."""


def _alone(example: Example, repository: Path, every: int) -> str:
    """In a child of its own: pages define the same names."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        os.dup2(2, 1)  # nodes print
        signal.alarm(_PATIENCE_S)
        with tempfile.TemporaryDirectory() as temp:
            file = Path(temp) / "example.py"
            try:
                file.write_text(source(repository, example), encoding="utf-8")
                shown = run(example, file, Path(temp), every)
            except BaseException as error:
                traceback.print_exc()
                shown = f"FAILED: {type(error).__name__}: {error}"
        os.write(writing, shown.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as told:
        shown = told.read()
    os.waitpid(pid, 0)
    return shown or "FAILED: the process died"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("names", nargs="*", help="only examples of these names")
    parser.add_argument("--every", type=int, default=1, help="kill at every n-th place; 0: nowhere")
    given = parser.parse_intermixed_args()
    chosen: Mapping[str, Example] = {one.name: one for one in EXAMPLES}
    names = given.names or [*chosen]
    failed = 0
    for name in names:
        shown = _alone(chosen[name], given.repository, given.every)
        failed += shown.startswith("FAILED")
        print(f"| {name} | `{chosen[name].page}` | {shown} |", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
