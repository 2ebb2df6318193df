"""lanes: drives as programs ask for them: one after the other on each thread, stopped, taken back."""

import asyncio
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from interlock.engine.client import FORBIDDEN, Options, RunRow, served, threads
from interlock.engine.client.program_drive import ProgramCall
from interlock.engine.client.served import Served
from interlock.services.process.identity import Owner, is_alive, started_at, this_process
from interlock.state.errors import InterlockError, bug
from interlock.web import drives
from interlock.web.answers import RefusedError, check_role, submitted
from interlock.web.api.answers import assistant_of, part, texts, uuid_in
from interlock.web.api.assistants import Assistants, Chosen, configured
from interlock.web.api.recorder import begin_record, end_record, events_in
from interlock.web.api.threads import BUSY, Threads
from interlock.web.api.visitors import USER, user_fields
from interlock.web.driver import Work
from interlock.web.roles import Person, Standing, role_needed
from interlock.web.turns import LOOK_S, Turns

_STOP_S = 30.0
_ASKS = 250
"""Looks, each after `LOOK_S`, for what a drive that ends asks."""
_KEPT_S = 86_400.0
"""How long the stream of an ended drive can be read again."""
_NOBODY = ("", "", 0, "")
_DEATHS = 3
"""Times that a drive goes on after its process was killed."""
_KILLED = "The process of this run was killed. The thread goes on where it stood."
_TAKEN = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."


class Lanes:
    """Starts drives, one after the other on each thread."""

    def __init__(self, about: Threads, assistants: Assistants) -> None:
        self.about, self.assistants = about, assistants
        self.client, self.home = about.client, about.home
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, drives.Child | drives.Elsewhere] = {}
        """Drive → process of those that this server follows."""
        self._stopping = set[str]()
        self._me = [*this_process()]
        self._turns = Turns(self.client.options)

    async def begun(
        self, given: Mapping[str, Any], thread: Served, person: Person, protocol: bool = False
    ) -> Served:
        """Put a drive in its thread's lane. Raises `RefusedError`, and then leaves nothing behind."""
        kept, delay = await self.checked(given, thread, person, protocol)
        await self._make_room(thread, kept["multitask_strategy"])
        name = str(uuid4())
        begin_record(self.home, name)
        self.about.keep(thread)
        made = served.serve(self.home, "drive", name, kept, thread=thread.id, run=thread.run)
        about = {"graph_id": kept["kwargs"]["graph_id"], "assistant_id": kept["assistant_id"]}
        changed = {"metadata": {**part(thread.body, "metadata"), **about}, "updated": time.time()}
        served.change(self.home, "thread", thread.id, changed)
        self._enter(thread.id, delay)
        return made

    async def checked(
        self, given: Mapping[str, Any], thread: Served, person: Person, protocol: bool = False
    ) -> tuple[dict[str, Any], float]:
        """What a drive's row will hold, and the seconds that it waits first. Raises `RefusedError`."""
        standing = Standing() if person.may("drive") else await self._standing(thread, given)
        check_role(person, role_needed("decide", start=given, standing=standing))
        chosen = self.assistants.chosen(given.get("assistant_id"))
        if given.get("webhook"):
            raise RefusedError(422, _NO_WEBHOOK)
        if name := given.get("checkpoint_id"):
            uuid_in(name, "checkpoint")
        modes, strategy = (
            texts(given, "stream_mode") or ["values"],
            given.get("multitask_strategy", "enqueue"),
        )
        kwargs = _kwargs(given, chosen)
        of_thread, about = part(thread.body, "metadata"), {"assistant_id": chosen.assistant}
        if served.served(self.home, "thread", thread.id):  # as there: not for a thread that it makes
            about["graph_id"] = chosen.graph
        return {
            "assistant_id": chosen.assistant,
            "metadata": {**chosen.metadata, **of_thread, **part(given, "metadata"), **about},
            "status": "pending",
            "multitask_strategy": strategy,
            "by": person.name,
            "submitted": submitted(self.client.options, part(given, "metadata"), person),
            "server": self._me,
            "kwargs": {
                **kwargs,
                "stream_mode": modes,
                "protocol": protocol,
                "temporary": bool(thread.body.get("temporary")),
            },
            **({} if person.may("drive") else {"only": [*standing.waits]}),
        }, max(0.0, float(given.get("after_seconds") or 0))

    async def _standing(self, thread: Served, given: Mapping[str, Any]) -> Standing:
        """Wait for what a drive that ends now will ask: programs hear of an interrupt before that."""
        waits: list[threads.WaitingRequest] = []
        for _ in range(_ASKS):
            waits = threads.list_waiting(self.client.options, thread.run) if thread.run else []
            if waits or self.about.status(thread, None) != "busy":
                break
            await asyncio.sleep(LOOK_S)
            thread = self.about.find(thread.id)
        row = self.client.exact(thread.run) if thread.run else None
        before = self.about.drives(thread.id)
        known = before[0].body["assistant_id"] if before else assistant_of(row.workflow) if row else ""
        same = self.assistants.chosen(given.get("assistant_id")).assistant == known
        return Standing(frozenset(one.interrupt for one in waits), same)

    async def _make_room(self, thread: Served, strategy: object) -> None:
        """Do to a thread's drives what a new one's strategy says. Raises `RefusedError`."""
        busy = [one for one in self.about.drives(thread.id) if one.body["status"] in BUSY]
        if busy and strategy == "reject":
            raise RefusedError(409, _TAKEN)
        row = self.client.exact(thread.run) if thread.run and not busy and strategy != "enqueue" else None
        if row is not None and row.status == "running":
            if strategy == "reject":
                raise RefusedError(409, _TAKEN)
            raise RefusedError(
                409,
                f"Run {row.run!r} is driven by {row.owner}, another terminal. Stop it: interlock cancel {row.run}",
            )
        for one in busy if strategy != "enqueue" else ():
            await self.stop(
                one, rollback=strategy == "rollback", why=f"a later run (multitask_strategy={strategy})"
            )

    def _enter(self, thread: str, after: float = 0, first: "Coroutine[Any, Any, None] | None" = None) -> None:
        before = self._lanes.get(thread)
        self._lanes[thread] = asyncio.ensure_future(self._next(thread, before, after, first))

    async def _next(
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
        found = self.about.drives(thread)
        waits = [
            one for one in found if one.body["status"] == "pending" and one.body.get("server") == self._me
        ]
        for one in reversed(waits):
            try:
                await self._drive(one)
            except Exception as error:  # a drive that stays busy would block its thread
                self._failed(one, error if isinstance(error, InterlockError) else bug(error))

    def _failed(self, one: Served, error: InterlockError) -> None:
        """Note a drive that never began."""
        about = {"error": type(error).__name__, "message": str(error)}
        now = served.served(self.home, "drive", one.id)
        if now is None or now.body["status"] not in BUSY:
            return
        served.change(self.home, "drive", one.id, {"status": "error", "error": about})
        end_record(self.home, one.id, None if one.id in self._stopping else about)

    async def _drive(self, one: Served) -> None:
        """Drive one, until it has ended."""
        if not self.lasts(one.id):  # it was cancelled while it waited
            return
        thread = self.about.find(one.thread)
        row = self.client.exact(thread.run) if thread.run else None
        kwargs = one.body["kwargs"]
        graph = str(kwargs["graph_id"])
        dialect = self.assistants.dialect(graph)
        while row is not None and row.status == "running":  # somebody else drives it
            await asyncio.sleep(0.2)
            row = self.client.exact(thread.run)
        if row is not None and row.workflow != graph:
            row = None  # another workflow is another run
        again = bool(one.body.get("again"))
        if row is not None and not again and (at := dialect.fork_point(kwargs["checkpoint"])):
            row = await self._forked(thread, row, at)
        run = row.run if row else self.client.new_run_id()
        before = self.client.checkpoints(run)[-1].step if row and self.client.checkpoints(run) else None
        before = one.body["before"] if again else before
        served.change(self.home, "thread", thread.id, {}, run)
        work = Work(self._options(one, row is None), run, graph, call=ProgramCall(one, row is None, dialect))
        if not await self._turns.taken(one, run, graph, lambda: self.lasts(one.id)):
            return
        try:
            await drives.begin(work, lambda child: self._started(one.id, child, before, run))
            await self._turns.ended(run, self._children[one.id])
        except drives.DiedError:
            pass  # as one that dies later
        except Exception:
            await self._over(one.id, run)
            raise
        await self._over(one.id, run)
        now = served.served(self.home, "drive", one.id)
        if now and now.body["status"] == "pending":  # a limit over all workers stopped it
            return await self._drive(now)
        if now and now.body["status"] in BUSY and self._goes_on(now):  # its process was killed
            return await self._drive(self._found(now))
        with suppress(InterlockError, KeyError):
            thread = self.about.find(one.thread)
            await asyncio.to_thread(self.about.note_latest, thread)

    async def _over(self, drive: str, run: str) -> None:
        self._children.pop(drive, None)
        await self._turns.leave(run)

    def _started(self, drive: str, child: drives.Child, before: int | None, run: str) -> None:
        """Note a drive's process, before that gets its work. Raises `InterlockError` if it was cancelled."""
        if drive in self._stopping:
            raise InterlockError("It was cancelled before it began.")
        self._children[drive] = child
        process = [*this_process()._replace(pid=child.pid, started=started_at(child.pid))]
        about = {"status": "running", "before": before, "process": process, "begun": False}
        served.change(self.home, "drive", drive, about, run)

    def _options(self, one: Served, new: bool) -> Options:
        kwargs = one.body["kwargs"]
        both = {**kwargs["context"], **kwargs["config"].get("configurable", {})}
        given = {k: v for k, v in both.items() if not k.startswith("__") and k not in _PLACES}
        # Driven here, also where workers drive the page's runs: its stream is this process's.
        here: Any = {"queue": "", "submitted": one.body.get("submitted") if new else None}
        options = replace(self.client.options, context=given, door="program", **here)
        return options if new else replace(options, workspace=None, approval_mode=None, mode=None)

    async def _forked(self, thread: Served, row: RunRow, checkpoint: str) -> RunRow:
        """A fork of a run of Interlock's own at a checkpoint, which the thread shows from now on."""
        found = [one for one in self.client.checkpoints(row.run) if one.id == checkpoint]
        if not found:
            raise InterlockError(f"Thread {thread.id} has no checkpoint {checkpoint!r}.")
        await asyncio.to_thread(self.client.check_folder_here, row.run)
        made = await asyncio.to_thread(lambda: self.client.fork(row.run, found[0].step, in_place=True))
        return self.client.run(made.run)

    def alive(self, drive: str) -> bool:
        child = self._children.get(drive)
        return child is not None and child.poll() is None

    def lasts(self, drive: str) -> bool:
        """Whether a drive waits or works."""
        found = served.served(self.home, "drive", drive)
        return found is not None and found.body["status"] in BUSY

    async def stop(self, one: Served, *, rollback: bool = False, why: str = "DELETE") -> None:
        """Stop a drive, and wait for its end; a rollback takes back what it did to its thread. `why`: the request that
        asked for it, or a sentence, for programs."""
        now = served.served(self.home, "drive", one.id) or one
        if now.body["status"] == "pending":
            about = {"error": "UserInterrupt", "message": "Run was cancelled before it began."}
            served.change(
                self.home,
                "drive",
                one.id,
                {"status": "interrupted", "error": about, "unbegun": "process" not in now.body},
            )
        self._stopping.add(one.id)
        if one.id not in self._children and now.body.get("process"):
            self._children[one.id] = drives.Elsewhere(Owner(*now.body["process"]))
        if child := self._children.get(one.id):
            child.send_signal(signal.SIGINT)
        until = time.monotonic() + _STOP_S
        while self.alive(one.id) and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        now = served.served(self.home, "drive", one.id)
        if now and now.body["status"] == "success" and not rollback:
            return  # it ended before the stop
        name = "UserRollback" if rollback else "UserInterrupt"
        asked = f"{'rollback' if rollback else 'interrupt'} requested via {why}"
        about = {"error": name, "message": why if why.startswith("client") else asked}
        served.change(self.home, "drive", one.id, {"status": "interrupted", "error": about})
        if rollback:
            await self._roll_back(one, about)

    async def _roll_back(self, one: Served, about: Mapping[str, str]) -> None:
        """The thread shows a fork of its run as it was before the drive; the drive's own row goes."""
        now = served.served(self.home, "drive", one.id)
        if now is None:
            return
        run, before = now.run, now.body.get("before")
        fresh = ""
        if run and before is not None:
            await asyncio.to_thread(self.client.check_folder_here, run)
            fresh = (await asyncio.to_thread(lambda: self.client.fork(run, before, in_place=True))).run
        served.unserve(self.home, "drive", one.id)
        before_it = [drive.id for drive in self.about.drives(one.thread)][:1]
        taken_back = {"error": about, "drives": before_it} if not now.body.get("unbegun") else None
        served.change(self.home, "thread", one.thread, {"latest": None, "taken_back": taken_back}, fresh)

    def resume(self) -> None:
        """Go on with what a server that is gone left: drives that wait, and those that still work."""
        found = served.all_served(self.home, "drive")
        busy = [one for one in found if one.body["status"] in BUSY]
        of_people = served.all_served(self.home, "prompt")
        self._turns.resume([one.run for one in [*busy, *of_people]])
        for one in reversed(found):
            server = one.body.get("server")
            if one.body["status"] in BUSY and not (server and is_alive(Owner(*server))):
                served.change(self.home, "drive", one.id, {"server": self._me})
                work = self._adopted(one) if one.body["status"] == "running" else None
                self._enter(one.thread, first=work)
        for old in (self.home / "live").glob("*.stream"):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                served.change(self.home, "drive", old.stem, {"events": events_in(old)})
                old.unlink(missing_ok=True)

    def _goes(self, run: str) -> bool:
        """Whether somebody drives a run, maybe on another host."""
        row = self.client.exact(run)
        return row is not None and row.status == "running"

    async def _adopted(self, one: Served) -> None:
        """Wait for the end of a drive that another server started; one that never began goes back to its lane."""
        self._children[one.id] = process = drives.Elsewhere(Owner(*one.body.get("process", _NOBODY)))
        while process.poll() is None or self._goes(one.run):
            await asyncio.sleep(LOOK_S)
        await self._over(one.id, one.run)
        now = served.served(self.home, "drive", one.id)
        if now is None or now.body["status"] != "running":
            return
        if now.body.get("begun", True):
            self._goes_on(now)
        else:
            served.change(self.home, "drive", one.id, {"status": "pending"})

    def _goes_on(self, one: Served) -> bool:
        """Let a drive whose process was killed wait to go on; False: it was stopped, or dies each time."""
        row, deaths = self.client.exact(one.run) if one.run else None, one.body.get("deaths", 0) + 1
        if one.id in self._stopping or deaths > _DEATHS or (row and row.why not in ("", "died")):
            self._failed(one, InterlockError(_KILLED))
            return False
        again = row is not None and self._is_taken(one)
        served.change(
            self.home,
            "drive",
            one.id,
            {"status": "pending", "deaths": deaths, "again": again, "begun": False},
        )
        return True

    def _is_taken(self, one: Served) -> bool:
        """Whether the run has what the drive was asked for: else the drive begins anew, and nothing is lost."""
        if (before := one.body.get("before")) is None:
            return True
        points = self.client.checkpoints(one.run)
        if "resume" in (one.body["kwargs"]["command"] or {}):
            return not threads.list_waiting(self.client.options, one.run)
        return points[-1].step > before

    def _found(self, one: Served) -> Served:
        return served.served(self.home, "drive", one.id) or one


def _kwargs(given: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    """What a drive was asked for, as its row keeps it and programs read it. Raises `RefusedError`."""
    asked = {"config": part(given, "config"), "context": part(given, "context"), **configured(given)}
    config, known = part(asked, "config"), part(chosen.config, "configurable")
    return {
        "input": given.get("input"),
        "command": given.get("command"),
        "config": _with_user(
            {**chosen.config, **config, "configurable": {**known, **part(config, "configurable")}}
        ),
        "context": _without_user({**chosen.context, **part(asked, "context")}),
        "checkpoint": _checkpoint(given),
        "interrupt_before": given.get("interrupt_before"),
        "interrupt_after": given.get("interrupt_after"),
        "subgraphs": bool(given.get("stream_subgraphs")),
        "resumable": bool(given.get("stream_resumable")),
        "webhook": None,
        "feedback_keys": None,
        "graph_id": chosen.graph,
    }


def _without_user(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in USER}


def _with_user(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what a graph finds of the user, whatever a program gave for that."""
    known = {**_without_user(part(config, "configurable")), **user_fields()}
    return (
        {**config, "configurable": known}
        if known
        else {k: v for k, v in config.items() if k != "configurable"}
    )


_NO_WEBHOOK = "A webhook of a run isn't supported. Notifications have a setting: general.notify."
_PLACES = ("thread_id", "checkpoint_id", "checkpoint_ns", "run_id", "graph_id", "assistant_id", "user_id")


def _checkpoint(given: Mapping[str, Any]) -> dict[str, Any]:
    at = {**part(given, "checkpoint")}
    if name := given.get("checkpoint_id"):
        at["checkpoint_id"] = name
    return {key: at[key] for key in ("checkpoint_id", "checkpoint_ns") if at.get(key)}
