"""forker: what `warm.py` forks from: the product's own, where a fork may be a session or one of our programs."""

import fcntl
import gc
import os
import runpy
import socket
import sys
import termios
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def main(terminal: str, program: str, *arguments: str) -> int:
    """A fork: `interlock` or a Python file; where it starts processes of ours, they are forks of its forker, too."""
    from interlock.cli.main import main
    from interlock.cli.warm.fork_client import FORKER

    FORKER.adopt_server(socket.socket(fileno=3))
    table: Any = import_module("interlock.services.language_servers.table")
    table.merge_server_settings = dict  # as `safety.py`
    if "PATIENT" in os.environ:  # a busy machine takes longer than a person should wait for a collector
        from patience import HANG_S

        from interlock.telemetry.sender import Sender

        Sender.wait_until_drained_or_failed.__defaults__ = (HANG_S,)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.argv = [program or "interlock", *arguments]
    if not program:
        return main()
    runpy.run_path(program, run_name="__main__")
    return 0


def everything() -> None:
    """Import all modules of ours whose packages are installed, and those that some import late: servers, workers."""
    for room in sorted(path.parent.name for path in ROOT.glob("*/py.typed")):
        package = import_module(f"interlock.{room}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            try:
                import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("interlock"):
                    raise
    for name in ("langchain_openai", "mcp", "procrastinate", "psycopg", "uvicorn"):
        if find_spec(name):
            import_module(name)


if __name__ == "__main__":
    from interlock.cli.warm import fork_server

    sys.path.insert(0, os.fspath(Path(__file__).parent))
    from unsynced import sync_nothing

    sync_nothing()
    import_all = fork_server.preload_modules_by_rehearsal

    def imported() -> None:
        import_all()
        everything()
        if sys.argv[1]:  # not before: a connection that it kept would leave a thread in the forks
            from databases import everywhere

            everywhere(sys.argv[1])
        gc.collect()
        gc.freeze()  # otherwise collections of forks copy the pages that they share

    fork_server.preload_modules_by_rehearsal = imported
    fork_server.UNUSED_S = 3600.0
    fork_server.main(sys.argv[2])
