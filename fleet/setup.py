"""setup: what a fleet needs before it works: tables of store and queue, and what isolates a worker's runs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from interlock.engine.store import Store, explain_store_errors
from interlock.fleet import queue_schema
from interlock.fleet.checkout import load_worker_fleet_settings
from interlock.fleet.postgres_schema import administrator_sql
from interlock.services.sandbox.sandbox import check_and_describe_sandbox_support, sandbox_error_cause
from interlock.state.errors import SandboxError

_INSTEAD = "Or start it without --sandbox and --workspaces: then it drives only runs in folders."


def create_store_and_queue(home: Path) -> None:
    """Make the tables of store and queue, if they are missing. Raises `StoreError`."""
    store = Store(home).create_or_migrate()
    with explain_store_errors(store.path), queue_schema.unwrap_queue_errors():
        queue_schema.create_queue_tables(store.path)
        with closing(store.connect()) as conn:
            queue_schema.create_queue_indexes(conn)


def run_worker(home: Path, queues: Sequence[str], concurrency: int, report: Callable[[str], None]) -> None:
    """Drive runs until SIGTERM or Ctrl-C. `report` is given a line on each thing."""
    from interlock.fleet.procrastinate_worker import ProcrastinateWorker  # which needs the extra

    create_store_and_queue(home)
    with explain_store_errors(Store(home).path), queue_schema.unwrap_queue_errors():
        asyncio.run(ProcrastinateWorker(home, concurrency, report, queues=queues).run_until_signal())


def setup_sql() -> str:
    """Return SQL for what `create_store_and_queue` does, and three roles. Raises `ConfigError` without the extra."""
    return administrator_sql(queue_schema.queue_tables_sql())


_INSIDE = (
    "commands run in the sandbox, and see their own folder and the system, but no key, database or other run"
)
_OUTSIDE = "commands run as the worker's user and can read what it can, keys and other runs included"


def describe_isolation(env: Mapping[str, str], *, sandbox_all: bool, takes_clones: bool) -> list[str]:
    """Return what keeps the commands of a worker's runs from its keys and from each other, a line for each kind of run.

    `sandbox_all`: all run in the sandbox; `takes_clones`: it takes runs on repositories. Raises `SandboxError` where
    nothing can isolate what must be isolated.
    """
    settings = load_worker_fleet_settings(env)
    some = bool(settings.trusted_repositories) and settings.sandbox == "untrusted" and not sandbox_all
    told = [f"Runs in folders: {_INSIDE if sandbox_all else f'{_OUTSIDE} (--sandbox prevents it)'}."]
    if some:
        told.append(f"Runs on repositories in fleet.trustedRepositories: {_OUTSIDE}.")
    if takes_clones:
        told.append(f"Runs on {'other ' if some else ''}repositories: {_INSIDE}.")
    try:
        if sandbox_all or takes_clones:
            check_and_describe_sandbox_support(env)
    except SandboxError as error:
        if sandbox_all or not some:
            raise SandboxError(
                f"This worker can't isolate runs. {sandbox_error_cause(error)}. {_INSTEAD}"
            ) from error
        told[-1] = (
            f"Runs on other repositories: refused, as nothing can isolate them here. {sandbox_error_cause(error)}."
        )
    return told
