"""acp: serves an editor by the Agent Client Protocol, on stdin and stdout."""

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.parsing import Args, Parser
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client import Options


def acp_parser() -> Parser:
    made = Parser(
        "acp",
        "[FLAGS]",
        "Serve an editor by the Agent Client Protocol, on stdin and stdout. The editor starts it.",
        [
            ("interlock acp", "what an editor's settings name as the command"),
            ("interlock acp -m flash --approval-mode auto_edit", "with a model and an approval mode"),
        ],
    )
    made.add_argument("--setup", action="store_true", help="choose a model in this terminal, then exit")
    add_running_flags(made)
    return made


def acp(args: Args) -> int:
    options = options_from(args)
    if args.setup:
        return _set_up(options)
    from interlock.cli.acp.agent import serve

    asyncio.run(serve(replace(options, interactive=True, door="editor")))
    return 0


def _set_up(options: "Options") -> int:
    """For editors, which offer this where no model has been chosen."""
    from interlock.cli.session import first_start

    if not sys.stdin.isatty():
        raise UserError("interlock acp --setup asks questions, and stdin is no terminal. Run it in one.")
    first_start.ask(options)
    return 0
