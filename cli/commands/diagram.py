"""diagram: a workflow's graph, the path that a run took through it, or a statechart."""

import sys
from dataclasses import replace
from pathlib import Path

from interlock.cli.flags import options_here
from interlock.cli.parsing import Parser, flag, number, one_of
from interlock.engine.read.runs import find_run, step_rows
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

_FORMATS = {"dot": "dot", "gv": "dot", "svg": "svg", "png": "png"}
"""Ending of a file → format."""


def parser() -> Parser:
    made = Parser(
        "diagram",
        "[WORKFLOW] [FLAGS]",
        "Draw a workflow's graph, as it is compiled; with --run what a run took is marked and counted. "
        "Or draw the statechart that runs (run), calls (tool-call) or approval modes (approval-mode) obey.",
        [
            ("interlock diagram main", "Mermaid on stdout"),
            ("interlock diagram main --depth 2 -o main.svg", "graphs inside it drawn open, too"),
            ("interlock diagram --run latest -o run.svg", "the way that the latest run took"),
            ("interlock diagram approval-mode", "what leads from mode to mode, and through plan mode"),
        ],
    )
    made.add_argument(
        "workflow", nargs="?", metavar="WORKFLOW", help="or run, tool-call, approval-mode; default: the run's"
    )
    formats = one_of(("mermaid", "dot", "svg", "png"), {"mmd": "mermaid"})
    flag(made, "--format FORMAT", "mermaid (default), dot, svg, png", type=formats)
    flag(made, "--depth N", "levels of graphs drawn open", type=number(int, 1), default=1)
    flag(made, "--run RUN", "mark the path of this run, with counts")
    flag(made, "-o --output FILE", "its ending names the format", type=Path)
    flag(made, "-C --workspace --cd DIR", "a workflow of the folder DIR; default: the run's", type=Path)
    flag(made, "--skip-trust", "of that folder, though nobody trusts it")
    return made


def execute(arguments: list[str]) -> int:
    args = parser().parse(arguments)
    run = find_run(state_home(), args.run) if args.run else None
    workflow = args.workflow or (run.workflow if run else None)
    if workflow is None:
        raise UserError("Which one? Give a WORKFLOW or --run RUN. List them with: interlock workflows")
    if run and run.workflow != workflow:
        raise UserError(f"Run {run.run!r} is one of {run.workflow!r}, not of {workflow!r}.")
    ending = args.output.suffix.lstrip(".").lower() if args.output else ""
    shape = args.format or _FORMATS.get(ending, "mermaid")
    if shape == "png" and args.output is None and sys.stdout.isatty():
        raise UserError("A PNG can't be shown in a terminal. Name a file: -o FILE.png")
    from interlock.engine.diagrams import path_of, render
    from interlock.engine.driver.prepare import prepare
    from interlock.engine.driver.runner import with_own_nodes
    from interlock.engine.workflows import find_workflow
    from interlock.state.charts import CHARTS

    chosen = None
    if workflow not in CHARTS:
        options = options_here(args)
        options = replace(options, workspace=Path(run.workspace)) if run else options
        chosen = with_own_nodes(find_workflow(workflow, options)[0], prepare(options, needs_model=False))

    path = path_of(step_rows(state_home(), run.run), run.status) if run else None
    drawn = render(chosen or workflow, shape, args.depth, path)
    _put(drawn.encode() if isinstance(drawn, str) else drawn, args.output)
    return 0


def _put(data: bytes, file: Path | None) -> None:
    if file is None:
        sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        file.write_bytes(data)
    except OSError as error:
        raise UserError(f"Can't write {str(file)!r}: {error.strerror}.") from error
