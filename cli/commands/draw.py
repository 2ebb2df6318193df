"""draw: draws a graph as a diagram, a run as a page, and the diagrams kept in the repository."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from interlock.cli.flags import build_folder_options
from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    choice_parser,
    declare_arguments,
    exclusive_arguments,
    flag_argument,
    number_parser,
)
from interlock.cli.render.export import draw_graph, export_run
from interlock.cli.render.output import abbreviate_home, remark_paint, result_paint
from interlock.engine.client import Client
from interlock.state.errors import UserError

_DRAWN = {"mermaid": ("mmd", "mermaid"), "dot": ("dot", "gv"), "svg": ("svg",), "png": ("png",)}
_EXPORTED = {"html": ("html", "htm"), "md": ("md", "markdown"), "json": ("json",), "patch": ("patch", "diff")}
"""Format → file extensions; the first format is the default."""


def _parse_node_groups(text: str) -> tuple[str, ...]:
    from interlock.engine.client.diagrams import GROUPS

    wanted = tuple(one.strip() for one in text.split(","))
    for one in wanted:
        if one not in GROUPS:
            raise UserError(
                f"Can't show {one!r}; expected some of {', '.join(GROUPS)}, like --show main,errors"
            )
    return wanted


@declare_arguments(
    argparse_argument(
        "workflow", nargs="?", metavar="WORKFLOW", help="workflow or statechart; default: the workflow of RUN"
    ),
    flag_argument(
        "--format FORMAT",
        "mermaid (default), dot, svg or png",
        type=choice_parser(("mermaid", "dot", "svg", "png"), {"mmd": "mermaid"}),
    ),
    flag_argument(
        "--depth N", "levels of nested graphs to draw (default: 1)", type=number_parser(int, 1), default=1
    ),
    flag_argument(
        "--show GROUPS",
        "main, hooks, questions, errors, lists: only these (default: all)",
        type=_parse_node_groups,
    ),
    flag_argument("--run RUN", "mark the path of this run"),
    flag_argument("--call N", "with tool-call: number or id of a call of the run"),
    flag_argument("-o --output FILE", "output file; its extension sets the format", type=Path),
    flag_argument("-C --workspace --cd DIR", "folder of the workflow; default: the folder of RUN", type=Path),
    flag_argument("--skip-trust", "trust that folder for this command only"),
)
def diagram(args: Args) -> int | None:
    run = Client.for_this_user().find_run(args.run) if args.run else None
    workflow = args.workflow or (run.workflow if run else None)
    if workflow is None:
        raise UserError(
            "No workflow given. Expected WORKFLOW or --run RUN. List workflows with: interlock workflows"
        )
    from interlock.state.charts import CHARTS

    if run and run.workflow != workflow and workflow not in CHARTS:
        raise UserError(
            f"Run {run.run!r} runs the workflow {run.workflow!r}, not {workflow!r}. Leave out WORKFLOW."
        )
    shape = args.format or _choose_format_by_extension(args.output, _DRAWN)
    if shape == "png" and args.output is None and sys.stdout.isatty():
        raise UserError("A PNG can't be printed to a terminal. Give a file: -o FILE.png")
    chosen = workflow
    if workflow not in CHARTS:
        options = build_folder_options(args)
        if run and not args.workspace and (place := Path(run.workspace)).is_dir():
            options = replace(options, workspace=place)
        chosen = Client(options).load_workflow(workflow, with_user_processors=True)
    if args.show and workflow in CHARTS:
        raise UserError(f"The statechart {workflow!r} has no groups of nodes. Leave --show out.")
    if args.call and (run is None or workflow != "tool-call"):
        raise UserError(
            "--call needs the statechart of calls and a run: interlock diagram tool-call --run RUN --call N"
        )
    drawn = draw_graph(chosen, shape, args.depth, run, args.call, args.show)
    _write_output(drawn.encode() if isinstance(drawn, str) else drawn, args.output)


def _write_output(data: bytes, file: Path | None) -> None:
    if file is None:
        sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        file.write_bytes(data)
    except OSError as error:
        raise UserError(f"Can't write {str(file)!r}: {error.strerror}.") from error


def _choose_format_by_extension(file: Path | None, formats: Mapping[str, Sequence[str]]) -> str:
    """The format that a file's extension names. Raises `UserError` for another extension."""
    ending = file.suffix.lstrip(".").lower() if file else ""
    if not ending:
        return next(iter(formats))
    found = next((name for name, endings in formats.items() if ending in endings), None)
    if found is None:
        known = ", ".join(f".{endings[0]}" for endings in formats.values())
        raise UserError(f"Unknown extension in {str(file)!r}. Expected {known}, or name the format: --format")
    return found


@declare_arguments(
    Parser.add_run_argument,
    flag_argument(
        "--format FORMAT",
        "html (default), md, json or patch",
        type=choice_parser(
            tuple(_EXPORTED), {ending: name for name, endings in _EXPORTED.items() for ending in endings}
        ),
    ),
    flag_argument("-o --output FILE", "output file; its extension sets the format", type=Path),
)
def export(args: Args) -> int | None:
    run = Client.for_this_user().find_run(args.run)
    shape = args.format or _choose_format_by_extension(args.output, _EXPORTED)
    data = (
        Client.for_this_user().read_patch(run.run)
        if shape == "patch"
        else export_run(run, shape).encode(errors="replace")
    )
    _write_output(data, args.output)
    if args.output:
        remark_paint().print_line(f"Exported run {run.run} to {abbreviate_home(str(args.output))}.")


@declare_arguments(
    argparse_argument(
        "folder", nargs="?", type=Path, default=Path("diagrams"), metavar="DIR", help="default: diagrams"
    ),
    exclusive_arguments(
        flag_argument("--write", "write missing and stale diagrams"),
        flag_argument("--check", "exit with 1 if a diagram is missing or stale"),
        required=True,
    ),
)
def diagrams(args: Args) -> int | None:
    from interlock.engine.client.diagrams import list_diagram_problems, sync_diagram_files

    if args.write:
        for path in sync_diagram_files(args.folder):
            result_paint().print_line(str(path))
        return None
    problems = list_diagram_problems(args.folder)
    for problem in problems:
        remark_paint().print_line(problem)
    return 1 if problems else 0
