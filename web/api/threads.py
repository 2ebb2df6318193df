"""threads: runs as threads: their rows, state, history, updates and copies."""

import asyncio
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import PIPELINES, Client, RunRow, served, threads
from interlock.engine.client.served import Served
from interlock.state.errors import InterlockError
from interlock.web.answers import RefusedError, body
from interlock.web.api import shown
from interlock.web.api.answers import (
    MissingError,
    answer,
    assistant_of,
    at_path,
    fits,
    limit_of,
    only,
    paging,
    part,
    plain,
    texts,
    thread_of,
    uuid_in,
    when,
    whole,
)
from interlock.web.api.bodies import THREAD_FIELDS
from interlock.web.api.recorder import asked, place_of, record_of
from interlock.web.api.visitors import owned, shows, shows_runs

BUSY = ("pending", "running")
_SEEN = 256
_NOWHERE: Mapping[str, Any] = {}
_STATUS = {
    "running": "busy",
    "waiting": "interrupted",
    "interrupted": "interrupted",
    "cancelled": "idle",
    "failed": "error",
    "done": "idle",
}


_RESTS = frozenset({"idle", "busy", "interrupted", "error"})
_KEY: Callable[[tuple[Any, Any]], Any] = itemgetter(0)
_ALL = 2**62


class Threads:
    def __init__(self, client: Client) -> None:
        self.client, self.options, self.home = client, client.options, client.home
        self._seen: dict[str, dict[str, Any]] = {}
        """Thread → its latest values, as of a look: looking changes no row."""
        self._runs: dict[str, str] = {}
        """Thread → run, of those that no program named: one can't be computed from the other."""

    def of(self, *threads: Served) -> dict[str, RunRow]:
        """The runs of threads, by their ids."""
        return {row.run: row for row in self.client.named_runs([one.run for one in threads if one.run])}

    def _of_run(self, row: RunRow) -> Served:
        about = {"graph_id": row.workflow, "assistant_id": assistant_of(row.workflow), "title": row.title}
        return Served(thread_of(row.run), "", row.run, {"metadata": about}, row.created)

    def find(self, name: object) -> Served:
        """Raises `RefusedError`."""
        thread = uuid_in(name, "thread")
        found = served.served(self.home, "thread", thread)
        if found and shows("threads", found):
            return found
        row = None if found else self._named(thread)
        if row and shows("threads", made := self._of_run(row)):
            return made
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
        found = self.drives(thread.id) if every is None else every.get(thread.id, [])
        drives = _begun(found)
        if any(one.body["status"] in BUSY for one in drives):
            return "busy"
        if _is_unbegun(found):
            return "idle"
        newest = drives[0].body if drives and drives[0].id != thread.body.get("over") else {}
        if row is None:  # its first drive never began
            return {"interrupted": "interrupted", "error": "error"}.get(newest.get("status", ""), "idle")
        asks = row.status == "waiting" and row.workflow in PIPELINES  # a wrong answer to ours: it still waits
        if newest.get("status") == "error" and row.status not in ("running", "done") and not asks:
            return "error"
        return _STATUS.get(row.status, "idle")

    def shown(
        self, thread: Served, rows: Mapping[str, RunRow], fields: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """A thread as programs read it; `fields`: only these."""
        found = self._shown(thread, rows, not fields or bool(fields & {"values", "interrupts"}))
        return only(found, fields)

    def _listed(self, thread: Served, rows: Mapping[str, RunRow], fields: frozenset[str]) -> dict[str, Any]:
        """As `shown`; without values if its folder or its workflow is gone, which hides no other thread."""
        try:
            return self.shown(thread, rows, fields)
        except InterlockError:
            return only(self._shown(thread, rows, with_state=False), fields)

    def _shown(self, thread: Served, rows: Mapping[str, RunRow], with_state: bool) -> dict[str, Any]:
        row = rows.get(thread.run)
        status = self.status(thread, row)
        made = when(thread.at)
        changed = when(_changed(thread, row))
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
        every = self.drives(thread.id)
        drives = _begun(every)
        taken_back = part(thread.body, "taken_back")
        if taken_back and taken_back["drives"] != [one.id for one in drives[:1]]:
            taken_back = {}
        if row is None and not any(one.body["status"] != "pending" for one in drives):
            if "copied" in thread.body:
                del found["values"]
            return {**found, "error": taken_back["error"]} if taken_back else found
        state = self._latest(thread, row, status) if row and with_state else {}
        error = drives[0].body.get("error") if drives else row and row.error
        is_shown = status != "idle" or (drives and drives[0].id != thread.body.get("over"))
        is_shown = is_shown and not _is_unbegun(every)
        error, is_shown = (taken_back["error"], True) if taken_back else (error, is_shown)
        return {**found, **state, "error": error if is_shown else None}

    def _latest(self, thread: Served, row: RunRow, status: str) -> dict[str, Any]:
        """Values and interrupts as they were when a drive last ended."""
        latest = self._kept(thread)
        if status == "busy":
            latest = latest or {"values": None, "interrupts": None}
        elif latest.get("at") != row.updated:
            latest = self._seen[thread.id] = self._at_rest(thread, row)
            if len(self._seen) > _SEEN:
                del self._seen[next(iter(self._seen))]
        return {name: latest[name] for name in ("values", "interrupts") if latest[name] is not None}

    def _kept(self, thread: Served) -> dict[str, Any]:
        """Values and interrupts that were noted last; empty: none were."""
        noted, seen = part(thread.body, "latest"), self._seen.get(thread.id, {})
        return max(noted, seen, key=lambda one: one.get("at", 0))

    def _at_rest(self, thread: Served, row: RunRow) -> dict[str, Any]:
        """Values and interrupts now; those before, if the types of the graph refuse the state."""
        try:
            values, interrupts = self._now(row)
        except (ValueError, TypeError):
            values, interrupts = self._kept(thread).get("values"), {}
        return {"at": row.updated, "values": values, "interrupts": interrupts}

    def note_latest(self, thread: Served) -> None:
        """Keep the values with which a drive ended, for as long as the next one works."""
        if row := self._row(thread):
            self.keep(thread)
            served.change(self.home, "thread", thread.id, {"latest": self._at_rest(thread, row)})

    def _now(self, row: RunRow) -> tuple[Any, dict[str, Any] | None]:
        with threads.open_graph(self.options, row.run) as found:
            snapshot = found.app.get_state(found.config)
        if snapshot.created_at is None:
            return None, None
        interrupts = {
            task.id: [asked(self.options, row.run, one) for one in task.interrupts]
            for task in snapshot.tasks
            if task.interrupts
        }
        return self._values(row, found, snapshot), plain(interrupts)

    def _values(self, row: RunRow, found: threads.OpenedGraph, snapshot: Any) -> Any:
        values = plain(snapshot.values)
        if not isinstance(values, dict):
            return values
        values = cast("dict[str, Any]", values)
        if (head := found.conversation_head(values)) is None:
            return values
        said = threads.read_conversation(self.home, row.run, head)
        return {**values, "messages": shown.messages(said)}

    def state(self, thread: Served, row: RunRow, found: threads.OpenedGraph, snapshot: Any) -> dict[str, Any]:
        """A snapshot as programs read it."""
        tasks = [self._task(thread, row, found, task) for task in snapshot.tasks]
        at, before = (_checkpoint(one, thread) for one in (snapshot.config, snapshot.parent_config))
        metadata = {**snapshot.metadata, "thread_id": thread.id} if snapshot.metadata is not None else None
        return plain(
            {
                "values": self._values(row, found, snapshot) if snapshot.created_at else {},
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

    def _task(self, thread: Served, row: RunRow, found: threads.OpenedGraph, task: Any) -> dict[str, Any]:
        inner = task.state if hasattr(task.state, "tasks") else None
        return {
            "id": task.id,
            "name": task.name,
            "path": [*task.path],
            "error": str(task.error) if task.error and str(task.error) != _CUT else None,
            "interrupts": [asked(self.options, row.run, one) for one in task.interrupts],
            "checkpoint": _named(task.state, thread) if task.state and inner is None else None,
            "state": self.state(thread, row, found, inner) if inner else None,
            "result": task.result,
        }

    # The routes

    async def create(self, request: Request) -> Response:
        given = await body(request)
        name = uuid_in(given["thread_id"], "thread") if given.get("thread_id") is not None else str(uuid4())
        if served.served(self.home, "thread", name) or self._is_run(name):
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Thread {name} already exists")
            return answer(self.shown(there := self.find(name), self.of(there)))
        if given.get("supersteps"):
            raise RefusedError(422, "`supersteps` aren't supported: start a run, or copy a thread.")
        kept = {"metadata": part(given, "metadata"), **owned()}
        return answer(self.shown(served.serve(self.home, "thread", name, kept), {}))

    def _is_run(self, thread: str) -> bool:
        return self._named(thread) is not None

    def _named(self, thread: str) -> RunRow | None:
        """The run that is this thread without that a program named it."""
        if thread not in self._runs:
            known = {*self._runs.values()}
            new = (run for run in threads.run_names(self.home) if run not in known)
            self._runs |= {thread_of(run): run for run in new}
        return self.client.exact(self._runs[thread]) if thread in self._runs else None

    async def get(self, request: Request) -> Response:
        found = self.find(request.path_params["thread"])
        return answer(await asyncio.to_thread(self.shown, found, self.of(found)))

    def _made(self, given: Mapping[str, Any]) -> list[Served]:
        """The threads that programs made, as far as they are asked for."""
        names, values = {uuid_in(one, "thread", 400) for one in texts(given, "ids")}, part(given, "values")
        found = [
            one
            for one in served.all_served(self.home, "thread")
            if shows("threads", one)
            and fits(part(given, "metadata"), one.body.get("metadata"))
            and (not names or one.id in names)
            and (not values or fits(values, self._kept(one).get("values")))
        ]
        if status := given.get("status"):
            statuses = self._statuses(found)
            found = [one for one in found if statuses[one.id] == status]
        return found

    def _statuses(self, found: Sequence[Served]) -> dict[str, str]:
        """The status of each of these threads, by its id."""
        if not found:
            return {}
        rows, every = self.of(*found), dict[str, list[Served]]()
        for one in served.all_served(self.home, "drive"):
            every.setdefault(one.thread, []).append(one)
        return {one.id: self.status(one, rows.get(one.run), every) for one in found}

    def _wanted(self, given: Mapping[str, Any]) -> threads.Wanted | None:
        """Which runs that no program made a thread of; None: none is asked for, or they are nobody's here."""
        if not shows_runs():
            return None
        metadata: dict[str, Any] = {**part(given, "metadata")}
        workflow, assistant = metadata.pop("graph_id", None), metadata.pop("assistant_id", None)
        title = metadata.pop("title", None)
        if metadata or not all(isinstance(one, str | None) for one in (workflow, assistant, title)):
            return None
        if assistant is not None:
            known = [workflow] if workflow is not None else threads.run_workflows(self.home)
            workflow = next((one for one in known if assistant_of(one) == assistant), None)
            if workflow is None:
                return None
        names: list[str] | None = None
        if given.get("ids") or part(given, "values"):
            asked_for = [uuid_in(one, "thread", 400) for one in texts(given, "ids")] or [*self._seen]
            fitting = (one for one in asked_for if self._has(one, part(given, "values")))
            names = [row.run for one in fitting if (row := self._named(one))]
        beside = served.is_beside(self.home)
        without = [one.run for one in served.all_served(self.home, "thread")] if beside else None
        wanted = threads.Wanted(workflow, title, None, (), names, without)
        return self._resting(wanted, status) if (status := given.get("status")) else wanted

    def _resting(self, wanted: threads.Wanted, status: str) -> threads.Wanted:
        """Of the runs that are wanted, those with this status."""
        unsettled = self.client.named_runs(threads.restless(self.home))
        also = [row.run for row in unsettled if _STATUS.get(row.status, "idle") == status]
        return replace(wanted, rests=status, also=also)

    def _has(self, thread: str, values: Mapping[str, Any]) -> bool:
        return not values or fits(values, self._seen.get(thread, {}).get("values"))

    def _page(self, given: Mapping[str, Any]) -> tuple[list[Served], dict[str, RunRow], dict[str, str]]:
        """The threads of one page, their runs, and the header that says where more begin."""
        _check_search(given)
        limit, offset = limit_of(given, 10), whole(given, "offset", 0)
        by = given.get("sort_by", "updated_at")
        newest = given.get("sort_order") != "asc" or "sort_by" not in given
        made, wanted = self._made(given), self._wanted(given)
        total = len(made) + (threads.count_roots(self.home, wanted) if wanted else 0)
        # Without threads of programs a page is the database's; with them, both are merged from their beginning.
        first = 0 if made or by in ("thread_id", "status") else offset
        keyed = self._keyed(made, by)
        keyed.sort(key=_KEY, reverse=newest)
        found = self._roots(wanted, by, newest, offset + limit - first, first) if wanted else []
        merged = merge(keyed, found, key=_KEY, reverse=newest)
        page = [one[1] for one in islice(merged, offset - first, offset - first + limit)]
        names = (one if isinstance(one, str) else one.run for one in page)
        rows = {row.run: row for row in self.client.named_runs([name for name in names if name])}
        chosen = [
            one if isinstance(one, Served) else self._of_run(rows[one])
            for one in page
            if isinstance(one, Served) or one in rows
        ]
        return chosen, rows, paging(limit, offset, total)

    def _keyed(self, made: Sequence[Served], by: str) -> "list[tuple[Any, Served | str]]":
        """Each of these threads with what it is sorted by."""
        if by == "status":
            statuses = self._statuses(made)
            return [(statuses[one.id], one) for one in reversed(made)]  # of equals the oldest first, as there
        rows = self.of(*made) if by not in ("thread_id", "created_at") else {}
        return [
            ({"thread_id": o.id, "created_at": o.at}.get(by, _changed(o, rows.get(o.run))), o) for o in made
        ]

    def _roots(
        self, wanted: threads.Wanted, by: str, newest: bool, limit: int, offset: int
    ) -> "list[tuple[Any, Served | str]]":
        """Runs in their order, each with what it is sorted by."""

        def listed(wanted: threads.Wanted, limit: int, offset: int) -> list[tuple[Any, str]]:
            time = "created" if by == "created_at" else "updated"
            rows = threads.roots(self.home, wanted, time, newest=newest, limit=limit, offset=offset)
            return [(at, run) for run, at in rows]

        if by == "thread_id":  # no database knows it
            every = [(thread_of(run), run) for _, run in listed(wanted, _ALL, 0)]
            return [*sorted(every, reverse=newest)]
        if by == "status":
            known = [wanted.rests] if wanted.rests else sorted(_RESTS, reverse=newest)
            each = ((one, wanted if wanted.rests else self._resting(wanted, one)) for one in known)
            return [(status, run) for status, which in each for _, run in listed(which, limit, offset)]
        return [*listed(wanted, limit, offset)]

    async def search(self, request: Request) -> Response:
        given = await body(request)
        fields = frozenset(texts(given, "select"))

        def found() -> tuple[list[dict[str, Any]], dict[str, str]]:
            chosen, rows, headers = self._page(given)
            if not (wanted := part(given, "extract")):
                return [self._listed(one, rows, fields) for one in chosen], headers
            whole = [self._listed(one, rows, frozenset()) for one in chosen]
            extracted = [{name: at_path(one, path) for name, path in wanted.items()} for one in whole]
            pairs = zip(whole, extracted, strict=True)
            return [{**only(one, fields), "extracted": more} for one, more in pairs], headers

        shown, headers = await asyncio.to_thread(found)
        return answer(shown, headers=headers)

    async def count(self, request: Request) -> Response:
        given = await body(request)

        def counted() -> int:
            _check_search(given)
            wanted = self._wanted(given)
            return len(self._made(given)) + (threads.count_roots(self.home, wanted) if wanted else 0)

        return answer(await asyncio.to_thread(counted))

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

    async def remove_all(self, metadata: Mapping[str, Any]) -> None:
        """Remove the threads that programs made, with this metadata."""
        for one in self._made({"metadata": metadata}):
            await self._remove(one)

    async def _remove(self, found: Served) -> None:
        if self._row(found):
            await asyncio.to_thread(self.client.remove, found.run)
        for one in self.drives(found.id):
            served.unserve(self.home, "drive", one.id)
            record_of(self.home, one.id).unlink(missing_ok=True)
        served.unserve(self.home, "thread", found.id)

    async def copy(self, request: Request) -> Response:
        name = uuid_in(request.path_params["thread"], "thread", 400)
        try:
            found = self.find(name)
        except MissingError:
            raise RefusedError(409, "Conflict") from None
        run = ""
        if self._row(found):
            run = (await asyncio.to_thread(lambda: self.client.fork(found.run, in_place=True))).run
        kept = {"metadata": part(found.body, "metadata"), "copied": True, **owned()}
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
        return answer(await asyncio.to_thread(self.latest_state, thread, at, subgraphs))

    def latest_state(self, thread: Served, at: Mapping[str, Any] = _NOWHERE, subgraphs: bool = False) -> Any:
        """The state of a thread as programs read it, now or at a checkpoint."""
        if (row := self._row(thread)) is None:
            return _EMPTY
        with threads.open_graph(self.options, row.run) as found, _refusing():
            snapshot = threads.read_snapshot(found, at, subgraphs)
        is_named = snapshot.created_at is not None or at.get("checkpoint_id")
        return self.state(thread, row, found, snapshot) if is_named else _EMPTY

    async def get_history(self, request: Request) -> Response:
        given: Mapping[str, Any] = await body(request) if request.method == "POST" else request.query_params
        thread, limit = self.find(request.path_params["thread"]), whole(given, "limit", 1, least=-1_000)
        if limit > 0:
            limit_of(given, 1, 1_000_000)
        if (row := self._row(thread)) is None or limit <= 0:
            return answer([])
        named = given.get("before") if request.method == "GET" else None
        before = {"checkpoint_id": named} if named else part(given, "before")
        before = part(before, "configurable") or before
        at, metadata = (
            (part(given, "checkpoint"), part(given, "metadata")) if request.method == "POST" else ({}, {})
        )

        def read() -> Any:
            with threads.open_graph(self.options, row.run) as found, _refusing():
                taken = threads.read_history(found, limit, before, at, metadata)
                return [self.state(thread, row, found, one) for one in taken]

        return answer(await asyncio.to_thread(read))

    async def update_state(self, request: Request) -> Response:
        thread, given = self.find(request.path_params["thread"]), await body(request)
        row = self._row(thread)
        if self.status(thread, row) == "busy":
            raise RefusedError(409, "Thread is busy with a running job. Cannot update state.")
        if row is None:
            raise RefusedError(
                400, f"Thread {thread.id} has no state to update yet. Start a run of it first."
            )
        if not isinstance(given.get("values"), dict | list | None):
            raise RefusedError(422, "`values` must be a JSON object, or a list of some.")
        named = {"checkpoint_id": given["checkpoint_id"]} if given.get("checkpoint_id") else {}
        at = {**part(given, "checkpoint"), **named}
        if not isinstance(node := given.get("as_node"), str | None):
            raise RefusedError(422, f"`as_node` must be a string, not {node!r}.")
        made = await threads.update_state(self.options, row.run, given.get("values"), node, at)
        self.keep(thread)
        drives = self.drives(thread.id)
        noted = {"updates": str(uuid4()), "updated": time.time(), "over": drives[0].id if drives else ""}
        served.change(self.home, "thread", thread.id, noted)
        where = _named(made, thread) or {}
        return answer(
            {"checkpoint": where, "configurable": where, "checkpoint_id": where.get("checkpoint_id")}
        )


_CUT = "CancelledError()"
"""A task's error if it was cancelled: it goes on."""


@contextmanager
def _refusing() -> Generator[None]:
    """Raise `RefusedError` for a state that the types of its graph refuse."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise RefusedError(400, str(error)) from error


def _is_unbegun(drives: Sequence[Served]) -> bool:
    """Whether the newest drive of a thread was cancelled before it began: the thread is idle then, as there."""
    return bool(drives and drives[0].body.get("unbegun"))


def _begun(drives: Sequence[Served]) -> list[Served]:
    """Those that weren't cancelled before they began."""
    return [one for one in drives if not one.body.get("unbegun")]


def _named(config: Any, thread: Served) -> dict[str, Any] | None:
    found = place_of(config)
    return {**found, "thread_id": thread.id} if found else None


def _checkpoint(config: Any, thread: Served) -> dict[str, Any] | None:
    found = _named(config, thread)
    return found if found and "checkpoint_id" in found else None


def _changed(thread: Served, row: RunRow | None) -> float:
    return max(thread.body.get("updated", thread.at), row.updated if row else 0)


_EXTRACTED = ("config", "interrupts", "metadata", "values")


def _check_search(given: Mapping[str, Any]) -> None:
    """Raises `RefusedError`."""
    for name, path in part(given, "extract").items():
        if not name.isidentifier() or name in THREAD_FIELDS:
            raise RefusedError(422, f"`extract`: {name!r} is no name of letters, digits and underscores.")
        if not isinstance(path, str) or re.split(r"[.\[]", path)[0] not in _EXTRACTED:
            raise RefusedError(422, f"`extract`: {path!r} must begin with one of {', '.join(_EXTRACTED)}.")


_PLACES = ("checkpoint", "parent_checkpoint", "checkpoint_id", "parent_checkpoint_id")
_NONE: Mapping[str, Any] = {"values": {}, "next": [], "tasks": [], "interrupts": []}
_EMPTY: Mapping[str, Any] = {**_NONE, **dict.fromkeys((*_PLACES, "metadata", "created_at"))}
