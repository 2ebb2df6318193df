"""threads: runs as threads: their rows, state, history, updates and copies."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from interlock.cli.web.answers import RefusedError, body
from interlock.cli.web.api import shown
from interlock.cli.web.api.answers import (
    MissingError,
    answer,
    assistant_of,
    fits,
    limit_of,
    page,
    part,
    plain,
    texts,
    thread_of,
    uuid_in,
    when,
)
from interlock.cli.web.api.recorder import asked, place_of, record_of
from interlock.engine.client import Client, RunRow, served, threads
from interlock.engine.client.served import Served

BUSY = ("pending", "running")
_SEEN = 256
_STATUS = {
    "running": "busy",
    "waiting": "interrupted",
    "interrupted": "interrupted",
    "cancelled": "interrupted",
    "failed": "error",
    "done": "idle",
}


class Threads:
    def __init__(self, client: Client) -> None:
        self.client, self.options, self.home = client, client.options, client.home
        self._seen: dict[str, dict[str, Any]] = {}
        """Thread → its latest values, as of a look: looking changes no row."""

    def rows(self) -> dict[str, RunRow]:
        return {row.run: row for row in self.client.runs()}

    def of(self, thread: Served) -> dict[str, RunRow]:
        """As `rows`, with the thread's own run alone."""
        row = self._row(thread)
        return {row.run: row} if row else {}

    def all(self, rows: Mapping[str, RunRow]) -> list[Served]:
        """Threads that programs made, and the runs that none of them made, the newest first."""
        named = served.all_served(self.home, "thread")
        taken = {one.run for one in named}
        others = [self._of_run(row) for row in rows.values() if row.run not in taken and not row.subtask]
        return sorted([*named, *others], key=lambda one: one.at, reverse=True)

    def _of_run(self, row: RunRow) -> Served:
        about = {"graph_id": row.workflow, "assistant_id": assistant_of(row.workflow), "title": row.title}
        return Served(thread_of(row.run), "", row.run, {"metadata": about}, row.created)

    def find(self, name: object) -> Served:
        """Raises `RefusedError`."""
        thread = uuid_in(name, "thread")
        if found := served.served(self.home, "thread", thread):
            return found
        if row := next((row for row in self.client.runs() if thread_of(row.run) == thread), None):
            return self._of_run(row)
        raise MissingError(f"Thread {thread} not found")

    def keep(self, thread: Served) -> None:
        """Give a run's thread a row of its own, where it has none."""
        if served.served(self.home, "thread", thread.id) is None:
            served.serve(self.home, "thread", thread.id, thread.body, run=thread.run)

    def drives(self, thread: str) -> list[Served]:
        return served.all_served(self.home, "drive", thread=thread)

    def status(
        self, thread: Served, row: RunRow | None, every: Mapping[str, list[Served]] | None = None
    ) -> str:
        """`every`: the drives of all threads."""
        drives = self.drives(thread.id) if every is None else every.get(thread.id, [])
        if any(one.body["status"] in BUSY for one in drives):
            return "busy"
        newest = drives[0].body if drives else {}
        if row is None:  # its first drive never began
            return {"interrupted": "interrupted", "error": "error"}.get(newest.get("status", ""), "idle")
        if newest.get("status") == "error" and row.status not in ("running", "waiting", "done"):
            return "error"
        return _STATUS.get(row.status, "idle")

    def shown(
        self, thread: Served, rows: Mapping[str, RunRow], fields: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """A thread as programs read it; `fields`: only these."""
        found = self._shown(thread, rows, not fields or bool(fields & {"values", "interrupts"}))
        return {key: value for key, value in found.items() if key in fields} if fields else found

    def _shown(self, thread: Served, rows: Mapping[str, RunRow], with_state: bool) -> dict[str, Any]:
        row = rows.get(thread.run)
        status = self.status(thread, row)
        made = when(thread.at)
        changed = when(max(thread.body.get("updated", thread.at), row.updated if row else 0))
        found: dict[str, Any] = {
            "thread_id": thread.id,
            "created_at": made,
            "updated_at": changed,
            "state_updated_at": changed,
            "metadata": part(thread.body, "metadata"),
            "status": status,
            "config": {"configurable": {}} if row else {},
            "values": None,
        }
        drives = self.drives(thread.id)
        if row is None and not drives:
            return found
        none: dict[str, Any] = {"interrupts": {}}
        state = self._latest(thread, row, status) if row and with_state else none
        error = drives[0].body.get("error") if drives else row and row.error
        return {**found, **state, "error": error if status != "idle" or (drives and error) else None}

    def _latest(self, thread: Served, row: RunRow, status: str) -> dict[str, Any]:
        """Values and interrupts as they were when a drive last ended."""
        latest = self._kept(thread)
        if status == "busy":
            latest = latest or {"values": None, "interrupts": {}}
        elif latest.get("at") != row.updated:
            latest = self._seen[thread.id] = self._at_rest(row)
            if len(self._seen) > _SEEN:
                del self._seen[next(iter(self._seen))]
        return {"values": latest["values"], "interrupts": latest["interrupts"]}

    def _kept(self, thread: Served) -> dict[str, Any]:
        """Values and interrupts that were noted last; empty: none were."""
        noted, seen = part(thread.body, "latest"), self._seen.get(thread.id, {})
        return max(noted, seen, key=lambda one: one.get("at", 0))

    def _at_rest(self, row: RunRow) -> dict[str, Any]:
        values, interrupts = self._now(row)
        return {"at": row.updated, "values": values, "interrupts": interrupts}

    def note_latest(self, thread: Served) -> None:
        """Keep the values with which a drive ended, for as long as the next one works."""
        if row := self._row(thread):
            self.keep(thread)
            served.change(self.home, "thread", thread.id, {"latest": self._at_rest(row)})

    def _now(self, row: RunRow) -> tuple[Any, dict[str, Any]]:
        with threads.opened(self.options, row.run) as found:
            snapshot = found.app.get_state(found.config)
        if snapshot.created_at is None:
            return None, {}
        interrupts = {
            task.id: [asked(self.options, row.run, one) for one in task.interrupts]
            for task in snapshot.tasks
            if task.interrupts
        }
        return self._values(row, found.foreign, snapshot), plain(interrupts)

    def _values(self, row: RunRow, foreign: bool, snapshot: Any) -> Any:
        values = plain(snapshot.values)
        if foreign or not isinstance(values, dict):
            return values
        values = cast("dict[str, Any]", values)
        said = threads.conversation(self.home, row.run, str(values.get("head") or ""))
        return {**values, "messages": shown.messages(said)}

    def state(self, thread: Served, row: RunRow, foreign: bool, snapshot: Any) -> dict[str, Any]:
        """A snapshot as programs read it."""
        tasks = [self._task(thread, row, foreign, task) for task in snapshot.tasks]
        at, before = _named(snapshot.config, thread), _named(snapshot.parent_config, thread)
        metadata = {**snapshot.metadata, "thread_id": thread.id} if snapshot.metadata is not None else None
        return plain(
            {
                "values": self._values(row, foreign, snapshot) if snapshot.created_at else {},
                "next": [*snapshot.next],
                "tasks": tasks,
                "metadata": metadata,
                "created_at": snapshot.created_at,
                "checkpoint": at,
                "parent_checkpoint": before,
                "interrupts": [one for task in tasks for one in task["interrupts"]],
                "checkpoint_id": at and at["checkpoint_id"],
                "parent_checkpoint_id": before and before["checkpoint_id"],
            }
        )

    def _task(self, thread: Served, row: RunRow, foreign: bool, task: Any) -> dict[str, Any]:
        inner = task.state if hasattr(task.state, "tasks") else None
        return {
            "id": task.id,
            "name": task.name,
            "path": [*task.path],
            "error": str(task.error) if task.error else None,
            "interrupts": [asked(self.options, row.run, one) for one in task.interrupts],
            "checkpoint": _named(task.state, thread) if task.state and inner is None else None,
            "state": self.state(thread, row, foreign, inner) if inner else None,
            "result": task.result,
        }

    # The routes

    async def create(self, request: Request) -> Response:
        given = await body(request)
        name = uuid_in(given["thread_id"], "thread") if given.get("thread_id") else str(uuid4())
        if served.served(self.home, "thread", name) or self._is_run(name):
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Thread {name} already exists")
            return answer(self.shown(there := self.find(name), self.of(there)))
        if given.get("supersteps"):
            raise RefusedError(422, "`supersteps` aren't supported: start a run, or copy a thread.")
        metadata = {**part(given, "metadata")}
        if graph := given.get("graph_id"):
            metadata |= {"graph_id": graph, "assistant_id": assistant_of(str(graph))}
        return answer(self.shown(served.serve(self.home, "thread", name, {"metadata": metadata}), {}))

    def _is_run(self, thread: str) -> bool:
        return any(thread_of(row.run) == thread for row in self.client.runs())

    async def get(self, request: Request) -> Response:
        found = self.find(request.path_params["thread"])
        return answer(await asyncio.to_thread(self.shown, found, self.of(found)))

    def _chosen(self, given: Mapping[str, Any]) -> tuple[list[Served], dict[str, RunRow]]:
        rows = self.rows()
        names = {*texts(given, "ids")}
        found = [
            one
            for one in self.all(rows)
            if fits(part(given, "metadata"), one.body.get("metadata"))
            and (not names or one.id in names)
            and (not (values := part(given, "values")) or fits(values, self._kept(one).get("values")))
        ]
        if status := given.get("status"):
            every: dict[str, list[Served]] = {}
            for one in served.all_served(self.home, "drive"):
                every.setdefault(one.thread, []).append(one)
            found = [one for one in found if self.status(one, rows.get(one.run), every) == status]
        return found, rows

    async def search(self, request: Request) -> Response:
        given = await body(request)
        fields = frozenset(texts(given, "select"))
        found, rows = await asyncio.to_thread(self._chosen, given)
        if given.get("sort_by") in ("updated_at", "state_updated_at"):
            found.sort(key=lambda one: rows[one.run].updated if one.run in rows else one.at, reverse=True)
        if given.get("sort_order") == "asc":
            found.reverse()
        chosen, headers = page(given, found)
        return answer(
            await asyncio.to_thread(lambda: [self.shown(one, rows, fields) for one in chosen]),
            headers=headers,
        )

    async def count(self, request: Request) -> Response:
        return answer(len((await asyncio.to_thread(self._chosen, await body(request)))[0]))

    async def patch(self, request: Request) -> Response:
        found, given = self.find(request.path_params["thread"]), await body(request)
        self.keep(found)
        metadata = {**part(found.body, "metadata"), **part(given, "metadata")}
        served.change(self.home, "thread", found.id, {"metadata": metadata, "updated": time.time()})
        return answer(await asyncio.to_thread(self.shown, self.find(found.id), self.of(found)))

    async def delete(self, request: Request) -> Response:
        await self._remove(self.find(request.path_params["thread"]))
        return Response(status_code=204)

    async def prune(self, request: Request) -> Response:
        given = await body(request)
        if (strategy := given.get("strategy", "delete")) != "delete":
            raise RefusedError(
                422, f"Strategy {strategy!r} isn't supported: a thread keeps its history. Expected 'delete'."
            )
        found: list[Served] = []
        for thread in texts(given, "thread_ids"):
            with suppress(MissingError):
                found.append(self.find(thread))
        for one in found:
            await self._remove(one)
        return answer({"pruned_count": len(found)})

    async def _remove(self, found: Served) -> None:
        if self._row(found):
            await asyncio.to_thread(self.client.remove, found.run)
        for one in self.drives(found.id):
            served.unserve(self.home, "drive", one.id)
            record_of(self.home, one.id).unlink(missing_ok=True)
        served.unserve(self.home, "thread", found.id)

    async def copy(self, request: Request) -> Response:
        try:
            found = self.find(request.path_params["thread"])
        except MissingError:
            raise RefusedError(409, "Conflict") from None
        run = ""
        if self._row(found):
            run = (await asyncio.to_thread(lambda: self.client.fork(found.run, in_place=True))).run
        kept = {"metadata": part(found.body, "metadata")}
        made = served.serve(self.home, "thread", str(uuid4()), kept, run=run)
        return answer(await asyncio.to_thread(self.shown, made, self.of(made)))

    def _row(self, thread: Served) -> RunRow | None:
        return self.client.exact(thread.run) if thread.run else None

    async def get_state(self, request: Request) -> Response:
        asked_for = request.query_params
        at = {"checkpoint_id": request.path_params.get("checkpoint")}
        return await self._state(request, at, asked_for.get("subgraphs") == "true")

    async def state_at(self, request: Request) -> Response:
        given = await body(request)
        return await self._state(request, part(given, "checkpoint"), bool(given.get("subgraphs")))

    async def _state(self, request: Request, at: Mapping[str, Any], subgraphs: bool) -> Response:
        thread = self.find(request.path_params["thread"])
        row = self._row(thread)
        if row is None:
            return answer(_EMPTY)

        def read() -> Any:
            with threads.opened(self.options, row.run) as found:
                return found.foreign, threads.snapshot_of(found, at, subgraphs)

        foreign, snapshot = await asyncio.to_thread(read)
        return answer(await asyncio.to_thread(self.state, thread, row, foreign, snapshot))

    async def get_history(self, request: Request) -> Response:
        given: Mapping[str, Any] = await body(request) if request.method == "POST" else request.query_params
        thread, limit = self.find(request.path_params["thread"]), limit_of(given, 1)
        if (row := self._row(thread)) is None:
            return answer([])
        named: Any = given.get("before")
        before = {"checkpoint_id": named} if isinstance(named, str) else part(given, "before")
        before = part(before, "configurable") or before
        at, metadata = (
            (part(given, "checkpoint"), part(given, "metadata")) if request.method == "POST" else ({}, {})
        )

        def read() -> Any:
            with threads.opened(self.options, row.run) as found:
                taken = threads.history_of(found, limit, before, at, metadata)
                return [self.state(thread, row, found.foreign, one) for one in taken]

        return answer(await asyncio.to_thread(read))

    async def update_state(self, request: Request) -> Response:
        thread, given = self.find(request.path_params["thread"]), await body(request)
        row = self._row(thread)
        if row is None:
            raise RefusedError(
                400, f"Thread {thread.id} has no state to update yet. Start a run of it first."
            )
        if self.status(thread, row) == "busy":
            raise RefusedError(409, "Thread is busy with a running job. Cannot update state.")
        named = {"checkpoint_id": given["checkpoint_id"]} if given.get("checkpoint_id") else {}
        at = {**part(given, "checkpoint"), **named}
        if not isinstance(node := given.get("as_node"), str | None):
            raise RefusedError(422, f"`as_node` must be a string, not {node!r}.")
        made = await threads.update(self.options, row.run, given.get("values"), node, at)
        where = _named(made, thread) or {}
        return answer(
            {"checkpoint": where, "configurable": where, "checkpoint_id": where.get("checkpoint_id")}
        )


def _named(config: Any, thread: Served) -> dict[str, Any] | None:
    found = place_of(config)
    return {**found, "thread_id": thread.id} if found else None


_PLACES = ("checkpoint", "parent_checkpoint", "checkpoint_id", "parent_checkpoint_id")
_NONE: Mapping[str, Any] = {"values": {}, "next": [], "tasks": [], "interrupts": []}
_EMPTY: Mapping[str, Any] = {**_NONE, **dict.fromkeys((*_PLACES, "metadata", "created_at"))}
