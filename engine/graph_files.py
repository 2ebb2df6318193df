"""graph_files: LangGraph graphs in files: `path/to/agent.py:graph`, and those that a `langgraph.json` names."""

import hashlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from interlock.engine.options import LISTING
from interlock.engine.user_code import check_user_code_allowed
from interlock.graphs.foreign import ForeignWorkflow, from_langgraph
from interlock.graphs.langgraph_internals import is_langgraph_graph
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_values import is_data_type
from interlock.services.process.stdout import redirect_prints_to_stderr
from interlock.state.errors import THEIR_ERRORS, ConfigError, InterlockError
from interlock.state.text import did_you_mean

_USUAL_NAMES = ("graph", "agent", "app", "workflow")


@dataclass(frozen=True)
class GraphFile:
    """Where a graph is: a file, and its name there; `listing`: the `langgraph.json` that names it."""

    file: Path
    attribute: str = ""
    listing: Path | None = None

    @property
    def source_record(self) -> dict[str, str]:
        """What a run records of it."""
        code = self.file.read_bytes() if self.file.is_file() else b""
        listing = {"listing": str(self.listing)} if self.listing else {}
        sha = {"sha256": hashlib.sha256(code).hexdigest()}
        return {"file": str(self.file), "graph": self.attribute, **listing, **sha}

    def load(self, name: str) -> Pipeline:
        """Raises `ConfigError`: one line with file, line, what was expected and what to do."""
        check_user_code_allowed(str(self.file))
        if not self.file.is_file():
            raise ConfigError(f"No file {str(self.file)!r}; expected a Python file with a LangGraph graph.")
        settings = _apply_langgraph_json(self.listing) if self.listing else {}
        module = _import_file(self.file, self.file.read_bytes())
        found = _require_named_or_only_graph(module, self.file, self.attribute)
        try:
            made = from_langgraph(found, name, _graph_summary(module, found), types=_list_data_types(module))
        except InterlockError as error:
            raise ConfigError(f"{self.file}: {error}") from error
        ranks = isinstance(store := settings.get("store"), dict) and "index" in store
        return replace(made, notes=(*made.notes, _NO_INDEX)) if ranks else made


_NO_INDEX = (
    "The store's `index` in langgraph.json isn't used: a search of memories isn't ranked by meaning. Give the graph "
    "a store of its own (`compile(store=…)`) for that."
)


def parse_graph_path(text: str) -> GraphFile | None:
    """The graph file that a person typed: `agent.py:graph` or `agent.py`; None: it is a workflow's name."""
    path, colon, attribute = text.rpartition(":")
    if not colon:
        path, attribute = text, ""
    if not path.endswith(".py"):
        return None
    return GraphFile(Path(os.path.realpath(Path(path).expanduser())), attribute)


def graph_file_from_record(source: Mapping[str, str]) -> GraphFile | None:
    """The graph that a run recorded; None: its source is another."""
    if "graph" not in source:
        return None
    listing = Path(source["listing"]) if "listing" in source else None
    return GraphFile(Path(source["file"]), source["graph"], listing)


def recorded_pipeline_class(source: Mapping[str, str]) -> type[Pipeline]:
    """Return the class of the workflow that a run recorded, without loading it."""
    return ForeignWorkflow if graph_file_from_record(source) else Pipeline


def read_graphs_of_langgraph_json(folder: Path) -> dict[str, GraphFile]:
    """Name → graph of a folder's `langgraph.json`. Raises `ConfigError` if that can't be read."""
    listing = folder / LISTING
    if not listing.is_file():
        return {}
    try:
        settings: dict[str, Any] = json.loads(listing.read_text(encoding="utf-8"))
        graphs: object = settings.get("graphs", {})
    except (ValueError, OSError, AttributeError) as error:
        raise ConfigError(f"{listing}: {error}; expected a JSON object with `graphs`.") from error
    found: dict[str, GraphFile] = {}
    for name, place in cast("dict[str, Any]", graphs if isinstance(graphs, dict) else {}).items():
        text = str(place.get("path", "") if isinstance(place, dict) else place)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        path, _, attribute = text.rpartition(":")
        if path.endswith(".py"):
            found[name] = GraphFile(Path(os.path.realpath(folder / path)), attribute, listing)
        elif all(part.isidentifier() for part in path.split(".")):
            file = _find_or_guess_module_file(path, [*_local_dependency_folders(listing, settings), folder])
            found[name] = GraphFile(file, attribute, listing)
    return found


def _find_or_guess_module_file(module: str, folders: Iterable[Path]) -> Path:
    """Where a module's code is, or would be in the last folder, without importing anything."""
    package, *parts = module.split(".")
    spec = find_spec(package)
    places = [folder / package for folder in folders]
    for place in (*places, *map(Path, (spec and spec.submodule_search_locations) or ())):
        for file in (place.joinpath(*parts).with_suffix(".py"), place.joinpath(*parts, "__init__.py")):
            if file.is_file():
                return Path(os.path.realpath(file))
    return places[-1].joinpath(*parts).with_suffix(".py")


def _local_dependency_folders(langgraph_json: Path, settings: Mapping[str, Any]) -> list[Path]:
    """The project's own folders, which its `dependencies` name beside packages."""
    named = [
        langgraph_json.parent / str(place)
        for place in settings.get("dependencies", ())
        if str(place)[:1] == "."
    ]
    return [folder for folder in named if folder.is_dir()]


@dataclass(frozen=True)
class LangGraphApp:
    """What a `langgraph.json` asks of a server beside its graphs."""

    listing: Path
    graphs: frozenset[str]
    auth: Any = None
    """LangGraph's `Auth`: who is let in, and to what. None: the file names none."""
    routes: Any = None
    """The application of its `http.app`; None: it names none."""
    http: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its `http`."""


def load_langgraph_app(folder: Path) -> LangGraphApp | None:
    """What the `langgraph.json` of a trusted folder asks of a server; None: there is none. Raises `ConfigError`."""
    listing = folder / LISTING
    if not (graphs := read_graphs_of_langgraph_json(folder)):
        return None
    settings = _apply_langgraph_json(listing)
    if "encryption" in settings:
        raise ConfigError(
            f"{listing}: `encryption` isn't supported: state would be stored as it is. Remove it."
        )
    http: dict[str, Any] = settings.get("http") or {}
    auth: dict[str, Any] = settings.get("auth") or {}
    theirs, routes = (_load_object_reference(listing, place) for place in (auth.get("path"), http.get("app")))
    if auth and not hasattr(theirs, "_authenticate_handler"):
        raise ConfigError(
            f"{listing}: `auth` must name LangGraph's `Auth`, as ./auth.py:auth; found {theirs!r}."
        )
    if auth and theirs._authenticate_handler is None:
        raise ConfigError(f"{listing}: its `auth` lets nobody in: it has no function `@auth.authenticate`.")
    if routes is not None and not hasattr(routes, "router"):
        raise ConfigError(f"{listing}: `http.app` must name a Starlette or FastAPI app; found {routes!r}.")
    return LangGraphApp(listing, frozenset(graphs), theirs, routes, http)


def _load_object_reference(langgraph_json: Path, reference: object) -> Any:
    """What `./file.py:name` or `package.module:name` of a `langgraph.json` names; None for no text."""
    if not isinstance(reference, str):
        return None
    path, _, name = reference.rpartition(":")
    folders = [
        *_local_dependency_folders(langgraph_json, json.loads(langgraph_json.read_text(encoding="utf-8"))),
        langgraph_json.parent,
    ]
    file = (
        Path(os.path.realpath(langgraph_json.parent / path))
        if path.endswith(".py")
        else _find_or_guess_module_file(path, folders)
    )
    if not file.is_file():
        raise ConfigError(f"{langgraph_json}: there is no file for {reference!r}; expected FILE.py:NAME.")
    module = _import_file(file, file.read_bytes())
    if not hasattr(module, name):
        raise ConfigError(f"{langgraph_json}: {file} has no {name!r}.")
    return getattr(module, name)


def _apply_langgraph_json(langgraph_json: Path) -> dict[str, Any]:
    """Make a project's own folders importable, and its variables known, as LangGraph's server does; its settings."""
    settings: dict[str, Any] = json.loads(langgraph_json.read_text(encoding="utf-8"))
    for place in map(str, settings.get("dependencies", ())):
        if not place.startswith("."):
            _require_dependency(langgraph_json, place)
    for folder in _local_dependency_folders(langgraph_json, settings):
        _add_to_sys_path(folder)
    env: Any = settings.get("env") or {}
    file = langgraph_json.parent / env if isinstance(env, str) else None
    if file is not None:
        from dotenv import dotenv_values  # late: most runs have no such file

        env = dotenv_values(file) if file.is_file() else {}
    for name, value in cast("dict[str, Any]", env).items():
        os.environ.setdefault(name, str(value))
    return settings


def _require_dependency(langgraph_json: Path, dependency: str) -> None:
    """Raises `ConfigError` if a package that the project names isn't there, or in a version that it refuses."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        wanted = Requirement(dependency)
    except InvalidRequirement:
        return  # an address
    try:
        found = version(wanted.name)
    except PackageNotFoundError:
        found = ""
    if not found or not wanted.specifier.contains(found, prereleases=True):
        here = f"{wanted.name} is {found} here" if found else "it isn't installed"
        raise ConfigError(
            f"{langgraph_json}: dependency {dependency!r}: {here}; install it beside Interlock: "
            f"{sys.executable} -m pip install '{dependency}'"
        )


def _add_to_sys_path(folder: Path) -> None:
    if (place := os.path.realpath(folder)) not in sys.path:
        sys.path.insert(0, place)


@cache
def _import_file(file: Path, code: bytes) -> ModuleType:
    """Import the file; cached by content. What it prints goes to stderr."""
    try:
        with redirect_prints_to_stderr():
            return _import_if_in_package(file) or _import_by_path(file, code)
    except ModuleNotFoundError as error:
        if error.name is None or (file.parent / error.name.replace(".", "/")).exists():
            raise ConfigError(_import_error_message(file, error)) from error
        raise ConfigError(
            f"{file}:{_error_line_number(file, error)}: {_missing_module_message(file, error.name)}"
        ) from error
    except THEIR_ERRORS as error:
        raise ConfigError(_import_error_message(file, error)) from error


def _missing_module_message(file: Path, module: str) -> str:
    """What to do about a module that can't be found."""
    package, pip = module.partition(".")[0], f"{sys.executable} -m pip install"
    found = find_spec(package)
    if package != module and found and found.origin:
        return f"no module {module!r} in the {package!r} that is installed; expected a version that has it."
    if project := _find_project_with_package(file, package):
        return (
            f"no module {module!r} here; install the project that has it beside Interlock: {pip} -e {project}"
        )
    wanted = (module if found else package).replace("_", "-").replace(".", "-")
    return f"no module {module!r} here; install what has it beside Interlock: {pip} {wanted}"


def _find_project_with_package(file: Path, package: str) -> Path | None:
    """The project around a file that holds the package, and isn't installed: a registry may have others of its name."""
    for folder in file.parents:
        if (folder / "pyproject.toml").is_file() or (folder / "setup.py").is_file():
            has = any((folder / place / package).is_dir() for place in (".", "src"))
            return folder if has else None
    return None


def _import_by_path(file: Path, code: bytes) -> ModuleType:
    """Import under a name made of the path: a run finds the classes of its state there again."""
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    _add_to_sys_path(file.parent)
    made = module_from_spec(spec)
    sys.modules[name] = made
    try:
        exec(compile(code, str(file), "exec"), made.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return made


def _import_if_in_package(file: Path) -> ModuleType | None:
    """Import a file of a package by its own name, so that its relative imports work; None: it is in none."""
    parts, folder = [file.stem] * (file.name != "__init__.py"), file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if folder == file.parent:
        return None
    _add_to_sys_path(folder)
    made = importlib.import_module(".".join(parts))
    return made if os.path.realpath(made.__file__ or "") == str(file) else None


def _require_named_or_only_graph(module: ModuleType, file: Path, attribute: str) -> Any:
    graphs = {
        name: one
        for name, one in vars(module).items()
        if is_langgraph_graph(one) and not name.startswith("_")
    }
    if attribute:
        if not hasattr(module, attribute):
            hint = did_you_mean(attribute, graphs) or f" It has the graphs: {', '.join(graphs) or 'none'}."
            raise ConfigError(f"{file} has no {attribute!r}.{hint}")
        return getattr(module, attribute)
    usual = [name for name in _USUAL_NAMES if name in graphs]
    if not (chosen := usual[:1] or ([*graphs] if len(graphs) == 1 else [])):
        several = f"Name one: {file.name}:{'|'.join(graphs)}" if graphs else "Expected one, such as `graph`."
        raise ConfigError(
            f"{file} has {len(graphs) or 'no'} graph{'s' * (len(graphs) != 1)} of LangGraph. {several}"
        )
    return graphs[chosen[0]]


def _list_data_types(module: ModuleType) -> list[type]:
    """Classes of values that the file has: such as an agent's `response_format`, which no type of its state names."""
    classes: list[type] = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in classes if is_data_type(one)]


def _graph_summary(module: ModuleType, found: Any) -> str:
    text = str(module.__doc__ or getattr(found, "name", "") or "").strip().partition("\n")[0]
    return text.rstrip(".") or "a LangGraph graph"


def _import_error_message(file: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno or 1}: {error.msg}; expected what this Python can read."
    what = " ".join(str(error).split()).rstrip(".")
    return f"{file}:{_error_line_number(file, error)}: {type(error).__name__}: {what}; the file can't be imported."


def _error_line_number(file: Path, error: BaseException) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno for f in reversed(frames) if f.filename == str(file) and f.lineno), 1)
