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
from interlock.engine.client.api_rows import Served
from interlock.engine.client.program_drive import ProgramCall
from interlock.services.process.identity import ProcessIdentity, current_process, is_alive, process_start_time
from interlock.state.errors import InterlockError, as_bug_error
from interlock.web import drive_launcher
from interlock.web.api.app_auth import USER_KEYS, user_fields
from interlock.web.api.assistants import AssistantChoice, Assistants, merge_config_and_context
from interlock.web.api.drive_recorder import count_protocol_numbers, create_stream_file, end_stream_file
from interlock.web.api.payloads import assistant_id_of_workflow, parse_uuid, read_object, read_strings
from interlock.web.api.threads import BUSY, Threads
from interlock.web.drive_process import DriveJob
from interlock.web.endpoints import RefusedError, build_submission, check_role
from interlock.web.rate_limits import LOOK_S, RateLimits
from interlock.web.roles import Person, ThreadStanding, required_role

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

    def __init__(self, about: Threads, assistants: Assistants) -> None:
        self.about, self.assistants = about, assistants
        self.client, self.home = about.client, about.home
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, drive_launcher.Child | drive_launcher.AdoptedProcess] = {}
        """Drive → process of those that this server follows."""
        self._stopping = set[str]()
        self._me = [*current_process()]
        self._turns = RateLimits(self.client.options)

    async def enqueue_drive(
        self, given: Mapping[str, Any], thread: Served, person: Person, protocol: bool = False
    ) -> Served:
        """Put a drive in its thread's lane. Raises `RefusedError`, and then leaves nothing behind."""
        kept, delay = await self.build_drive_row(given, thread, person, protocol)
        await self._apply_strategy(thread, kept["multitask_strategy"])
        name = str(uuid4())
        create_stream_file(self.home, name)
        self.about.ensure_thread_row(thread)
        made = api_rows.serve(self.home, "drive", name, kept, thread=thread.id, run=thread.run)
        about = {"graph_id": kept["kwargs"]["graph_id"], "assistant_id": kept["assistant_id"]}
        changed = {"metadata": {**read_object(thread.body, "metadata"), **about}, "updated": time.time()}
        api_rows.change(self.home, "thread", thread.id, changed)
        self._schedule_thread(thread.id, delay)
        return made

    async def build_drive_row(
        self, given: Mapping[str, Any], thread: Served, person: Person, protocol: bool = False
    ) -> tuple[dict[str, Any], float]:
        """What a drive's row will hold, and the seconds that it waits first. Raises `RefusedError`."""
        standing = (
            ThreadStanding() if person.has_role("drive") else await self._await_thread_standing(thread, given)
        )
        check_role(person, required_role("decide", start=given, standing=standing))
        chosen = self.assistants.choose_assistant(given.get("assistant_id"))
        if given.get("webhook"):
            raise RefusedError(422, _NO_WEBHOOK)
        if name := given.get("checkpoint_id"):
            parse_uuid(name, "checkpoint")
        modes, strategy = (
            read_strings(given, "stream_mode") or ["values"],
            given.get("multitask_strategy", "enqueue"),
        )
        kwargs = _drive_kwargs(given, chosen)
        of_thread, about = read_object(thread.body, "metadata"), {"assistant_id": chosen.assistant}
        if api_rows.served(self.home, "thread", thread.id):  # as there: not for a thread that it makes
            about["graph_id"] = chosen.graph
        return {
            "assistant_id": chosen.assistant,
            "metadata": {**chosen.metadata, **of_thread, **read_object(given, "metadata"), **about},
            "status": "pending",
            "multitask_strategy": strategy,
            "by": person.name,
            "submitted": build_submission(self.client.options, read_object(given, "metadata"), person),
            "server": self._me,
            "kwargs": {
                **kwargs,
                "stream_mode": modes,
                "protocol": protocol,
                "temporary": bool(thread.body.get("temporary")),
            },
            **({} if person.has_role("drive") else {"only": [*standing.waits]}),
        }, max(0.0, float(given.get("after_seconds") or 0))

    async def _await_thread_standing(self, thread: Served, given: Mapping[str, Any]) -> ThreadStanding:
        """Wait for what a drive that ends now will ask: programs hear of an interrupt before that."""
        waits: list[threads.WaitingRequest] = []
        for _ in range(_MAX_LOOKS):
            waits = threads.list_waiting(self.client.options, thread.run) if thread.run else []
            if waits or self.about.thread_status(thread, None) != "busy":
                break
            await asyncio.sleep(LOOK_S)
            thread = self.about.find_thread(thread.id)
        row = self.client.find_exact_run(thread.run) if thread.run else None
        before = self.about.list_drives(thread.id)
        known = (
            before[0].body["assistant_id"]
            if before
            else assistant_id_of_workflow(row.workflow)
            if row
            else ""
        )
        same = self.assistants.choose_assistant(given.get("assistant_id")).assistant == known
        return ThreadStanding(frozenset(one.interrupt for one in waits), same)

    async def _apply_strategy(self, thread: Served, strategy: object) -> None:
        """Do to a thread's drives what a new one's strategy says. Raises `RefusedError`."""
        busy = [one for one in self.about.list_drives(thread.id) if one.body["status"] in BUSY]
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
            await self.stop_drive(
                one, rollback=strategy == "rollback", why=f"a later run (multitask_strategy={strategy})"
            )

    def _schedule_thread(
        self, thread: str, after: float = 0, first: "Coroutine[Any, Any, None] | None" = None
    ) -> None:
        before = self._lanes.get(thread)
        self._lanes[thread] = asyncio.ensure_future(self._drive_pending(thread, before, after, first))

    async def _drive_pending(
        self,
        thread: str,
        before: "asyncio.Task[None] | None",
        after: float,
        first: "Coroutine[Any, Any, None] | None",
    ) -> None:
        """Drive what waits in a lane, with its code: a decision lets its run go on, whoever made it."""
        FORBIDDEN.set("")
        if before is not None:
            await asyncio.wait({before})
        if first is not None:
            await first
        if after:
            await asyncio.sleep(after)
        found = self.about.list_drives(thread)
        waits = [
            one for one in found if one.body["status"] == "pending" and one.body.get("server") == self._me
        ]
        for one in reversed(waits):
            try:
                await self._run_drive(one)
            except Exception as error:  # a drive that stays busy would block its thread
                self._record_failed_start(
                    one, error if isinstance(error, InterlockError) else as_bug_error(error)
                )

    def _record_failed_start(self, one: Served, error: InterlockError) -> None:
        """Note a drive that never began."""
        about = {"error": type(error).__name__, "message": str(error)}
        now = api_rows.served(self.home, "drive", one.id)
        if now is None or now.body["status"] not in BUSY:
            return
        api_rows.change(self.home, "drive", one.id, {"status": "error", "error": about})
        end_stream_file(self.home, one.id, None if one.id in self._stopping else about)

    async def _run_drive(self, one: Served) -> None:
        """Drive one, until it has ended."""
        if not self.is_unfinished(one.id):  # it was cancelled while it waited
            return
        thread = self.about.find_thread(one.thread)
        row = self.client.find_exact_run(thread.run) if thread.run else None
        kwargs = one.body["kwargs"]
        graph = str(kwargs["graph_id"])
        dialect = self.assistants.dialect_of_graph(graph)
        while row is not None and row.status == "running":  # somebody else drives it
            await asyncio.sleep(0.2)
            row = self.client.find_exact_run(thread.run)
        if row is not None and row.workflow != graph:
            row = None  # another workflow is another run
        again = bool(one.body.get("again"))
        if row is not None and not again and (at := dialect.fork_point(kwargs["checkpoint"])):
            row = await self._fork_at_checkpoint(thread, row, at)
        run = row.run if row else self.client.new_run_id()
        before = self.client.checkpoints(run)[-1].step if row and self.client.checkpoints(run) else None
        before = one.body["before"] if again else before
        api_rows.change(self.home, "thread", thread.id, {}, run)
        work = DriveJob(
            self._drive_options(one, row is None), run, graph, call=ProgramCall(one, row is None, dialect)
        )
        if not await self._turns.wait_for_turn(one, run, graph, lambda: self.is_unfinished(one.id)):
            return
        try:
            await drive_launcher.start_drive(
                work, lambda child: self._record_process(one.id, child, before, run)
            )
            await self._turns.wait_for_exit(run, self._children[one.id])
        except drive_launcher.DriveDiedError:
            pass  # as one that dies later
        except Exception:
            await self._release_drive(one.id, run)
            raise
        await self._release_drive(one.id, run)
        now = api_rows.served(self.home, "drive", one.id)
        if now and now.body["status"] == "pending":  # a limit over all workers stopped it
            return await self._run_drive(now)
        if now and now.body["status"] in BUSY and self._retry_killed_drive(now):  # its process was killed
            return await self._run_drive(self._reload_drive(now))
        with suppress(InterlockError, KeyError):
            thread = self.about.find_thread(one.thread)
            await asyncio.to_thread(self.about.record_latest_values, thread)

    async def _release_drive(self, drive: str, run: str) -> None:
        self._children.pop(drive, None)
        await self._turns.release(run)

    def _record_process(self, drive: str, child: drive_launcher.Child, before: int | None, run: str) -> None:
        """Note a drive's process, before that gets its work. Raises `InterlockError` if it was cancelled."""
        if drive in self._stopping:
            raise InterlockError("It was cancelled before it began.")
        self._children[drive] = child
        process = [*current_process()._replace(pid=child.pid, started=process_start_time(child.pid))]
        about = {"status": "running", "before": before, "process": process, "begun": False}
        api_rows.change(self.home, "drive", drive, about, run)

    def _drive_options(self, one: Served, new: bool) -> Options:
        kwargs = one.body["kwargs"]
        both = {**kwargs["context"], **kwargs["config"].get("configurable", {})}
        given = {k: v for k, v in both.items() if not k.startswith("__") and k not in _RESERVED_KEYS}
        # Driven here, also where workers drive the page's runs: its stream is this process's.
        here: Any = {"queue": "", "submitted": one.body.get("submitted") if new else None}
        options = replace(self.client.options, context=given, door="program", **here)
        return options if new else replace(options, workspace=None, approval_mode=None, mode=None)

    async def _fork_at_checkpoint(self, thread: Served, row: RunRow, checkpoint: str) -> RunRow:
        """A fork of a run of Interlock's own at a checkpoint, which the thread shows from now on."""
        found = [one for one in self.client.checkpoints(row.run) if one.id == checkpoint]
        if not found:
            raise InterlockError(f"Thread {thread.id} has no checkpoint {checkpoint!r}.")
        await asyncio.to_thread(self.client.check_folder_trusted, row.run)
        made = await asyncio.to_thread(lambda: self.client.fork_run(row.run, found[0].step, in_place=True))
        return self.client.find_run(made.run)

    def is_process_alive(self, drive: str) -> bool:
        child = self._children.get(drive)
        return child is not None and child.poll() is None

    def is_unfinished(self, drive: str) -> bool:
        """Whether a drive waits or works."""
        found = api_rows.served(self.home, "drive", drive)
        return found is not None and found.body["status"] in BUSY

    async def stop_drive(self, one: Served, *, rollback: bool = False, why: str = "DELETE") -> None:
        """Stop a drive, and wait for its end; a rollback takes back what it did to its thread. `why`: the request that
        asked for it, or a sentence, for programs."""
        now = api_rows.served(self.home, "drive", one.id) or one
        if now.body["status"] == "pending":
            about = {"error": "UserInterrupt", "message": "Run was cancelled before it began."}
            api_rows.change(
                self.home,
                "drive",
                one.id,
                {"status": "interrupted", "error": about, "unbegun": "process" not in now.body},
            )
        self._stopping.add(one.id)
        if one.id not in self._children and now.body.get("process"):
            self._children[one.id] = drive_launcher.AdoptedProcess(ProcessIdentity(*now.body["process"]))
        if child := self._children.get(one.id):
            child.send_signal(signal.SIGINT)
        until = time.monotonic() + _STOP_S
        while self.is_process_alive(one.id) and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        now = api_rows.served(self.home, "drive", one.id)
        if now and now.body["status"] == "success" and not rollback:
            return  # it ended before the stop
        name = "UserRollback" if rollback else "UserInterrupt"
        asked = f"{'rollback' if rollback else 'interrupt'} requested via {why}"
        about = {"error": name, "message": why if why.startswith("client") else asked}
        api_rows.change(self.home, "drive", one.id, {"status": "interrupted", "error": about})
        if rollback:
            await self._roll_back_thread(one, about)

    async def _roll_back_thread(self, one: Served, about: Mapping[str, str]) -> None:
        """The thread shows a fork of its run as it was before the drive; the drive's own row goes."""
        now = api_rows.served(self.home, "drive", one.id)
        if now is None:
            return
        run, before = now.run, now.body.get("before")
        fresh = ""
        if run and before is not None:
            await asyncio.to_thread(self.client.check_folder_trusted, run)
            fresh = (await asyncio.to_thread(lambda: self.client.fork_run(run, before, in_place=True))).run
        api_rows.unserve(self.home, "drive", one.id)
        before_it = [drive.id for drive in self.about.list_drives(one.thread)][:1]
        taken_back = {"error": about, "drives": before_it} if not now.body.get("unbegun") else None
        api_rows.change(self.home, "thread", one.thread, {"latest": None, "taken_back": taken_back}, fresh)

    def resume_drives(self) -> None:
        """Go on with what a server that is gone left: drives that wait, and those that still work."""
        found = api_rows.all_served(self.home, "drive")
        busy = [one for one in found if one.body["status"] in BUSY]
        of_people = api_rows.all_served(self.home, "prompt")
        self._turns.release_abandoned([one.run for one in [*busy, *of_people]])
        for one in reversed(found):
            server = one.body.get("server")
            if one.body["status"] in BUSY and not (server and is_alive(ProcessIdentity(*server))):
                api_rows.change(self.home, "drive", one.id, {"server": self._me})
                work = self._adopt_drive(one) if one.body["status"] == "running" else None
                self._schedule_thread(one.thread, first=work)
        for old in (self.home / "live").glob("*.stream"):
            if time.time() - old.stat().st_mtime > _STREAM_RETENTION_S:
                api_rows.change(self.home, "drive", old.stem, {"events": count_protocol_numbers(old)})
                old.unlink(missing_ok=True)

    def _is_run_driven(self, run: str) -> bool:
        """Whether somebody drives a run, maybe on another host."""
        row = self.client.find_exact_run(run)
        return row is not None and row.status == "running"

    async def _adopt_drive(self, one: Served) -> None:
        """Wait for the end of a drive that another server started; one that never began goes back to its lane."""
        self._children[one.id] = process = drive_launcher.AdoptedProcess(
            ProcessIdentity(*one.body.get("process", _NOBODY))
        )
        while process.poll() is None or self._is_run_driven(one.run):
            await asyncio.sleep(LOOK_S)
        await self._release_drive(one.id, one.run)
        now = api_rows.served(self.home, "drive", one.id)
        if now is None or now.body["status"] != "running":
            return
        if now.body.get("begun", True):
            self._retry_killed_drive(now)
        else:
            api_rows.change(self.home, "drive", one.id, {"status": "pending"})

    def _retry_killed_drive(self, one: Served) -> bool:
        """Let a drive whose process was killed wait to go on; False: it was stopped, or dies each time."""
        row, deaths = self.client.find_exact_run(one.run) if one.run else None, one.body.get("deaths", 0) + 1
        if one.id in self._stopping or deaths > _MAX_DEATHS or (row and row.why not in ("", "died")):
            self._record_failed_start(one, InterlockError(_KILLED))
            return False
        again = row is not None and self._has_run_taken_input(one)
        api_rows.change(
            self.home,
            "drive",
            one.id,
            {"status": "pending", "deaths": deaths, "again": again, "begun": False},
        )
        return True

    def _has_run_taken_input(self, one: Served) -> bool:
        """Whether the run has what the drive was asked for: else the drive begins anew, and nothing is lost."""
        if (before := one.body.get("before")) is None:
            return True
        points = self.client.checkpoints(one.run)
        if "resume" in (one.body["kwargs"]["command"] or {}):
            return not threads.list_waiting(self.client.options, one.run)
        return points[-1].step > before

    def _reload_drive(self, one: Served) -> Served:
        return api_rows.served(self.home, "drive", one.id) or one


def _drive_kwargs(given: Mapping[str, Any], chosen: AssistantChoice) -> dict[str, Any]:
    """What a drive was asked for, as its row keeps it and programs read it. Raises `RefusedError`."""
    asked = {
        "config": read_object(given, "config"),
        "context": read_object(given, "context"),
        **merge_config_and_context(given),
    }
    config, known = read_object(asked, "config"), read_object(chosen.config, "configurable")
    return {
        "input": given.get("input"),
        "command": given.get("command"),
        "config": _add_user_fields(
            {**chosen.config, **config, "configurable": {**known, **read_object(config, "configurable")}}
        ),
        "context": _strip_user_fields({**chosen.context, **read_object(asked, "context")}),
        "checkpoint": _requested_checkpoint(given),
        "interrupt_before": given.get("interrupt_before"),
        "interrupt_after": given.get("interrupt_after"),
        "subgraphs": bool(given.get("stream_subgraphs")),
        "resumable": bool(given.get("stream_resumable")),
        "webhook": None,
        "feedback_keys": None,
        "graph_id": chosen.graph,
    }


def _strip_user_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in USER_KEYS}


def _add_user_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what a graph finds of the user, whatever a program gave for that."""
    known = {**_strip_user_fields(read_object(config, "configurable")), **user_fields()}
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


def _requested_checkpoint(given: Mapping[str, Any]) -> dict[str, Any]:
    at = {**read_object(given, "checkpoint")}
    if name := given.get("checkpoint_id"):
        at["checkpoint_id"] = name
    return {key: at[key] for key in ("checkpoint_id", "checkpoint_ns") if at.get(key)}
