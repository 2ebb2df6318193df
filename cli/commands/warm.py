"""warm: the warm process, which makes starts quick: begin it, stop it, and say what a start from here would be."""

import subprocess
import sys

from interlock.cli.parsing import Args, Parser, declare_arguments, flag_argument, parse_duration_argument
from interlock.cli.render.output import print_json, result_paint
from interlock.cli.warm.warm_control import (
    check_or_stop_warm_process,
    configured_lifetime_s,
    start_warm_process_via_shell,
)
from interlock.state.errors import SetupError, UserError

_UNUSED_S = 900.0


@declare_arguments(
    flag_argument(
        "--for TIME",
        "how long to keep it unused: 90s, 15m, 2h (default: start.keepWarm in settings, else 15m)",
        type=parse_duration_argument,
    ),
    flag_argument("--stop", "stop it; commands that it started keep running"),
    Parser.add_json_flag,
)
def warm(args: Args) -> int | None:
    if not sys.platform.startswith("linux"):
        raise UserError("Warm starts need Linux. Commands start cold here.")
    pid, why = check_or_stop_warm_process(stop=args.stop)
    if args.stop:
        text = f"The warm process {pid} has ended." if pid else "There was no warm process."
    else:
        if pid is None:
            with start_warm_process_via_shell(
                getattr(args, "for") or configured_lifetime_s() or _UNUSED_S, subprocess.PIPE
            ) as starter:
                said = starter.stdout.readline().decode().strip() if starter.stdout else ""
            if said != "ready":
                raise SetupError(f"The warm process didn't start: {said or 'it ended'}.")
            pid, why = check_or_stop_warm_process()
        text = f"Commands start warm from here (process {pid})."
        text = f"Commands start cold from here: {why}." if why else text
    if args.json:
        print_json({"process": pid, "warm": not why, "why": why})
    else:
        result_paint().print_line(text)
    return None
