"""run_resumer: runs that a person lets go on from the page, driven by the server.

On a store with workers the drive waits until the limits over all workers have room; a row keeps it if the server dies.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.cli.warm.fork_client import Child
from interlock.engine.client import Client, Options, RunRow, api_rows, fleet
from interlock.services.process.identity import ProcessIdentity, current_process_identity, is_alive
from interlock.state.errors import BusyError, InterlockError, as_bug_error
from interlock.web import drive_process
from interlock.web.rate_limits import LOOK_S, RateLimits

_LEAVE_S = 3.0
"""Seconds that a drive has to give its turn back once it has ended, or was cancelled while it waited."""


class RunResumer:
    """One at a time for each run."""

    def __init__(self, options: Options) -> None:
        kept: Any = dict.fromkeys(("workspace", "approval_mode", "mode", "submitted"))
        self._options = replace(options, **kept, queue="")
        self._home, self._client = options.home, Client(options)
        self._turns = RateLimits(options)
        self._going = dict[str, asyncio.Task[None]]()
        self._me = [*current_process_identity()]
        self._starting = set[str]()

    def show_as_running_if_starting(self, row: RunRow) -> RunRow:
        """Return the row. A run whose drive is being started isn't called interrupted."""
        starts = row.status == "interrupted" and row.run in self._starting
        return row._replace(status="running") if starts else row

    async def resume_run(self, row: RunRow, prompt: str | None, submission: Mapping[str, Any] | None) -> str:
        """Drive a run on; returns what it waits for; empty: for nothing. Raises `InterlockError`.

        `submission`: `Options.submitted`, for a run that keeps nobody; None: the store has no workers.
        """
        self._starting.add(row.run)
        try:
            return await self._start_or_enqueue_drive(row, prompt, submission)
        finally:
            self._starting.discard(row.run)

    async def _start_or_enqueue_drive(
        self, row: RunRow, prompt: str | None, submission: Mapping[str, Any] | None
    ) -> str:
        if submission is None or (row.queue is not None and prompt is None):  # workers go on with theirs
            await drive_process.start_drive_process(
                drive_process.DriveJob(self._options, row.run, prompt=prompt)
            )
            return ""
        if await self._is_queued_after_grace_period(row.run):
            if prompt is None:
                return ""  # whoever stands there takes up what was decided
            raise BusyError(
                f"Run {row.run!r} is driven, or waits for its turn. Stop it, or wait for its end."
            )
        about = {"status": "pending", "prompt": prompt, "workflow": row.workflow}
        body = {**about, "submitted": submission, "server": self._me}
        api_rows.insert_api_row(self._home, "prompt", row.run, body, run=row.run)
        began = asyncio.get_running_loop().create_future()
        self._schedule_drive(row.run, began)
        return await began

    async def _is_queued_after_grace_period(self, run: str) -> bool:
        """Return whether a run is in line already."""
        until = time.monotonic() + _LEAVE_S
        # A drive that was cancelled elsewhere learns of it at its next look, and would take the turn of this one.
        while (
            there := await asyncio.to_thread(self._turns.is_holding_or_awaiting_slot, run)
            or run in self._going
            or self._find_stored_prompt(run) is not None
        ):
            row = self._client.find_exact_run(run)
            if (row and row.status == "running") or time.monotonic() > until:
                break
            await asyncio.sleep(LOOK_S)
        return there

    def resume_abandoned_drives(self) -> None:
        """Go on with what a server that is gone left."""
        for one in api_rows.list_api_rows(self._home, "prompt"):
            if not is_alive(ProcessIdentity(*one.body["server"])):
                if (
                    one.body["status"] == "pending"
                    and one.body.get("stands")
                    and not self._turns.is_holding_or_awaiting_slot(one.id)
                ):
                    api_rows.remove_api_row(self._home, "prompt", one.id)  # somebody cancelled it meanwhile
                    continue
                api_rows.update_api_row_if_exists(self._home, "prompt", one.id, {"server": self._me})
                nobody = asyncio.get_running_loop().create_future()
                nobody.set_result("")
                self._schedule_drive(one.id, nobody)

    def _schedule_drive(self, run: str, started: "asyncio.Future[str]") -> None:
        self._going[run] = task = asyncio.ensure_future(self._drive_and_report_failure(run, started))
        task.add_done_callback(lambda _: self._going.pop(run))

    async def _drive_and_report_failure(self, run: str, started: "asyncio.Future[str]") -> None:
        """Drive a run at its turn, and tell whoever asked for that, or the run's row, why it can't be driven."""
        failure: InterlockError | None = None
        try:
            await self._drive_within_limits(run, started)
        except Exception as error:
            failure = error if isinstance(error, InterlockError) else as_bug_error(error)
        api_rows.remove_api_row(self._home, "prompt", run)
        await self._turns.release_slot(run)
        if failure and not started.done():
            started.set_exception(failure)
        elif failure:
            fleet.record_drive_error(self._home, run, failure)

    async def _drive_within_limits(self, run: str, started: "asyncio.Future[str]") -> None:
        def report_wait(waits: str) -> None:
            if waits and not started.done():
                api_rows.update_api_row_if_exists(self._home, "prompt", run, {"stands": True})
            if not started.done():
                started.set_result(waits)

        while one := self._find_stored_prompt(run):
            process = drive_process.AdoptedProcess(ProcessIdentity(*one.body.get("process", self._me)))
            if one.body["status"] == "pending":
                await self._turns.wait_for_slot(one, run, one.body["workflow"], on_wait=report_wait)
                process = await self._start_drive_process(one)
                report_wait("")
            await self._turns.wait_for_exit_and_forward_cancel(run, process)
            if (now := self._find_stored_prompt(run)) is None or now.body["status"] == "running":
                return  # it ended, or its process was killed
            api_rows.update_api_row_if_exists(self._home, "prompt", run, {"status": "pending"})
            await self._turns.release_slot(run)

    async def _start_drive_process(self, prompt_row: api_rows.ApiRow) -> Child:
        def record_process(child: Child) -> None:
            process = [*drive_process.child_process_identity(child)]
            api_rows.update_api_row_if_exists(
                self._home, "prompt", prompt_row.id, {"status": "started", "process": process}
            )

        work = drive_process.DriveJob(
            self._options, prompt_row.run, prompt=prompt_row.body["prompt"], within_limits=True
        )
        return await drive_process.start_drive_process(work, record_process)

    def _find_stored_prompt(self, run: str) -> api_rows.ApiRow | None:
        return api_rows.find_api_row(self._home, "prompt", run)
