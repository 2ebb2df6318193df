"""generated: the blocks of README and other pages that are generated from the code, so they always match it.

A block lies between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is `pipelines`, `tools`, `help`,
`settings` (every key), `language servers`, `tour` (the demo's real output), `session` (its commands and keys),
`diagram WORKFLOW` or `api MODULE`.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from interlock.cli.session.commands import commands_and_keys_as_markdown as session_page
from interlock.engine.diagrams import render_diagram
from interlock.graphs import PIPELINES
from interlock.services.language_servers.table import load_server_table
from interlock.state.errors import UserError
from interlock.state.settings import Settings
from interlock.tools.table import TOOLS

HERE = Path(__file__).resolve().parent
_EVEN = (
    (re.compile(r"/[\w./-]*interlock-demo-\w+"), "/tmp/interlock-demo"),
    (re.compile(r" · (?:\d+ ms|\d+(?:\.\d+)? s)"), ""),
    (re.compile(r"in \d+\.\d+s"), "in 0.001s"),
    (re.compile(r"\S+/bin/interlock"), "interlock"),
)
_RUN = re.compile(r"^Run (\w{8}) is waiting", re.MULTILINE)

_READS = re.compile(r"(?:^✓ Read .*\n){2,}", re.MULTILINE)
"""Consecutive reads; files are read in parallel, so their order varies."""


def tour() -> str:
    """Run the demo and return its output as a block. Raises `UserError` if it fails."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-P", HERE / "demo.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=env,
            check=False,
        )
    if done.returncode:
        raise UserError(f"The demo failed: {done.stdout.strip()[-500:]}")
    text = done.stdout.strip()
    for pattern, even in _EVEN:
        text = pattern.sub(even, text)
    if found := _RUN.search(text):
        text = text.replace(found[1], "k3m9x2pa")
    text = _READS.sub(lambda lines: "".join(sorted(lines[0].splitlines(keepends=True))), text)
    return f"```text\n{text}\n```\n"


_BLOCK = re.compile(r"(<!-- generated: ([^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_RISKS = {
    "read": "reads",
    "write": "writes files",
    "execute": "runs commands",
    "network": "reaches the network",
    "question": "asks you",
    "state": "keeps notes in the run",
}


def pipelines() -> str:
    """A table of all workflows, linked to their diagrams."""
    rows = [f"| `{name}` | {what} | [diagram](../diagrams/{name}.mmd) |" for name, what in PIPELINES.items()]
    return "\n".join(["| Workflow | What it does | |", "|---|---|---|", *rows]) + "\n"


def tools() -> str:
    """A table of the tools a model can call."""
    rows = [f"| `{t.name}` | {_RISKS[t.risk]} | {_sentence(t.description)} |" for t in TOOLS.values()]
    return "\n".join(["| Tool | Risk | What it does |", "|---|---|---|", *rows]) + "\n"


def _sentence(text: str) -> str:
    first = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
    return first.replace("|", "\\|")


def language_servers() -> str:
    """A table of the language servers that are known."""
    rows = [
        f"| `{name}` | {one.role} | {' '.join(f'`{end}`' for end in one.suffixes)} | `{' '.join(one.command)}` |"
        for name, one in load_server_table().items()
    ]
    return "\n".join(["| Name | Role | Files | Command |", "|---|---|---|---|", *rows]) + "\n"


def help_text() -> str:
    code = "import sys; from interlock.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    return f"```text\n{done.stdout.rstrip()}\n```\n"


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", Any: "any"}


def settings() -> str:
    """A table of every key of the settings files. Raises `UserError` for a key that nothing describes."""
    rows = [f"| `{key}` | {kind} | {default} | {what} |" for key, kind, default, what in _keys(Settings, "")]
    return "\n".join(["| Key | Type | Default | What it does |", "|---|---|---|---|", *rows]) + "\n"


def _keys(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    said = _strings_below(section)
    for name, field in section.model_fields.items():
        key, kind = prefix + (field.alias or name), field.annotation
        inner = [part for part in (kind, *get_args(kind)) if _is_section(part)]
        if inner:
            yield from _keys(inner[0], f"{key}.NAME." if get_origin(kind) is dict else f"{key}.")
            continue
        what = " ".join((field.description or said.get(name, "")).split()).replace("|", "\\|")
        if not what:
            raise UserError(f"Setting {key} has no description. Add a string below it in state/settings.py.")
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else f"`{json.dumps(default, ensure_ascii=False)}`"
        yield key, _type(kind), shown, what


def _strings_below(cls: type) -> dict[str, str]:
    pairs = pairwise(_body(cls))
    return {ast.unparse(a.target): _docstring([b])[2:] for a, b in pairs if isinstance(a, ast.AnnAssign)}


def _is_section(kind: Any) -> bool:
    return inspect.isclass(kind) and get_origin(kind) is None and issubclass(kind, BaseModel)


def _type(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in args)
    if origin is list:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return f"object of {_type(args[1])}"
    return " or ".join(map(_type, args)) if args else _TYPES[kind]


_BLOCKS = {
    "pipelines": pipelines,
    "tools": tools,
    "settings": settings,
    "language servers": language_servers,
    "help": help_text,
    "tour": tour,
    "session": session_page,
}


def _text(name: str) -> str:
    kind, _, workflow = name.partition(" ")
    if kind == "diagram" and workflow:
        return f"```mermaid\n{render_diagram(workflow)!s}```\n"
    if kind == "api" and workflow:
        return page(workflow)
    if name not in _BLOCKS:
        raise UserError(f"No generated block {name!r}; expected one of {[*_BLOCKS]} or 'diagram WORKFLOW'.")
    return _BLOCKS[name]()


def current(page: str) -> str:
    """The page with every block regenerated. Raises `UserError` for an unknown block or one without an end."""
    if page.count("<!-- generated:") != len(_BLOCK.findall(page)):
        raise UserError("A generated block has no end. Close it with: <!-- end -->")
    return _BLOCK.sub(lambda found: found[1] + _text(found[2]) + found[4], page)


def _stale(pages: Sequence[Path]) -> dict[Path, str]:
    """Pages with a stale block → their current text."""
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    return {path: new for path, text in texts.items() if (new := current(text)) != text}


def write(pages: Sequence[Path]) -> list[Path]:
    """Update the pages; return those that changed."""
    changed = _stale(pages)
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return [*changed]


def check(pages: Sequence[Path]) -> list[str]:
    """One line per page with a stale block, with the command that fixes it."""
    return [f"{path} has a stale block. Run: make diagrams" for path in _stale(pages)]


def main(args: Sequence[str]) -> int:
    """Run `--write | --check` over the pages of the working directory; print what changed or is stale."""
    pages = sorted((*Path().glob("*.md"), *Path().glob("docs/*.md")))
    if args not in (["--write"], ["--check"]):
        print("usage: docs/generated.py --write|--check", file=sys.stderr)
        return 2
    if args == ["--write"]:
        for path in write(pages):
            print(path)
        return 0
    problems = check(pages)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


_PATHS = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z_a-z])")
_HIDDEN = re.compile(r" at 0x[0-9a-f]+")


def page(module: str) -> str:
    """API reference of a module as Markdown. Raises `UserError` for a missing module, or a name without a docstring."""
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"No module {module!r} to document.") from error
    return "\n".join(line for name in found.__all__ for line in _entry(found, name))


def _entry(module: ModuleType, name: str) -> Iterator[str]:
    thing: Any = getattr(module, name)
    if inspect.ismodule(thing):
        yield f"### `{name}.build`\n\n{_first_line(thing.__doc__ or '').partition(': ')[2]}\n"
        return
    if not _is_ours(thing):
        origin = getattr(thing, "__module__", "")
        text = f"`{thing!r}`" if isinstance(thing, str | tuple) else f"As in `{origin}`."
        yield f"### `{name}`\n\n{text}\n"
        return
    doc = inspect.getdoc(thing)
    if not doc:
        raise UserError(f"{module.__name__}.{name} has no docstring.")
    yield f"### `{name}`\n"
    if inspect.isfunction(thing):
        yield f"```python\n{'async ' if inspect.iscoroutinefunction(thing) else ''}def {_signature(name, thing)}\n```\n"
    yield f"{doc}\n"
    if inspect.isclass(thing):
        base = thing.__base__
        inherits = is_dataclass(base) and not any(isinstance(s, ast.AnnAssign) for s in _body(thing))
        for cls in (base, thing) if inherits and base else (thing,):
            yield from _fields(cls)
            yield from _methods(cls)


def _is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").startswith("interlock.") and not isinstance(
        thing, str | tuple
    )


def _signature(name: str, function: Any) -> str:
    return _HIDDEN.sub("", _PATHS.sub("", f"{name}{inspect.signature(function)}".replace("'", "")))


def _fields(cls: type) -> Iterator[str]:
    """List a class's annotated public fields, each with the string below it."""
    body = _body(cls)
    for place, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if name.startswith("_"):
                continue
            kind, after = ast.unparse(statement.annotation).strip("'\""), body[place + 1 : place + 2]
            yield f"- `{name}: {kind}`{_docstring(after)}"
    yield ""


def _docstring(after: list[ast.stmt]) -> str:
    if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant):
        return f": {' '.join(str(after[0].value.value).split())}"
    return ""


def _methods(cls: type) -> Iterator[str]:
    """List the public methods of the class's own body that have a docstring."""
    for name, found in vars(cls).items():
        member = found.__func__ if isinstance(found, staticmethod) else found
        if inspect.isfunction(member) and not name.startswith("_") and (doc := inspect.getdoc(member)):
            yield f"- `{_signature(name, member)}`: {' '.join(doc.split())}"
    yield ""


def _body(cls: type) -> list[ast.stmt]:
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):  # created at run time
        return []
    return parsed.body if isinstance(parsed, ast.ClassDef) else []


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
