"""checks: lines of `interlock doctor` about a store that workers share."""

import os
from collections.abc import Iterator
from pathlib import Path

from interlock.engine.client.fleet import Fleet, is_store_on_server
from interlock.engine.client.health import Finding
from interlock.fleet import setup
from interlock.state.errors import InterlockError, SandboxError, UserError


def check_worker(home: Path) -> Iterator[Finding]:
    """What a worker on this host would isolate; nothing where runs are in a file."""
    if not is_store_on_server(home):
        return
    try:
        lines = setup.describe_isolation(os.environ, sandbox_all=False, takes_clones=True)
    except SandboxError as error:
        yield Finding("note", "worker", str(error))
    except UserError:
        return
    else:
        yield from (Finding("ok", "worker", line) for line in lines)


_CROWDED = 0.8


def check_connections(home: Path) -> Iterator[Finding]:
    """How full the store's server is; nothing where runs are in a file."""
    try:
        found = Fleet(home).count_connections_and_limit() if is_store_on_server(home) else None
    except UserError:
        return
    except InterlockError as error:
        yield Finding("note", "connections", str(error))
        return
    if found:
        open_now, most = found
        full = open_now >= most * _CROWDED
        advice = ". Raise max_connections, or start fewer workers" if full else ""
        yield Finding("note" if full else "ok", "connections", f"{open_now} of {most} are open{advice}")
