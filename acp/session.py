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
from interlock.acp.prompts import Block, PromptContents, attach_file, read_prompt_blocks
from interlock.acp.session_updates import Update, UpdateRenderer, message_chunk
from interlock.acp.wire import INTERNAL, INVALID, NO_LOGIN, PARAMS, JsonRpcConnection, RpcError
from interlock.cli.startup import resume_gc_and_start_warm_process
from interlock.engine.client import Decision, Options, Pending, choices
from interlock.engine.client.conversation import UNFINISHED, Conversation, Notice
from interlock.engine.client.user_extensions import ExtensionReader
from interlock.services.models.names import configured_context_window
from interlock.state.errors import InterlockError
from interlock.state.events import Event, Finished, HandOver, Init, Result
from interlock.state.text import dict_or_empty

_ALL = 1_000_000
"""Messages of a conversation that are shown again: all of them."""
_STOP_REASONS = {53: "max_turn_requests", 57: "max_tokens", 130: "cancelled"}
"""Exit code → why a turn stopped, where that isn't its end."""
_TOLD = (56, 58, 124)
"""Exit codes of a turn that ends with a reason for the person, and no failure."""
_KNOWN = ("rejected", "refused", "denied")
"""Errors that the calls have shown, and the model was told of."""


class EditorSession:
    """Shows a conversation in an editor (`FrontEnd`). Used from the event loop, but for `event`."""

    def __init__(
        self, name: str, options: Options, wire: JsonRpcConnection, client: Mapping[str, Any]
    ) -> None:
        """`client`: the client's capabilities."""
        self.name, self._wire, self._client = name, wire, client
        options = replace(options, buffers=ClientFiles(wire, name, client))
        self.conversation = Conversation(options, "main", self)
        self._folder = self.conversation.workspace
        """As the editor knows it: its runs may work in a git worktree of it."""
        self._extensions = ExtensionReader(options, self._folder)
        self.conversation.shown_at_most = _ALL
        self.conversation.next_id = name
        terminals = dict_or_empty(client.get("_meta")).get("terminal_output") is True
        self.renderer = UpdateRenderer(self.conversation.workspace, terminals)
        self._replaying = False
        self._turn: asyncio.Future[None] | None = None
        self._run_shown: asyncio.Future[None] | None = None
        self._asking: tuple[str, asyncio.Future[Any]] | None = None
        self._choice_count = 0
        self._typed_answer = ""
        """What the person said where a question is open that only words answer."""
        self._cancelled = self._closed = self._driven_elsewhere = False
        self._result: Result | None = None
        self._problems: list[str] = []
        self._saved_run = name
        self._prompt_pending = False
        """A prompt has been sent, and nothing has come of it yet."""

    async def start(self) -> None:
        """Read the settings. Raises `InterlockError`."""
        self.conversation.start_engine_thread()
        self._watching = asyncio.create_task(self.conversation.watch_external_changes())
        self.session_options = await asyncio.to_thread(
            SessionOptions, self.conversation, self.send_update, self.save_session
        )

    def announce_commands(self) -> None:
        """Tell the client which slash commands there are."""
        self.send_update(prompts.available_commands_update(self._extensions))

    async def close(self) -> None:
        """Stop; an open question stays open, for whoever loads the session."""
        self._closed = True
        self._watching.cancel()
        self._withdraw_question()
        await self.conversation.close()

    async def open_run_and_wait(self, run: str, replay: bool = True) -> None:
        """Go on with a run: show its conversation, then ask what is open. Raises `UserError` and `RpcError`."""
        self._run_shown = asyncio.get_running_loop().create_future()
        self._replaying, self._muted, self._problems = replay, not replay, []
        self.conversation.switch_run(run)
        self.renderer.run = run
        self.renderer.workspace = self.conversation.workspace
        try:
            await self._run_shown
        finally:
            self._run_shown = None
        if self._problems:
            raise RpcError(INTERNAL, "\n".join(self._problems))

    async def run_turn(self, blocks: Sequence[Block]) -> dict[str, Any]:
        """Send a prompt and wait for its turn's end. Raises `RpcError` if it is unusable or its turn failed."""
        if self._turn is not None:
            raise RpcError(INVALID, "A prompt is running in this session. Cancel it, or wait until it ends.")
        self._turn = asyncio.get_running_loop().create_future()
        self._cancelled, self._driven_elsewhere, self._result, self._problems = False, False, None, []
        try:
            with tempfile.TemporaryDirectory(prefix="interlock-") as spool:
                await self._send_prompt_and_wait(blocks, Path(spool))
            return self._turn_result_or_raise()
        finally:
            self._turn = None

    async def _send_prompt_and_wait(self, blocks: Sequence[Block], attachment_folder: Path) -> None:
        talk = self.conversation
        contents = read_prompt_blocks(
            blocks, talk.workspace, (talk.workspace, *talk.options.include_directories), attachment_folder
        )
        if command := prompts.parse_builtin_command(contents.text):
            return await self._execute_command(*command)
        await self._ask_to_attach_outside_files(contents)
        if self._cancelled:
            return None
        if talk.busy:  # a question that was open when the session was loaded: the prompt comes in its place
            self._withdraw_question()
            while talk.busy and not self._cancelled:
                await asyncio.sleep(0.01)
            if self._cancelled:
                return None
            self._turn = asyncio.get_running_loop().create_future()
        attach = [*contents.files]
        talk.options = replace(
            talk.options, attach=tuple(attach), notes=(*talk.options.notes, *contents.notes)
        )
        text = contents.text or ("See what is attached." if attach or contents.notes else "")
        if not text and talk.status not in UNFINISHED:
            raise RpcError(PARAMS, "The prompt is empty. Say what to do.")
        if talk.status == "waiting" and any(
            map(permission_requests.needs_text_answer, self._list_open_requests())
        ):
            self._typed_answer = text
            talk.ask_all_pending_requests()
        else:
            talk.submit_prompt(text)
        return await self._wait_until_idle()

    async def _execute_command(self, command: prompts.SlashCommand, argument: str) -> None:
        if self.conversation.busy:
            raise RpcError(
                INVALID, "A request is open in this session. Decide or cancel it before you run a command."
            )
        try:
            await command.run(self, argument)
        except InterlockError as error:
            self.send_agent_message(str(error))
        if self.conversation.busy:
            await self._wait_until_idle()

    async def _ask_to_attach_outside_files(self, contents: PromptContents) -> None:
        """Attach each linked file beyond the workspace if the person agrees."""
        for path in contents.outside:
            about = f"`{path}` is outside the workspace."
            if await self.ask_for_choice(f"Read {path}?", about, ["yes"]) == 0:
                attach_file(path, contents)

    async def ask_for_choice(self, title: str, details: str, labels: Sequence[str]) -> int | None:
        """Ask which of these the person chooses; None: none of them."""
        self._choice_count += 1
        name = f"choice-{self._choice_count}"
        self.send_update(self.renderer.record_open_call(name, "", {}, title))
        asked = asyncio.ensure_future(
            permission_requests.request_choice(self._wire, self.name, name, title, details, labels)
        )
        self._asking = "", asked
        await asyncio.wait({asked})
        self._asking = None
        chosen = None if asked.cancelled() or asked.exception() else asked.result()
        self.send_update(self.renderer.record_call_end(name, chosen is not None))
        return chosen

    def send_agent_message(self, text: str) -> None:
        self.send_update(message_chunk("agent_message", f"{text}\n"))

    async def switch_run_quietly(self, switch: Callable[[], Awaitable[object]]) -> None:
        """Let a command go to another run, whose conversation the editor shows already. Raises `InterlockError`."""
        self._muted = True
        try:
            await switch()
            if self.conversation.busy:
                self._run_shown = asyncio.get_running_loop().create_future()
                await self._run_shown
        finally:
            self._muted, self._run_shown = False, None
            self.renderer.run = self.conversation.run or ""

    async def _wait_until_idle(self) -> None:
        """Wait until the conversation is idle."""
        assert self._turn is not None
        await self._turn

    def _list_open_requests(self) -> list[Pending]:
        return (
            [r.fields for r in self.conversation.client.waiting_requests(self.conversation.run)]
            if self.conversation.run
            else []
        )

    def _turn_result_or_raise(self) -> dict[str, Any]:
        result = self._result
        if self._cancelled or self._closed or (result and result.status == "cancelled"):
            return {"stopReason": "cancelled"}
        if result is None or (result.error and result.exit_code not in (*_STOP_REASONS, *_TOLD)):
            error = (result and result.error) or {}
            if problem := error.get("message") or "\n".join(self._problems):
                code = NO_LOGIN if error.get("type") == "credentials" else INTERNAL
                raise RpcError(code, problem, {"run": self.conversation.run, **error})
        elif result.error and result.error["type"] not in _KNOWN:
            self.send_update(message_chunk("agent_message", f"\n{result.error['message']}\n"))
        reason = _STOP_REASONS.get(result.exit_code if result else 0, "end_turn")
        return {"stopReason": reason, **_token_usage_field(result)}

    def cancel_turn(self) -> None:
        """Stop the turn. An open question is withdrawn; an answer that crosses this counts for nothing."""
        self._cancelled = self._turn is not None
        self._withdraw_question()
        self.conversation.cancel()

    def _withdraw_question(self) -> None:
        if self._asking is not None:
            self._asking[1].cancel()

    # What the conversation calls

    def on_event(self, event: Event, /) -> None:
        if event.type in ("finished", "tool_start"):
            resume_gc_and_start_warm_process()
        if isinstance(event, Init):
            self.renderer.run, self.renderer.workspace = event.session_id, self.conversation.workspace
            if self._prompt_pending:
                self._prompt_pending = False
                self.session_options.clear_choices_after_prompt()
        elif isinstance(event, Result):
            self._result = event
        elif isinstance(event, HandOver):
            self.renderer.run = event.run
        if self._muted:
            return
        for update in self.renderer.render_event(event, self._replaying):
            self.send_update(update, droppable=event.type == "tool_output")
        if isinstance(event, Finished) and not event.agent:
            self.send_update(self.session_options.usage_update(event.usage))

    def send_update(self, update: Update, *, droppable: bool = False) -> None:
        params = {"sessionId": self.name, "update": update}
        self._wire.send_notification("session/update", params, droppable=droppable)

    def on_notice(self, notice: Notice, /) -> None:
        if notice.kind == "problem":
            self._problems.append(notice.text)
        elif notice.kind in ("forked", "back", "unchanged") or (notice.kind == "chosen" and self._turn):
            self.send_agent_message(notice.text)
        elif notice.kind in ("unsent", "elsewhere"):
            self._driven_elsewhere |= notice.kind == "elsewhere"
            self.send_update(message_chunk("agent_thought", f"{notice.text}\n"))
        elif notice.kind == "unfinished" and (self._turn is None or self._driven_elsewhere):
            again = "It stopped midway. /continue goes on; or say what to do instead."
            self.send_update(message_chunk("agent_thought", f"{again}\n"))

    def on_prompt_sent(self, _prompt: str, /) -> None:
        """The editor shows what was typed there. Calls that are open end: the prompt comes in their place."""
        self._prompt_pending = True
        for name in [*self.renderer.open_calls]:
            self.send_update(self.renderer.record_call_end(name, False))

    def on_state_changed(self) -> None:
        self.session_options.send_changed_options()
        if not self.conversation.busy and self._turn and not self._turn.done():
            self._turn.set_result(None)

    def on_drive_ended(self) -> None:
        self._replaying = self._muted = False
        if self.conversation.run and self.conversation.run != self._saved_run:
            self._saved_run = self.conversation.run
            self.save_session()
        if self._run_shown and not self._run_shown.done():
            self._run_shown.set_result(None)

    _muted = False

    def save_session(self) -> None:
        """Store which run the session shows, and what was chosen for its next prompt."""
        self.conversation.client.update_session(
            self.name, self._saved_run, self._folder, self.session_options.chosen
        )

    async def ask_for_decisions(self, _run: str, requests: Sequence[Pending], /) -> Sequence[Decision]:
        made: list[Decision] = []
        for request in requests:
            self._asking = request["id"], asyncio.ensure_future(self._ask_for_decision(request))
            await asyncio.wait({self._asking[1]})
            asked, self._asking = self._asking[1], None
            if self._cancelled:
                return [
                    *made,
                    *filter(None, map(permission_requests.find_cancel_decision, requests[len(made) :])),
                ]
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

    async def _ask_for_decision(self, request: Pending) -> Decision | None:
        words, self._typed_answer = self._typed_answer, ""
        if permission_requests.needs_text_answer(request):
            if words:
                return permission_requests.decide_with_answers(request, [words])
            if dict_or_empty(self._client.get("elicitation")).get("form") is not None:
                return await permission_requests.request_form_answer(self._wire, self.name, request)
            self.send_update(
                message_chunk(
                    "agent_message",
                    "\n".join(
                        permission_requests.question_lines(permission_requests.describe_request(request))
                    ),
                )
            )
            return None
        if (
            name := permission_requests.tool_call_id_of_request(request, self.renderer)
        ) not in self.renderer.announced_calls:
            headline = permission_requests.describe_request(request).headline
            self.send_update(
                self.renderer.record_open_call(name, request["tool_name"], request["args"], headline)
            )
        decision = await permission_requests.request_permission(self._wire, self.name, request, self.renderer)
        if decision is None:
            self.send_agent_message(
                f"A request stays open: interlock approvals {self.conversation.run}. Or say what to do instead."
            )
        elif decision.choice == "cancel":
            self._cancelled = True
        return decision

    def withdraw_decided_requests(self, waiting_ids: Collection[str], /) -> None:
        if self._asking and self._asking[0] not in waiting_ids:
            self._asking[1].cancel()

    def return_queued_prompts(self, prompts: Sequence[str], /) -> None:
        """Nothing: a session has no queue, because a second prompt is refused."""


def _token_usage_field(result: Result | None) -> dict[str, Any]:
    stats = result.stats if result else {}
    if "total_tokens" not in stats:
        return {}
    names = {"totalTokens": "total_tokens", "inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    return {"usage": {name: int(stats.get(key) or 0) for name, key in names.items()}}


_PATIENCE_S = 10.0
"""Seconds for the client's answer; then the file on disk counts."""


class ClientFiles:
    """The client's `fs/*` methods, as far as it offers them (`Buffers`). Not for use in the wire's own event loop."""

    def __init__(self, wire: JsonRpcConnection, session: str, client: Mapping[str, Any]) -> None:
        self._offers = dict_or_empty(client.get("fs"))
        self._wire, self._session, self._loop = wire, session, asyncio.get_running_loop()

    def read_text(self, path: Path) -> str | None:
        content = dict_or_empty(self._try_call_client("readTextFile", "fs/read_text_file", path)).get(
            "content"
        )
        return content if isinstance(content, str) else None

    def write_text(self, path: Path, text: str) -> None:
        self._try_call_client("writeTextFile", "fs/write_text_file", path, content=text)

    def _try_call_client(self, capability: str, method: str, path: Path, **params: str) -> Any:
        """Return the client's answer; None: it doesn't offer this, refuses, knows no such file, or doesn't answer."""
        if self._offers.get(capability) is not True:
            return None
        request = self._wire.send_request(method, {"sessionId": self._session, "path": str(path), **params})
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

    def __init__(
        self, conversation: Conversation, send: Callable[[Update], None], save: Callable[[], None]
    ) -> None:
        """Reads the settings. Raises `InterlockError`. `save`: stores `chosen`."""
        self._conversation, self._send, self._save = conversation, send, save
        self.chosen: Mapping[str, str] = {}
        """What was chosen for the next prompt."""
        self._models, self._modes = choices.list_models(conversation), choices.list_modes(conversation)
        self._sent_values = self._current_option_values()

    def modes_and_options(self) -> dict[str, Any]:
        """Return the modes and options that a new or loaded session is answered with."""
        known = choices.list_approval_modes(self._conversation)
        modes = [{"id": name, "name": name, "description": about} for name, about in known.items()]
        now = {"currentModeId": self._conversation.approval_mode, "availableModes": modes}
        return {"modes": now, "configOptions": self.option_rows()}

    def option_rows(self) -> list[Update]:
        talk = self._conversation
        work = {_OWN: "no mode of work", **self._modes}
        models = {
            **({talk.model: "now"} if talk.model not in self._models and talk.model else {}),
            **self._models,
        }
        level, levels = choices.thinking_level_and_choices(talk)
        thinking = (
            [_build_select_option("thinking", "Thought level", "thought_level", level, levels)]
            if levels
            else []
        )
        return [
            _build_select_option("model", "Model", "model", talk.model or "auto", models),
            *thinking,
            _build_select_option(
                "approval_mode", "Approvals", "mode", talk.approval_mode, choices.list_approval_modes(talk)
            ),
            _build_select_option("mode", "Mode of work", None, talk.mode or _OWN, work),
        ]

    def set_option(self, option: str, value: object) -> None:
        """Choose a value and store it. Raises `RpcError` and `UserError`."""
        take = {
            "model": choices.choose_model,
            "thinking": choices.choose_thinking_level,
            "approval_mode": choices.choose_approval_mode,
            "mode": choices.choose_mode,
        }
        if option not in take:
            raise RpcError(PARAMS, f"No option {option!r}. There are {', '.join(take)}.")
        if not isinstance(value, str):
            raise RpcError(PARAMS, f"Option {option!r} takes a string, got {value!r}.")
        if option == "mode" and value == _OWN:
            raise RpcError(PARAMS, "You can change the mode of work, but not leave it.")
        take[option](self._conversation, value)
        if self.chosen.get(option) != value:
            self.chosen = {**self.chosen, option: value}
            self._save()
        self.send_changed_options()

    def restore_choices(self, stored: Mapping[str, str]) -> None:
        """Choose what was chosen before the editor died; what isn't there any more is left out, and told."""
        self.chosen = stored
        for option, value in stored.items():
            try:
                self.set_option(option, value)
            except InterlockError as error:
                self._send(message_chunk("agent_thought", f"{error}\n"))

    def clear_choices_after_prompt(self) -> None:
        """Forget what was chosen: a prompt runs with it, and from now on the run keeps it."""
        if self.chosen:
            self.chosen = {}
            self._save()

    def send_changed_options(self) -> None:
        """Send modes and options if they have changed, as after a plan that was approved."""
        if (now := self._current_option_values()) == self._sent_values:
            return
        if now[0] != self._sent_values[0]:
            self._send({"sessionUpdate": "current_mode_update", "currentModeId": now[0]})
        self._sent_values = now
        self._send({"sessionUpdate": "config_option_update", "configOptions": self.option_rows()})

    def usage_update(self, tokens: Mapping[str, int]) -> Update:
        """Return the update that says how much of the model's window the last request filled."""
        settings = self._conversation.client.settings(self._conversation.workspace)
        size = configured_context_window(
            settings, settings.model.aliases.get(self._conversation.model, self._conversation.model)
        )
        return {
            "sessionUpdate": "usage_update",
            "used": tokens.get("input", 0) + tokens.get("output", 0),
            "size": size,
        }

    def _current_option_values(self) -> tuple[str, ...]:
        talk = self._conversation
        return talk.approval_mode, talk.model, talk.mode, choices.thinking_level_and_choices(talk)[0]


def _build_select_option(
    name: str, label: str, category: str | None, current: str, values: Mapping[Any, str]
) -> Update:
    options = [{"value": value, "name": value, "description": about} for value, about in values.items()]
    known = [*options] if current in values else [{"value": current, "name": current}, *options]
    more = {"category": category} if category else {}
    return {"type": "select", "id": name, "name": label, "currentValue": current, "options": known, **more}
