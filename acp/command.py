"""command: `interlock acp`: serves an editor on stdin and stdout."""

import asyncio
import sys
from dataclasses import replace
from functools import partial

from interlock.cli.flags import add_run_flags, build_run_options
from interlock.cli.parsing import Args, declare_arguments, flag_argument
from interlock.engine.client import Options
from interlock.state.errors import UserError


@declare_arguments(
    flag_argument("--setup", "choose a model in this terminal, then exit"),
    partial(add_run_flags, for_server=True),
)
def acp(args: Args) -> None:
    options = build_run_options(args)
    if args.setup:
        return _set_up_model_at_terminal(options)
    from interlock.acp.agent import serve_editor_and_exit

    options = replace(options, interactive=True, door="editor", serves_others=True)
    asyncio.run(serve_editor_and_exit(options))


def _set_up_model_at_terminal(options: Options) -> None:
    """For editors, which offer this where no model has been chosen."""
    from interlock.cli.session import model_setup

    if not sys.stdin.isatty():
        raise UserError("interlock acp --setup asks questions, and stdin is no terminal. Run it in one.")
    model_setup.ask_for_and_store_model(options)
