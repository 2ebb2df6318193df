"""adopt: `interlock import`: go on with a thread that LangGraph drove elsewhere."""

from interlock.cli.commands.show import run_lines
from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.parsing import Args, Parser, flag
from interlock.cli.render.output import out, show_json
from interlock.engine.client import Client


def import_parser() -> Parser:
    made = Parser(
        "import",
        "--from URL [WORKFLOW] THREAD [--json]",
        "Make a run of a LangGraph thread, with its checkpoints. Its interrupts become requests. The other database\n"
        "doesn't change: a file written by SqliteSaver or AsyncSqliteSaver, or PostgreSQL.",
        [
            ("interlock import --from checkpoints.db agent.py:graph 42", "then: interlock resume latest"),
            ("interlock import --from postgresql://me@host/agents 42", "the graph of langgraph.json"),
        ],
    )
    made.add_argument(
        "workflow",
        nargs="?",
        default="",
        metavar="WORKFLOW",
        help="the thread's graph: FILE.py:graph or a name (default: the only one of langgraph.json)",
    )
    made.add_argument("thread", metavar="THREAD", help="the thread's id")
    flag(made, "--from URL", "database file, or postgresql://…", dest="source", required=True)
    made.json_flag()
    add_running_flags(made)
    return made


def import_(args: Args) -> int | None:
    client, options = Client.at_home(), options_from(args)
    run = client.run(client.adopt(args.workflow, args.source, args.thread, options))
    if args.json:
        return show_json({"run": run.run, "status": run.status, "step": run.step})
    paint = out()
    paint.print(f"Thread {args.thread} is run {run.run} now.")
    paint.print_all(run_lines(client, run, paint))
    return None
