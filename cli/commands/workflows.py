"""workflows: what can be run, what it takes and gives, and a beginning of one's own."""

import re
import sys
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from interlock.cli.flags import options_here
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import show_json, show_table
from interlock.engine.options import WORKFLOWS_FOLDER, WORKFLOWS_GROUP, Options
from interlock.graphs import PIPELINES
from interlock.state.errors import UserError


def workflows_parser() -> Parser:
    made = Parser(
        "workflows",
        "[--json] [FLAGS]",
        "What can be run with: interlock run WORKFLOW\nYours are in .interlock/workflows/NAME.py, here or in your home "
        "directory.",
        [("interlock new workflow NAME", "start one of your own")],
    )
    flag(made, "-C --workspace --cd DIR", "look in DIR", type=Path)
    flag(made, "--skip-trust", "with this folder's own, trusted or not")
    made.json_flag()
    return made


def workflows(arguments: list[str]) -> int:
    args = workflows_parser().parse(arguments)
    options = options_here(args)
    rows = [(name, what, "interlock", "") for name, what in PIPELINES.items()]
    if _has_own(options):
        from interlock.engine.workflows import ignored, listed

        rows += [(one.name, one.summary, one.source, one.problem) for one in listed(options)]
        for line in ignored(options):
            print(line, file=sys.stderr)
    if args.json:
        keys = ("name", "summary", "source", "problem")
        show_json([{k: v for k, v in zip(keys, row, strict=True) if v} for row in rows])
    else:
        show_table([(name, problem or summary) for name, summary, _, problem in rows])
    return 0


def _has_own(options: Options) -> bool:
    """Without, it answers at once: no graph has to be loaded."""
    folders = (options.workspace or Path.cwd(), options.user_home)
    return any((folder / WORKFLOWS_FOLDER).is_dir() for folder in folders) or bool(
        entry_points(group=WORKFLOWS_GROUP)
    )


def schema_parser() -> Parser:
    made = Parser("schema", "WORKFLOW [--input|--output]", "A workflow's input and output as JSON Schema.")
    made.add_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows")
    which = made.add_mutually_exclusive_group()
    flag(which, "--input", "only the input's schema")
    flag(which, "--output", "only the output's schema")
    flag(made, "-C --workspace --cd DIR", "look in DIR", type=Path)
    flag(made, "--skip-trust", "with this folder's own, trusted or not")
    flag(made, "--json", "accepted; the output is always JSON")
    return made


def schema(arguments: list[str]) -> int:
    args = schema_parser().parse(arguments)
    from interlock.engine.workflows import find_workflow

    workflow, _ = find_workflow(args.workflow, options_here(args))
    given = workflow.input.model_json_schema()
    made = workflow.output.model_json_schema(mode="serialization")
    show_json(given if args.input else made if args.output else {"input": given, "output": made})
    return 0


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def new_parser() -> Parser:
    made = Parser(
        "new",
        "workflow NAME",
        "Start a workflow of your own in this folder: .interlock/workflows/NAME.py, which runs as it is, and\n"
        "tests/test_NAME.py. What it can be made of: docs/api.md, docs/tutorial.md.",
        [("interlock new workflow nightly-triage", "then: interlock run nightly-triage")],
    )
    made.add_argument("what", metavar="workflow", help="what to start")
    made.add_argument("name", metavar="NAME", help="lower-case words, joined by hyphens")
    return made


def new(arguments: list[str]) -> int:
    args = new_parser().parse(arguments)
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
    paths = (WORKFLOWS_FOLDER / f"{module}.py", Path("tests") / f"test_{module}.py")
    if there := [path for path in paths if path.exists()]:
        raise UserError(f"{there[0]} is there already; nothing was written. Give another name, or remove it.")
    for path, text in zip(paths, texts, strict=True):
        _write_new(path, text)
        print(path)
    print(f"Look at it, then: interlock trust; interlock run {args.name} World; pytest {paths[1]}")
    return 0


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"Can't write {str(path)!r}: {error.strerror}.") from error
