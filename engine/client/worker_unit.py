"""worker_unit: lets the system start the worker of this machine when the user signs in: a systemd unit, or an agent of
launchd.

The agent of launchd was written by its documentation and tried on no machine.
"""

import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.engine.driver.local_worker import is_store_local
from interlock.state.errors import UserError

_SYSTEMD, _LAUNCHD = "interlock-worker.service", "dev.interlock.worker"


class WorkerUnit(NamedTuple):
    file: Path
    text: str
    start: Sequence[Sequence[str]]
    """Commands that make the system use the file."""
    stop: Sequence[Sequence[str]]
    """Commands before the file is removed."""


def build_worker_unit(home: Path, env: Mapping[str, str]) -> WorkerUnit:
    """Return what `interlock worker --install` writes and does. Raises `UserError` for a store on a server."""
    if not is_store_local(home):
        raise UserError(
            "--install is for a store in a file. For PostgreSQL, see the units in examples/fleet/systemd."
        )
    command = [sys.executable, "-P", "-c", "from interlock.cli.main import main; main(['worker'])"]
    user_home = Path(env.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return _build_launchd_agent(home, user_home, command, env)
    folder = Path(env.get("XDG_CONFIG_HOME") or user_home / ".config") / "systemd" / "user"
    text = (
        "[Unit]\nDescription=Interlock worker: detached runs and schedules\n\n"
        f"[Service]\nExecStart={' '.join(map(_quote_for_systemd, command))}\n"
        f"Environment={_quote_for_systemd(f'INTERLOCK_HOME={home}')}\n"
        f"Environment={_quote_for_systemd('PATH=' + env.get('PATH', os.defpath))}\n"
        "Restart=on-failure\nKillMode=mixed\nTimeoutStopSec=45\n\n"
        "[Install]\nWantedBy=default.target\n"
    )
    systemctl = ["systemctl", "--user"]
    return WorkerUnit(
        folder / _SYSTEMD,
        text,
        [[*systemctl, "daemon-reload"], [*systemctl, "enable", "--now", _SYSTEMD]],
        [[*systemctl, "disable", "--now", _SYSTEMD]],
    )


def _build_launchd_agent(
    home: Path, user_home: Path, command: Sequence[str], env: Mapping[str, str]
) -> WorkerUnit:
    file = user_home / "Library" / "LaunchAgents" / f"{_LAUNCHD}.plist"
    fields = {
        "Label": _LAUNCHD,
        "ProgramArguments": [*command],
        "EnvironmentVariables": {"INTERLOCK_HOME": str(home), "PATH": env.get("PATH", os.defpath)},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(home / "worker.log"),
    }
    domain = f"gui/{os.getuid()}"
    return WorkerUnit(
        file,
        plistlib.dumps(fields).decode(),
        [["launchctl", "bootstrap", domain, str(file)]],
        [["launchctl", "bootout", f"{domain}/{_LAUNCHD}"]],
    )


def _quote_for_systemd(word: str) -> str:
    """Return a word as systemd reads it: in quotes, `%` and `$` doubled."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def install_worker_unit(unit: WorkerUnit) -> None:
    """Write the file and let the system start the worker. Raises `UserError` if a command fails."""
    unit.file.parent.mkdir(parents=True, exist_ok=True)
    unit.file.write_text(unit.text, encoding="utf-8")
    for command in unit.start:
        _run_or_raise(command)


def remove_worker_unit(unit: WorkerUnit) -> bool:
    """End the worker that the system started, and remove the file; returns whether there was one."""
    if not unit.file.exists():
        return False
    for command in unit.stop:
        _run_or_raise(command)
    unit.file.unlink()
    return True


def _run_or_raise(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"Can't run {command[0]!r}: {error.strerror}.") from error
    if done.returncode:
        raise UserError(f"`{shlex.join(command)}` failed: {done.stderr.strip() or done.returncode}")


def missing_unit_line(home: Path, env: Mapping[str, str] = os.environ) -> str:
    """Return a line if nothing starts the worker of a store in a file after a restart; empty otherwise."""
    if not is_store_local(home) or build_worker_unit(home, env).file.exists():
        return ""
    return (
        "After a restart of this machine, schedules wait for your next `interlock run`. To start the worker with "
        "the system: interlock worker --install"
    )
