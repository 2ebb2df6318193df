"""cancel: what becomes of a run that somebody cancels: a driven one stops and can be resumed, a waiting one ends."""

from typing import Literal, NamedTuple

from interlock.engine.client.fleet import Fleet, has_fleet
from interlock.engine.driver.decisions import record_decisions
from interlock.engine.options import Decision, Options
from interlock.engine.read import ENDED, RunRow, find_run, list_waiting_requests
from interlock.engine.store import Store
from interlock.engine.store.approvals import cancel_run_family, is_run_ended_by_cancel
from interlock.engine.store.leases import request_stop
from interlock.engine.store.runs import find_innermost_waiting_subtask, find_root_task, list_run_and_subtasks


class CancelResult(NamedTuple):
    became: Literal["asked", "taken back", "ended", "decided", "idle", "over"]
    """`asked`: its driver stops; `taken back`: from its queue; `ended`: it is cancelled; `decided`: once it goes on;
    `idle`: nothing drives it; `over`: it was before."""
    row: RunRow
    """As it was, or, of a run that ended, as it is."""


def stop_or_cancel_run_by_name(options: Options, name: str, cancelled_by: str = "") -> CancelResult:
    """Stop a run, or end one that waits. `cancelled_by`: who; empty: this user. Raises `UserError`."""
    store = Store(options.home)
    row = find_run(store.home, name)
    if has_fleet(store.home) and (driven := Fleet(store.home).cancel_job(row.run)) is not None:
        return CancelResult("asked" if driven else "taken back", row)
    if row.status in ENDED:
        return CancelResult("over", row)
    if row.status == "waiting":
        return _cancel_waiting_run(options, store, row, cancelled_by)
    with store.write_transaction("FULL") as conn:
        family = list_run_and_subtasks(conn, find_root_task(conn, row.run))
        asked = [request_stop(conn, one, "stop") for one in family]
    return CancelResult("asked" if any(asked) else "idle", row)


def _cancel_waiting_run(options: Options, store: Store, row: RunRow, cancelled_by: str) -> CancelResult:
    inner = find_innermost_waiting_subtask(store.home, row.run)
    requests = [request.fields for request in list_waiting_requests(store.home, inner)]
    if not requests:  # a subtask that was interrupted
        with store.write_transaction("FULL") as conn:
            cancel_run_family(conn, inner)
    record_decisions(
        store, inner, [Decision(one["id"], "cancel") for one in requests], cancelled_by, options.door
    )
    if requests and not any(is_run_ended_by_cancel(request["choices"]) for request in requests):
        return CancelResult("decided", row)
    return CancelResult("ended", find_run(store.home, row.run))
