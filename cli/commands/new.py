"""new: begins a workflow of one's own: a file that runs at once, and its test."""

import re
from importlib.resources import files
from pathlib import Path

from interlock.cli.parsing import Parser
from interlock.engine.workflow_names import FOLDER
from interlock.graphs import PIPELINES
from interlock.state.errors import UserError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def parser() -> Parser:
    made = Parser(
        "new",
        "workflow NAME",
        "Begin a workflow of your own in this folder: .interlock/workflows/NAME.py, which runs at once, and\n"
        "tests/test_NAME.py. What it can be made of: docs/api.md, docs/tutorial.md.",
        [("interlock new workflow nightly-triage", "then: interlock run nightly-triage")],
    )
    made.add_argument("what", metavar="workflow", help="what to begin")
    made.add_argument("name", metavar="NAME", help="lower-case words, joined by hyphens")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    if args.what != "workflow":
        raise UserError(f"Can't begin a {args.what!r}; expected: interlock new workflow NAME")
    if not _NAME.fullmatch(args.name):
        raise UserError(
            f"Name {args.name!r}: expected lower-case words joined by hyphens, like nightly-triage."
        )
    if args.name in PIPELINES:
        raise UserError(f"Workflow {args.name!r} is one of Interlock's own. Give yours another name.")
    module = args.name.replace("-", "_")
    template = files("interlock.cli.commands").joinpath("new.md").read_text(encoding="utf-8")
    texts = (
        t.replace("{{name}}", args.name).replace("{{module}}", module) for t in _BLOCKS.findall(template)
    )
    paths = (FOLDER / f"{module}.py", Path("tests") / f"test_{module}.py")
    if there := [path for path in paths if path.exists()]:
        raise UserError(f"{there[0]} is there already; nothing was written. Give another name, or remove it.")
    for path, text in zip(paths, texts, strict=True):
        _write(path, text)
        print(path)
    print(f"Look at it, then: interlock trust; interlock run {args.name} World; pytest {paths[1]}")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"Can't write {str(path)!r}: {error.strerror}.") from error
