"""runs: drives as runs: begun, waited for, followed, cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import api_rows
from interlock.state.errors import InterlockError
from interlock.web.api import drive_streams
from interlock.web.api.app_auth import is_visible, ownership_fields
from interlock.web.api.drive_queues import DriveQueues
from interlock.web.api.payloads import (
    NotFoundError,
    check_allowed_values,
    dump_json,
    iso_time,
    json_response,
    paginate,
    parse_uuid,
    read_object,
    read_selected_fields,
    read_strings,
    select_fields,
)
from interlock.web.api.threads import BUSY
from interlock.web.endpoints import RefusedError, read_body, read_list_body
from interlock.web.rate_limits import LOOK_S


class Runs:
    def __init__(self, lanes: DriveQueues) -> None:
        self.lanes, self.about = lanes, lanes.threads
        self._client, self._home = lanes.client, lanes.home
        self._others: set[asyncio.Task[None]] = set()

    def run_json(self, one: api_rows.Served) -> dict[str, Any]:
        """Return a drive as programs read it."""
        hidden = ("protocol", "graph_id", "checkpoint")
        kwargs = {key: value for key, value in one.body["kwargs"].items() if key not in hidden}
        return {
            "run_id": one.id,
            "thread_id": one.thread,
            **{key: one.body[key] for key in ("assistant_id", "metadata", "status", "multitask_strategy")},
            "kwargs": kwargs,
            "created_at": iso_time(one.at),
            "updated_at": iso_time(one.body.get("updated", one.at)),
        }

    def run_from_path(self, request: Request) -> api_rows.Served:
        """Return the drive that the address names. Raises `RefusedError`."""
        parse_uuid(thread := request.path_params["thread"], "thread")
        found = api_rows.served(self._home, "drive", parse_uuid(request.path_params["run"], "run"))
        if found is None or found.thread != thread or not self._is_drive_visible(found):
            raise NotFoundError("Run not found")
        return found

    def _is_drive_visible(self, drive: api_rows.Served) -> bool:
        thread = api_rows.served(self._home, "thread", drive.thread)
        return thread is None or is_visible("threads", thread)

    def resume_earlier(self) -> None:
        """Go on with what an earlier server left."""
        self.lanes.resume_drives()
        for thread in api_rows.all_served(self._home, "thread"):
            if thread.body.get("temporary"):
                for one in self.about.list_drives(thread.id):
                    self._schedule_removal(thread, one)

    # The routes

    async def _enqueue_from_request(
        self, request: Request
    ) -> tuple[api_rows.Served, dict[str, Any], api_rows.Served]:
        given = await read_body(request)
        thread = self.thread_for_drive(request.path_params.get("thread"), given)
        return thread, given, await self.lanes.enqueue_drive(given, thread, request.state.person)

    def thread_for_drive(self, name: str | None, given: Mapping[str, Any]) -> api_rows.Served:
        """Return the thread that a drive is for; without a name, one for it alone. A new one has no row yet.

        Raises `RefusedError`.
        """
        if name is None:
            if read_object(given, "command").get("resume") is not None:
                raise RefusedError(400, "You must provide a thread_id when resuming.")
            temporary: dict[str, Any] = {"temporary": given.get("on_completion") != "keep"}
            return _unsaved_thread(str(uuid4()), given, temporary)
        try:
            return self.about.find_thread(name)
        except NotFoundError:
            thread = parse_uuid(name, "thread")
            if given.get("if_not_exists") != "create" or api_rows.served(self._home, "thread", thread):
                raise  # also if it is somebody else's
            return _unsaved_thread(thread, given, {})

    async def create_run(self, request: Request) -> Response:
        thread, _given, made = await self._enqueue_from_request(request)
        self._schedule_removal(thread, made)
        return json_response(self.run_json(made), headers={"content-location": _made_run_url(request, made)})

    async def create_batch(self, request: Request) -> Response:
        given = getattr(request.state, "batch", None) or await read_list_body(request)
        found = list[Any]()
        wanted = [(self.thread_for_drive(None, one), one) for one in given]
        for thread, one in wanted:
            await self.lanes.build_drive_row_and_delay(one, thread, request.state.person)
        for thread, one in wanted:
            made = await self.lanes.enqueue_drive(one, thread, request.state.person)
            self._schedule_removal(thread, made)
            found.append(self.run_json(made))
        return json_response(found)

    def _follow_drive(
        self, made: api_rows.Served, after: int = -1, live: bool = False
    ) -> AsyncIterator[drive_streams.Piece | None]:
        return drive_streams.follow_pieces(
            self._home, made.id, lambda: self.lanes.is_drive_unfinished(made.id), after, live
        )

    async def create_and_stream(self, request: Request) -> Response:
        thread, given, made = await self._enqueue_from_request(request)
        place = _made_run_url(request, made)
        headers = {"location": f"{place}/stream", "content-location": place}
        self._schedule_removal(thread, made)
        found = drive_streams.encode_sse(
            self._follow_drive(made), frozenset(), bool(given.get("stream_resumable"))
        )
        gone = self._stop_if_left(made, given.get("on_disconnect") == "cancel")
        return drive_streams.EventStreamResponse(found, headers, gone)

    def _stop_if_left(self, one: api_rows.Served, stops: bool) -> Callable[[], Awaitable[None]] | None:
        """Return what stops a drive when its reader is gone, if that `stops` it."""
        return partial(self.lanes.stop_drive, one, why=_LEFT) if stops else None

    async def create_and_wait(self, request: Request) -> Response:
        thread, given, made = await self._enqueue_from_request(request)

        async def found() -> Any:
            values = await self._await_drive_result(made)
            await self._remove_temporary(thread, made)
            return values

        return self._waiting_response(found(), made, given.get("on_disconnect") == "cancel")

    def _waiting_response(self, work: Any, one: api_rows.Served, stops: bool) -> Response:
        found, headers = drive_streams.send_spaces_until_done(work), _location_headers(one, "join")
        gone = self._stop_if_left(one, stops)
        return drive_streams.EventStreamResponse(found, headers, gone, "application/json")

    async def _await_drive_result(self, one: api_rows.Served) -> Any:
        found = await drive_streams.read_final_values(drive_streams.join_pieces(self._follow_drive(one)))
        return await self._read_thread_values(one) if found is None else found

    async def _read_thread_values(self, one: api_rows.Served) -> Any:
        thread = self.about.find_thread(one.thread)
        found = await asyncio.to_thread(self.about.thread_json, thread)
        asked = [item for items in read_object(found, "interrupts").values() for item in items]
        return {"__interrupt__": asked} if asked else read_object(found, "values")

    def _schedule_removal(self, thread: api_rows.Served, made: api_rows.Served) -> None:
        if thread.body.get("temporary"):
            self._run_in_background(self._remove_temporary(thread, made))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _remove_temporary(self, thread: api_rows.Served, made: api_rows.Served) -> None:
        """Remove what a run without a thread leaves."""
        if not thread.body.get("temporary"):
            return
        while self.lanes.is_drive_unfinished(made.id) or self.lanes.is_drive_process_alive(made.id):
            await asyncio.sleep(0.1)
        run = (api_rows.served(self._home, "drive", made.id) or made).run
        if run and self._client.find_exact_run(run):
            with suppress(InterlockError):
                await asyncio.to_thread(self._client.remove_run, run)
        self.about.remove_drive(made)
        api_rows.unserve(self._home, "thread", thread.id)

    async def list_runs(self, request: Request) -> Response:
        thread, given = self.about.find_thread(request.path_params["thread"]), request.query_params
        fields = read_selected_fields({"select": given.getlist("select")}, _FIELDS)
        found = [
            one
            for one in self.about.list_drives(thread.id)
            if given.get("status") in (None, "", one.body["status"])
        ]
        if given.get("limit") == "0":
            return json_response([])
        chosen, headers = paginate(given, found)
        return json_response([select_fields(self.run_json(one), fields) for one in chosen], headers=headers)

    async def get_run(self, request: Request) -> Response:
        return json_response(self.run_json(self.run_from_path(request)))

    async def delete_run(self, request: Request) -> Response:
        one = self.run_from_path(request)
        if one.body["status"] in BUSY:
            await self.lanes.stop_drive(one)
        self.about.remove_drive(one)
        return Response(status_code=204)

    async def join_run(self, request: Request) -> Response:
        try:
            one = self.run_from_path(request)
        except NotFoundError:
            return json_response({"__error__": _NO_RUN}, headers=_missing_run_headers(request))
        stops = request.query_params.get("cancel_on_disconnect") == "true"
        return self._waiting_response(self._await_drive_result(one), one, stops)

    async def join_run_stream(self, request: Request) -> Response:
        try:
            one = self.run_from_path(request)
        except NotFoundError:
            said = drive_streams.format_sse("error", dump_json(_NO_RUN))
            return Response(said, 200, _missing_run_headers(request), "text/event-stream")
        after, live = drive_streams.read_last_event_id(request)
        given = request.query_params
        modes = frozenset(
            mode.replace("messages-tuple", "messages") for mode in given.getlist("stream_mode") if mode
        )
        found = drive_streams.encode_sse(
            self._follow_drive(one, after, live), modes, bool(one.body["kwargs"]["resumable"])
        )
        gone = self._stop_if_left(one, given.get("cancel_on_disconnect") == "true")
        return drive_streams.EventStreamResponse(found, _location_headers(one, "stream"), gone)

    async def stream_thread(self, request: Request) -> Response:
        """Return the events of all drives of a thread, and changes of its state, from now on."""
        modes = frozenset(
            request.query_params.get("stream_modes", _THREAD_MODES[0]).replace(" ", "").split(",")
        )
        if wrong := sorted(modes - {*_THREAD_MODES}):
            raise RefusedError(
                422, f"Invalid stream mode: {wrong[0]}. Expected of {', '.join(_THREAD_MODES)}."
            )
        return drive_streams.EventStreamResponse(
            self._follow_thread(self.about.find_thread(request.path_params["thread"]), modes)
        )

    async def _follow_thread(self, thread: api_rows.Served, modes: frozenset[str]) -> AsyncIterator[bytes]:
        seen = {one.id for one in self.about.list_drives(thread.id) if one.body["status"] not in BUSY}
        silent, of_runs = 0.0, frozenset[str]() if "run_modes" in modes else frozenset({"metadata"})
        while True:
            fresh = [one for one in reversed(self.about.list_drives(thread.id)) if one.id not in seen]
            for one in fresh:
                seen.add(one.id)
                async for piece in drive_streams.encode_sse(
                    self._follow_drive(one), of_runs, True, bool(of_runs)
                ):
                    if modes & {"run_modes", "lifecycle"}:
                        yield piece
                if modes & {"run_modes", "lifecycle"}:
                    done = dump_json({"status": "run_done", "run_id": one.id})
                    yield drive_streams.format_sse("metadata", done)
            now = api_rows.served(self._home, "thread", thread.id) or thread
            if now.body.get("updates") != thread.body.get("updates") and "state_update" in modes:
                state = await asyncio.to_thread(self.about.read_state_json, now)
                yield drive_streams.format_sse(
                    "state_update", dump_json({"state": state, "thread_id": thread.id})
                )
            thread = now
            if not fresh:
                await asyncio.sleep(LOOK_S)
                silent += LOOK_S
            if silent >= drive_streams.BEAT_S:
                silent = 0.0
                yield b": heartbeat\r\n\r\n"

    async def cancel_run(self, request: Request) -> Response:
        one = self.run_from_path(request)
        if one.body["status"] not in BUSY:
            raise NotFoundError(_IDLE)
        given = request.query_params
        check_allowed_values(given, {"action": ("interrupt", "rollback")})
        why = "POST /threads/{thread_id}/runs/{run_id}/cancel"
        work = self.lanes.stop_drive(one, rollback=given.get("action") == "rollback", why=why)
        if given.get("wait") in ("1", "true"):
            await work
            return json_response({}, headers=_location_headers(one, "join"))
        self._run_in_background(work)
        return Response(status_code=202)

    async def cancel_runs(self, request: Request) -> Response:
        given = await read_body(request)
        rollback = request.query_params.get("action") == "rollback"
        names, status = {*read_strings(given, "run_ids")}, given.get("status")
        by_name = given.get("thread_id") is not None and given.get("run_ids") is not None
        if by_name == (status is not None):
            raise RefusedError(422, "Name what to cancel: either thread_id and run_ids, or a status.")
        thread = parse_uuid(given["thread_id"], "thread") if given.get("thread_id") is not None else ""
        there = [
            one
            for one in api_rows.all_served(self._home, "drive", thread=thread)
            if self._is_drive_visible(one)
        ]
        if unknown := {parse_uuid(name, "run") for name in names} - {one.id for one in there}:
            raise NotFoundError(f"Run {min(unknown)} not found")
        found = [one for one in there if (one.id in names or not names) and one.body["status"] in BUSY]
        if status in BUSY:
            found = [one for one in found if one.body["status"] == status]
        if not found:
            raise NotFoundError(_IDLE if names else "No runs found to cancel.")
        for one in found:
            await self.lanes.stop_drive(one, rollback=rollback, why="POST /runs/cancel")
        return Response(status_code=204)


_FIELDS = (
    *("run_id", "thread_id", "assistant_id", "created_at", "updated_at", "status", "metadata", "kwargs"),
    *("multitask_strategy", "langsmith_session_name"),
)
_IDLE = (
    "No matching runs to cancel. Please verify the thread ID and run IDs are correct, and the runs haven't been "
    "deleted or completed."
)
"""As there."""
_NO_RUN = {"error": "HTTPException", "message": "404: Run not found"}
_THREAD_MODES = ("run_modes", "lifecycle", "state_update")


_LEFT = "client disconnected from the run stream (on_disconnect=cancel)"
"""Why a drive stops, in words that programs read."""


def _unsaved_thread(name: str, given: Mapping[str, Any], more: Mapping[str, Any]) -> api_rows.Served:
    kept = {"metadata": read_object(given, "metadata"), **more, **ownership_fields()}
    return api_rows.Served(name, "", "", kept, time.time())


def _run_url(one: api_rows.Served) -> str:
    return f"/threads/{one.thread}/runs/{one.id}"


def _made_run_url(request: Request, made: api_rows.Served) -> str:
    """Return the address of a run that a request made; without its thread if the request names none."""
    return _run_url(made) if request.path_params.get("thread") else f"/runs/{made.id}"


def _location_headers(one: api_rows.Served, way: str) -> dict[str, str]:
    """Return the headers of an answer about a drive; `way`: how it can be had again."""
    return {"location": f"{_run_url(one)}/{way}", "content-location": _run_url(one)}


def _missing_run_headers(request: Request) -> dict[str, str]:
    """Return the headers of an answer about a run that isn't there."""
    at = request.url.path
    return {"location": at, "content-location": at.rpartition("/")[0]}
