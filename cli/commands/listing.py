"""listing: lists workflows, tools, modes, sub-agents and models, and starts a workflow file of your own."""

import re
from importlib.resources import files
from pathlib import Path

from interlock.cli.flags import build_folder_options, load_folder_configuration
from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    declare_arguments,
    exclusive_arguments,
    flag_argument,
)
from interlock.cli.render.output import print_json, print_table, print_warnings, remark_paint, result_paint
from interlock.cli.render.workflow_results import format_mode_groups
from interlock.engine.client import LISTING, PIPELINES, WORKFLOWS_FOLDER, WORKFLOWS_GROUP, Client, Options
from interlock.state.entry_points import find_entry_points
from interlock.state.errors import UserError
from interlock.state.text import make_visible


@declare_arguments(Parser.add_folder_flags, Parser.add_json_flag)
def workflows(args: Args) -> int | None:
    options = build_folder_options(args)
    rows = [(name, what, "interlock", "") for name, what in PIPELINES.items()]
    if _may_have_user_workflows(options):
        own, ignored = Client(options).list_user_workflows()
        rows += [(one.name, one.summary, one.source, one.problem) for one in own]
        remark_paint().print_lines(ignored)
    if args.json:
        keys = ("name", "summary", "source", "problem")
        print_json([{k: v for k, v in zip(keys, row, strict=True) if v} for row in rows])
    else:
        print_table([(name, problem or summary) for name, summary, _, problem in rows])


def _may_have_user_workflows(options: Options) -> bool:
    """Whether there are workflows of one's own; if not, no graph has to be loaded."""
    folders = (options.workspace or Path.cwd(), options.user_home)
    listing = (options.workspace or Path.cwd()) / LISTING
    return (
        any((folder / WORKFLOWS_FOLDER).is_dir() for folder in folders)
        or listing.is_file()
        or bool(find_entry_points(WORKFLOWS_GROUP))
    )


@declare_arguments(
    argparse_argument("workflow", metavar="WORKFLOW", help="see: interlock workflows"),
    exclusive_arguments(
        flag_argument("--input", "print only the schema of the input"),
        flag_argument("--output", "print only the schema of the output"),
    ),
    Parser.add_folder_flags,
    flag_argument("--json", "no effect; the output is always JSON"),
)
def schema(args: Args) -> None:
    workflow = Client(build_folder_options(args)).load_workflow(args.workflow)
    inputs = workflow.input.model_json_schema()
    made = workflow.output.model_json_schema(mode="serialization")
    return print_json(inputs if args.input else made if args.output else {"input": inputs, "output": made})


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@declare_arguments(
    argparse_argument("what", metavar="workflow", help="the only kind"),
    argparse_argument("name", metavar="NAME", help="lower-case words joined by hyphens"),
)
def new(args: Args) -> int | None:
    if args.what != "workflow":
        raise UserError(f"Can't create {args.what!r}. Expected: interlock new workflow NAME")
    if not _NAME.fullmatch(args.name):
        raise UserError(
            f"Name {args.name!r}: expected lower-case words joined by hyphens, like nightly-triage."
        )
    if args.name in PIPELINES:
        raise UserError(f"Workflow {args.name!r} is built in. Give yours another name.")
    module = args.name.replace("-", "_")
    template = files("interlock.cli.commands").joinpath("new.md").read_text(encoding="utf-8")
    texts = (
        t.replace("{{name}}", args.name).replace("{{module}}", module) for t in _BLOCKS.findall(template)
    )
    paths = (WORKFLOWS_FOLDER / f"{module}.py", Path("tests") / f"test_{module}.py")
    if there := [path for path in paths if path.exists()]:
        raise UserError(
            f"{there[0]} already exists; nothing was written. Give another name, or remove the file."
        )
    for path, text in zip(paths, texts, strict=True):
        _write_new_file(path, text)
        result_paint().print_line(str(path))
    result_paint().print_line(
        f"Look at it, then: interlock trust; interlock run {args.name} World; pytest {paths[1]}"
    )


def _write_new_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"Can't write {str(path)!r}: {error.strerror}.") from error


def _first_sentence(text: str) -> str:
    return text.strip().partition(". ")[0].partition("\n")[0].rstrip(".")


@declare_arguments(flag_argument("--json", "print JSON, with the schema of the arguments"))
def tools(args: Args) -> int | None:
    from interlock.tools.table import TOOLS

    if args.json:
        shown = [{"name": t.name, "risk": t.risk, "description": t.description} for t in TOOLS.values()]
        schemas = [tool.args.model_json_schema() for tool in TOOLS.values()]
        print_json([{**a, "parameters": schema} for a, schema in zip(shown, schemas, strict=True)])
    else:
        rows = [(t.name, t.risk, _first_sentence(t.description)) for t in TOOLS.values()]
        print_table(rows, ("tool", "can", "what"))


@declare_arguments(Parser.add_folder_flags, Parser.add_json_flag)
def modes(args: Args) -> int | None:
    configuration = load_folder_configuration(args)
    modes, problems = configuration.modes
    print_warnings([*problems, *configuration.warnings_about_ignored_files])
    if args.json:
        return print_json([mode.model_dump() for mode in modes.list_modes()])
    rows = [
        (
            mode.slug,
            mode.source,
            format_mode_groups(mode.model_dump()),
            mode.when_to_use,
        )
        for mode in modes.list_modes()
    ]
    return print_table([tuple(map(make_visible, row)) for row in rows], ("mode", "source", "groups", "for"))


@declare_arguments(Parser.add_folder_flags, Parser.add_json_flag)
def agents(args: Args) -> int | None:
    configuration = load_folder_configuration(args)
    agents, problems = configuration.agents.by_name, configuration.agents.list_warnings()
    problems += configuration.agents.list_notes()
    print_warnings([*problems, *configuration.warnings_about_ignored_files])
    if args.json:
        return print_json([agent.model_dump(mode="json") for agent in agents.values()])
    rows = [(agent.name, agent.source, _first_sentence(agent.description)) for agent in agents.values()]
    return print_table(rows, ("agent", "source", "for"))


@declare_arguments(Parser.add_folder_flags, Parser.add_json_flag)
def models(args: Args) -> None:
    from interlock.engine.client.credentials import list_model_rows, price_table_version

    rows, problems = list_model_rows(build_folder_options(args))
    print_warnings(problems)
    if args.json:
        return print_json(rows)
    if not rows:
        return remark_paint().print_line(
            "No models: no key is set, and no local server answers. Set a key with: interlock auth set"
        )
    shown = [
        (
            row["model"],
            f"{row['window']:,}" + ("" if row["window_known"] else " (assumed)"),
            f"{row['output']:,}" if row["output"] else "—",
            ", ".join(row["takes"]) or "—",
            row["price"] or "—",
            row["protocol"],
            "tried" if row["tried"] else "",
        )
        for row in rows
    ]
    print_table(shown, ("model", "window", "reply", "takes", "price", "calls", ""))
    remark_paint().print_line(
        f"Context windows and prices of known models: {price_table_version()}. Set your own with models.NAME; "
        "tiers: --json."
    )
    unknown = [row["model"] for row in rows if not row["window_known"]]
    if unknown:
        print_warnings(
            [f"{', '.join(unknown)}: the window is assumed. Set it in settings: models.NAME.contextWindow."]
        )
