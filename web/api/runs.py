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
    read_object_field,
    read_selected_fields,
    read_string_list_field,
    select_fields,
)
from interlock.web.api.threads import BUSY
from interlock.web.endpoints import RefusedError, read_json_body, read_json_list_body
from interlock.web.rate_limits import LOOK_S


class Runs:
    def __init__(self, queues: DriveQueues) -> None:
        self.queues, self.threads = queues, queues.threads
        self._client, self._home = queues.client, queues.home
        self._others: set[asyncio.Task[None]] = set()

    def run_json(self, drive: api_rows.ApiRow) -> dict[str, Any]:
        """Return a drive as programs read it."""
        hidden = ("protocol", "graph_id", "checkpoint")
        kwargs = {key: value for key, value in drive.body["kwargs"].items() if key not in hidden}
        return {
            "run_id": drive.id,
            "thread_id": drive.thread,
            **{key: drive.body[key] for key in ("assistant_id", "metadata", "status", "multitask_strategy")},
            "kwargs": kwargs,
            "created_at": iso_time(drive.at),
            "updated_at": iso_time(drive.body.get("updated", drive.at)),
        }

    def drive_from_path(self, request: Request) -> api_rows.ApiRow:
        """Return the drive that the address names. Raises `RefusedError`."""
        parse_uuid(thread := request.path_params["thread"], "thread")
        found = api_rows.find_api_row(self._home, "drive", parse_uuid(request.path_params["run"], "run"))
        if found is None or found.thread != thread or not self._is_drive_visible(found):
            raise NotFoundError("Run not found")
        return found

    def _is_drive_visible(self, drive: api_rows.ApiRow) -> bool:
        thread = api_rows.find_api_row(self._home, "thread", drive.thread)
        return thread is None or is_visible("threads", thread)

    def resume_abandoned_runs(self) -> None:
        """Go on with what an earlier server left."""
        self.queues.resume_abandoned_drives_and_clean_up()
        for thread in api_rows.list_api_rows(self._home, "thread"):
            if thread.body.get("temporary"):
                for one in self.threads.list_drive_rows(thread.id):
                    self._schedule_temporary_thread_removal(thread, one)

    # The routes

    async def _enqueue_requested_drive(
        self, request: Request
    ) -> tuple[api_rows.ApiRow, dict[str, Any], api_rows.ApiRow]:
        given = await read_json_body(request)
        thread = self.find_or_build_thread(request.path_params.get("thread"), given)
        return thread, given, await self.queues.enqueue_drive(given, thread, request.state.person)

    def find_or_build_thread(self, thread_id: str | None, body: Mapping[str, Any]) -> api_rows.ApiRow:
        """Return the thread that a drive is for; without a name, one for it alone. A new one has no row yet.

        Raises `RefusedError`.
        """
        if thread_id is None:
            if read_object_field(body, "command").get("resume") is not None:
                raise RefusedError(400, "You must provide a thread_id when resuming.")
            temporary: dict[str, Any] = {"temporary": body.get("on_completion") != "keep"}
            return _build_unsaved_thread(str(uuid4()), body, temporary)
        try:
            return self.threads.require_thread(thread_id)
        except NotFoundError:
            thread = parse_uuid(thread_id, "thread")
            if body.get("if_not_exists") != "create" or api_rows.find_api_row(self._home, "thread", thread):
                raise  # also if it is somebody else's
            return _build_unsaved_thread(thread, body, {})

    async def create_run(self, request: Request) -> Response:
        thread, _given, made = await self._enqueue_requested_drive(request)
        self._schedule_temporary_thread_removal(thread, made)
        return json_response(
            self.run_json(made), headers={"content-location": _created_drive_url(request, made)}
        )

    async def create_run_batch(self, request: Request) -> Response:
        given = getattr(request.state, "batch", None) or await read_json_list_body(request)
        found = list[Any]()
        wanted = [(self.find_or_build_thread(None, one), one) for one in given]
        for thread, one in wanted:
            await self.queues.build_drive_row_and_delay(one, thread, request.state.person)
        for thread, one in wanted:
            made = await self.queues.enqueue_drive(one, thread, request.state.person)
            self._schedule_temporary_thread_removal(thread, made)
            found.append(self.run_json(made))
        return json_response(found)

    def _follow_drive_event_pieces(
        self, drive: api_rows.ApiRow, after_number: int = -1, only_new: bool = False
    ) -> AsyncIterator[drive_streams.EventPiece | None]:
        return drive_streams.follow_event_pieces(
            self._home, drive.id, lambda: self.queues.is_drive_unfinished(drive.id), after_number, only_new
        )

    async def create_and_stream_run(self, request: Request) -> Response:
        thread, given, made = await self._enqueue_requested_drive(request)
        place = _created_drive_url(request, made)
        headers = {"location": f"{place}/stream", "content-location": place}
        self._schedule_temporary_thread_removal(thread, made)
        found = drive_streams.encode_sse(
            self._follow_drive_event_pieces(made), frozenset(), bool(given.get("stream_resumable"))
        )
        gone = self._disconnect_callback_or_none(made, given.get("on_disconnect") == "cancel")
        return drive_streams.EventStreamResponse(found, headers, gone)

    def _disconnect_callback_or_none(
        self, drive: api_rows.ApiRow, stop_on_disconnect: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """Return what stops a drive when its reader is gone, if that `stop_on_disconnect` it."""
        return partial(self.queues.stop_drive_and_wait, drive, why=_LEFT) if stop_on_disconnect else None

    async def create_and_await_run(self, request: Request) -> Response:
        thread, given, made = await self._enqueue_requested_drive(request)

        async def await_result() -> Any:
            values = await self._await_drive_result(made)
            await self._remove_temporary_thread_after_drive(thread, made)
            return values

        return self._build_keep_alive_response(await_result(), made, given.get("on_disconnect") == "cancel")

    def _build_keep_alive_response(
        self, work: Any, drive: api_rows.ApiRow, stop_on_disconnect: bool
    ) -> Response:
        found, headers = (
            drive_streams.stream_keepalive_spaces_then_result(work),
            _location_headers(drive, "join"),
        )
        gone = self._disconnect_callback_or_none(drive, stop_on_disconnect)
        return drive_streams.EventStreamResponse(found, headers, gone, "application/json")

    async def _await_drive_result(self, drive: api_rows.ApiRow) -> Any:
        found = await drive_streams.read_final_values_interrupts_or_error(
            drive_streams.join_event_pieces(self._follow_drive_event_pieces(drive))
        )
        return await self._read_thread_values_or_interrupts(drive) if found is None else found

    async def _read_thread_values_or_interrupts(self, drive: api_rows.ApiRow) -> Any:
        thread = self.threads.require_thread(drive.thread)
        found = await asyncio.to_thread(self.threads.thread_json, thread)
        asked = [item for items in read_object_field(found, "interrupts").values() for item in items]
        return {"__interrupt__": asked} if asked else read_object_field(found, "values")

    def _schedule_temporary_thread_removal(self, thread: api_rows.ApiRow, drive: api_rows.ApiRow) -> None:
        if thread.body.get("temporary"):
            self._run_in_background(self._remove_temporary_thread_after_drive(thread, drive))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _remove_temporary_thread_after_drive(
        self, thread: api_rows.ApiRow, drive: api_rows.ApiRow
    ) -> None:
        """Remove what a run without a thread leaves."""
        if not thread.body.get("temporary"):
            return
        while self.queues.is_drive_unfinished(drive.id) or self.queues.is_drive_process_alive(drive.id):
            await asyncio.sleep(0.1)
        run = (api_rows.find_api_row(self._home, "drive", drive.id) or drive).run
        if run and self._client.find_exact_run(run):
            with suppress(InterlockError):
                await asyncio.to_thread(self._client.remove_run_and_list_kept_files, run)
        self.threads.remove_drive_and_stream(drive)
        api_rows.remove_api_row(self._home, "thread", thread.id)

    async def list_runs(self, request: Request) -> Response:
        thread, given = self.threads.require_thread(request.path_params["thread"]), request.query_params
        fields = read_selected_fields({"select": given.getlist("select")}, _FIELDS)
        found = [
            one
            for one in self.threads.list_drive_rows(thread.id)
            if given.get("status") in (None, "", one.body["status"])
        ]
        if given.get("limit") == "0":
            return json_response([])
        chosen, headers = paginate(given, found)
        return json_response([select_fields(self.run_json(one), fields) for one in chosen], headers=headers)

    async def get_run(self, request: Request) -> Response:
        return json_response(self.run_json(self.drive_from_path(request)))

    async def delete_run(self, request: Request) -> Response:
        one = self.drive_from_path(request)
        if one.body["status"] in BUSY:
            await self.queues.stop_drive_and_wait(one)
        self.threads.remove_drive_and_stream(one)
        return Response(status_code=204)

    async def join_run(self, request: Request) -> Response:
        try:
            one = self.drive_from_path(request)
        except NotFoundError:
            return json_response({"__error__": _NO_RUN}, headers=_missing_run_headers(request))
        stops = request.query_params.get("cancel_on_disconnect") == "true"
        return self._build_keep_alive_response(self._await_drive_result(one), one, stops)

    async def join_run_stream(self, request: Request) -> Response:
        try:
            one = self.drive_from_path(request)
        except NotFoundError:
            said = drive_streams.format_sse("error", dump_json(_NO_RUN))
            return Response(said, 200, _missing_run_headers(request), "text/event-stream")
        after, live = drive_streams.read_resume_position(request)
        given = request.query_params
        modes = frozenset(
            mode.replace("messages-tuple", "messages") for mode in given.getlist("stream_mode") if mode
        )
        found = drive_streams.encode_sse(
            self._follow_drive_event_pieces(one, after, live), modes, bool(one.body["kwargs"]["resumable"])
        )
        gone = self._disconnect_callback_or_none(one, given.get("cancel_on_disconnect") == "true")
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
            self._stream_thread_events(self.threads.require_thread(request.path_params["thread"]), modes)
        )

    async def _stream_thread_events(
        self, thread: api_rows.ApiRow, modes: frozenset[str]
    ) -> AsyncIterator[bytes]:
        seen = {one.id for one in self.threads.list_drive_rows(thread.id) if one.body["status"] not in BUSY}
        silent, of_runs = 0.0, frozenset[str]() if "run_modes" in modes else frozenset({"metadata"})
        while True:
            fresh = [one for one in reversed(self.threads.list_drive_rows(thread.id)) if one.id not in seen]
            for one in fresh:
                seen.add(one.id)
                async for piece in drive_streams.encode_sse(
                    self._follow_drive_event_pieces(one), of_runs, True, bool(of_runs)
                ):
                    if modes & {"run_modes", "lifecycle"}:
                        yield piece
                if modes & {"run_modes", "lifecycle"}:
                    done = dump_json({"status": "run_done", "run_id": one.id})
                    yield drive_streams.format_sse("metadata", done)
            now = api_rows.find_api_row(self._home, "thread", thread.id) or thread
            if now.body.get("updates") != thread.body.get("updates") and "state_update" in modes:
                state = await asyncio.to_thread(self.threads.read_state_json, now)
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
        one = self.drive_from_path(request)
        if one.body["status"] not in BUSY:
            raise NotFoundError(_IDLE)
        given = request.query_params
        check_allowed_values(given, {"action": ("interrupt", "rollback")})
        why = "POST /threads/{thread_id}/runs/{run_id}/cancel"
        work = self.queues.stop_drive_and_wait(one, rollback=given.get("action") == "rollback", why=why)
        if given.get("wait") in ("1", "true"):
            await work
            return json_response({}, headers=_location_headers(one, "join"))
        self._run_in_background(work)
        return Response(status_code=202)

    async def cancel_runs(self, request: Request) -> Response:
        given = await read_json_body(request)
        rollback = request.query_params.get("action") == "rollback"
        names, status = {*read_string_list_field(given, "run_ids")}, given.get("status")
        by_name = given.get("thread_id") is not None and given.get("run_ids") is not None
        if by_name == (status is not None):
            raise RefusedError(422, "Name what to cancel: either thread_id and run_ids, or a status.")
        thread = parse_uuid(given["thread_id"], "thread") if given.get("thread_id") is not None else ""
        there = [
            one
            for one in api_rows.list_api_rows(self._home, "drive", thread=thread)
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
            await self.queues.stop_drive_and_wait(one, rollback=rollback, why="POST /runs/cancel")
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


def _build_unsaved_thread(
    thread_id: str, body: Mapping[str, Any], extra_fields: Mapping[str, Any]
) -> api_rows.ApiRow:
    kept = {"metadata": read_object_field(body, "metadata"), **extra_fields, **ownership_fields()}
    return api_rows.ApiRow(thread_id, "", "", kept, time.time())


def _drive_url(drive: api_rows.ApiRow) -> str:
    return f"/threads/{drive.thread}/runs/{drive.id}"


def _created_drive_url(request: Request, drive: api_rows.ApiRow) -> str:
    """Return the address of a run that a request made; without its thread if the request names none."""
    return _drive_url(drive) if request.path_params.get("thread") else f"/runs/{drive.id}"


def _location_headers(drive: api_rows.ApiRow, suffix: str) -> dict[str, str]:
    """Return the headers of an answer about a drive; `suffix`: how it can be had again."""
    return {"location": f"{_drive_url(drive)}/{suffix}", "content-location": _drive_url(drive)}


def _missing_run_headers(request: Request) -> dict[str, str]:
    """Return the headers of an answer about a run that isn't there."""
    at = request.url.path
    return {"location": at, "content-location": at.rpartition("/")[0]}
