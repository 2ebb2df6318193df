"""runs: drives as runs: begun, waited for, followed, cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from interlock.engine.client import served
from interlock.engine.client.served import Served
from interlock.state.errors import InterlockError
from interlock.web.answers import RefusedError, body, list_body
from interlock.web.api import streams
from interlock.web.api.answers import (
    MissingError,
    answer,
    check_choices,
    dumped,
    only,
    page,
    part,
    selected,
    texts,
    uuid_in,
    when,
)
from interlock.web.api.lanes import Lanes
from interlock.web.api.recorder import record_of
from interlock.web.api.threads import BUSY
from interlock.web.api.visitors import owned, shows
from interlock.web.turns import LOOK_S


class Runs:
    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.about = lanes, lanes.about
        self._client, self._home = lanes.client, lanes.home
        self._others: set[asyncio.Task[None]] = set()

    def shown(self, one: Served) -> dict[str, Any]:
        """A drive as programs read it."""
        hidden = ("protocol", "graph_id", "checkpoint")
        kwargs = {key: value for key, value in one.body["kwargs"].items() if key not in hidden}
        return {
            "run_id": one.id,
            "thread_id": one.thread,
            **{key: one.body[key] for key in ("assistant_id", "metadata", "status", "multitask_strategy")},
            "kwargs": kwargs,
            "created_at": when(one.at),
            "updated_at": when(one.body.get("updated", one.at)),
        }

    def find(self, request: Request) -> Served:
        uuid_in(request.path_params["thread"], "thread")
        return self._of(request.path_params["thread"], request.path_params["run"])

    def _of(self, thread: str, name: str) -> Served:
        found = served.served(self._home, "drive", uuid_in(name, "run"))
        if found is None or found.thread != thread or not self._is_shown(found):
            raise MissingError("Run not found")
        return found

    def _is_shown(self, drive: Served) -> bool:
        thread = served.served(self._home, "thread", drive.thread)
        return thread is None or shows("threads", thread)

    def resume(self) -> None:
        """Go on with what an earlier server left."""
        self.lanes.resume()
        for thread in served.all_served(self._home, "thread"):
            if thread.body.get("temporary"):
                for one in self.about.drives(thread.id):
                    self._forget_later(thread, one)

    # The routes

    async def _asked(self, request: Request) -> tuple[Served, dict[str, Any], Served]:
        given = await body(request)
        thread = self.thread(request.path_params.get("thread"), given)
        return thread, given, await self.lanes.begun(given, thread, request.state.person)

    def thread(self, name: str | None, given: Mapping[str, Any]) -> Served:
        """The thread that a drive is for; without a name, one for it alone. A new one has no row yet.

        Raises `RefusedError`.
        """
        if name is None:
            if part(given, "command").get("resume") is not None:
                raise RefusedError(400, "You must provide a thread_id when resuming.")
            lasts = given.get("on_completion") == "keep"
            kept: dict[str, Any] = {"metadata": part(given, "metadata"), "temporary": not lasts, **owned()}
            return Served(str(uuid4()), "", "", kept, time.time())
        try:
            return self.about.find(name)
        except MissingError:
            if given.get("if_not_exists") != "create":
                raise
            if served.served(self._home, "thread", uuid_in(name, "thread")):  # somebody else's
                raise
            kept = {"metadata": part(given, "metadata"), **owned()}
            return Served(uuid_in(name, "thread"), "", "", kept, time.time())

    async def create(self, request: Request) -> Response:
        thread, _given, made = await self._asked(request)
        self._forget_later(thread, made)
        place = _place(made) if request.path_params.get("thread") else f"/runs/{made.id}"
        return answer(self.shown(made), headers={"content-location": place})

    async def batch(self, request: Request) -> Response:
        given = getattr(request.state, "batch", None) or await list_body(request)
        found: list[Any] = []
        wanted = [(self.thread(None, one), one) for one in given]
        for thread, one in wanted:
            await self.lanes.checked(one, thread, request.state.person)
        for thread, one in wanted:
            made = await self.lanes.begun(one, thread, request.state.person)
            self._forget_later(thread, made)
            found.append(self.shown(made))
        return answer(found)

    def _follow(
        self, made: Served, after: int = -1, live: bool = False
    ) -> AsyncIterator[streams.Piece | None]:
        return streams.pieces(self._home, made.id, lambda: self.lanes.lasts(made.id), after, live)

    async def stream(self, request: Request) -> Response:
        thread, given, made = await self._asked(request)
        place = _place(made) if request.path_params.get("thread") else f"/runs/{made.id}"
        headers = {"location": f"{place}/stream", "content-location": place}
        self._forget_later(thread, made)
        found = streams.sent(self._follow(made), frozenset(), bool(given.get("stream_resumable")))
        stops = given.get("on_disconnect") == "cancel"
        gone = (lambda: self.lanes.stop(made, why=_LEFT)) if stops else None
        return streams.Streaming(found, headers, gone)

    async def wait(self, request: Request) -> Response:
        thread, given, made = await self._asked(request)

        async def found() -> Any:
            values = await self._result(made)
            await self._forget(thread, made)
            return values

        return self._patient(found(), made, given.get("on_disconnect") == "cancel")

    def _patient(self, work: Any, one: Served, stops: bool) -> Response:
        gone = (lambda: self.lanes.stop(one, why=_LEFT)) if stops else None
        return streams.Streaming(streams.patiently(work), _places(one, "join"), gone, "application/json")

    async def _result(self, one: Served) -> Any:
        found = await streams.result(streams.lines(self._follow(one)))
        return await self._values(one) if found is None else found

    async def _values(self, one: Served) -> Any:
        thread = self.about.find(one.thread)
        found = await asyncio.to_thread(self.about.shown, thread, self.about.of(thread))
        asked = [item for items in part(found, "interrupts").values() for item in items]
        return {"__interrupt__": asked} if asked else part(found, "values")

    def _forget_later(self, thread: Served, made: Served) -> None:
        if thread.body.get("temporary"):
            work = asyncio.ensure_future(self._forget(thread, made))
            self._others.add(work)
            work.add_done_callback(self._others.discard)

    async def _forget(self, thread: Served, made: Served) -> None:
        """Remove what a run without a thread leaves."""
        if not thread.body.get("temporary"):
            return
        while self.lanes.lasts(made.id) or self.lanes.alive(made.id):
            await asyncio.sleep(0.1)
        run = (served.served(self._home, "drive", made.id) or made).run
        if run and self._client.exact(run):
            with suppress(InterlockError):
                await asyncio.to_thread(self._client.remove, run)
        record_of(self._home, made.id).unlink(missing_ok=True)
        served.unserve(self._home, "drive", made.id)
        served.unserve(self._home, "thread", thread.id)

    async def list(self, request: Request) -> Response:
        thread, given = self.about.find(request.path_params["thread"]), request.query_params
        fields = selected({"select": given.getlist("select")}, _FIELDS)
        found = [
            one
            for one in self.about.drives(thread.id)
            if given.get("status") in (None, "", one.body["status"])
        ]
        if given.get("limit") == "0":
            return answer([])
        chosen, headers = page(given, found)
        return answer([only(self.shown(one), fields) for one in chosen], headers=headers)

    async def get(self, request: Request) -> Response:
        return answer(self.shown(self.find(request)))

    async def delete(self, request: Request) -> Response:
        one = self.find(request)
        if one.body["status"] in BUSY:
            await self.lanes.stop(one)
        served.unserve(self._home, "drive", one.id)
        record_of(self._home, one.id).unlink(missing_ok=True)
        return Response(status_code=204)

    async def join(self, request: Request) -> Response:
        try:
            one = self.find(request)
        except MissingError:
            return answer({"__error__": _NO_RUN}, headers=_places_in(request))
        stops = request.query_params.get("cancel_on_disconnect") == "true"
        return self._patient(self._result(one), one, stops)

    async def join_stream(self, request: Request) -> Response:
        try:
            one = self.find(request)
        except MissingError:
            said = streams.sse("error", dumped(_NO_RUN))
            return Response(said, 200, _places_in(request), "text/event-stream")
        after, live = streams.last_seen(request)
        given = request.query_params
        modes = frozenset(
            mode.replace("messages-tuple", "messages") for mode in given.getlist("stream_mode") if mode
        )
        found = streams.sent(self._follow(one, after, live), modes, bool(one.body["kwargs"]["resumable"]))
        gone = (
            (lambda: self.lanes.stop(one, why=_LEFT)) if given.get("cancel_on_disconnect") == "true" else None
        )
        return streams.Streaming(found, _places(one, "stream"), gone)

    async def join_thread(self, request: Request) -> Response:
        """The events of all drives of a thread, and changes of its state, from now on."""
        modes = frozenset(
            request.query_params.get("stream_modes", _THREAD_MODES[0]).replace(" ", "").split(",")
        )
        if wrong := sorted(modes - {*_THREAD_MODES}):
            raise RefusedError(
                422, f"Invalid stream mode: {wrong[0]}. Expected of {', '.join(_THREAD_MODES)}."
            )
        return streams.Streaming(self._thread_lines(self.about.find(request.path_params["thread"]), modes))

    async def _thread_lines(self, thread: Served, modes: frozenset[str]) -> AsyncIterator[bytes]:
        seen = {one.id for one in self.about.drives(thread.id) if one.body["status"] not in BUSY}
        silent, of_runs = 0.0, frozenset[str]() if "run_modes" in modes else frozenset({"metadata"})
        while True:
            fresh = [one for one in reversed(self.about.drives(thread.id)) if one.id not in seen]
            for one in fresh:
                seen.add(one.id)
                async for piece in streams.sent(self._follow(one), of_runs, True, bool(of_runs)):
                    if modes & {"run_modes", "lifecycle"}:
                        yield piece
                if modes & {"run_modes", "lifecycle"}:
                    yield streams.sse("metadata", dumped({"status": "run_done", "run_id": one.id}))
            now = served.served(self._home, "thread", thread.id) or thread
            if now.body.get("updates") != thread.body.get("updates") and "state_update" in modes:
                state = await asyncio.to_thread(self.about.latest_state, now)
                yield streams.sse("state_update", dumped({"state": state, "thread_id": thread.id}))
            thread = now
            if not fresh:
                await asyncio.sleep(LOOK_S)
                silent += LOOK_S
            if silent >= streams.BEAT_S:
                silent = 0.0
                yield b": heartbeat\r\n\r\n"

    async def cancel(self, request: Request) -> Response:
        one = self.find(request)
        if one.body["status"] not in BUSY:
            raise MissingError(_IDLE)
        given = request.query_params
        check_choices(given, {"action": ("interrupt", "rollback")})
        why = "POST /threads/{thread_id}/runs/{run_id}/cancel"
        work = self.lanes.stop(one, rollback=given.get("action") == "rollback", why=why)
        if given.get("wait") in ("1", "true"):
            await work
            return answer({}, headers=_places(one, "join"))
        ending = asyncio.ensure_future(work)
        self._others.add(ending)
        ending.add_done_callback(self._others.discard)
        return Response(status_code=202)

    async def cancel_many(self, request: Request) -> Response:
        given = await body(request)
        rollback = request.query_params.get("action") == "rollback"
        names, status = {*texts(given, "run_ids")}, given.get("status")
        by_name = given.get("thread_id") is not None and given.get("run_ids") is not None
        if by_name == (status is not None):
            raise RefusedError(422, "Name what to cancel: either thread_id and run_ids, or a status.")
        thread = uuid_in(given["thread_id"], "thread") if given.get("thread_id") is not None else ""
        there = [one for one in served.all_served(self._home, "drive", thread=thread) if self._is_shown(one)]
        if unknown := {uuid_in(name, "run") for name in names} - {one.id for one in there}:
            raise MissingError(f"Run {min(unknown)} not found")
        found = [one for one in there if (one.id in names or not names) and one.body["status"] in BUSY]
        if status in BUSY:
            found = [one for one in found if one.body["status"] == status]
        if not found:
            raise MissingError(_IDLE if names else "No runs found to cancel.")
        for one in found:
            await self.lanes.stop(one, rollback=rollback, why="POST /runs/cancel")
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


def _place(one: Served) -> str:
    return f"/threads/{one.thread}/runs/{one.id}"


def _places(one: Served, way: str) -> dict[str, str]:
    """The headers of an answer about a drive; `way`: how it can be had again."""
    return {"location": f"{_place(one)}/{way}", "content-location": _place(one)}


def _places_in(request: Request) -> dict[str, str]:
    """The same, of a run that isn't there."""
    at = request.url.path
    return {"location": at, "content-location": at.rpartition("/")[0]}
