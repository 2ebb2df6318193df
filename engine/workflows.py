"""workflows: finds, loads and records users' own workflows.

A file `.interlock/workflows/NAME.py` of a trusted folder, or of the user's home, holds `WORKFLOW = Workflow(NAME, …)`;
so does the target of an entry point in the group `interlock.workflows`. None is imported until it is requested by name
or listed. `path/to/agent.py:graph`, and what a trusted folder's `langgraph.json` names, are graphs of LangGraph
(`graph_files.py`).
"""

import ast
import hashlib
import os
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from interlock.engine.graph_files import (
    GraphFile,
    graph_file_from_record,
    parse_graph_path,
    read_graphs_of_langgraph_json,
)
from interlock.engine.options import LISTING, WORKFLOWS_FOLDER, WORKFLOWS_GROUP, Options
from interlock.engine.user_code import FORBIDDEN, check_user_code_allowed
from interlock.engine.working_folder import use_working_folder
from interlock.graphs import PIPELINES, load_pipeline, replace_loadable_workflows
from interlock.graphs.foreign import from_langgraph, may_be_graph_factory
from interlock.graphs.langgraph_internals import is_langgraph_graph
from interlock.graphs.pipeline import Pipeline
from interlock.services.config.settings import project_settings_paths
from interlock.services.process.stdout import redirect_prints_to_stderr
from interlock.services.trust.project_files import ProjectFile, display_path, ignored_files_warning
from interlock.state.entry_points import EntryPoint, find_entry_points
from interlock.state.errors import (
    THEIR_ERRORS,
    ConfigError,
    InterlockError,
    RunError,
    UntrustedError,
    UserError,
)

_EXPECTED = "expected `WORKFLOW = Workflow({name!r}, build, Input, Output)` (interlock.workflow)"


@dataclass(frozen=True)
class WorkflowSource:
    """Where a workflow comes from."""

    name: str
    file: Path | None = None
    entry_point: EntryPoint | None = None
    graph: GraphFile | None = None

    @property
    def location(self) -> str:
        if self.graph is not None:
            return str(self.graph.listing or self.graph.file)
        if self.file is not None:
            return str(self.file)
        assert self.entry_point is not None
        return f"entry point {self.entry_point.value}"

    @property
    def source_record(self) -> dict[str, str]:
        """What a run records of its source, JSON-like."""
        if self.graph is not None:
            return self.graph.source_record
        if self.file is not None:
            return {"file": str(self.file), "sha256": hashlib.sha256(_read_code(self.file)).hexdigest()}
        return {"entry_point": self.name}

    def load(self) -> Pipeline:
        """Import and check it. Raises `ConfigError`: one line with file, line and what was expected."""
        check_user_code_allowed(self.location)
        if self.graph is not None:
            if self.name in PIPELINES:
                where = f"{self.graph.file}:{self.graph.attribute}"
                raise ConfigError(
                    f"{self.location}: {self.name!r} is one of Interlock's own workflows; run this graph as {where}"
                )
            return self.graph.load(self.name)
        if self.file is not None:
            return _load_workflow_file(self.file, self.name, _read_code(self.file))
        return _load_entry_point_workflow(self)


@dataclass(frozen=True)
class ListedWorkflow:
    """One line of `interlock workflows`."""

    name: str
    summary: str
    source: str
    """A file or an entry point."""
    problem: str = ""
    """Why it can't be run; empty: it can."""


def workspace_path(options: Options) -> Path:
    return Path(os.path.realpath(options.workspace or Path.cwd()))


def find_workflow_sources(root: Path, home: Path, trusted: bool) -> dict[str, WorkflowSource]:
    """Name → where it is declared; the project's win over the user's, the user's over installed ones."""
    found = {
        point.name: WorkflowSource(point.name, entry_point=point)
        for point in find_entry_points(WORKFLOWS_GROUP)
    }
    folders = [home / WORKFLOWS_FOLDER, *(_project_workflow_folders(root, home) if trusted else ())]
    for name, graph in (read_graphs_of_langgraph_json(root) if trusted else {}).items():
        found[name] = WorkflowSource(name, graph=graph)
    for file in (file for folder in folders for file in _workflow_files(folder)):
        found[_workflow_name(file)] = WorkflowSource(_workflow_name(file), file)
    return found


def list_user_workflows(options: Options) -> list[ListedWorkflow]:
    """Every non-built-in workflow available here, and what is wrong with those that can't be run.

    Where code of users may not run, only names and places are known.
    """
    found: list[ListedWorkflow] = []
    for source in _register_sources(options).values():
        if FORBIDDEN.get():
            found.append(ListedWorkflow(source.name, "", source.location))
            continue
        try:
            found.append(ListedWorkflow(source.name, source.load().summary, source.location))
        except ConfigError as error:
            found.append(ListedWorkflow(source.name, "", source.location, str(error)))
    return found


def ignored_workflows_warning(options: Options) -> list[str]:
    """One line naming an untrusted folder's ignored files."""
    root = workspace_path(options)
    if options.trusts(root):
        return []
    files = [
        ProjectFile(f)
        for folder in _project_workflow_folders(root, options.user_home)
        for f in _workflow_files(folder)
    ]
    files += [ProjectFile(root / LISTING)] if read_graphs_of_langgraph_json(root) else []
    return ignored_files_warning(files, root)


def find_workflow(name: str, options: Options) -> tuple[Pipeline, dict[str, str] | None]:
    """Find the workflow as the folder, the user or a package declares it, and what its runs record of its source.

    Raises `UserError` with the nearest names, `ConfigError` if it can't be loaded, `UntrustedError` if only an
    untrusted folder has it.
    """
    if name in PIPELINES:
        return load_pipeline(name), None
    graph, root = parse_graph_path(name), workspace_path(options)  # a path counts from where it was typed
    with use_working_folder(root):
        if graph:
            return graph.load(name), graph.source_record
        found = _register_sources(options)
        if name in found:
            return load_pipeline(name), found[name].source_record
    for file in (
        f for folder in _project_workflow_folders(root, options.user_home) for f in _workflow_files(folder)
    ):
        if _workflow_name(file) == name:
            raise _untrusted_error(name, file, root)
    if not options.trusts(root) and name in read_graphs_of_langgraph_json(root):
        raise _untrusted_error(name, root / LISTING, root)
    return load_pipeline(name), None


def require_only_graph_name(options: Options) -> str:
    """The graph that the folder's `langgraph.json` names, if there is one. Raises `UserError`."""
    names = [name for name, source in _register_sources(options).items() if source.graph]
    if len(names) != 1:
        has = f"the {LISTING} here names {', '.join(names)}" if names else f"no {LISTING} counts here"
        raise UserError(f"Which graph? Give it first: FILE.py:graph, or a name; {has}.")
    return names[0]


def load_recorded_workflow(run: str, workflow: str, options: Options) -> tuple[Pipeline, list[str]]:
    """The workflow of a run resumed with these options, and warnings about it.

    A file is loaded from where the run found it, inside the run's folder. Raises `RunError` if it is gone,
    `UntrustedError` if its folder is no longer trusted.
    """
    if workflow in PIPELINES:
        return load_pipeline(workflow), []
    with use_working_folder(workspace_path(options)):
        return _load_recorded_source(run, workflow, options)


def _load_recorded_source(run: str, workflow: str, options: Options) -> tuple[Pipeline, list[str]]:
    _register_sources(options)
    if not options.source or "file" not in options.source:
        return load_pipeline(workflow), []
    if graph := graph_file_from_record(options.source):
        if graph.listing and not options.trusts(graph.listing.parent):
            raise _untrusted_error(workflow, graph.listing, graph.listing.parent)
        loaded, shown = graph.load(workflow), display_path(graph.file, workspace_path(options))
        same = graph.source_record == options.source
        return loaded, [] if same else [_CHANGED.format(what="file", shown=shown)]
    file, root = Path(options.source["file"]), workspace_path(options)
    if not file.is_file():
        raise RunError(
            f"Run {run!r} is one of the workflow file {str(file)!r}, which no longer exists. Put it back, then: "
            f"interlock resume {run}"
        )
    folder = file.parent.parent.parent
    if folder != options.user_home and not options.trusts(folder):
        raise _untrusted_error(workflow, file, folder)
    source = WorkflowSource(workflow, file)
    chosen = source.load()
    if source.source_record == options.source:
        return chosen, []
    shown = display_path(file, root)
    return chosen, [_CHANGED.format(what="workflow file", shown=shown)]


_CHANGED = (
    "The {what} {shown} has changed since this run began; the run continues with the file as it is now."
)


def _register_sources(options: Options) -> dict[str, WorkflowSource]:
    """Register what is available here for lookup by name."""
    root = workspace_path(options)
    found = find_workflow_sources(root, options.user_home, options.trusts(root))
    own = {name: source for name, source in found.items() if name not in PIPELINES}
    replace_loadable_workflows({name: source.load for name, source in own.items()})
    return found


def _untrusted_error(name: str, file: Path, root: Path) -> UntrustedError:
    return UntrustedError(
        f"Workflow {name!r} stands only in {display_path(file, root)}, which was ignored: the folder {str(root)!r} "
        "isn't trusted. See what would count, and trust it: interlock trust"
    )


def _project_workflow_folders(root: Path, home: Path) -> list[Path]:
    settings, name = WORKFLOWS_FOLDER.parts
    return [path for path in project_settings_paths(root, home, name) if path.parent.name == settings]


def _workflow_files(folder: Path) -> list[Path]:
    """Workflow files; names that start with an underscore are skipped."""
    return (
        sorted(p for p in folder.glob("*.py") if not p.name.startswith(("_", "."))) if folder.is_dir() else []
    )


def _workflow_name(file: Path) -> str:
    return file.stem.replace("_", "-")


def _read_code(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: can't be read ({error.strerror}); expected a Python file.") from error


@cache
def _load_workflow_file(file: Path, name: str, code: bytes) -> Pipeline:
    """Cached by content: the bytes checked and hashed are the bytes run."""
    if name in PIPELINES:
        raise ConfigError(
            f"{file}:1: {name!r} is one of Interlock's own workflows; expected another file name."
        )
    try:
        made = execute_file_as_module(file, code)
        with redirect_prints_to_stderr():
            return _to_checked_workflow(made.__dict__.get("WORKFLOW"), name, str(made.__doc__ or ""))
    except THEIR_ERRORS as error:
        raise ConfigError(_load_error_message(file, name, code, error)) from error


def execute_file_as_module(file: Path, code: bytes) -> ModuleType:
    """Execute the file as its own module, its output redirected to stderr. Raises whatever the file raises."""
    check_user_code_allowed(str(file))
    made = ModuleType(f"interlock_file_{hashlib.sha256(code).hexdigest()[:16]}", f"File {file}.")
    made.__file__ = str(file)
    sys.modules[made.__name__] = made  # annotations are resolved through it
    try:
        with redirect_prints_to_stderr():
            exec(compile(code, str(file), "exec"), made.__dict__)
    except THEIR_ERRORS:
        del sys.modules[made.__name__]
        raise
    return made


@cache
def _load_entry_point_workflow(source: WorkflowSource) -> Pipeline:
    point = source.entry_point
    assert point is not None
    try:
        if source.name in PIPELINES:
            raise ValueError(f"{source.name!r} is one of Interlock's own workflows; expected another name")
        with redirect_prints_to_stderr():
            found = point.load()
            module = sys.modules.get(getattr(found, "__module__", ""), None)
            return _to_checked_workflow(found, source.name, str(getattr(module, "__doc__", "") or ""))
    except THEIR_ERRORS as error:
        file = Path(getattr(sys.modules.get(point.module), "__file__", None) or point.value)
        raise ConfigError(_load_error_message(file, source.name, b"", error)) from error


class MisdeclaredError(Exception):
    """The value of WORKFLOW or PROCESSORS can't be used."""


def _to_checked_workflow(found: Any, name: str, doc: str) -> Pipeline:
    if is_langgraph_graph(found) or may_be_graph_factory(found):
        found = from_langgraph(found, name)
    if not isinstance(found, Pipeline):
        raise MisdeclaredError(f"WORKFLOW is {found!r}" if found is not None else "there is no WORKFLOW")
    if found.name != name:
        raise MisdeclaredError(f"its name is {found.name!r}, which isn't {name!r}, the file's")
    graph = found.build()
    if loop := graph.unbounded():
        raise MisdeclaredError(
            f"{', '.join(map(repr, loop))} could follow each other for ever; expected a `loop(g, …, most=N)` on the "
            "way, or a person"
        )
    found.compile()
    return found if found.summary else overwrite_summary_from_docstring(found, doc)


def overwrite_summary_from_docstring(pipeline: Pipeline, doc: str) -> Pipeline:
    """Set the summary to the docstring's first line, without a leading `NAME: `."""
    first = doc.strip().partition("\n")[0].removeprefix(f"{pipeline.name}: ").rstrip(".")
    object.__setattr__(pipeline, "summary", first or "a workflow of yours")
    return pipeline


def _load_error_message(file: Path, name: str, code: bytes, error: BaseException) -> str:
    """`FILE:LINE: what, expected …`."""
    line, what = error_line_number(file, code, error), " ".join(str(error).split()).rstrip(".")
    if isinstance(error, SyntaxError):
        version = ".".join(map(str, sys.version_info[:2]))
        return f"{file}:{error.lineno or 1}: {error.msg}; expected what Python {version} can read."
    if isinstance(error, MisdeclaredError):
        expected = "" if "expected" in what else f"; {_EXPECTED.format(name=name)}"
        return f"{file}:{line}: {what}{expected}."
    if isinstance(error, InterlockError):
        return f"{file}:{line}: {what}."
    kind = type(error).__name__
    return f"{file}:{line}: {kind}: {what}; expected a file that declares a workflow."


def error_line_number(file: Path, code: bytes, error: BaseException, variable: str = "WORKFLOW") -> int:
    """The line in the file where the error occurred; else of the statement that assigns `variable`."""
    frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    if frames and frames[-1]:
        return frames[-1]
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError):
        return 1
    assigned = (s for s in statements if isinstance(s, ast.Assign | ast.AnnAssign))
    named = [s.lineno for s in assigned if variable in ast.unparse(s).partition("=")[0]]
    return named[-1] if named else max(1, len(code.splitlines()))
