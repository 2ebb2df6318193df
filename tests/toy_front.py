"""toy_front: a front end of plain input and print on the client alone: prompt, stream, decide, stop, undo, fork."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from interlock.engine.client import Client, Decision, Options, Outcome, Pending
from interlock.engine.client.answer_choices import choices_by_key
from interlock.engine.client.following import RunStatus
from interlock.engine.client.requests import describe_request, make_decision
from interlock.state.errors import InterlockError, UserError
from interlock.state.events import Event, Init, MessageEvent, ToolResultEvent, ToolUse


class Toy:
    """One run at a time. A line is a prompt, a command (`/stop`, `/undo`, `/fork`, `/quit`), or a key that decides."""

    def __init__(
        self, options: Options, read: Callable[[], str] = input, say: Callable[[str], None] = print
    ) -> None:
        self.client = Client(options)
        self._read, self._say = read, say
        self.run, self._place = "", ""
        self._driving: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._key: asyncio.Future[str] | None = None

    async def serve(self) -> None:
        while (line := (await asyncio.to_thread(self._read)).strip()) != "/quit":
            try:
                await self._take(line)
            except InterlockError as error:
                self._say(f"error: {error}")
        await self._over()

    async def _take(self, line: str) -> None:
        if self._key is not None:
            self._key.set_result(line)
            self._key = None
        elif line == "/stop":
            self.client.stop_drives(self.run)
            await self._over()
        elif line == "/undo":
            await self._over()
            for mark, path in self.client.undo_changes(self.run):
                self._say(f"undone: {mark} {path}")
        elif line == "/fork":
            await self._over()
            self.run = self.client.fork_run(self.run, in_place=True).run
            self._say("forked")
        else:
            await self._over()
            self._driving = asyncio.create_task(self._drive(line))

    async def _over(self) -> None:
        """Wait until nothing is driven."""
        if self._driving:
            await self._driving
        while self._following and self._place != self.client.cursor_at_record_end(self.run):
            await asyncio.sleep(0.05)
        if self._following:
            self._following.cancel()
        self._driving = self._following = None

    async def _drive(self, prompt: str) -> None:
        if self.run:
            work = self.client.resume(
                self.run, prompt, renderers=[self._begun()], decider=self, replace_unfinished=True
            )
        else:
            work = self.client.start("main", {"prompt": prompt}, renderers=[self._begun()], decider=self)
        outcome = await work
        self._say(f"= {outcome.status}")

    def _begun(self) -> Callable[[Event], None]:
        """Follows the run from when its id is known."""
        loop, cursor = (
            asyncio.get_running_loop(),
            self.client.cursor_at_record_end(self.run) if self.run else "",
        )

        def begun(event: Event) -> None:
            if isinstance(event, Init):
                loop.call_soon_threadsafe(self._follow, event.session_id, cursor)

        return begun

    def _follow(self, run: str, cursor: str) -> None:
        self.run = run
        if self._following is None:
            self._following = asyncio.create_task(self._show(run, cursor))

    async def _show(self, run: str, cursor: str) -> None:
        async with aclosing(self.client.follow_events(run, cursor)) as found:
            async for event, place in found:
                self._place = place or self._place
                if not isinstance(event, RunStatus):
                    self._event(event)

    def _event(self, event: Event) -> None:
        match event:
            case MessageEvent() if event.delta:
                self._say(f"~ {event.content}")
            case MessageEvent():
                self._say(f"{event.role}: {event.content}")
            case ToolUse():
                self._say(f"call: {event.summary}")
            case ToolResultEvent():
                self._say(f"result: {event.tool_name} {event.status}")
            case _:
                pass

    async def decide(self, _outcome: Outcome, requests: Sequence[Pending], /) -> list[Decision]:
        made: list[Decision] = []
        for request in requests:
            words, ways = describe_request(request), choices_by_key(request)
            self._say(f"? {words.headline} ({words.why})")
            self._say("  " + ", ".join(f"{key} {way.label}" for key, way in ways.items()))
            self._key = asyncio.get_running_loop().create_future()
            key, _, why = (await self._key).partition(" ")
            if way := ways.get(key):
                made.append(make_decision(request, way, why))
        return made

    def on_decisions_refused(self, error: UserError, /) -> None:
        self._say(f"error: {error}")
