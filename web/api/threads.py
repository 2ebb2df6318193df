"""threads: runs as threads: their rows, search, updates and copies."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import PIPELINES, Client, RunRow, api_rows, threads
from interlock.state.errors import InterlockError
from interlock.web.api.app_auth import can_see_runs_without_thread, is_visible, ownership_fields
from interlock.web.api.drive_recorder import stream_file_path
from interlock.web.api.payloads import (
    NotFoundError,
    assistant_id_for_workflow,
    iso_time,
    json_response,
    matches_filter,
    pagination_headers,
    parse_uuid,
    read_limit,
    read_object_field,
    read_string_list_field,
    read_whole_number_field,
    select_fields,
    thread_id_for_run,
    value_at_path,
)
from interlock.web.api.request_schemas import THREAD_FIELDS
from interlock.web.api.thread_states import ThreadStates, thread_checkpoint_address
from interlock.web.endpoints import RefusedError, read_json_body

BUSY = ("pending", "running")
_NOWHERE: Mapping[str, Any] = {}
_STATUS = {
    "running": "busy",
    "waiting": "interrupted",
    "interrupted": "interrupted",
    "cancelled": "idle",
    "failed": "error",
    "done": "idle",
}


_RESTING_STATUSES = frozenset({"idle", "busy", "interrupted", "error"})
_SORT_KEY: Callable[[tuple[Any, Any]], Any] = itemgetter(0)
_ALL = 2**62


class Threads:
    def __init__(self, client: Client) -> None:
        self.client, self.options, self.home = client, client.options, client.home
        self._states = ThreadStates(client.options, client.home)
        self._runs: dict[str, str] = {}
        """Thread → run, of those that no program named: one can't be computed from the other."""

    def thread_runs_by_run_id(self, *threads: api_rows.ApiRow) -> dict[str, RunRow]:
        """Return the runs of threads, by their ids."""
        return {row.run: row for row in self.client.runs_by_id([one.run for one in threads if one.run])}

    def _build_thread_from_run(self, row: RunRow) -> api_rows.ApiRow:
        about = {
            "graph_id": row.workflow,
            "assistant_id": assistant_id_for_workflow(row.workflow),
            "title": row.title,
        }
        return api_rows.ApiRow(thread_id_for_run(row.run), "", row.run, {"metadata": about}, row.created)

    def require_thread(self, thread_id: object) -> api_rows.ApiRow:
        """Return the thread with this id. Raises `RefusedError`."""
        thread = parse_uuid(thread_id, "thread")
        found = api_rows.find_api_row(self.home, "thread", thread)
        if found and is_visible("threads", found):
            return found
        row = None if found else self._find_run_by_derived_thread_id(thread)
        if row and is_visible("threads", made := self._build_thread_from_run(row)):
            return made
        raise NotFoundError(f"Thread {thread} not found")

    def ensure_thread_row(self, thread: api_rows.ApiRow) -> None:
        """Give a run's thread a row of its own, where it has none."""
        if api_rows.find_api_row(self.home, "thread", thread.id) is None:
            api_rows.insert_api_row(self.home, "thread", thread.id, thread.body, run=thread.run)

    def list_drive_rows(self, thread_id: str) -> list[api_rows.ApiRow]:
        return api_rows.list_api_rows(self.home, "drive", thread=thread_id)

    def remove_drive_and_stream(self, drive: api_rows.ApiRow) -> None:
        """Remove a drive's row and its stream."""
        api_rows.remove_api_row(self.home, "drive", drive.id)
        stream_file_path(self.home, drive.id).unlink(missing_ok=True)

    def thread_status(
        self,
        thread: api_rows.ApiRow,
        row: RunRow | None,
        drives_by_thread: Mapping[str, list[api_rows.ApiRow]] | None = None,
    ) -> str:
        """Return the status of a thread. `drives_by_thread`: the drives of all threads, if the caller has them."""
        found = (
            self.list_drive_rows(thread.id)
            if drives_by_thread is None
            else drives_by_thread.get(thread.id, [])
        )
        drives = _drop_drives_cancelled_before_start(found)
        if any(one.body["status"] in BUSY for one in drives):
            return "busy"
        if _is_newest_drive_cancelled_before_start(found):
            return "idle"
        newest = drives[0].body if drives and drives[0].id != thread.body.get("over") else {}
        if row is None:  # its first drive never began
            return {"interrupted": "interrupted", "error": "error"}.get(newest.get("status", ""), "idle")
        asks = row.status == "waiting" and row.workflow in PIPELINES  # a wrong answer to ours: it still waits
        if newest.get("status") == "error" and row.status not in ("running", "done") and not asks:
            return "error"
        return _STATUS.get(row.status, "idle")

    def thread_json(self, thread: api_rows.ApiRow) -> dict[str, Any]:
        """Return a thread as programs read it."""
        return self._build_thread_json(thread, self._find_run_row(thread), with_values=True)

    def _thread_json_for_listing(
        self, thread: api_rows.ApiRow, rows: Mapping[str, RunRow], fields: frozenset[str]
    ) -> dict[str, Any]:
        """A thread as programs read it, in a list; without values if its folder or its workflow is gone, which hides no
        other thread."""
        row, with_state = rows.get(thread.run), not fields or bool(fields & {"values", "interrupts"})
        try:
            found = self._build_thread_json(thread, row, with_state)
        except InterlockError:
            found = self._build_thread_json(thread, row, with_values=False)
        return select_fields(found, fields)

    def _build_thread_json(
        self, thread: api_rows.ApiRow, row: RunRow | None, with_values: bool
    ) -> dict[str, Any]:
        status = self.thread_status(thread, row)
        changed = iso_time(_last_update_time(thread, row))
        found: dict[str, Any] = {
            "thread_id": thread.id,
            "created_at": iso_time(thread.at),
            "updated_at": changed,
            "state_updated_at": changed,
            "metadata": read_object_field(thread.body, "metadata"),
            "status": status,
            "config": {"configurable": {}} if row else {},
            "values": None,
        }
        every = self.list_drive_rows(thread.id)
        drives = _drop_drives_cancelled_before_start(every)
        taken_back = read_object_field(thread.body, "taken_back")
        if taken_back and taken_back["drives"] != [one.id for one in drives[:1]]:
            taken_back = {}
        if row is None and not any(one.body["status"] != "pending" for one in drives):
            if "copied" in thread.body:
                del found["values"]
            return {**found, "error": taken_back["error"]} if taken_back else found
        state = (
            self._states.load_latest_values_and_interrupts(thread, row, status) if row and with_values else {}
        )
        error = drives[0].body.get("error") if drives else row and row.error
        is_shown = status != "idle" or (drives and drives[0].id != thread.body.get("over"))
        if taken_back:
            error = taken_back["error"]
        elif not is_shown or _is_newest_drive_cancelled_before_start(every):
            error = None
        return {**found, **state, "error": error}

    def record_latest_values_and_interrupts(self, thread: api_rows.ApiRow) -> None:
        """Keep the values with which a drive ended, for as long as the next one works."""
        if row := self._find_run_row(thread):
            self.ensure_thread_row(thread)
            api_rows.update_api_row_if_exists(
                self.home,
                "thread",
                thread.id,
                {"latest": self._states.read_values_and_interrupts(thread, row)},
            )

    # The routes

    async def create_thread(self, request: Request) -> Response:
        given = await read_json_body(request)
        name = (
            parse_uuid(given["thread_id"], "thread") if given.get("thread_id") is not None else str(uuid4())
        )
        if api_rows.find_api_row(self.home, "thread", name) or self._find_run_by_derived_thread_id(name):
            if given.get("if_exists") != "do_nothing":
                raise RefusedError(409, f"Thread {name} already exists")
            return json_response(self.thread_json(self.require_thread(name)))
        if given.get("supersteps"):
            raise RefusedError(422, "`supersteps` aren't supported: start a run, or copy a thread.")
        kept = {"metadata": read_object_field(given, "metadata"), **ownership_fields()}
        return json_response(self.thread_json(api_rows.insert_api_row(self.home, "thread", name, kept)))

    def _find_run_by_derived_thread_id(self, thread_id: str) -> RunRow | None:
        """Return the run that is this thread without that a program named it."""
        if thread_id not in self._runs:
            known = {*self._runs.values()}
            new = (run for run in threads.run_names(self.home) if run not in known)
            self._runs |= {thread_id_for_run(run): run for run in new}
        return self.client.find_exact_run(self._runs[thread_id]) if thread_id in self._runs else None

    def get_thread(self, request: Request) -> Response:
        return json_response(self.thread_json(self.require_thread(request.path_params["thread"])))

    def _list_matching_thread_rows(self, body: Mapping[str, Any]) -> list[api_rows.ApiRow]:
        """Return the threads that programs made, as far as they are asked for."""
        names = {parse_uuid(one, "thread", 400) for one in read_string_list_field(body, "ids")}
        values = read_object_field(body, "values")
        found = [
            one
            for one in api_rows.list_api_rows(self.home, "thread")
            if is_visible("threads", one)
            and matches_filter(read_object_field(body, "metadata"), one.body.get("metadata"))
            and (not names or one.id in names)
            and (
                not values
                or matches_filter(values, self._states.newest_known_values_and_interrupts(one).get("values"))
            )
        ]
        if status := body.get("status"):
            statuses = self._statuses_by_id(found)
            found = [one for one in found if statuses[one.id] == status]
        return found

    def _statuses_by_id(self, thread_rows: Sequence[api_rows.ApiRow]) -> dict[str, str]:
        """Return the status of each of these threads, by its id."""
        if not thread_rows:
            return {}
        rows, every = self.thread_runs_by_run_id(*thread_rows), dict[str, list[api_rows.ApiRow]]()
        for one in api_rows.list_api_rows(self.home, "drive"):
            every.setdefault(one.thread, []).append(one)
        return {one.id: self.thread_status(one, rows.get(one.run), every) for one in thread_rows}

    def _build_run_filter(self, body: Mapping[str, Any]) -> threads.Wanted | None:
        """Return which runs that no program made a thread of; None: none is asked for, or they are nobody's here."""
        if not can_see_runs_without_thread():
            return None
        metadata: dict[str, Any] = {**read_object_field(body, "metadata")}
        workflow, assistant = metadata.pop("graph_id", None), metadata.pop("assistant_id", None)
        title = metadata.pop("title", None)
        if metadata or not all(isinstance(one, str | None) for one in (workflow, assistant, title)):
            return None
        if assistant is not None:
            known = [workflow] if workflow is not None else threads.run_workflows(self.home)
            workflow = next((one for one in known if assistant_id_for_workflow(one) == assistant), None)
            if workflow is None:
                return None
        names: list[str] | None = None
        if body.get("ids") or read_object_field(body, "values"):
            asked_for = [parse_uuid(one, "thread", 400) for one in read_string_list_field(body, "ids")] or [
                *self._states.cached
            ]
            fitting = (
                one
                for one in asked_for
                if self._states.has_matching_cached_values(one, read_object_field(body, "values"))
            )
            names = [row.run for one in fitting if (row := self._find_run_by_derived_thread_id(one))]
        beside = api_rows.has_separate_api_rows_file(self.home)
        without = [one.run for one in api_rows.list_api_rows(self.home, "thread")] if beside else None
        wanted = threads.Wanted(workflow, title, None, (), names, without)
        return self._narrow_filter_to_status(wanted, status) if (status := body.get("status")) else wanted

    def _narrow_filter_to_status(self, run_filter: threads.Wanted, status: str) -> threads.Wanted:
        """Of the runs that are wanted, those with this status."""
        unsettled = self.client.runs_by_id(threads.restless(self.home))
        also = [row.run for row in unsettled if _STATUS.get(row.status, "idle") == status]
        return replace(run_filter, rest_status=status, also_ids=also)

    def _find_search_page(
        self, body: Mapping[str, Any]
    ) -> tuple[list[api_rows.ApiRow], dict[str, RunRow], dict[str, str]]:
        """Return the threads of one page, their runs, and the header that says where more begin."""
        _check_extract_paths(body)
        limit, offset = read_limit(body, 10), read_whole_number_field(body, "offset", 0)
        by = body.get("sort_by", "updated_at")
        newest = body.get("sort_order") != "asc" or "sort_by" not in body
        made, wanted = self._list_matching_thread_rows(body), self._build_run_filter(body)
        total = len(made) + self._count_root_runs_or_zero(wanted)
        # Without threads of programs a page is the database's; with them, both are merged from their beginning.
        first = 0 if made or by in ("thread_id", "status") else offset
        keyed = self._threads_with_sort_keys(made, by)
        keyed.sort(key=_SORT_KEY, reverse=newest)
        found = (
            self._list_run_ids_with_sort_keys(wanted, by, newest, offset + limit - first, first)
            if wanted
            else []
        )
        merged = merge(keyed, found, key=_SORT_KEY, reverse=newest)
        page = [one[1] for one in islice(merged, offset - first, offset - first + limit)]
        names = (one if isinstance(one, str) else one.run for one in page)
        rows = {row.run: row for row in self.client.runs_by_id([name for name in names if name])}
        chosen = [
            one if isinstance(one, api_rows.ApiRow) else self._build_thread_from_run(rows[one])
            for one in page
            if isinstance(one, api_rows.ApiRow) or one in rows
        ]
        return chosen, rows, pagination_headers(limit, offset, total)

    def _threads_with_sort_keys(
        self, thread_rows: Sequence[api_rows.ApiRow], sort_by: str
    ) -> "list[tuple[Any, api_rows.ApiRow | str]]":
        """Return each of these threads with what it is sorted by."""
        if sort_by == "status":
            statuses = self._statuses_by_id(thread_rows)
            return [
                (statuses[one.id], one) for one in reversed(thread_rows)
            ]  # of equals the oldest first, as there
        rows = self.thread_runs_by_run_id(*thread_rows) if sort_by not in ("thread_id", "created_at") else {}
        return [
            ({"thread_id": o.id, "created_at": o.at}.get(sort_by, _last_update_time(o, rows.get(o.run))), o)
            for o in thread_rows
        ]

    def _list_run_ids_with_sort_keys(
        self, run_filter: threads.Wanted, sort_by: str, newest_first: bool, limit: int, offset: int
    ) -> "list[tuple[Any, api_rows.ApiRow | str]]":
        """Return runs in their order, each with what it is sorted by."""

        def list_keyed(wanted: threads.Wanted, limit: int, offset: int) -> list[tuple[Any, str]]:
            time = "created" if sort_by == "created_at" else "updated"
            rows = threads.roots(self.home, wanted, time, newest=newest_first, limit=limit, offset=offset)
            return [(at, run) for run, at in rows]

        if sort_by == "thread_id":  # no database knows it
            every = [(thread_id_for_run(run), run) for _, run in list_keyed(run_filter, _ALL, 0)]
            return [*sorted(every, reverse=newest_first)]
        if sort_by == "status":
            known = (
                [run_filter.rest_status]
                if run_filter.rest_status
                else sorted(_RESTING_STATUSES, reverse=newest_first)
            )
            each = (
                (
                    one,
                    run_filter if run_filter.rest_status else self._narrow_filter_to_status(run_filter, one),
                )
                for one in known
            )
            return [(status, run) for status, which in each for _, run in list_keyed(which, limit, offset)]
        return [*list_keyed(run_filter, limit, offset)]

    def search_threads(self, request: Request) -> Response:
        given = request.state.given
        fields = frozenset(read_string_list_field(given, "select"))
        chosen, rows, headers = self._find_search_page(given)
        if not (wanted := read_object_field(given, "extract")):
            shown = [self._thread_json_for_listing(one, rows, fields) for one in chosen]
            return json_response(shown, headers=headers)
        whole = [self._thread_json_for_listing(one, rows, frozenset()) for one in chosen]
        extracted = [{name: value_at_path(one, path) for name, path in wanted.items()} for one in whole]
        pairs = zip(whole, extracted, strict=True)
        shown = [{**select_fields(one, fields), "extracted": more} for one, more in pairs]
        return json_response(shown, headers=headers)

    def count_threads(self, request: Request) -> Response:
        given = request.state.given
        _check_extract_paths(given)
        made, wanted = self._list_matching_thread_rows(given), self._build_run_filter(given)
        return json_response(len(made) + self._count_root_runs_or_zero(wanted))

    def _count_root_runs_or_zero(self, run_filter: threads.Wanted | None) -> int:
        return threads.count_roots(self.home, run_filter) if run_filter else 0

    async def update_thread(self, request: Request) -> Response:
        found, given = self.require_thread(request.path_params["thread"]), await read_json_body(request)
        self.ensure_thread_row(found)
        metadata = {**read_object_field(found.body, "metadata"), **read_object_field(given, "metadata")}
        api_rows.update_api_row_if_exists(
            self.home, "thread", found.id, {"metadata": metadata, "updated": time.time()}
        )
        return json_response(await asyncio.to_thread(self.thread_json, self.require_thread(found.id)))

    async def delete_thread(self, request: Request) -> Response:
        await self._remove_thread_and_run(self.require_thread(request.path_params["thread"]))
        return Response(status_code=204)

    async def prune_threads(self, request: Request) -> Response:
        given = await read_json_body(request)
        if (strategy := given.get("strategy", "delete")) != "delete":
            raise RefusedError(
                422, f"Strategy {strategy!r} isn't supported: a thread keeps its history. Expected 'delete'."
            )
        found: list[api_rows.ApiRow] = []
        for thread in read_string_list_field(given, "thread_ids"):
            with suppress(NotFoundError):
                found.append(self.require_thread(thread))
        for one in found:
            await self._remove_thread_and_run(one)
        return json_response({"pruned_count": len(found)})

    async def remove_matching_threads(self, metadata: Mapping[str, Any]) -> None:
        """Remove the threads that programs made, with this metadata."""
        for one in self._list_matching_thread_rows({"metadata": metadata}):
            await self._remove_thread_and_run(one)

    async def _remove_thread_and_run(self, thread: api_rows.ApiRow) -> None:
        if self._find_run_row(thread):
            await asyncio.to_thread(self.client.remove_run_and_list_kept_files, thread.run)
        for one in self.list_drive_rows(thread.id):
            self.remove_drive_and_stream(one)
        api_rows.remove_api_row(self.home, "thread", thread.id)

    async def copy_thread(self, request: Request) -> Response:
        name = parse_uuid(request.path_params["thread"], "thread", 400)
        try:
            found = self.require_thread(name)
        except NotFoundError:
            raise RefusedError(409, "Conflict") from None
        run = ""
        if self._find_run_row(found):
            run = (await asyncio.to_thread(lambda: self.client.fork_run(found.run, in_place=True))).run
        kept = {"metadata": read_object_field(found.body, "metadata"), "copied": True, **ownership_fields()}
        made = api_rows.insert_api_row(self.home, "thread", str(uuid4()), kept, run=run)
        return json_response(await asyncio.to_thread(self.thread_json, made))

    def _find_run_row(self, thread: api_rows.ApiRow) -> RunRow | None:
        return self.client.find_exact_run(thread.run) if thread.run else None

    def get_state(self, request: Request) -> Response:
        thread, at = self.require_thread(request.path_params["thread"]), request.path_params.get("checkpoint")
        subgraphs = request.query_params.get("subgraphs") == "true"
        return json_response(self.read_state_json(thread, {"checkpoint_id": at}, subgraphs))

    def get_checkpoint_state(self, request: Request) -> Response:
        thread, given = self.require_thread(request.path_params["thread"]), request.state.given
        at = read_object_field(given, "checkpoint")
        return json_response(self.read_state_json(thread, at, bool(given.get("subgraphs"))))

    def read_state_json(
        self, thread: api_rows.ApiRow, checkpoint: Mapping[str, Any] = _NOWHERE, subgraphs: bool = False
    ) -> Any:
        """Return the state of a thread as programs read it, now or at a checkpoint. Raises `RefusedError`."""
        return self._states.read_state_json(thread, self._find_run_row(thread), checkpoint, subgraphs)

    def get_history(self, request: Request) -> Response:
        is_post = request.method == "POST"
        given: Mapping[str, Any] = request.state.given if is_post else request.query_params
        thread = self.require_thread(request.path_params["thread"])
        limit = read_whole_number_field(given, "limit", 1, minimum=-1_000)
        if limit > 0:
            read_limit(given, 1, 1_000_000)
        if (row := self._find_run_row(thread)) is None or limit <= 0:
            return json_response([])
        named = None if is_post else given.get("before")
        before = {"checkpoint_id": named} if named else read_object_field(given, "before")
        before = read_object_field(before, "configurable") or before
        at, metadata = (
            read_object_field(given, name) if is_post else {} for name in ("checkpoint", "metadata")
        )
        return json_response(self._states.read_history(thread, row, limit, before, at, metadata))

    async def update_state(self, request: Request) -> Response:
        thread, given = self.require_thread(request.path_params["thread"]), await read_json_body(request)
        row = self._find_run_row(thread)
        if self.thread_status(thread, row) == "busy":
            raise RefusedError(409, "Thread is busy with a running job. Cannot update state.")
        if row is None:
            raise RefusedError(
                400, f"Thread {thread.id} has no state to update yet. Start a run of it first."
            )
        if not isinstance(given.get("values"), dict | list | None):
            raise RefusedError(422, "`values` must be a JSON object, or a list of some.")
        named = {"checkpoint_id": given["checkpoint_id"]} if given.get("checkpoint_id") else {}
        at = {**read_object_field(given, "checkpoint"), **named}
        if not isinstance(node := given.get("as_node"), str | None):
            raise RefusedError(422, f"`as_node` must be a string, not {node!r}.")
        made = await threads.update_state(self.options, row.run, given.get("values"), node, at)
        self.ensure_thread_row(thread)
        drives = self.list_drive_rows(thread.id)
        noted = {"updates": str(uuid4()), "updated": time.time(), "over": drives[0].id if drives else ""}
        api_rows.update_api_row_if_exists(self.home, "thread", thread.id, noted)
        where = thread_checkpoint_address(made, thread) or {}
        return json_response(
            {"checkpoint": where, "configurable": where, "checkpoint_id": where.get("checkpoint_id")}
        )


def _is_newest_drive_cancelled_before_start(drives: Sequence[api_rows.ApiRow]) -> bool:
    """Return whether the newest drive of a thread was cancelled before it began: the thread is idle then, as there."""
    return bool(drives and drives[0].body.get("unbegun"))


def _drop_drives_cancelled_before_start(drives: Sequence[api_rows.ApiRow]) -> list[api_rows.ApiRow]:
    """Those that weren't cancelled before they began."""
    return [one for one in drives if not one.body.get("unbegun")]


def _last_update_time(thread: api_rows.ApiRow, row: RunRow | None) -> float:
    return max(thread.body.get("updated", thread.at), row.updated if row else 0)


_EXTRACTED = ("config", "interrupts", "metadata", "values")


def _check_extract_paths(body: Mapping[str, Any]) -> None:
    """Raise `RefusedError` for a path that can't be extracted."""
    for name, path in read_object_field(body, "extract").items():
        if not name.isidentifier() or name in THREAD_FIELDS:
            raise RefusedError(422, f"`extract`: {name!r} is no name of letters, digits and underscores.")
        if not isinstance(path, str) or re.split(r"[.\[]", path)[0] not in _EXTRACTED:
            raise RefusedError(422, f"`extract`: {path!r} must begin with one of {', '.join(_EXTRACTED)}.")
