"""job: drives one run in a process of its own, for a worker: until it parks or ends, or the worker is gone.

A crash or an out-of-memory of one run ends one run. Why a run can't be driven is noted in its row.
"""

import asyncio
import os
import sys
import threading
from contextlib import closing
from pathlib import Path

from interlock import engine
from interlock.engine.options import Options
from interlock.engine.store import Store, note_error
from interlock.engine.store.runs import set_status
from interlock.state.errors import BusyError, InterlockError, StoreError

BUSY = 3
"""Exit code: another process drives the run."""
UNREACHABLE = 4
"""Exit code: the store doesn't answer."""
STALE_S = 8.0
"""Seconds without a heartbeat after which another host's driver is replaced; a takeover takes 45 s at most."""


def main(run: str, home: Path) -> int:
    threading.Thread(target=_leave_with_worker, daemon=True).start()
    options = Options(home=home, door="worker", env=dict(os.environ), stale_after_s=STALE_S)
    try:
        asyncio.run(engine.resume(run, options=options))
    except BusyError:
        return BUSY
    except StoreError:
        return UNREACHABLE
    except InterlockError as error:
        fail(home, run, error.kind, str(error))
    return 0


def _leave_with_worker() -> None:
    """The worker holds the other end of stdin: its end is a kill of this process, too."""
    while os.read(0, 1):
        pass
    os._exit(1)


def fail(home: Path, run: str, kind: str, why: str) -> None:
    """End the run with a reason; a person may resume it."""
    store = Store(home)
    with closing(store.connect()) as conn, conn.transaction():
        note_error(conn, run, {"type": kind, "message": why})
        (step,) = conn.execute("select step from runs where run = ?", (run,)).fetchone()
        set_status(conn, run, "failed", "failed", step)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(os.environ["INTERLOCK_HOME"])))
