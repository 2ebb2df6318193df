"""local_worker: starts the worker of a store in a file when there is work for it, and tells it what only a shell knows.

The worker is `interlock worker`, a process under no terminal. It inherits the environment of the shell that starts it,
secrets included: they are in its memory only. Of later shells it is told theirs through a pipe.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from interlock.engine.store import read_store_address
from interlock.engine.store.worker_file import find_worker, tell_worker
from interlock.services.files.disk import ensure_private_file
from interlock.services.secrets.environment import withheld_variable_names
from interlock.state.entry_points import find_entry_point, missing_folder_message
from interlock.state.errors import ConfigError

_PROGRAM = "import sys; from interlock.cli.main import main; sys.exit(main(sys.argv[1:]))"
_COMMAND = ("-P", "-c", _PROGRAM, "worker", "--idle-exit", "10m")
_IN_BACKGROUND = '"$@" &'
"""A shell that ends at once: the worker is no child of this process, which would have to wait for its end."""
_LOG, _LOG_BYTES = "worker.log", 1_000_000
SUBMITTED_VARIABLE = "INTERLOCK_SUBMITTED"
"""In a worker's environment: the run whose shell started it."""


def is_store_local(home: Path) -> bool:
    """Return whether the store is a file, which the worker of this machine serves."""
    return not read_store_address(home / "interlock.db")


def require_local_worker() -> None:
    """Raise `ConfigError` if this installation lacks the worker."""
    if find_entry_point("interlock.commands", "worker") is None:
        raise ConfigError(missing_folder_message("Runs that a worker drives need", "fleet"))


def shell_options(env: Mapping[str, str]) -> dict[str, Any]:
    """Return what a run keeps of the shell that it was left by: its environment without secrets, and the program."""
    left_out = {*withheld_variable_names(env), "INTERLOCK_HOME", "INTERLOCK_STORE", SUBMITTED_VARIABLE}
    kept = {name: value for name, value in env.items() if name not in left_out}
    return {"env": kept, "program": sys.executable}


def offer_secrets(home: Path, run: str, env: Mapping[str, str]) -> None:
    """Tell a worker that runs what the shell of this run has and the store doesn't keep. Before the run's commit."""
    if is_store_local(home):
        tell_worker(home, run, {name: env[name] for name in withheld_variable_names(env)})


def ensure_local_worker(home: Path, run: str = "", env: Mapping[str, str] | None = None) -> bool:
    """Start the worker of a store in a file unless it runs; returns whether it was started. After the commit.

    `run`: whose shell's environment `env` is.
    """
    if not is_store_local(home):
        return False
    found = find_worker(home)
    if found and not is_older_version(found.version, program_version()):
        tell_worker(home, "", {})
        return False
    require_local_worker()
    log = home / _LOG
    ensure_private_file(log)
    mode = "ab" if log.stat().st_size < _LOG_BYTES else "wb"
    with log.open(mode) as output:
        subprocess.run(
            ["/bin/sh", "-c", _IN_BACKGROUND, "sh", sys.executable, *_COMMAND],
            env={
                **(os.environ if env is None else env),
                "INTERLOCK_HOME": str(home),
                "INTERLOCK_STORE": "",
                SUBMITTED_VARIABLE: run,
            },
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            check=True,
        )
    return True


def program_version() -> str:
    return version("interlock-agent")


def is_older_version(one: str, other: str) -> bool:
    return _parse_version_numbers(one) < _parse_version_numbers(other)


def _parse_version_numbers(of: str) -> list[int]:
    return [int(part) for part in of.split("+")[0].split(".") if part.isdigit()]
