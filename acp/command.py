"""command: `interlock acp`: serves an editor on stdin and stdout."""

import asyncio
import sys
from dataclasses import replace
from functools import partial

from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.parsing import Args, option, takes
from interlock.engine.client import Options
from interlock.state.errors import UserError


@takes(
    option("--setup", "choose a model in this terminal, then exit"), partial(add_running_flags, serving=True)
)
def acp(args: Args) -> None:
    options = options_from(args)
    if args.setup:
        return _set_up(options)
    from interlock.acp.agent import serve

    options = replace(options, interactive=True, door="editor", serves_others=True)
    asyncio.run(serve(options))


def _set_up(options: Options) -> None:
    """For editors, which offer this where no model has been chosen."""
    from interlock.cli.session import first_start

    if not sys.stdin.isatty():
        raise UserError("interlock acp --setup asks questions, and stdin is no terminal. Run it in one.")
    first_start.ask(options)
