"""export: a run as one HTML page, as Markdown or as JSON."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.cli.parsing import Parser, flag, one_of
from interlock.cli.render.output import place, visible_json
from interlock.engine.options import Options
from interlock.engine.read.runs import RunRow, find_run, step_rows
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.graphs._pipeline import Pipeline

_FORMATS = {"md": ("markdown",), "html": ("htm",), "json": ()}


def parser() -> Parser:
    made = Parser(
        "export",
        "RUN [--format html|md|json] [-o FILE]",
        "Write a run down: its path through the diagram, what was said, every call with who decided it and when,\n"
        "what changed in the files, tokens and cost. The HTML page needs nothing else: no network, no script.",
        [
            ("interlock export latest -o run.html", "a page to be read, sent or kept"),
            ("interlock export 4k2 --format md", "Markdown on stdout"),
        ],
    )
    made.run_flag()
    formats = one_of(
        tuple(_FORMATS), {synonym: name for name, others in _FORMATS.items() for synonym in others}
    )
    flag(made, "--format FORMAT", "html (default), md or json", type=formats)
    flag(made, "-o --output FILE", "its ending names the format; default: stdout", type=Path)
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    run = find_run(state_home(), args.run)
    ending = args.output.suffix.lstrip(".").lower() if args.output else ""
    known = next((name for name, others in _FORMATS.items() if ending in (name, *others)), "html")
    data = _written(run, args.format or known).encode(errors="replace")
    if args.output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    try:
        args.output.write_bytes(data)
    except OSError as error:
        raise UserError(f"Can't write {str(args.output)!r}: {error.strerror}.") from error
    print(f"Run {run.run} is written to {place(str(args.output))}.", file=sys.stderr)
    return 0


def _workflow(run: RunRow) -> "Pipeline | str":
    """As the run's folder declares it; where that is gone, ours of that name."""
    from interlock.engine.driver.prepare import prepare
    from interlock.engine.driver.runner import with_own_nodes
    from interlock.engine.workflows import find_workflow

    options = Options(home=state_home(), workspace=Path(run.workspace), env=dict(os.environ))
    if not Path(run.workspace).is_dir():
        return run.workflow
    return with_own_nodes(find_workflow(run.workflow, options)[0], prepare(options, needs_model=False))


def _written(run: RunRow, shape: str) -> str:
    from interlock.engine.travel.record import record_of

    record = record_of(state_home(), run)
    if shape == "json":
        return visible_json(record, 2) + "\n"
    from interlock.engine.diagrams import path_of, render

    path = path_of(step_rows(state_home(), run.run), run.status)
    drawn = render(_workflow(run), "svg" if shape == "html" else "mermaid", 1, path)
    if isinstance(drawn, bytes):
        from interlock.cli.render.page import page

        return page(record, drawn)
    from interlock.cli.render.report import report

    return report(record, drawn)
