"""sockets: the second event protocol over a WebSocket: commands, and the events of what is subscribed to, each once."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any, cast
from uuid import uuid4

from starlette.websockets import WebSocket, WebSocketDisconnect

from interlock.cli.web.answers import RefusedError, check_role
from interlock.cli.web.api import protocol, streams
from interlock.cli.web.api.answers import dumped, part, uuid_in
from interlock.cli.web.api.commands import CommandError, Commands, error_in, wrong_channels
from interlock.cli.web.guard import Person
from interlock.state.errors import bug


class Sockets:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def serve(self, socket: WebSocket) -> None:
        """Until the client is gone, or takes nothing for too long."""
        commands = self._commands
        try:
            thread = uuid_in(socket.path_params["thread"], "thread")
        except RefusedError as error:
            await socket.close(1008, str(error))
            return
        await socket.accept()
        talk = _Talk(commands, socket, thread, socket.state.person)
        telling = asyncio.ensure_future(talk.tell())
        listening = asyncio.ensure_future(talk.listen())
        await asyncio.wait((telling, listening), return_when=asyncio.FIRST_COMPLETED)
        for task in (telling, listening):
            task.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect):
                try:
                    await task
                except TimeoutError:
                    socket.state.cut()


class _Talk:
    def __init__(self, commands: Commands, socket: WebSocket, thread: str, person: Person) -> None:
        self._commands, self._socket, self._thread, self._person = commands, socket, thread, person
        self._wanted: dict[str, Mapping[str, Any]] = {}
        """Subscription → its channels and the like."""
        self._told = 0
        """Events of the thread that were looked at."""
        self._lock = asyncio.Lock()

    async def _send(self, data: Mapping[str, Any]) -> None:
        async with asyncio.timeout(streams.PATIENCE_S):
            await self._socket.send_text(dumped(data).decode())

    async def tell(self) -> None:
        """Send the events that some subscription wants."""
        async with aclosing(cast(Any, self._commands.followed(self._thread))) as found:
            async for made in found:
                if made is None:
                    continue
                async with self._lock:
                    self._told = made["seq"]
                    if any(protocol.wants(one, made) for one in self._wanted.values()):
                        await self._send(made)

    async def listen(self) -> None:
        while True:
            text = await self._socket.receive_text()
            try:
                found: Any = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            given = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            if isinstance(given.get("id"), int) and isinstance(given.get("method"), str):
                await self._answer(given)
                continue
            message = "Protocol commands must be JSON with an integer id and string method."
            await self._refuse(given.get("id"), CommandError("invalid_argument", message))

    async def _refuse(self, name: object, error: RefusedError) -> None:
        async with self._lock:
            await self._send({"type": "error", "id": name, **error_in(error)})

    async def _answer(self, given: dict[str, Any]) -> None:
        method: str = given["method"]
        try:
            if method in ("subscription.subscribe", "subscription.reconnect"):
                await self._subscribe(given["id"], part(given, "params"))
            elif method == "subscription.unsubscribe":
                name = str(part(given, "params").get("subscription_id"))
                if self._wanted.pop(name, None) is None:
                    raise CommandError("no_such_subscription", f"Unknown subscription: {name}")
                await self._succeed(given["id"], {})
            else:
                check_role(self._person, "decide")
                made = await self._commands.done(self._thread, given, self._person)
                async with self._lock:
                    await self._send(made)
        except RefusedError as error:
            await self._refuse(given["id"], error)
        except (WebSocketDisconnect, TimeoutError):
            raise
        except Exception as error:
            await self._refuse(given["id"], RefusedError(500, str(bug(error))))

    async def _succeed(self, name: int, result: Mapping[str, Any]) -> None:
        async with self._lock:
            await self._send({"type": "success", "id": name, "result": result, "meta": {}})

    async def _subscribe(self, name: int, params: dict[str, Any]) -> None:
        """Subscribe, and send what it wants of the past, unless another subscription wanted it."""
        if wrong := wrong_channels(params.get("channels")):
            raise CommandError("invalid_argument", wrong)
        key = str(params.get("subscription_id") or uuid4())
        await self._succeed(name, {"subscription_id": key})
        async with self._lock:
            others = [*self._wanted.values()]
            self._wanted[key] = params
            if not self._told:
                return
            async with aclosing(cast(Any, self._commands.followed(self._thread))) as found:
                async for made in found:
                    if made is None:
                        continue
                    if protocol.wants(params, made) and not any(protocol.wants(o, made) for o in others):
                        await self._send(made)
                    if made["seq"] >= self._told:
                        return
