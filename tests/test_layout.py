"""How the rooms are organised: who may import whom, what is shipped, sizes, and that importing does nothing."""

import ast
import gc
import importlib
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "state": set[str](),
    "prompts": {"state"},
    "tools": {"state"},
    "nodes": {"state", "prompts", "tools"},
    "graphs": {"state", "nodes"},
    "services": {"state", "prompts", "tools"},
    "engine": {"state", "prompts", "tools", "nodes", "graphs", "services"},
    "cli": {"state", "prompts", "tools", "nodes", "graphs", "services", "engine"},
    "web": {"state", "graphs", "services", "engine", "cli"},
    "acp": {"state", "tools", "services", "engine", "cli"},
    "fleet": {"state", "tools", "services", "engine", "cli"},
    "telemetry": {"state", "services", "engine"},
    "workflow": {"state", "nodes", "graphs"},
    "testing": {"state", "graphs", "services", "engine"},
}
MODULES = sorted(p for room in MAY_IMPORT for p in (ROOT / room).rglob("*.py"))
SERVICES_MAY_IMPORT = {
    "secrets": set[str](),
    "packages": set[str](),
    "shell": set[str](),
    "files": {"secrets"},
    "config": {"files"},
    "models": {"files", "packages", "secrets"},
    "tool_schemas": set[str](),
    "toolset": {"files"},
    "transcript": {"files", "secrets"},
    "sandbox": {"files"},
    "process": {"files", "sandbox", "secrets"},
    "policy": {"config", "files", "shell"},
    "context": {"config", "files", "secrets"},
    "hooks": {"config", "files", "policy", "process", "secrets", "shell"},
    "mcp": {"config", "files", "packages", "process", "tool_schemas", "toolset"},
    "language_servers": {"process"},
    "snapshots": {"files"},
    "checks": {"files", "shell", "snapshots"},
    "index": {"files", "models", "packages", "secrets"},
    "project_tools": {"tool_schemas"},
    "trust": {"config", "context", "files", "hooks", "policy", "secrets"},
    "worktrees": {"files"},
    "configuration": {"config", "context", "files", "hooks", "policy", "trust"},
}
"""Each sub-room of `services/` with those it may import; imports go one way."""
SERVICES = [p for p in MODULES if p.is_relative_to(ROOT / "services")]

ENGINE_ORDER = (
    *("effect_hints", "masking", "optional_rooms", "user_code", "working_folder"),
    "store",
    "audit",
    "options",
    "read",
    "worktrees",
    *("graph_files", "workflows", "diagrams", "run_files"),
    "driver",
    "rebuild",
    "travel",
    "engine",
    "client",
    "studio",
)
"""The rooms and modules of `engine/`: each may import those before it. `engine` is the door, `engine/__init__.py`."""
CLI_ORDER = (
    *("other_programs", "suggestions", "version", "terminal", "warm", "startup"),
    "render",
    *("inputs", "parsing", "flags", "decisions"),
    *("catalog", "completions", "driving"),
    "session",
    "mcp_server",
    "commands",
    *("command_line", "main"),
)
"""The rooms and modules of `cli/`, as `ENGINE_ORDER`."""
ORDERS = {"engine": ENGINE_ORDER, "cli": CLI_ORDER}

FRONT_ENDS = ("cli", "web", "acp")
FROM_CLI = {
    "web": {"flags", "parsing", "render", "warm.fork_client"},
    "acp": {"flags", "parsing", "session", "startup", "version"},
    "fleet": {"parsing", "render", "warm.fork_client"},
}
"""What the page and the editor share with the terminal's commands."""
FROM_BELOW = {
    "cli": {
        *("graphs.pipeline", "prompts", "tools", "tools.table"),
        *("services.config.formats", "services.config.settings", "services.configuration"),
        "services.trust.decisions",
        *("services.files.disk", "services.files.filesystem", "services.files.workspace"),
        *("services.context.memory", "services.hooks.hook_settings", "services.mcp"),
        *("services.models.facts", "services.models.names"),
        *("services.process.stdout", "services.process.supervisor_client"),
        *("services.secrets.environment", "services.secrets.hidden", "services.secrets.redaction"),
    },
    "web": {
        *("graphs.pipeline", "services.files.disk", "services.files.filesystem"),
        *("services.process.identity", "services.process.stdout"),
    },
    "acp": {"services.files.filesystem", "services.models.names", "tools.table"},
}
FROM_BELOW_ROOMS = {"prompts", "tools", "nodes", "graphs", "services"}
"""What front ends still import of the rooms below the client. The list only shrinks."""
THE_CLIENT = "interlock.engine.client"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("interlock", *parts)).removesuffix(".__init__")


@cache
def tree(path: Path) -> ast.Module:
    gc.disable()  # all are kept: looking through them for garbage takes twice as long as reading them
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """Those of a module, however deep. To look at expressions, too, takes ten times as long."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(block, name, ()):
            yield child
            yield from statements(child)


@cache
def imported(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in statements(tree(path)):
        if isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
            if node.module == "interlock":
                found += [f"interlock.{a.name}" for a in node.names]
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
    return tuple(found)


PATHS = {name_of(path): path for path in MODULES}


@cache
def modules_imported(name: str) -> frozenset[str]:
    """The modules of ours that one imports, inside functions and for types, too. A table of names isn't an import."""
    found = {*re.findall(r'import_module\("([\w.]+)"', PATHS[name].read_text(encoding="utf-8"))}
    for node in statements(tree(PATHS[name])):
        if isinstance(node, ast.ImportFrom):
            found |= {
                f"{node.module}.{one.name}" for one in node.names if f"{node.module}.{one.name}" in PATHS
            }
            if any(f"{node.module}.{one.name}" not in PATHS for one in node.names):
                found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return frozenset(found & PATHS.keys() - {name})


def test_no_two_modules_import_each_other_however_far_around() -> None:
    """Whoever reads one module of a circle has to read all of them."""
    left = {name: set(modules_imported(name)) for name in PATHS}
    while free := {name for name, others in left.items() if not others}:
        left = {name: others - free for name, others in left.items() if name not in free}
    while above := left.keys() - {other for others in left.values() for other in others}:
        left = {name: others for name, others in left.items() if name not in above}
    assert not left, "\n".join(f"{name} → {other}" for name in sorted(left) for other in sorted(left[name]))


def test_the_rooms_of_engine_and_cli_only_look_down() -> None:
    wrong: list[str] = []
    for top, order in ORDERS.items():
        rank = {name: place for place, name in enumerate(order)}

        def room_of(name: str, top: str = top) -> str:
            return name.split(".")[2] if name.count(".") > 1 else top

        names = [name for name in PATHS if name.startswith(f"interlock.{top}.") or name == f"interlock.{top}"]
        rooms = {room_of(name) for name in names if tree(PATHS[name]).body}
        assert rooms == {*order}, f"name each room of {top}/ in its order: {sorted(rooms ^ {*order})}"
        wrong += [
            f"{name} imports {other}: {room_of(other)} comes after {room_of(name)}"
            for name in names
            for other in modules_imported(name)
            if other in names and rank[room_of(other)] > rank[room_of(name)]
        ]
    assert not wrong, "\n".join(sorted(wrong))


def test_rooms_only_look_down() -> None:
    wrong: list[str] = []
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0]
        for name in imported(path):
            first, _, rest = name.partition(".")
            if not first or first in MAY_IMPORT:
                wrong.append(f"{path.relative_to(ROOT)}: {name}; write `interlock.…`")
            elif first == "interlock" and rest and rest.split(".")[0] not in MAY_IMPORT[room] | {room}:
                wrong.append(f"{path.relative_to(ROOT)}: {room}/ may not import {name}")
    assert not wrong, "\n".join(wrong)


def test_front_ends_import_nothing_of_the_engine_but_its_client() -> None:
    wrong: list[str] = []
    for path in (p for p in MODULES if p.relative_to(ROOT).parts[0] in FRONT_ENDS):
        for name in imported(path):
            if f"{name}.".startswith("interlock.engine.") and not f"{name}.".startswith(f"{THE_CLIENT}."):
                wrong.append(f"{path.relative_to(ROOT)}: {name}; write `{THE_CLIENT}.…`")
    assert not wrong, "\n".join(wrong)


def test_the_page_and_the_editor_import_of_the_terminal_what_they_share() -> None:
    for room, shared in FROM_CLI.items():
        names = {name for path in MODULES if path.is_relative_to(ROOT / room) for name in imported(path)}
        of_cli = {name.removeprefix("interlock.cli.") for name in names if name.startswith("interlock.cli")}
        found = {name.partition(".")[0] if name.startswith("render.") else name for name in of_cli}
        assert found == shared, room


def test_front_ends_reach_past_the_client_only_where_they_did() -> None:
    for room, listed in FROM_BELOW.items():
        names = {
            n for path in MODULES if path.is_relative_to(ROOT / room) for n in modules_imported(name_of(path))
        }
        below = {n.removeprefix("interlock.") for n in names if n.split(".")[1] in FROM_BELOW_ROOMS}
        assert below <= listed, f"{room}: ask `{THE_CLIENT}` instead of {sorted(below - listed)}"
        assert not {n for n in names if n.split(".")[1] in {*FROM_BELOW} - {room, "cli"}}


def test_what_runs_servers_and_searches_has_one_door_each() -> None:
    for door in ("interlock.services.mcp", "interlock.services.index"):
        others = [name for name in PATHS if name != door and not name.startswith(f"{door}.")]
        found = {
            f"{name}: {n}" for name in others for n in modules_imported(name) if n.startswith(f"{door}.")
        }
        assert not found, f"import `{door}` instead"


def test_a_module_says_what_it_does() -> None:
    wrong: list[str] = []
    for path in MODULES:
        first = (ast.get_docstring(tree(path)) or "").partition("\n")[0]
        if path.name == "__init__.py":
            if tree(path).body and not first:
                wrong.append(f"{path.relative_to(ROOT)} needs a docstring")
        elif not first.startswith((f"{path.stem}: ", f"{path.stem.strip('_')}: ")) and tree(path).body:
            wrong.append(f"{path.relative_to(ROOT)}: its docstring begins `{path.stem}: what it does`")
    assert not wrong, "\n".join(wrong)


def test_only_the_store_and_the_search_index_know_their_database() -> None:
    """Statements about runs stand in the store; what only one database knows stands in its adapter."""
    own = (ROOT / "engine" / "store", ROOT / "services" / "index")
    found = [p for p in MODULES if "sqlite3" in imported(p)]
    wrong = [str(p.relative_to(ROOT)) for p in found if not any(p.is_relative_to(place) for place in own)]
    dialect = re.compile(r"\browid\b|json_extract|\bpragma\b|create temp trigger|insert or |sqlite_master")
    for path in own[0].rglob("*.py"):
        texts = [
            n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        adapter = path.name.startswith(("sqlite", "postgres"))
        if not adapter and any(dialect.search(text) for text in texts):
            wrong.append(f"{path.relative_to(ROOT)} speaks SQLite's own SQL")
        if not path.name.startswith("sqlite") and "sqlite3" in imported(path):
            wrong.append(f"{path.relative_to(ROOT)} imports sqlite3")
    for path in (p for p in MODULES if p.is_relative_to(ROOT / "engine") and not p.is_relative_to(own[0])):
        if re.search(r"\.execute\(|\bselect\(\s*[\w.]*home", path.read_text(encoding="utf-8")):
            wrong.append(f"{path.relative_to(ROOT)} asks the store in SQL")
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_file_is_shipped() -> None:
    """Folders are found (`setup.py`), and `.ci/release` compares the wheel with them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    kinds = {f".{pattern.rpartition('.')[2]}" for pattern in settings["package-data"]["*"]}
    files = [p for room in MAY_IMPORT for p in (ROOT / room).rglob("*") if p.is_file()]
    missing = {p.suffix for p in files if "__pycache__" not in p.parts} - kinds - {".py"}
    assert not missing, f"add {sorted(missing)} to package-data in pyproject.toml"


def test_what_is_imported_is_declared() -> None:
    """Transitive dependencies can disappear with the next version of what brings them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {**project["optional-dependencies"], "dev": []}.values()
    named = (name for names in (project["dependencies"], *extras) for name in names)
    declared = {re.split(r"[<>=;\[ ]", name)[0].lower().replace("_", "-") for name in named}
    makers = packages_distributions()
    tops = {name.partition(".")[0] for path in MODULES for name in imported(path)}
    for top in tops - sys.stdlib_module_names - {"interlock"}:
        assert top in makers, f"{top} isn't installed here: .venv/bin/python -m pip install -e '.[dev]'"
        offered = {maker.lower().replace("_", "-") for maker in makers[top]}
        assert offered & declared, f"{top} is imported: declare one of {sorted(offered)} in pyproject.toml"


def test_what_is_imported_at_once_is_in_the_base() -> None:
    """`langgraph` is a namespace of several packages, of which an extra may bring one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[<>=;\[ ]", name)[0].lower() for name in project["dependencies"]}
    makers = {name for name in packages_distributions()["langgraph"] if name.lower() not in base}
    others = {str(f.locate()) for name in makers for f in distribution(name).files or ()}
    at_once = {
        node.module
        for path in MODULES
        for node in tree(path).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("langgraph.")
    }
    found = {name: spec.origin for name in sorted(at_once) if (spec := find_spec(str(name)))}
    assert not {name for name, origin in found.items() if str(origin) in others}


def test_every_room_is_a_typed_package_that_checkers_find() -> None:
    for room in MAY_IMPORT:
        assert (ROOT / room / "__init__.py").exists()
        assert (ROOT / room / "py.typed").exists()
        assert (ROOT / ".links" / "interlock" / room).resolve() == ROOT / room


def test_windows_is_refused_in_one_line_before_anything_of_it_is_missing() -> None:
    missing = "sys.modules.update(dict.fromkeys(('fcntl', 'resource', 'termios', 'pwd')))"
    code = f"import sys; sys.platform = 'win32'; {missing}; from interlock.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "runs"], capture_output=True, text=True, check=False)
    says = "interlock: Windows isn't supported. Install and run Interlock in WSL.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", says)


PROBE = """
import gc, os, socket, sys
from importlib import import_module

gc.disable()

def refuse(*args, **kwargs):
    raise AssertionError(f"an import reached for the network: {args}")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
watched = set()
EFFECTS = {"os.mkdir", "os.rename", "os.remove", "os.system", "subprocess.Popen", "sqlite3.connect"}

def note(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if writes or event in EFFECTS:
        watched.add(f"{event} {args[0]!r}")

sys.dont_write_bytecode = True
sys.addaudithook(note)
before = dict(os.environ)
for name in sys.argv[1].split():
    import_module(name)
assert not watched, watched
assert dict(os.environ) == before, "an import changed the environment"
"""


def test_importing_any_module_does_nothing(tmp_path: Path, home: Path) -> None:
    """No output, no file, no connection, no process, no change of the environment.

    The agent runs in other people's repositories, which have their own `state/` and `tools/`.
    """
    theirs = {tmp_path / room / "__init__.py" for room in MAY_IMPORT}
    for file in theirs:
        file.parent.mkdir()
        file.write_text("raise RuntimeError('the wrong one')\n")
    names = " ".join(name_of(p) for p in MODULES if p.name != "__main__.py")
    done = subprocess.run(
        [sys.executable, "-c", PROBE, names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == theirs
    assert list(home.rglob("*")) == []


def test_there_is_no_second_copy_of_a_room() -> None:
    """A bare `import state` would create one, with different classes under another name."""
    assert not MAY_IMPORT.keys() & {name for name, module in sys.modules.items() if _is_ours(module)}
    foreign = [p for p in sys.path if p and Path(p).resolve() == ROOT]
    assert foreign == [], "the root of the repository is on sys.path: run `pytest`, not `python -m pytest`"


def _is_ours(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and any(Path(file).is_relative_to(ROOT / room) for room in MAY_IMPORT)


def test_the_sub_rooms_of_services_go_one_way() -> None:
    for path in SERVICES:
        parts = path.relative_to(ROOT / "services").with_suffix("").parts
        if parts == ("__init__",):
            continue
        for name in imported(path):
            if name.startswith("interlock.services."):
                target = name.split(".")[2]
                assert target in SERVICES_MAY_IMPORT[parts[0]] | {parts[0]}, (
                    f"{parts[0]} may not import {name}"
                )
    seen: list[str] = []
    while rest := {r: t - set(seen) for r, t in SERVICES_MAY_IMPORT.items() if r not in seen}:
        free = sorted(r for r, t in rest.items() if not t)
        assert free, f"these import each other in a circle: {sorted(rest)}"
        seen += free


FOREIGN_ROOM = ("graphs/foreign.py", "engine/store/foreign_saver.py", "engine/travel/adopt.py")
"""Where a graph that knows nothing of Interlock is dealt with: as a workflow, its checkpoints, and threads of it."""
REGISTRY = ("engine/graph_files.py", "engine/workflows.py")
"""Where workflows are made of files."""
OF_FOREIGN_ROOM = re.compile(r"Foreign\w*|kept_graph")
"""Names that only the room and the registry import."""
WAYS_OF_WORKFLOWS = re.compile(r"Foreign\w*|Workflow|Saver|PromptDialect|Dialect")
"""Classes of which whoever holds an object calls a method, and asks for none."""
FLAG = re.compile(r"(\w+_)?foreign(_(of|graph|workflow))?|Foreign\w*")
ASKING = ("engine", "cli", "web", "acp", "fleet", "telemetry", "testing")


def questions_in(module: ast.Module) -> Iterator[str]:
    """Yield what in a module asks whether a graph is foreign: an import, a class, a flag, an attribute by its name."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            yield from (one.name for one in node.names if OF_FOREIGN_ROOM.fullmatch(one.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            text = ast.unparse(node)
            kinds = re.findall(r"\w+", ast.unparse(node.args[1])) if len(node.args) > 1 else []
            if node.func.id in ("isinstance", "issubclass"):
                yield from (text for kind in kinds if WAYS_OF_WORKFLOWS.fullmatch(kind))
            if node.func.id in ("hasattr", "getattr") and {*kinds} & {
                "graph",
                "factory",
                "accepts_non_object_input",
            }:
                yield text
        elif isinstance(node, ast.MatchClass) and WAYS_OF_WORKFLOWS.fullmatch(ast.unparse(node.cls)):
            yield f"case {ast.unparse(node)}"
        name = next(
            (n for key in ("id", "attr", "arg", "name") if isinstance(n := getattr(node, key, 0), str)), ""
        )
        if FLAG.fullmatch(name) and not isinstance(node, ast.alias):
            yield name


def test_nobody_outside_its_room_asks_whether_a_graph_is_foreign() -> None:
    """A workflow answers what engine and front ends need of it (`graphs/pipeline.py`), whoever wrote its graph."""
    wrong = [
        f"{path.relative_to(ROOT)}: {question}"
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in ASKING
        and path.relative_to(ROOT).as_posix() not in (*FOREIGN_ROOM, *REGISTRY)
        for question in questions_in(tree(path))
    ]
    assert not wrong, "make it a method of `Pipeline`, or of what it chooses:\n" + "\n".join(wrong)


def test_each_form_of_the_question_is_seen() -> None:
    asked = """
from interlock.graphs.foreign import ForeignWorkflow
def f(found, is_foreign):
    if isinstance(found, Pipeline | Workflow) or hasattr(found, "graph") or found.foreign: pass
    match found:
        case ForeignSaver(): pass
    isinstance(found, Pipeline), isinstance(found, str), getattr(found, "name")
"""
    assert sorted(questions_in(ast.parse(asked))) == sorted(
        [
            *(
                "ForeignWorkflow",
                "is_foreign",
                "isinstance(found, Pipeline | Workflow)",
                "hasattr(found, 'graph')",
            ),
            *("foreign", "case ForeignSaver()", "ForeignSaver"),
        ]
    )


def test_what_benchmarks_import_is_there() -> None:
    """Nothing else runs them before somebody measures."""
    imports = (
        (path.name, node.module, name.name)
        for path in sorted((ROOT / "benchmarks").rglob("*.py"))
        for node in statements(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("interlock")
        for name in node.names
    )
    missing = [one for one in imports if not _is_importable(one[1], one[2])]
    assert missing == []


def _is_importable(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None


DOCUMENT = re.compile(r"(?:`|(?<![\w/])docs/)((?:[a-z][\w-]*/)*[a-z][a-z\d-]*\.md)(?:#([\w-]+))?")
"""A page of ours, and its section, as comments and pages name them: in backticks, or below `docs/`."""
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([\w-]+))?\)")
RULES = ROOT / "docs" / "internals.md"


@cache
def texts() -> dict[Path, str]:
    """Texts of the repository, but those that name pages of LangGraph's."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = (
        ROOT / name for name in names if not name.startswith(("benchmarks/foreign/", "docs/langgraph.md"))
    )
    kinds = {".py", ".md", ".sql", ""}
    return {p: p.read_text(encoding="utf-8") for p in files if p.suffix in kinds and p.is_file()}


@cache
def sections(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def words_about(file: Path) -> Iterator[str]:
    """What a module says about itself: its comments and docstrings, those below values among them."""
    with file.open("rb") as source:
        yield from (t.string for t in tokenize.tokenize(source.readline) if t.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


@cache
def named() -> list[tuple[Path, Path, str]]:
    """File, page and section (empty: the page), for every page that a file names."""
    found: list[tuple[Path, Path, str]] = []
    for file, text in texts().items():
        if file.suffix == ".py" and DOCUMENT.search(text):
            text = "\n".join(words_about(file))
        for name, section in DOCUMENT.findall(text):
            places = [base / name for base in (ROOT, ROOT / "docs", file.parent)]
            found.append((file, next((p for p in places if p.exists()), places[0]), section))
        if file.suffix == ".md":
            for name, section in LINK.findall(text):
                found.append((file, (file.parent / name).resolve() if name else file, section))
    return found


def test_every_page_and_section_that_is_named_exists() -> None:
    """`docs/internals.md#one-driver` in a comment, `[audit](audit.md)` in a page."""
    wrong = [
        f"{file.relative_to(ROOT)}: {page.name}" + (f"#{section}" if section else "")
        for file, page, section in named()
        if not page.exists() or (section and page.suffix == ".md" and section not in sections(page))
    ]
    assert not wrong, "name a page and a section that exist:\n" + "\n".join(wrong)


def test_every_rule_is_named_where_the_code_holds_it() -> None:
    text = RULES.read_text(encoding="utf-8")
    rules = {
        re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in re.findall(r"^### (.+)$", text, re.M)
    }
    held = {section for file, page, section in named() if page == RULES and file.suffix == ".py"}
    assert rules - held == set(), "name these in a comment, as `docs/internals.md#…`"


def test_each_test_that_a_page_names_exists() -> None:
    wrong: list[str] = []
    for page in (RULES, ROOT / "docs" / "kill-tests.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for name, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
            file = ROOT / name
            if not file.exists() or (test and f"def {test}(" not in file.read_text(encoding="utf-8")):
                wrong.append(f"{page.name}: {name}::{test}")
    assert not wrong, "\n".join(wrong)


HOUSE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
READING = re.findall(r"^\| \d+ \| (.+?) \| ([\d,]+) \|", HOUSE, flags=re.MULTILINE)


def lines_in(names: str) -> int:
    return sum(
        len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in re.findall(r"`(.+?)`", names)
    )


def test_the_kernel_is_read_in_an_afternoon() -> None:
    """Each row of the reading list says how long it is, to within a tenth."""
    found = {names: (int(lines.replace(",", "")), lines_in(names)) for names, lines in READING}
    wrong = {names: both for names, both in found.items() if not 0.9 <= both[1] / both[0] <= 1.1}
    assert not wrong, "said, and counted"
    assert sum(counted for _, counted in found.values()) <= 12_000


def test_what_the_drawing_of_the_kernel_names_is_there_and_is_read() -> None:
    drawn = re.findall(r"<br/>([\w/.]+)", HOUSE)
    assert len(drawn) > 10 and all((ROOT / name).exists() for name in drawn)
    assert {name for name in drawn if not name.endswith("/")} <= set(re.findall(r"`(.+?)`", str(READING)))


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md", "docs/kill-tests.md"]
)
def test_files_that_a_page_about_the_code_names_exist(page: str) -> None:
    rooms = "|".join((*MAY_IMPORT, "tests", "docs", "diagrams", "benchmarks"))
    paths = re.findall(rf"`((?:{rooms})/[\w/.-]*)`", (ROOT / page).read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists() and "/x." not in path] == []


def test_a_module_that_a_row_names_alone_is_in_a_folder_that_the_row_names() -> None:
    rows = [
        row for row in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines() if row[:1] == "|"
    ]
    wrong: list[str] = []
    for row in rows:
        folders = {
            ROOT,
            *(ROOT / path.rpartition("/")[0] for path in re.findall(r"`([\w-]+/[\w/.-]*)`", row)),
        }
        alone = re.findall(r"`(\w+\.py)`", row)
        wrong += [name for name in alone if not any((folder / name).exists() for folder in folders)]
    assert wrong == []
