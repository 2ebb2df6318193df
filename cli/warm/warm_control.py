"""warm_control: begins and ends the warm process, and says what a start from here would be."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from interlock.cli import warm as warm_start
from interlock.state.errors import ConfigError
from interlock.state.text import parse_duration


def check_or_stop_warm_process(stop: bool = False) -> tuple[int | None, str]:
    """The warm process, and why a command that is started here isn't handed over; empty: it is.

    `stop`: end it.
    """
    if (conn := warm_start.connect_to_warm_process()) is None:
        return None, "there is no warm process"
    with closing(conn):
        if stop:
            conn.sendall(warm_start.STOP)
            conn.recv(1)  # it has closed its end
        why = "stopped" if stop else warm_start.cold_start_reason() or warm_start.request_fork(conn, [])[1]
        return warm_start.peer_credentials(conn)[0], why


def start_warm_process_if_configured() -> None:
    """Begin it if the user's settings say so and nothing speaks against it; returns at once."""
    try:
        wanted = not warm_start.cold_start_reason() and configured_lifetime_s()
    except ConfigError:  # changed meanwhile; the next start reports it
        return
    if wanted and check_or_stop_warm_process()[0] is None:
        start_warm_process_via_shell(wanted, subprocess.DEVNULL)


def configured_lifetime_s() -> float:
    """For how long the user's settings say to keep it; 0: not at all."""
    from interlock.services.config.settings import load_settings

    home = Path.home()
    loaded = load_settings(workspace=home, home=home, env=os.environ, overrides={}, trusted=False)
    return parse_duration(loaded.settings.start.keep_warm)


def start_warm_process_via_shell(idle_timeout_s: float, stdout: int) -> "subprocess.Popen[bytes]":
    """A shell starts it and ends, so that no process has it as a child."""
    door = Path(warm_start.socket_path()).absolute()
    words = [sys.executable, "-P", "-m", "interlock.cli.warm.warm_server", str(door), str(idle_timeout_s)]
    starter = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" "$@" &', *words],
        env={**warm_start.variables_affecting_imports(os.environ), "PATH": os.defpath},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        umask=0o077,
    )
    starter.wait()
    return starter
