"""drive_queues: drives as programs ask for them: one after the other on each thread, stopped, taken back."""

import asyncio
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from interlock.engine.client import FORBIDDEN, Options, RunRow, api_rows, threads
from interlock.engine.client.program_drive import ApiDriveRequest
from interlock.services.process.identity import ProcessIdentity, current_process_identity, is_alive
from interlock.state.errors import InterlockError, as_bug_error
from interlock.web import drive_process
from interlock.web.api.app_auth import USER_KEYS, configurable_user_fields
from interlock.web.api.assistants import Assistants, derive_config_and_context
from interlock.web.api.drive_recorder import (
    count_protocol_sequence_numbers,
    create_stream_file,
    end_stream_file,
)
from interlock.web.api.payloads import (
    assistant_id_for_workflow,
    parse_uuid,
    read_object_field,
    read_string_list_field,
)
from interlock.web.api.prompt_dialect import dialect_for_workflow
from interlock.web.api.threads import BUSY, Threads
from interlock.web.endpoints import RefusedError, build_submission_options, check_role
from interlock.web.rate_limits import LOOK_S, RateLimits
from interlock.web.roles import Person, ThreadInterrupts, required_role

_STOP_S = 30.0
_MAX_LOOKS = 250
"""Looks, each after `LOOK_S`, for what a drive that ends asks."""
_STREAM_RETENTION_S = 86_400.0
"""How long the stream of an ended drive can be read again."""
_NOBODY = ("", "", 0, "")
_MAX_DEATHS = 3
"""Times that a drive goes on after its process was killed."""
_KILLED = "The process of this run was killed. The thread goes on where it stood."
_THREAD_BUSY = (
    "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
)


class DriveQueues:
    """Starts drives, one after the other on each thread."""

    def __init__(self, threads_api: Threads, assistants: Assistants) -> None:
        self.threads, self.assistants = threads_api, assistants
        self.client, self.home = threads_api.client, threads_api.home
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, drive_process.Child | drive_process.AdoptedProcess] = {}
        """Drive → process of those that this server follows."""
        self._stopping = set[str]()
        self._me = [*current_process_identity()]
        self._turns = RateLimits(self.client.options)

    async def enqueue_drive(
        self,
        body: Mapping[str, Any],
        thread: api_rows.ApiRow,
        person: Person,
        uses_event_protocol: bool = False,
    ) -> api_rows.ApiRow:
        """Put a drive in its thread's lane. Raises `RefusedError`, and then leaves nothing behind."""
        kept, delay = await self.build_drive_row_and_delay(body, thread, person, uses_event_protocol)
        await self._apply_multitask_strategy(thread, kept["multitask_strategy"])
        name = str(uuid4())
        create_stream_file(self.home, name)
        self.threads.ensure_thread_row(thread)
        made = api_rows.insert_api_row(self.home, "drive", name, kept, thread=thread.id, run=thread.run)
        about = {"graph_id": kept["kwargs"]["graph_id"], "assistant_id": kept["assistant_id"]}
        changed = {
            "metadata": {**read_object_field(thread.body, "metadata"), **about},
            "updated": time.time(),
        }
        api_rows.update_api_row_if_exists(self.home, "thread", thread.id, changed)
        self._schedule_pending_drives(thread.id, delay)
        return made

    async def build_drive_row_and_delay(
        self,
        body: Mapping[str, Any],
        thread: api_rows.ApiRow,
        person: Person,
        uses_event_protocol: bool = False,
    ) -> tuple[dict[str, Any], float]:
        """Return what a drive's row will hold, and the seconds that it waits first. Raises `RefusedError`."""
        standing = (
            ThreadInterrupts()
            if person.has_at_least_role("drive")
            else await self._poll_briefly_for_open_interrupts(thread, body)
        )
        check_role(person, required_role("decide", drive_body=body, thread_interrupts=standing))
        chosen = self.assistants.require_assistant(body.get("assistant_id"))
        if body.get("webhook"):
            raise RefusedError(422, _NO_WEBHOOK)
        if name := body.get("checkpoint_id"):
            parse_uuid(name, "checkpoint")
        about = {"assistant_id": chosen.id}
        if api_rows.find_api_row(self.home, "thread", thread.id):  # as there: not for a thread that it makes
            about["graph_id"] = chosen.body["graph_id"]
        metadata = {
            key: value
            for body in (chosen.body, thread.body, body)
            for key, value in read_object_field(body, "metadata").items()
        }
        return {
            "assistant_id": chosen.id,
            "metadata": metadata | about,
            "status": "pending",
            "multitask_strategy": body.get("multitask_strategy", "enqueue"),
            "by": person.name,
            "submitted": build_submission_options(
                self.client.options, read_object_field(body, "metadata"), person
            ),
            "server": self._me,
            "kwargs": {
                **_build_drive_kwargs(body, chosen.body),
                "stream_mode": read_string_list_field(body, "stream_mode") or ["values"],
                "protocol": uses_event_protocol,
                "temporary": bool(thread.body.get("temporary")),
            },
            **({} if person.has_at_least_role("drive") else {"only": [*standing.open_interrupts]}),
        }, max(0.0, float(body.get("after_seconds") or 0))

    async def _poll_briefly_for_open_interrupts(
        self, thread: api_rows.ApiRow, body: Mapping[str, Any]
    ) -> ThreadInterrupts:
        """Wait for what a drive that ends now will ask: programs hear of an interrupt before that."""
        waits: list[threads.WaitingRequest] = []
        for _ in range(_MAX_LOOKS):
            waits = threads.load_waiting_requests(self.client.options, thread.run) if thread.run else []
            if waits or self.threads.thread_status(thread, None) != "busy":
                break
            await asyncio.sleep(LOOK_S)
            thread = self.threads.require_thread(thread.id)
        row = self.client.find_exact_run(thread.run) if thread.run else None
        known = assistant_id_for_workflow(row.workflow) if row else ""
        if before := self.threads.list_drive_rows(thread.id):
            known = before[0].body["assistant_id"]
        same = self.assistants.require_assistant(body.get("assistant_id")).id == known
        return ThreadInterrupts(frozenset(one.interrupt for one in waits), same)

    async def _apply_multitask_strategy(self, thread: api_rows.ApiRow, strategy: object) -> None:
        """Do to a thread's drives what a new one's strategy says. Raises `RefusedError`."""
        busy = [one for one in self.threads.list_drive_rows(thread.id) if one.body["status"] in BUSY]
        if busy and strategy == "reject":
            raise RefusedError(409, _THREAD_BUSY)
        row = (
            self.client.find_exact_run(thread.run)
            if thread.run and not busy and strategy != "enqueue"
            else None
        )
        if row is not None and row.status == "running":
            if strategy == "reject":
                raise RefusedError(409, _THREAD_BUSY)
            raise RefusedError(
                409,
                f"Run {row.run!r} is driven by {row.owner}, another terminal. Stop it: interlock cancel {row.run}",
            )
        for one in busy if strategy != "enqueue" else ():
            await self.stop_drive_and_wait(
                one, rollback=strategy == "rollback", why=f"a later run (multitask_strategy={strategy})"
            )

    def _schedule_pending_drives(
        self, thread_id: str, delay_s: float = 0, first_work: "Coroutine[Any, Any, None] | None" = None
    ) -> None:
        before = self._lanes.get(thread_id)
        self._lanes[thread_id] = asyncio.ensure_future(
            self._run_pending_drives(thread_id, before, delay_s, first_work)
        )

    async def _run_pending_drives(
        self,
        thread_id: str,
        previous_task: "asyncio.Task[None] | None",
        delay_s: float,
        first_work: "Coroutine[Any, Any, None] | None",
    ) -> None:
        """Drive what waits in a lane, with its code: a decision lets its run go on, whoever made it."""
        FORBIDDEN.set("")
        if previous_task is not None:
            await asyncio.wait({previous_task})
        if first_work is not None:
            await first_work
        if delay_s:
            await asyncio.sleep(delay_s)
        waits = [
            one
            for one in self.threads.list_drive_rows(thread_id)
            if one.body["status"] == "pending" and one.body.get("server") == self._me
        ]
        for one in reversed(waits):
            try:
                await self._run_drive(one)
            except Exception as error:  # a drive that stays busy would block its thread
                self._fail_unfinished_drive(
                    one, error if isinstance(error, InterlockError) else as_bug_error(error)
                )

    def _fail_unfinished_drive(self, drive: api_rows.ApiRow, error: InterlockError) -> None:
        """Note a drive that never began."""
        about = {"error": type(error).__name__, "message": str(error)}
        now = api_rows.find_api_row(self.home, "drive", drive.id)
        if now is None or now.body["status"] not in BUSY:
            return
        api_rows.update_api_row_if_exists(self.home, "drive", drive.id, {"status": "error", "error": about})
        end_stream_file(self.home, drive.id, None if drive.id in self._stopping else about)

    async def _run_drive(self, drive: api_rows.ApiRow) -> None:
        """Drive one, until it has ended."""
        if not self.is_drive_unfinished(drive.id):  # it was cancelled while it waited
            return
        thread = self.threads.require_thread(drive.thread)
        row = self.client.find_exact_run(thread.run) if thread.run else None
        kwargs = drive.body["kwargs"]
        graph = str(kwargs["graph_id"])
        dialect = dialect_for_workflow(self.client.load_workflow(graph))
        while row is not None and row.status == "running":  # somebody else drives it
            await asyncio.sleep(0.2)
            row = self.client.find_exact_run(thread.run)
        if row is not None and row.workflow != graph:
            row = None  # another workflow is another run
        again = bool(drive.body.get("again"))
        if row is not None and not again and (at := dialect.fork_checkpoint_id(kwargs["checkpoint"])):
            row = await self._fork_at_checkpoint(thread, row, at)
        run = row.run if row else self.client.new_run_id()
        points = self.client.checkpoints(run) if row else []
        before = drive.body["before"] if again else points[-1].step if points else None
        api_rows.update_api_row_if_exists(self.home, "thread", thread.id, {}, run)
        work = drive_process.DriveJob(
            self._drive_options(drive, row is None),
            run,
            graph,
            call=ApiDriveRequest(drive, row is None, dialect),
        )
        if not await self._turns.wait_for_slot(drive, run, graph, lambda: self.is_drive_unfinished(drive.id)):
            return
        try:
            await drive_process.start_drive_process(
                work, lambda child: self._record_drive_process(drive.id, child, before, run)
            )
            await self._turns.wait_for_exit_and_forward_cancel(run, self._children[drive.id])
        except drive_process.DriveDiedError:
            pass  # as one that dies later
        except Exception:
            await self._clean_up_after_drive(drive.id, run)
            raise
        await self._clean_up_after_drive(drive.id, run)
        now = api_rows.find_api_row(self.home, "drive", drive.id)
        if now and now.body["status"] == "pending":  # a limit over all workers stopped it
            return await self._run_drive(now)
        if (
            now and now.body["status"] in BUSY and self._requeue_or_fail_killed_drive(now)
        ):  # its process was killed
            return await self._run_drive(api_rows.find_api_row(self.home, "drive", drive.id) or now)
        with suppress(InterlockError, KeyError):
            thread = self.threads.require_thread(drive.thread)
            await asyncio.to_thread(self.threads.record_latest_values_and_interrupts, thread)

    async def _clean_up_after_drive(self, drive_id: str, run: str) -> None:
        self._children.pop(drive_id, None)
        await self._turns.release_slot(run)

    def _record_drive_process(
        self, drive_id: str, child: drive_process.Child, step_before: int | None, run: str
    ) -> None:
        """Note a drive's process, before that gets its work. Raises `InterlockError` if it was cancelled."""
        if drive_id in self._stopping:
            raise InterlockError("It was cancelled before it began.")
        self._children[drive_id] = child
        process = [*drive_process.child_process_identity(child)]
        about = {"status": "running", "before": step_before, "process": process, "begun": False}
        api_rows.update_api_row_if_exists(self.home, "drive", drive_id, about, run)

    def _drive_options(self, drive: api_rows.ApiRow, is_new_run: bool) -> Options:
        kwargs = drive.body["kwargs"]
        both = {**kwargs["context"], **kwargs["config"].get("configurable", {})}
        given = {k: v for k, v in both.items() if not k.startswith("__") and k not in _RESERVED_KEYS}
        # Driven here, also where workers drive the page's runs: its stream is this process's.
        here: Any = {"queue": "", "submitted": drive.body.get("submitted") if is_new_run else None}
        options = replace(self.client.options, context=given, door="program", **here)
        return options if is_new_run else replace(options, workspace=None, approval_mode=None, mode=None)

    async def _fork_at_checkpoint(self, thread: api_rows.ApiRow, row: RunRow, checkpoint: str) -> RunRow:
        """Return a fork of a run of Interlock's own at a checkpoint, which the thread shows from now on."""
        found = [one for one in self.client.checkpoints(row.run) if one.id == checkpoint]
        if not found:
            raise InterlockError(f"Thread {thread.id} has no checkpoint {checkpoint!r}.")
        return self.client.find_run(await self._fork_run_in_place(row.run, found[0].step))

    async def _fork_run_in_place(self, run: str, step: int) -> str:
        await asyncio.to_thread(self.client.check_run_folder_trusted, run)
        return (await asyncio.to_thread(self.client.fork_run, run, step, in_place=True)).run

    def is_drive_process_alive(self, drive_id: str) -> bool:
        return drive_id in self._children and self._children[drive_id].poll() is None

    def is_drive_unfinished(self, drive_id: str) -> bool:
        """Return whether a drive waits or works."""
        found = api_rows.find_api_row(self.home, "drive", drive_id)
        return found is not None and found.body["status"] in BUSY

    async def stop_drive_and_wait(
        self, drive: api_rows.ApiRow, *, rollback: bool = False, why: str = "DELETE"
    ) -> None:
        """Stop a drive, and wait for its end; a rollback takes back what it did to its thread. `why`: the request that
        asked for it, or a sentence, for programs."""
        now = api_rows.find_api_row(self.home, "drive", drive.id) or drive
        if now.body["status"] == "pending":
            about = {"error": "UserInterrupt", "message": "Run was cancelled before it began."}
            api_rows.update_api_row_if_exists(
                self.home,
                "drive",
                drive.id,
                {"status": "interrupted", "error": about, "unbegun": "process" not in now.body},
            )
        self._stopping.add(drive.id)
        if drive.id not in self._children and now.body.get("process"):
            self._children[drive.id] = drive_process.AdoptedProcess(ProcessIdentity(*now.body["process"]))
        if child := self._children.get(drive.id):
            child.send_signal(signal.SIGINT)
        until = time.monotonic() + _STOP_S
        while self.is_drive_process_alive(drive.id) and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        now = api_rows.find_api_row(self.home, "drive", drive.id)
        if now and now.body["status"] == "success" and not rollback:
            return  # it ended before the stop
        name = "UserRollback" if rollback else "UserInterrupt"
        asked = f"{'rollback' if rollback else 'interrupt'} requested via {why}"
        about = {"error": name, "message": why if why.startswith("client") else asked}
        api_rows.update_api_row_if_exists(
            self.home, "drive", drive.id, {"status": "interrupted", "error": about}
        )
        if rollback:
            await self._roll_back_thread_and_remove_drive(drive, about)

    async def _roll_back_thread_and_remove_drive(
        self, drive_row: api_rows.ApiRow, error: Mapping[str, str]
    ) -> None:
        """The thread shows a fork of its run as it was before the drive; the drive's own row goes."""
        now = api_rows.find_api_row(self.home, "drive", drive_row.id)
        if now is None:
            return
        fresh = ""
        if now.run and (before := now.body.get("before")) is not None:
            fresh = await self._fork_run_in_place(now.run, before)
        api_rows.remove_api_row(self.home, "drive", drive_row.id)
        before_it = [drive.id for drive in self.threads.list_drive_rows(drive_row.thread)][:1]
        taken_back = {"error": error, "drives": before_it} if not now.body.get("unbegun") else None
        api_rows.update_api_row_if_exists(
            self.home, "thread", drive_row.thread, {"latest": None, "taken_back": taken_back}, fresh
        )

    def resume_abandoned_drives_and_clean_up(self) -> None:
        """Go on with what a server that is gone left: drives that wait, and those that still work."""
        found = api_rows.list_api_rows(self.home, "drive")
        busy = [one for one in found if one.body["status"] in BUSY]
        of_people = api_rows.list_api_rows(self.home, "prompt")
        self._turns.release_slots_except([one.run for one in [*busy, *of_people]])
        for one in reversed(found):
            server = one.body.get("server")
            if one.body["status"] in BUSY and not (server and is_alive(ProcessIdentity(*server))):
                api_rows.update_api_row_if_exists(self.home, "drive", one.id, {"server": self._me})
                work = self._await_and_settle_adopted_drive(one) if one.body["status"] == "running" else None
                self._schedule_pending_drives(one.thread, first_work=work)
        for old in (self.home / "live").glob("*.stream"):
            if time.time() - old.stat().st_mtime > _STREAM_RETENTION_S:
                api_rows.update_api_row_if_exists(
                    self.home, "drive", old.stem, {"events": count_protocol_sequence_numbers(old)}
                )
                old.unlink(missing_ok=True)

    def _is_run_active(self, run: str) -> bool:
        """Return whether somebody drives a run, maybe on another host."""
        row = self.client.find_exact_run(run)
        return row is not None and row.status == "running"

    async def _await_and_settle_adopted_drive(self, drive: api_rows.ApiRow) -> None:
        """Wait for the end of a drive that another server started; one that never began goes back to its lane."""
        self._children[drive.id] = process = drive_process.AdoptedProcess(
            ProcessIdentity(*drive.body.get("process", _NOBODY))
        )
        while process.poll() is None or self._is_run_active(drive.run):
            await asyncio.sleep(LOOK_S)
        await self._clean_up_after_drive(drive.id, drive.run)
        now = api_rows.find_api_row(self.home, "drive", drive.id)
        if now is None or now.body["status"] != "running":
            return
        if now.body.get("begun", True):
            self._requeue_or_fail_killed_drive(now)
        else:
            api_rows.update_api_row_if_exists(self.home, "drive", drive.id, {"status": "pending"})

    def _requeue_or_fail_killed_drive(self, drive: api_rows.ApiRow) -> bool:
        """Let a drive whose process was killed wait to go on; False: it was stopped, or dies each time."""
        row, deaths = (
            self.client.find_exact_run(drive.run) if drive.run else None,
            drive.body.get("deaths", 0) + 1,
        )
        if drive.id in self._stopping or deaths > _MAX_DEATHS or (row and row.end_reason not in ("", "died")):
            self._fail_unfinished_drive(drive, InterlockError(_KILLED))
            return False
        again = row is not None and self._has_run_taken_input(drive)
        api_rows.update_api_row_if_exists(
            self.home,
            "drive",
            drive.id,
            {"status": "pending", "deaths": deaths, "again": again, "begun": False},
        )
        return True

    def _has_run_taken_input(self, drive: api_rows.ApiRow) -> bool:
        """Return whether the run has what the drive was asked for: else the drive begins anew, and nothing is lost."""
        if (before := drive.body.get("before")) is None:
            return True
        if "resume" in (drive.body["kwargs"]["command"] or {}):
            return not threads.load_waiting_requests(self.client.options, drive.run)
        return self.client.checkpoints(drive.run)[-1].step > before


def _build_drive_kwargs(body: Mapping[str, Any], assistant: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a drive was asked for, as its row keeps it and programs read it. Raises `RefusedError`."""
    asked = {**body, **derive_config_and_context(body)}
    config, default = read_object_field(asked, "config"), read_object_field(assistant, "config")
    configurable = {**read_object_field(default, "configurable"), **read_object_field(config, "configurable")}
    return {
        "input": body.get("input"),
        "command": body.get("command"),
        "config": _replace_user_fields({**default, **config, "configurable": configurable}),
        "context": _strip_user_fields(
            {**read_object_field(assistant, "context"), **read_object_field(asked, "context")}
        ),
        "checkpoint": _requested_checkpoint(body),
        "interrupt_before": body.get("interrupt_before"),
        "interrupt_after": body.get("interrupt_after"),
        "subgraphs": bool(body.get("stream_subgraphs")),
        "resumable": bool(body.get("stream_resumable")),
        "webhook": None,
        "feedback_keys": None,
        "graph_id": assistant["graph_id"],
    }


def _strip_user_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in USER_KEYS}


def _replace_user_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with what a graph finds of the user, whatever a program gave for that."""
    known = {**_strip_user_fields(read_object_field(config, "configurable")), **configurable_user_fields()}
    return (
        {**config, "configurable": known}
        if known
        else {k: v for k, v in config.items() if k != "configurable"}
    )


_NO_WEBHOOK = "A webhook of a run isn't supported. Notifications have a setting: general.notify."
_RESERVED_KEYS = (
    "thread_id",
    "checkpoint_id",
    "checkpoint_ns",
    "run_id",
    "graph_id",
    "assistant_id",
    "user_id",
)


def _requested_checkpoint(body: Mapping[str, Any]) -> dict[str, Any]:
    at = {**read_object_field(body, "checkpoint")}
    if name := body.get("checkpoint_id"):
        at["checkpoint_id"] = name
    return {key: at[key] for key in ("checkpoint_id", "checkpoint_ns") if at.get(key)}
