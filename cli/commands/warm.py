"""warm: the warm process, which makes starts quick: begin it, stop it, and say what a start from here would be."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from interlock.cli import warm as warm_start
from interlock.cli.parsing import Args, Parser, duration, option, takes
from interlock.cli.render.output import out, show_json
from interlock.state.errors import ConfigError, SetupError, UserError
from interlock.state.text import as_seconds

_UNUSED_S = 900.0


@takes(
    option(
        "--for TIME",
        "how long to keep it unused: 90s, 15m, 2h (default: start.keepWarm in settings, else 15m)",
        type=duration,
    ),
    option("--stop", "stop it; commands that it started keep running"),
    Parser.json_flag,
)
def warm(args: Args) -> int | None:
    if not sys.platform.startswith("linux"):
        raise UserError("Warm starts need Linux. Commands start cold here.")
    pid, why = from_here(stop=args.stop)
    if args.stop:
        text = f"The warm process {pid} has ended." if pid else "There was no warm process."
    else:
        if pid is None:
            with _started(getattr(args, "for") or _wanted_s() or _UNUSED_S, subprocess.PIPE) as starter:
                said = starter.stdout.readline().decode().strip() if starter.stdout else ""
            if said != "ready":
                raise SetupError(f"The warm process didn't start: {said or 'it ended'}.")
            pid, why = from_here()
        text = f"Commands start warm from here (process {pid})."
        text = f"Commands start cold from here: {why}." if why else text
    if args.json:
        show_json({"process": pid, "warm": not why, "why": why})
    else:
        out().print(text)
    return None


def from_here(stop: bool = False) -> tuple[int | None, str]:
    """The warm process, and why a command that is started here isn't handed over; empty: it is.

    `stop`: end it.
    """
    if (conn := warm_start.connected()) is None:
        return None, "there is no warm process"
    with closing(conn):
        if stop:
            conn.sendall(warm_start.STOP)
            conn.recv(1)  # it has closed its end
        why = "stopped" if stop else warm_start.why_cold() or warm_start.asked(conn, [])[1]
        return warm_start.peer_of(conn)[0], why


def keep() -> None:
    """Begin it if the user's settings say so and nothing speaks against it; returns at once."""
    try:
        wanted = not warm_start.why_cold() and _wanted_s()
    except ConfigError:  # changed meanwhile; the next start reports it
        return
    if wanted and from_here()[0] is None:
        _started(wanted, subprocess.DEVNULL)


def _wanted_s() -> float:
    """For how long the user's settings say to keep it; 0: not at all."""
    from interlock.services.config.settings import load_settings

    home = Path.home()
    loaded = load_settings(workspace=home, home=home, env=os.environ, overrides={}, trusted=False)
    return as_seconds(loaded.settings.start.keep_warm)


def _started(unused_s: float, stdout: int) -> "subprocess.Popen[bytes]":
    """A shell starts it and ends, so that no process has it as a child."""
    door = Path(warm_start.door()).absolute()
    words = [sys.executable, "-P", "-m", "interlock.cli.warm_process", str(door), str(unused_s)]
    starter = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" "$@" &', *words],
        env={**warm_start.imported_with(os.environ), "PATH": os.defpath},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        umask=0o077,
    )
    starter.wait()
    return starter
