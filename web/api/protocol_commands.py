"""protocol_commands: the second event protocol over HTTP and WebSockets: commands, and streams of a thread's events."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from interlock.engine.client import api_rows, threads
from interlock.state.errors import InterlockError, as_bug_error
from interlock.web.api import drive_streams, event_protocol
from interlock.web.api.app_auth import VISIBILITY, AppAuth, authorize_thread_action
from interlock.web.api.drive_recorder import stream_file_path
from interlock.web.api.payloads import dump_json, json_response, parse_uuid, read_object_field
from interlock.web.api.runs import Runs
from interlock.web.endpoints import (
    RefusedError,
    check_role,
    forbid_user_code_without_drive_role,
    read_json_body,
)
from interlock.web.roles import Person, required_role

_ENDS = {"success": "completed"}
"""How a drive's status ends a stream; every other one as `failed`, or clients would wait for a person's answer."""
_LOOK_S = 0.05
_META = {"applied_through_seq": 0}
"""As LangGraph's server has it."""


class ProtocolCommands:
    """Answers the protocol's two routes."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.queues = runs, runs.queues
        self.threads, self.home = runs.threads, runs.queues.home

    async def handle_command(self, request: Request) -> Response:
        try:
            given = await read_json_body(request)
        except RefusedError as error:
            return json_response(command_error_json(None, CommandError("invalid_argument", str(error))), 400)
        name, method = given.get("id"), given.get("method")
        if not isinstance(name, int) or not isinstance(method, str):
            wrong = CommandError(
                "invalid_argument", "Protocol commands must include an integer id and string method."
            )
            return json_response(command_error_json(name, wrong), 400)
        return json_response(
            await self.execute_command(request.path_params["thread"], given, request.state.person)
        )

    async def execute_command(
        self, thread_id: str, command: Mapping[str, Any], person: Person
    ) -> dict[str, Any]:
        """Do what a command says; returns its response. Raises `RefusedError` (403) for a role that may not."""
        name = command["id"]
        try:
            params = read_object_field(command, "params")
            params |= {"metadata": command["metadata"]} if "metadata" in command else {}
            found = await self._dispatch_command(thread_id, command["method"], params, person)
        except InterlockError as error:
            if isinstance(error, RefusedError) and error.status == 403:
                raise
            return command_error_json(name, error)
        return {"type": "success", "id": name, "result": found, "meta": _META}

    async def _dispatch_command(
        self, thread_id: str, method: str, params: Mapping[str, Any], person: Person
    ) -> dict[str, Any]:
        if method == "run.start":
            return await self._start_drive_or_answer_interrupts(thread_id, params, person)
        if method == "input.respond":
            return await self._answer_interrupts(self.threads.require_thread(thread_id), params, person)
        if method == "agent.getTree":
            status = self.threads.thread_status(self.threads.require_thread(thread_id), None)
            if status != "busy":
                raise CommandError("no_such_run", "No active run is bound to this thread.")
            return {"tree": {"namespace": [], "status": status, "children": []}}
        raise CommandError("unknown_command", f"Unknown protocol command: {method}")

    async def _start_drive_or_answer_interrupts(
        self, thread_id: str, params: Mapping[str, Any], person: Person
    ) -> dict[str, Any]:
        if not params.get("assistant_id"):
            raise CommandError("invalid_argument", "run.start requires an assistant_id.")
        thread = self.runs.find_or_build_thread(thread_id, {"if_not_exists": "create"})
        at = read_object_field(read_object_field(params, "config"), "configurable").get("checkpoint_id")
        strategy = params.get("multitaskStrategy")
        given = {
            **_DRIVE_DEFAULTS,
            **params,
            "multitask_strategy": strategy or "enqueue",
            "checkpoint_id": at,
        }
        waits = threads.load_waiting_requests(self.threads.options, thread.run) if thread.run else []
        if waits and params.get("input") is not None and strategy is None:
            given |= {"input": None, "command": {"resume": params["input"]}}
        return {
            "run_id": (await self.queues.enqueue_drive(given, thread, person, uses_event_protocol=True)).id
        }

    async def _answer_interrupts(
        self, thread: api_rows.ApiRow, params: Mapping[str, Any], person: Person
    ) -> dict[str, Any]:
        several: Any = params.get("responses") or [params]
        names = [str(one.get("interrupt_id")) for one in several]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise CommandError("invalid_argument", f"Interrupt {repeated[0]} is answered more than once.")
        answers = {name: one.get("response") for name, one in zip(names, several, strict=True)}
        for _ in range(100):  # a program hears of an interrupt before its drive has ended
            if self.threads.thread_status(thread, None) != "busy":
                break
            await asyncio.sleep(_LOOK_S)
        thread = self.threads.require_thread(thread.id)
        waits = threads.load_waiting_requests(self.threads.options, thread.run) if thread.run else []
        known = {one.interrupt for one in waits}
        if unknown := [name for name in answers if name not in known]:
            raise CommandError("no_such_interrupt", f"Unknown or already-consumed interrupt: {unknown[0]}")
        drives = self.threads.list_drive_rows(thread.id)
        if not drives:
            raise CommandError("no_such_run", "No interrupted run is bound to this thread.")
        more = {key: params[key] for key in ("update", "goto") if params.get(key) is not None}
        given = {
            **_DRIVE_DEFAULTS,
            "assistant_id": drives[0].body["assistant_id"],
            "command": {"resume": answers, **more},
        }
        await self.queues.enqueue_drive(given, thread, person, uses_event_protocol=True)
        return {}

    async def stream_events(self, request: Request) -> Response:
        given = await read_json_body(request)
        if wrong := _describe_channels_problem(given.get("channels")):
            raise RefusedError(400, wrong)
        return drive_streams.EventStreamResponse(
            self._encode_subscribed_events(
                self.threads.require_thread(request.path_params["thread"]).id, given
            )
        )

    async def _encode_subscribed_events(
        self, thread_id: str, subscription: Mapping[str, Any]
    ) -> AsyncIterator[bytes]:
        yield b": connected\r\n\r\n"
        async for made in self.follow_thread_events(thread_id):
            if made is None:
                yield b": heartbeat\r\n\r\n"
            elif event_protocol.matches_subscription(subscription, made):
                yield drive_streams.format_sse(made["method"], dump_json(made), str(made["seq"]))

    async def follow_thread_events(self, thread_id: str) -> AsyncIterator[dict[str, Any] | None]:
        """All events of a thread's drives by this protocol, from the first one; then live. None: nothing for now."""
        number, beat = 0, 0.0
        seen: set[str] = set()
        while True:
            there = [one for one in reversed(self.threads.list_drive_rows(thread_id)) if one.id not in seen]
            for drive in (one for one in there if one.body["kwargs"]["protocol"]):
                if not stream_file_path(self.home, drive.id).exists():
                    number += drive.body.get("events", 0)
                    continue
                place = 0
                async for made in self._follow_drive_with_lifecycle_events(drive):
                    if made is None:
                        yield None
                        continue
                    number, place = number + 1, place + 1
                    yield {**made, "seq": number, "event_id": f"{drive.id}-{place}"}
            seen.update(one.id for one in there)
            beat += _LOOK_S
            if beat >= 5:
                beat = 0.0
                yield None
            await asyncio.sleep(_LOOK_S)

    async def _follow_drive_with_lifecycle_events(
        self, drive: api_rows.ApiRow
    ) -> AsyncIterator[dict[str, Any] | None]:
        graph = drive.body["kwargs"]["graph_id"]
        yield event_protocol.build_protocol_event("lifecycle", {"event": "running", "graph_name": graph})
        asks, failed = False, ""
        found = drive_streams.follow_event_pieces(
            self.home, drive.id, lambda: self.queues.is_drive_unfinished(drive.id)
        )
        async for line in drive_streams.join_event_pieces(found):
            if line is None:
                yield None
            elif line.event == "protocol":
                made = json.loads(line.data)
                yield made
                if made["method"] == "input.requested" and not asks:
                    asks = True
                    yield event_protocol.build_protocol_event(
                        "lifecycle", {"event": "interrupted", "graph_name": graph}
                    )
            elif line.event == "error":
                failed = json.loads(line.data)["message"]
        while self.queues.is_drive_unfinished(drive.id):
            await asyncio.sleep(_LOOK_S)
        now = api_rows.find_api_row(self.home, "drive", drive.id)
        if asks and not failed:
            return
        ended = _ENDS.get(now.body["status"] if now else "", "failed")
        more = {"error": failed} if failed else {}
        yield event_protocol.build_protocol_event("lifecycle", {"event": ended, "graph_name": graph, **more})


class CommandError(RefusedError):
    """A command that the protocol answers with an error."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(200, detail)
        self.code = code


def command_error_json(command_id: object, error: InterlockError) -> dict[str, Any]:
    """Return the answer to a command that failed; `command_id`: its id."""
    code = error.code if isinstance(error, CommandError) else "unknown_error"
    return {"type": "error", "id": command_id, "error": code, "message": str(error)}


def _describe_channels_problem(requested: object) -> str:
    """Return what is wrong with the channels of a subscription; empty: nothing."""
    if not isinstance(requested, list) or not requested:
        return "channels is required and must be a non-empty array"
    channels = cast("list[Any]", requested)
    wrong = [
        one for one in channels if not str(one).startswith("custom:") and one not in event_protocol.CHANNELS
    ]
    if not wrong:
        return ""
    allowed = "values, updates, messages, tools, custom, lifecycle, input, tasks, or any `custom:<name>`"
    text = ", ".join(str(one) for one in wrong[:5])
    return f"channels contains unsupported entries: {text}. Allowed: {allowed}."


_DRIVE_DEFAULTS: Mapping[str, Any] = {
    "stream_mode": ["values"],
    "stream_subgraphs": True,
    "stream_resumable": True,
}


async def serve_event_socket(commands: ProtocolCommands, app_auth: AppAuth | None, socket: WebSocket) -> None:
    """Until the client is gone, or takes nothing for too long."""
    person: Person = socket.state.person
    try:
        thread = parse_uuid(socket.path_params["thread"], "thread")
        VISIBILITY.set(await authorize_thread_action(app_auth, person, "read", {"thread_id": thread}))
        if app_auth:
            commands.threads.require_thread(thread)
    except RefusedError as error:
        await socket.close(1008, str(error))
        return
    forbid_user_code_without_drive_role(person)
    await socket.accept()
    talk = _SocketSession(commands, socket, thread, person, app_auth)
    tasks = [asyncio.ensure_future(work) for work in (talk.send_events(), talk.receive_commands())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect):
            try:
                await task
            except TimeoutError:
                socket.state.cut()


class _SocketSession:
    def __init__(
        self,
        commands: ProtocolCommands,
        socket: WebSocket,
        thread: str,
        person: Person,
        app_auth: AppAuth | None,
    ) -> None:
        self._commands, self._socket, self._thread, self._person = commands, socket, thread, person
        self._app_auth = app_auth
        self._wanted: dict[str, Mapping[str, Any]] = {}
        """Subscription → its channels and the like."""
        self._told = 0
        """Events of the thread that were looked at."""
        self._lock = asyncio.Lock()

    async def _send_json(self, data: Mapping[str, Any]) -> None:
        async with asyncio.timeout(drive_streams.PATIENCE_S):
            await self._socket.send_text(dump_json(data).decode())

    async def send_events(self) -> None:
        """Send the events that some subscription wants."""
        async with aclosing(cast(Any, self._commands.follow_thread_events(self._thread))) as found:
            async for made in found:
                if made is None:
                    continue
                async with self._lock:
                    self._told = made["seq"]
                    if any(event_protocol.matches_subscription(one, made) for one in self._wanted.values()):
                        await self._send_json(made)

    async def receive_commands(self) -> None:
        while True:
            text = await self._socket.receive_text()
            try:
                found: Any = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            given = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            if isinstance(given.get("id"), int) and isinstance(given.get("method"), str):
                await self._execute_and_answer(given)
                continue
            message = "Protocol commands must be JSON with an integer id and string method."
            await self._send_json_under_lock(
                command_error_json(given.get("id"), CommandError("invalid_argument", message))
            )

    async def _send_json_under_lock(self, data: Mapping[str, Any]) -> None:
        async with self._lock:
            await self._send_json(data)

    async def _send_success(self, command_id: int, result: Mapping[str, Any]) -> None:
        await self._send_json_under_lock(
            {"type": "success", "id": command_id, "result": result, "meta": _META}
        )

    async def _execute_and_answer(self, command: dict[str, Any]) -> None:
        method: str = command["method"]
        try:
            if method in ("subscription.subscribe", "subscription.reconnect"):
                await self._subscribe_and_replay_events(command["id"], read_object_field(command, "params"))
            elif method == "subscription.unsubscribe":
                name = str(read_object_field(command, "params").get("subscription_id"))
                if self._wanted.pop(name, None) is None:
                    raise CommandError("no_such_subscription", f"Unknown subscription: {name}")
                await self._send_success(command["id"], {})
            else:
                check_role(self._person, required_role("decide"))
                value: dict[str, Any] = {
                    **read_object_field(command, "params"),
                    "thread_id": self._thread,
                    "metadata": {},
                }
                VISIBILITY.set(
                    await authorize_thread_action(self._app_auth, self._person, "create_run", value)
                )
                command |= {"metadata": value["metadata"]} if value["metadata"] else {}
                await self._send_json_under_lock(
                    await self._commands.execute_command(self._thread, command, self._person)
                )
        except RefusedError as error:
            await self._send_json_under_lock(command_error_json(command["id"], error))
        except (WebSocketDisconnect, TimeoutError):
            raise
        except Exception as error:
            await self._send_json_under_lock(command_error_json(command["id"], as_bug_error(error)))

    async def _subscribe_and_replay_events(self, command_id: int, params: dict[str, Any]) -> None:
        """Subscribe, and send what it wants of the past, unless another subscription wanted it."""
        if wrong := _describe_channels_problem(params.get("channels")):
            raise CommandError("invalid_argument", wrong)
        key = str(params.get("subscription_id") or uuid4())
        await self._send_success(command_id, {"subscription_id": key})
        async with self._lock:
            others = [*self._wanted.values()]
            self._wanted[key] = params
            if not self._told:
                return
            async with aclosing(cast(Any, self._commands.follow_thread_events(self._thread))) as found:
                async for made in found:
                    if made is None:
                        continue
                    if event_protocol.matches_subscription(params, made) and not any(
                        event_protocol.matches_subscription(o, made) for o in others
                    ):
                        await self._send_json(made)
                    if made["seq"] >= self._told:
                        return
