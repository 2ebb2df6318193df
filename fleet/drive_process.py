"""drive_process: drives one run in a process of its own, for a worker: until it parks or ends, or the worker is gone.

A crash or an out-of-memory of one run ends one run. Why a run can't be driven is noted in its row; why its store can't
be used is printed, and the worker tries again.
"""

import asyncio
import os
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from interlock import engine
from interlock.engine.driver.local_worker import is_store_local
from interlock.engine.driver.run_definition import WORKER_DOOR
from interlock.engine.options import Options
from interlock.engine.store import Store
from interlock.engine.store.leases import read_lease
from interlock.engine.store.queue import (
    enqueue_run,
    mark_due_run_stopped,
    mark_run_failed_and_revoke_lease,
    read_submission,
)
from interlock.engine.store.rate_limits import FleetLimits, requeue_until_limit_allows
from interlock.engine.store.runs import check_run_id, read_repository_option, set_run_error
from interlock.engine.store.wakes import Wakes
from interlock.engine.store.workspaces import set_repository_option
from interlock.fleet.checkout import UNKEPT, Checkout, check_out, configured_clone_folder
from interlock.fleet.commits import CloneCommits
from interlock.fleet.delivery import deliver_run_changes, push_tool_overrides
from interlock.fleet.worker import TRY_AGAIN
from interlock.services.sandbox.sandbox import sandbox_error_cause
from interlock.services.secrets.environment import hide_process_environment, without_store_variables
from interlock.state.errors import (
    BusyError,
    CredentialsError,
    InterlockError,
    RunError,
    SandboxError,
    StoreError,
)

_IDLE_S = 0.2
"""Seconds for which a drive keeps a connection beside its own and its heartbeat's: the server has few."""
STALE_S = 8.0
"""Seconds without a heartbeat after which another host's driver is replaced; a takeover takes 45 s at most."""


def main(run: str, state_directory: str) -> int:
    home = Path(state_directory)
    threading.Thread(target=exit_when_worker_ends, daemon=True).start()
    hide_process_environment()
    if not is_store_local(home):
        from interlock.fleet.postgres_sessions import limit_connection_idle_time  # which needs the extra

        limit_connection_idle_time(_IDLE_S)
    limits, env = FleetLimits(), without_store_variables(os.environ)
    options = Options(home=home, door=WORKER_DOOR, env=env, stale_after_s=STALE_S, limited=limits)
    try:
        check_run_id(run)  # it comes from a row, and names folders here
        if files := check_out(home, run, configured_clone_folder(os.environ)):
            options = options_for_clone(options, run, files)
        outcome = asyncio.run(engine.resume(run, options=options))
        if outcome.notifying:  # the end of a fork waits for no thread
            outcome.notifying.result()
    except (BusyError, StoreError) as error:
        print(error, file=sys.stderr)
        return TRY_AGAIN
    except CredentialsError as error:
        if not is_store_local(home):
            return _give_up_run_unless_driven(home, run, error.kind, str(error))
        hold_run_for_key(home, run, str(error))
        return 0
    except InterlockError as error:
        isolated = isinstance(error, SandboxError)
        why = f"This worker can't isolate the run. {sandbox_error_cause(error)}." if isolated else str(error)
        return _give_up_run_unless_driven(home, run, error.kind, why)
    if outcome.error and outcome.error["type"] in (BusyError.kind, StoreError.kind):
        print(outcome.error["message"], file=sys.stderr)
        return TRY_AGAIN
    if outcome.status in ("budget", "timeout"):
        with Store(home).write_transaction() as conn:
            if limits.wait:
                requeue_until_limit_allows(
                    conn, run, read_submission(conn, run), limits.wait, model=limits.model
                )
            elif outcome.status == "timeout":
                mark_due_run_stopped(conn, run, "timeout")
    if files:
        deliver_run_changes(home, files, outcome, options)
    return 0


def hold_run_for_key(home: Path, run: str, why: str) -> None:
    """Let a run wait whose key isn't here: it was in the memory of a worker that has ended."""
    with Store(home).write_transaction() as conn:
        assert isinstance(conn.jobs, Wakes)
        enqueue_run(conn, run, read_submission(conn, run).queue)
        conn.jobs.hold_for_key(run)
        set_run_error(conn, run, {"type": "key", "message": f"It waits for a key. {why}"})


def _give_up_run_unless_driven(home: Path, run: str, kind: str, why: str) -> int:
    """End a run that would fail again, however often it is driven, unless another process drives it by now."""
    with Store(home).write_transaction() as conn:
        lease = read_lease(conn, run)
        if lease is None or not lease.held:
            mark_run_failed_and_revoke_lease(conn, run, kind, why)
    return 0


def options_for_clone(options: Options, run: str, checkout: Checkout) -> Options:
    """Options of a drive in a clone, whose own settings count only if this worker's settings name its repository."""
    where = {
        "workspace": checkout.folder,
        "repository": checkout.options,
        "placed": partial(checkout.record_run_location, run),
    }
    tools = push_tool_overrides(options.home, checkout.folder, checkout.options)
    clone = CloneCommits(checkout.folder, checkout.mirror, checkout.options["commit"])

    def read_commits() -> tuple[str, bytes] | None:
        try:
            body = clone.read_commits_if_changed()
        except RunError:
            _record_unsaved_commits_location(options.home, run, checkout.options["at"])
            raise
        return None if body is None else (checkout.folder.name, body)

    made = replace(options, **where, commits=read_commits, own_tools=tools)
    return replace(made, skip_trust=checkout.trusted, sandbox=checkout.isolated)


def _record_unsaved_commits_location(home: Path, run: str, location: str) -> None:
    """Note that a run's own commits stay where they are: whoever delivers the run elsewhere says so."""
    with Store(home).write_transaction() as conn:
        kept = read_repository_option(conn, run)
        places = dict.fromkeys([*kept.get(UNKEPT, "").splitlines(), location])
        set_repository_option(conn, run, {**kept, UNKEPT: "\n".join(places)})


def exit_when_worker_ends() -> None:
    """The worker holds the other end of stdin: its end is a kill of this process, too."""
    while os.read(0, 1):
        pass
    os._exit(1)
