"""acp: serves an editor by the Agent Client Protocol, on stdin and stdout."""

import asyncio
from dataclasses import replace

from interlock.cli.flags import add_running_flags, options_from
from interlock.cli.parsing import Args, Parser


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
    add_running_flags(made)
    return made


def acp(args: Args) -> int:
    from interlock.cli.acp.agent import serve

    asyncio.run(serve(replace(options_from(args), interactive=True, door="editor")))
    return 0
