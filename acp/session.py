"""session: one session of an editor: a conversation whose events become updates, whose questions go there, and whose
settings are the protocol's modes and options."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlock.acp import permission_requests, prompts
from interlock.acp.prompts import Block, PromptContents, attach_file, read_blocks
from interlock.acp.session_updates import Update, UpdateRenderer, message_chunk
from interlock.acp.wire import INTERNAL, INVALID, NO_LOGIN, PARAMS, RpcError, Wire
from interlock.cli.startup import end_startup
from interlock.engine.client import Decision, Options, Pending, choices
from interlock.engine.client.conversation import UNFINISHED, Conversation, Notice
from interlock.engine.client.user_extensions import ExtensionReader
from interlock.services.models.names import configured_context_window
from interlock.state.errors import InterlockError
from interlock.state.events import Event, Finished, HandOver, Init, Result
from interlock.state.text import as_object

_ALL = 1_000_000
"""Messages of a conversation that are shown again: all of them."""
_STOP_REASONS = {53: "max_turn_requests", 57: "max_tokens", 130: "cancelled"}
"""Exit code → why a turn stopped, where that isn't its end."""
_TOLD = (56, 58, 124)
"""Exit codes of a turn that ends with a reason for the person, and no failure."""
_KNOWN = ("rejected", "refused", "denied")
"""Errors that the calls have shown, and the model was told of."""


class EditorSession:
    """Shows a conversation in an editor (`Front`). Used from the event loop, but for `event`."""

    def __init__(self, name: str, options: Options, wire: Wire, client: Mapping[str, Any]) -> None:
        """`client`: the client's capabilities."""
        self.name, self._wire, self._client = name, wire, client
        options = replace(options, buffers=ClientFiles(wire, name, client))
        self.talk = Conversation(options, "main", self)
        self._own = ExtensionReader(options, self.talk.workspace)
        self.talk.shown_at_most = _ALL
        self.talk.next_id = name
        terminals = as_object(client.get("_meta")).get("terminal_output") is True
        self.drawing = UpdateRenderer(self.talk.workspace, terminals)
        self._replaying = False
        self._turn: asyncio.Future[None] | None = None
        self._shown: asyncio.Future[None] | None = None
        self._asking: tuple[str, asyncio.Future[Any]] | None = None
        self._choices = 0
        self._answer = ""
        """What the person said where a question is open that only words answer."""
        self._cancelled = self._closed = self._elsewhere = False
        self._result: Result | None = None
        self._problems: list[str] = []
        self._pointed = name
        self._prompted = False
        """A prompt has been sent, and nothing has come of it yet."""

    async def begin(self) -> None:
        """Read the settings. Raises `InterlockError`."""
        self.talk.begin()
        self._watching = asyncio.create_task(self.talk.watch())
        self.chosen = await asyncio.to_thread(SessionOptions, self.talk, self.update, self.keep)

    def offer(self) -> None:
        """Tell the client which commands there are."""
        self.update(prompts.commands_update(self._own))

    async def close(self) -> None:
        """Stop; an open question stays open, for whoever loads the session."""
        self._closed = True
        self._watching.cancel()
        self._withdraw()
        await self.talk.close()

    async def show(self, run: str, replay: bool = True) -> None:
        """Go on with a run: show its conversation, then ask what is open. Raises `UserError` and `RpcError`."""
        self._shown = asyncio.get_running_loop().create_future()
        self._replaying, self._muted, self._problems = replay, not replay, []
        self.talk.switch(run)
        self.drawing.run = run
        self.drawing.workspace = self.talk.workspace
        try:
            await self._shown
        finally:
            self._shown = None
        if self._problems:
            raise RpcError(INTERNAL, "\n".join(self._problems))

    async def prompt(self, blocks: Sequence[Block]) -> dict[str, Any]:
        """One turn. Raises `RpcError` for a prompt that can't be used, and for a turn that failed."""
        if self._turn is not None:
            raise RpcError(INVALID, "A prompt is running in this session. Cancel it, or wait until it ends.")
        self._turn = asyncio.get_running_loop().create_future()
        self._cancelled, self._elsewhere, self._result, self._problems = False, False, None, []
        try:
            with tempfile.TemporaryDirectory(prefix="interlock-") as spool:
                await self._sent(blocks, Path(spool))
            return self._ended()
        finally:
            self._turn = None

    async def _sent(self, blocks: Sequence[Block], spool: Path) -> None:
        talk = self.talk
        found = read_blocks(
            blocks, talk.workspace, (talk.workspace, *talk.options.include_directories), spool
        )
        if command := prompts.parse_command(found.text):
            return await self._executed(*command)
        await self._ask_for_outside(found)
        if self._cancelled:
            return None
        found.text = prompts.expand_skill(found.text, self._own)
        if talk.busy:  # a question that was open when the session was loaded: the prompt comes in its place
            self._withdraw()
            while talk.busy and not self._cancelled:
                await asyncio.sleep(0.01)
            if self._cancelled:
                return None
            self._turn = asyncio.get_running_loop().create_future()
        attach = [*found.files]
        talk.options = replace(talk.options, attach=tuple(attach), notes=(*talk.options.notes, *found.notes))
        text = found.text or ("See what is attached." if attach or found.notes else "")
        if not text and talk.status not in UNFINISHED:
            raise RpcError(PARAMS, "The prompt is empty. Say what to do.")
        if talk.status == "waiting" and any(map(permission_requests.needs_text, self._open())):
            self._answer = text
            talk.ask_again()
        else:
            talk.submit(text)
        return await self._over()

    async def _executed(self, command: prompts.Command, rest: str) -> None:
        if self.talk.busy:
            raise RpcError(
                INVALID, "A request is open in this session. Decide or cancel it before you run a command."
            )
        try:
            await command.run(self, rest)
        except InterlockError as error:
            self.say(str(error))
        if self.talk.busy:
            await self._over()

    async def _ask_for_outside(self, found: PromptContents) -> None:
        """A linked file beyond the workspace is read only if the person agrees."""
        for path in found.outside:
            about = f"`{path}` is outside the workspace."
            if await self.choose(f"Read {path}?", about, ["yes"]) == 0:
                attach_file(path, found)

    async def choose(self, title: str, about: str, names: Sequence[str]) -> int | None:
        """Which of these the person chooses; None: none of them."""
        self._choices += 1
        name = f"choice-{self._choices}"
        self.update(self.drawing.announce(name, "", {}, title))
        asked = asyncio.ensure_future(
            permission_requests.request_choice(self._wire, self.name, name, title, about, names)
        )
        self._asking = "", asked
        await asyncio.wait({asked})
        self._asking = None
        chosen = None if asked.cancelled() or asked.exception() else asked.result()
        self.update(self.drawing.end(name, chosen is not None))
        return chosen

    def say(self, text: str) -> None:
        self.update(message_chunk("agent_message", f"{text}\n"))

    async def moved_by(self, go: Callable[[], Awaitable[object]]) -> None:
        """Let a command go to another run, whose conversation the editor shows already. Raises `InterlockError`."""
        self._muted = True
        try:
            await go()
            if self.talk.busy:
                self._shown = asyncio.get_running_loop().create_future()
                await self._shown
        finally:
            self._muted, self._shown = False, None
            self.drawing.run = self.talk.run or ""

    async def _over(self) -> None:
        """Wait until the conversation rests."""
        assert self._turn is not None
        await self._turn

    def _open(self) -> list[Pending]:
        return [r.fields for r in self.talk.client.waiting_requests(self.talk.run)] if self.talk.run else []

    def _ended(self) -> dict[str, Any]:
        result = self._result
        if self._cancelled or self._closed or (result and result.status == "cancelled"):
            return {"stopReason": "cancelled"}
        if result is None or (result.error and result.exit_code not in (*_STOP_REASONS, *_TOLD)):
            error = (result and result.error) or {}
            if problem := error.get("message") or "\n".join(self._problems):
                code = NO_LOGIN if error.get("type") == "credentials" else INTERNAL
                raise RpcError(code, problem, {"run": self.talk.run, **error})
        elif result.error and result.error["type"] not in _KNOWN:
            self.update(message_chunk("agent_message", f"\n{result.error['message']}\n"))
        reason = _STOP_REASONS.get(result.exit_code if result else 0, "end_turn")
        return {"stopReason": reason, **_token_usage(result)}

    def cancel(self) -> None:
        """Stop the turn. An open question is withdrawn; an answer that crosses this counts for nothing."""
        self._cancelled = self._turn is not None
        self._withdraw()
        self.talk.cancel()

    def _withdraw(self) -> None:
        if self._asking is not None:
            self._asking[1].cancel()

    # What the conversation calls

    def event(self, event: Event, /) -> None:
        if event.type in ("finished", "tool_start"):
            end_startup()
        if isinstance(event, Init):
            self.drawing.run = event.session_id
            if self._prompted:
                self._prompted = False
                self.chosen.counted()
        elif isinstance(event, Result):
            self._result = event
        elif isinstance(event, HandOver):
            self.drawing.run = event.run
        if self._muted:
            return
        for update in self.drawing.updates(event, self._replaying):
            self.update(update, droppable=event.type == "tool_output")
        if isinstance(event, Finished) and not event.agent:
            self.update(self.chosen.usage(event.usage))

    def update(self, update: Update, *, droppable: bool = False) -> None:
        params = {"sessionId": self.name, "update": update}
        self._wire.notify("session/update", params, droppable=droppable)

    def notice(self, notice: Notice, /) -> None:
        if notice.kind == "problem":
            self._problems.append(notice.text)
        elif notice.kind in ("forked", "back", "unchanged") or (notice.kind == "chosen" and self._turn):
            self.say(notice.text)
        elif notice.kind in ("unsent", "elsewhere"):
            self._elsewhere |= notice.kind == "elsewhere"
            self.update(message_chunk("agent_thought", f"{notice.text}\n"))
        elif notice.kind == "unfinished" and (self._turn is None or self._elsewhere):
            again = "It stopped midway. /continue goes on; or say what to do instead."
            self.update(message_chunk("agent_thought", f"{again}\n"))

    def prompted(self, _prompt: str, /) -> None:
        """The editor shows what was typed there. Calls that are open end: the prompt comes in their place."""
        self._prompted = True
        for name in [*self.drawing.open]:
            self.update(self.drawing.end(name, False))

    def moved(self) -> None:
        self.chosen.tell()
        if not self.talk.busy and self._turn and not self._turn.done():
            self._turn.set_result(None)

    def ended(self) -> None:
        self._replaying = self._muted = False
        if self.talk.run and self.talk.run != self._pointed:
            self._pointed = self.talk.run
            self.keep()
        if self._shown and not self._shown.done():
            self._shown.set_result(None)

    _muted = False

    def keep(self) -> None:
        """Store which run the session shows, and what was chosen for its next prompt."""
        self.talk.client.update_session(self.name, self._pointed, self.talk.workspace, self.chosen.kept)

    async def decide(self, _run: str, requests: Sequence[Pending], /) -> Sequence[Decision]:
        made: list[Decision] = []
        for request in requests:
            self._asking = request["id"], asyncio.ensure_future(self._decision(request))
            await asyncio.wait({self._asking[1]})
            asked, self._asking = self._asking[1], None
            if self._cancelled:
                return [*made, *filter(None, map(permission_requests.cancel_decision, requests[len(made) :]))]
            if asked.cancelled():  # decided elsewhere, or given up for another prompt
                continue
            try:
                decision = asked.result()
            except (RpcError, InterlockError) as error:
                self._problems.append(str(error))
                break
            if decision is None:
                break
            made.append(decision)
        return made

    async def _decision(self, request: Pending) -> Decision | None:
        words, self._answer = self._answer, ""
        if permission_requests.needs_text(request):
            if words:
                return permission_requests.decide_with_answers(request, [words])
            if as_object(self._client.get("elicitation")).get("form") is not None:
                return await permission_requests.request_form(self._wire, self.name, request)
            self.update(
                message_chunk(
                    "agent_message",
                    "\n".join(
                        permission_requests.question_lines(permission_requests.describe_request(request))
                    ),
                )
            )
            return None
        if (name := permission_requests.tool_call_id(request, self.drawing)) not in self.drawing.announced:
            headline = permission_requests.describe_request(request).headline
            self.update(self.drawing.announce(name, request["tool_name"], request["args"], headline))
        decision = await permission_requests.request_permission(self._wire, self.name, request, self.drawing)
        if decision is None:
            self.say(f"A request stays open: interlock approvals {self.talk.run}. Or say what to do instead.")
        elif decision.choice == "cancel":
            self._cancelled = True
        return decision

    def still_asked(self, waiting: Collection[str], /) -> None:
        if self._asking and self._asking[0] not in waiting:
            self._asking[1].cancel()

    def take_back(self, texts: Sequence[str], /) -> None:
        """Nothing: a session has no queue, because a second prompt is refused."""


def _token_usage(result: Result | None) -> dict[str, Any]:
    stats = result.stats if result else {}
    if "total_tokens" not in stats:
        return {}
    names = {"totalTokens": "total_tokens", "inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    return {"usage": {name: int(stats.get(key) or 0) for name, key in names.items()}}


_PATIENCE_S = 10.0
"""Seconds for the client's answer; then the file on disk counts."""


class ClientFiles:
    """The client's `fs/*` methods, as far as it offers them (`Buffers`). Not for use in the wire's own event loop."""

    def __init__(self, wire: Wire, session: str, client: Mapping[str, Any]) -> None:
        self._offers = as_object(client.get("fs"))
        self._wire, self._session, self._loop = wire, session, asyncio.get_running_loop()

    def text(self, path: Path) -> str | None:
        content = as_object(self._asked("readTextFile", "fs/read_text_file", path)).get("content")
        return content if isinstance(content, str) else None

    def write(self, path: Path, text: str) -> None:
        self._asked("writeTextFile", "fs/write_text_file", path, content=text)

    def _asked(self, offer: str, method: str, path: Path, **more: str) -> Any:
        """The client's answer; None: it doesn't offer this, refuses, knows no such file, or doesn't answer."""
        if self._offers.get(offer) is not True:
            return None
        request = self._wire.request(method, {"sessionId": self._session, "path": str(path), **more})
        answer = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return answer.result(_PATIENCE_S)
        except (RpcError, CancelledError):
            return None
        except TimeoutError:
            answer.cancel()
            return None


_OWN = "-"
"""Value of a mode of work that is none."""


class SessionOptions:
    """A session's modes and options. Changes count from the next prompt on."""

    def __init__(self, talk: Conversation, send: Callable[[Update], None], keep: Callable[[], None]) -> None:
        """Reads the settings. Raises `InterlockError`. `keep`: stores `kept`."""
        self._talk, self._send, self._keep = talk, send, keep
        self.kept: Mapping[str, str] = {}
        """What was chosen for the next prompt."""
        self._models, self._modes = choices.list_models(talk), choices.list_modes(talk)
        self._told = self._now()

    def state(self) -> dict[str, Any]:
        """As a new or loaded session is answered with."""
        known = choices.list_approval_modes(self._talk)
        modes = [{"id": name, "name": name, "description": about} for name, about in known.items()]
        now = {"currentModeId": self._talk.approval_mode, "availableModes": modes}
        return {"modes": now, "configOptions": self.options()}

    def options(self) -> list[Update]:
        talk = self._talk
        work = {_OWN: "no mode of work", **self._modes}
        models = {
            **({talk.model: "now"} if talk.model not in self._models and talk.model else {}),
            **self._models,
        }
        level, levels = choices.thinking_levels(talk)
        thinking = (
            [_select_option("thinking", "Thought level", "thought_level", level, levels)] if levels else []
        )
        return [
            _select_option("model", "Model", "model", talk.model or "auto", models),
            *thinking,
            _select_option(
                "approval_mode", "Approvals", "mode", talk.approval_mode, choices.list_approval_modes(talk)
            ),
            _select_option("mode", "Mode of work", None, talk.mode or _OWN, work),
        ]

    def take(self, option: str, value: object) -> None:
        """Raises `RpcError` and `UserError`."""
        take = {
            "model": choices.choose_model,
            "thinking": choices.choose_thinking,
            "approval_mode": choices.choose_approval_mode,
            "mode": choices.choose_mode,
        }
        if option not in take:
            raise RpcError(PARAMS, f"No option {option!r}. There are {', '.join(take)}.")
        if not isinstance(value, str):
            raise RpcError(PARAMS, f"Option {option!r} takes a string, got {value!r}.")
        if option == "mode" and value == _OWN:
            raise RpcError(PARAMS, "You can change the mode of work, but not leave it.")
        take[option](self._talk, value)
        if self.kept.get(option) != value:
            self.kept = {**self.kept, option: value}
            self._keep()
        self.tell()

    def again(self, kept: Mapping[str, str]) -> None:
        """Choose what was chosen before the editor died; what isn't there any more is left out, and told."""
        self.kept = kept
        for option, value in kept.items():
            try:
                self.take(option, value)
            except InterlockError as error:
                self._send(message_chunk("agent_thought", f"{error}\n"))

    def counted(self) -> None:
        """A prompt runs with what was chosen: from now on the run keeps it."""
        if self.kept:
            self.kept = {}
            self._keep()

    def tell(self) -> None:
        """Send what has changed: a plan that was approved, or the model, may have."""
        if (now := self._now()) == self._told:
            return
        if now[0] != self._told[0]:
            self._send({"sessionUpdate": "current_mode_update", "currentModeId": now[0]})
        self._told = now
        self._send({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    def usage(self, used: Mapping[str, int]) -> Update:
        """How much of the model's window the last request filled."""
        settings = self._talk.client.settings(self._talk.workspace)
        size = configured_context_window(
            settings, settings.model.aliases.get(self._talk.model, self._talk.model)
        )
        return {
            "sessionUpdate": "usage_update",
            "used": used.get("input", 0) + used.get("output", 0),
            "size": size,
        }

    def _now(self) -> tuple[str, ...]:
        talk = self._talk
        return talk.approval_mode, talk.model, talk.mode, choices.thinking_levels(talk)[0]


def _select_option(
    name: str, label: str, category: str | None, now: str, values: Mapping[Any, str]
) -> Update:
    options = [{"value": value, "name": value, "description": about} for value, about in values.items()]
    known = [*options] if now in values else [{"value": now, "name": now}, *options]
    more = {"category": category} if category else {}
    return {"type": "select", "id": name, "name": label, "currentValue": now, "options": known, **more}
