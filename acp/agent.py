"""agent: answers the editor's requests: its sessions, and what each method takes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from interlock.acp.wire import (
    INTERNAL,
    INVALID,
    NO_LOGIN,
    NO_METHOD,
    NOT_FOUND,
    PARAMS,
    Frame,
    JsonRpcConnection,
    RpcError,
)
from interlock.cli.version import VERSION
from interlock.engine.client import Client, Options
from interlock.state.errors import CredentialsError, InterlockError, UserError, as_bug_error
from interlock.state.text import dict_or_empty

if TYPE_CHECKING:
    from interlock.acp.session import EditorSession
    from interlock.engine.client import SessionState

PROTOCOL = 1
_LEAVE_S = 0.8
"""Seconds for runs to stop once the client is gone; their supervisors end what is left."""
_SESSIONS = ("list", "resume", "fork", "close", "additionalDirectories")
_PAGE = 50
"""Sessions in one answer."""
_LOGIN = {
    "id": "setup",
    "name": "Choose a model",
    "description": "Set GEMINI_API_KEY (or name a local server) in the environment or in ~/.gemini/.env, "
    "or run `interlock` in a terminal, which asks for it.",
}
_TERMINAL = "terminal"
_CODES = {CredentialsError: NO_LOGIN, UserError: PARAMS}

Params = Mapping[str, Any]
Answer = Callable[["Agent", Params], Awaitable[object]]


async def serve_editor_and_exit(options: Options) -> None:
    """Serve on this process's stdin and stdout until the client is gone; ends the process."""
    await Agent(options, JsonRpcConnection.take_over_stdio()).serve_and_exit()


class Agent:
    def __init__(self, options: Options, wire: JsonRpcConnection) -> None:
        self._options, self._wire = options, wire
        self._client_capabilities: dict[str, Any] | None = None
        """The client's capabilities; None: not initialized."""
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client_gone = asyncio.Event()

    async def serve_and_exit(self) -> None:
        """Serve until the client is gone, or a signal comes; ends the process."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._client_gone.set)
        self._wire.start(self._start_answer_task, self._client_gone.set)
        await self._client_gone.wait()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await asyncio.gather(*(session.close() for session in self._sessions.values()))
        except TimeoutError:
            pass
        await asyncio.to_thread(self._wire.flush, 0.1)
        sys.stderr.flush()
        os._exit(0)

    def _start_answer_task(self, frame: Frame) -> None:
        task = asyncio.get_running_loop().create_task(self._answer_frame(frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_frame(self, frame: Frame) -> None:
        try:
            result = await self._call_method(frame["method"], frame.get("params", {}))
            answer: Frame = {"result": result if result is not None else {}}
        except RpcError as error:
            answer = {"error": error.fields}
        except Exception as error:
            found = error if isinstance(error, InterlockError) else as_bug_error(error)
            code = next((code for kind, code in _CODES.items() if isinstance(found, kind)), INTERNAL)
            answer = {"error": RpcError(code, str(found)).fields}
        if "id" in frame:
            self._wire.queue_frame({"id": frame["id"], **answer})

    async def _call_method(self, method: str, params: object) -> object:
        answer = _METHODS.get(method)
        if answer is None:
            raise RpcError(NO_METHOD, f"No method {method!r}.", {"method": method})
        if not isinstance(params, dict):
            raise RpcError(PARAMS, f"{method}: params is {json.dumps(params)[:60]}, expected an object.")
        if self._client_capabilities is None and method != "initialize":
            raise RpcError(INVALID, f"{method} came before initialize.")
        return await answer(self, cast(Params, params))

    async def initialize(self, params: Params) -> object:
        given = params.get("protocolVersion")
        if not str(given).isdecimal():  # some clients send a text
            raise RpcError(PARAMS, f"initialize: protocolVersion is {given!r}, expected a whole number.")
        client: dict[str, Any] = _optional_param(params, "clientCapabilities", dict) or {}
        self._client_capabilities = client
        Thread(target=_preimport_modules, daemon=True).start()
        by_launch = dict_or_empty(client.get("_meta")).get("terminal-auth") is True
        in_terminal = by_launch or dict_or_empty(client.get("auth")).get("terminal") is True
        return {
            "protocolVersion": PROTOCOL,
            "agentInfo": {"name": "interlock", "title": "Interlock", "version": VERSION},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {name: dict[str, Any]() for name in _SESSIONS},
            },
            "authMethods": [_terminal_auth_method(), _LOGIN] if in_terminal else [_LOGIN],
        }

    async def authenticate(self, params: Params) -> object:
        if (given := params.get("methodId")) not in (_LOGIN["id"], _TERMINAL):
            raise RpcError(PARAMS, f"Unknown sign-in method {given!r}. Expected {_LOGIN['id']!r}.")
        await asyncio.to_thread(Client(self._options).check_ready_to_run)
        return {}

    async def new_session(self, params: Params) -> object:
        options = self._session_run_options(params)
        client = Client(options)
        await asyncio.to_thread(client.check_ready_to_run)
        name = await asyncio.to_thread(client.create_session, _require_cwd(params))
        return {
            "sessionId": name,
            **self._describe_options_and_announce_commands(await self._open_editor_session(name, options)),
        }

    async def load_session(self, params: Params, replay: bool = True) -> object:
        options, name = self._session_run_options(params), _require_string(params, "sessionId")
        if name in self._sessions:
            await self._sessions.pop(name).close()
        known, folder = self._require_stored_session(name), _require_cwd(params)
        moved = not Path(known.workspace).is_dir()
        if known.workspace != str(folder) and not moved:
            raise RpcError(PARAMS, f"Session {name!r} works in {known.workspace!r}, not in {str(folder)!r}.")
        session = await self._open_editor_session(name, options, known.run, replay)
        session.session_options.restore_choices(known.chosen)
        return self._describe_options_and_announce_commands(session)

    async def resume_session(self, params: Params) -> object:
        return await self.load_session(params, replay=False)

    async def fork_session(self, params: Params) -> object:
        options, client = self._session_run_options(params), Client(self._options)
        folder = _require_cwd(params)
        known = self._require_stored_session(_require_string(params, "sessionId"))
        if not known.run:  # nothing to share: a session that begins there
            return await self.new_session(params)
        here = known.workspace == str(folder)
        made = await asyncio.to_thread(
            lambda: client.fork_run(known.run, workspace=None if here else folder, in_place=here)
        )
        return {
            "sessionId": made.run,
            **self._describe_options_and_announce_commands(
                await self._open_editor_session(made.run, options, made.run)
            ),
        }

    async def close_session(self, params: Params) -> object:
        session = self._require_open_session(params)
        del self._sessions[session.name]
        await session.close()
        return {}

    async def list_sessions(self, params: Params) -> object:
        wanted, start = _optional_param(params, "cwd", str), _optional_param(params, "cursor", str) or "0"
        if not start.isdecimal():
            raise RpcError(PARAMS, f"session/list: {start!r} isn't a valid cursor.")
        rows = await asyncio.to_thread(self._session_rows, wanted and os.path.realpath(wanted))
        page = rows[int(start) : int(start) + _PAGE]
        more = {"nextCursor": str(int(start) + _PAGE)} if len(rows) > int(start) + _PAGE else {}
        return {"sessions": page, **more}

    def _session_rows(self, folder: str | None) -> list[Frame]:
        client = Client(self._options)
        sessions = client.list_sessions()
        shown = {shown.run: (session, shown.workspace) for session, shown in sessions.items()}
        runs = client.runs()
        there = {row.run for row in runs}
        return [
            {
                "sessionId": session,
                "cwd": place,
                "title": row.title,
                "updatedAt": datetime.fromtimestamp(row.updated, UTC).isoformat(),
            }
            for row in runs
            if row.run in shown or row.run not in sessions  # else its session shows another run now
            for session, place in [shown.get(row.run, (row.run, row.workspace))]
            if folder in (None, place) and not (row.subtask and row.parent in there)
        ]

    async def run_prompt(self, params: Params) -> object:
        session, blocks = self._require_open_session(params), _object_list_param(params, "prompt")
        return await session.run_turn(blocks)

    async def cancel_turn(self, params: Params) -> object:
        self._require_open_session(params).cancel_turn()
        return {}

    async def set_approval_mode(self, params: Params) -> object:
        self._require_open_session(params).session_options.set_option(
            "approval_mode", _require_string(params, "modeId")
        )
        return {}

    async def set_option(self, params: Params) -> object:
        chosen = self._require_open_session(params).session_options
        chosen.set_option(_require_string(params, "configId"), params.get("value"))
        return {"configOptions": chosen.option_rows()}

    async def _open_editor_session(
        self, name: str, options: Options, run: str = "", replay: bool = False
    ) -> "EditorSession":
        """Open a session that shows a run, or begins one. `replay`: its conversation is sent."""
        from interlock.acp.session import EditorSession

        assert self._client_capabilities is not None
        session = self._sessions[name] = EditorSession(name, options, self._wire, self._client_capabilities)
        try:
            await session.start()
            if run:
                await session.open_run_and_wait(run, replay)
                session.save_session()
        except BaseException:
            del self._sessions[name]
            await session.close()
            raise
        return session

    def _describe_options_and_announce_commands(self, session: "EditorSession") -> dict[str, Any]:
        """Return a session's modes and options; its commands are announced after the answer."""
        asyncio.get_running_loop().call_soon(session.announce_commands)
        return session.session_options.modes_and_options()

    def _require_open_session(self, params: Params) -> "EditorSession":
        name = _require_string(params, "sessionId")
        if name not in self._sessions:
            raise RpcError(NOT_FOUND, f"No session {name!r} is open. Begin or load one.", {"sessionId": name})
        return self._sessions[name]

    def _require_stored_session(self, name: str) -> "SessionState":
        if (shown := Client(self._options).find_session_or_run(name)) is None:
            raise RpcError(
                NOT_FOUND, f"No session {name!r}. List them with session/list.", {"sessionId": name}
            )
        return shown

    def _session_run_options(self, params: Params) -> Options:
        """Return the options of a session: the folder, further folders, and the client's MCP servers."""
        more = [
            _require_absolute_folder(d)
            for d in cast(list[object], _optional_param(params, "additionalDirectories", list) or [])
        ]
        folders = (*self._options.include_directories, *more)
        servers = dict(map(_parse_mcp_server, _object_list_param(params, "mcpServers", required=False)))
        over = {**self._options.overrides, **({"mcpServers": servers} if servers else {})}
        return replace(
            self._options, workspace=_require_cwd(params), include_directories=folders, overrides=over
        )


_METHODS: dict[str, Answer] = {
    "initialize": Agent.initialize,
    "authenticate": Agent.authenticate,
    "session/new": Agent.new_session,
    "session/load": Agent.load_session,
    "session/resume": Agent.resume_session,
    "session/fork": Agent.fork_session,
    "session/close": Agent.close_session,
    "session/list": Agent.list_sessions,
    "session/prompt": Agent.run_prompt,
    "session/cancel": Agent.cancel_turn,
    "session/set_mode": Agent.set_approval_mode,
    "session/set_config_option": Agent.set_option,
}


def _terminal_auth_method() -> Frame:
    """Return the sign-in by `interlock acp --setup`, for clients that can open a terminal.

    Zed takes the command from `_meta`.
    """
    name = "Choose a model in a terminal"
    command = {"command": sys.argv[0], "args": [*sys.argv[1:], "--setup"]}
    return {
        "type": "terminal",
        "id": _TERMINAL,
        "name": name,
        "description": "Asks for a key or a server, tries it, and stores it.",
        "args": ["--setup"],
        "_meta": {"terminal-auth": {"label": name, **command}},
    }


def _preimport_modules() -> None:
    """Import what a session needs, while the person has still to type."""
    import_module("interlock.acp.session")
    import_module("interlock.engine.driver.runner")


def _require_string(params: Params, name: str) -> str:
    if not isinstance(value := params.get(name), str):
        raise RpcError(PARAMS, f"{name} is {json.dumps(value)[:60]}, expected a string.")
    return value


def _optional_param(params: Params, name: str, kind: type) -> Any:
    value = params.get(name)
    if value is not None and not isinstance(value, kind):
        raise RpcError(PARAMS, f"{name} is {json.dumps(value)[:60]}, expected {kind.__name__}.")
    return value


def _object_list_param(params: Params, name: str, required: bool = True) -> list[dict[str, Any]]:
    found = _optional_param(params, name, list)
    if (found is None and required) or not all(isinstance(one, dict) for one in found or ()):
        raise RpcError(PARAMS, f"{name} is {json.dumps(found)[:60]}, expected a list of objects.")
    return found or []


def _require_cwd(params: Params) -> Path:
    return _require_absolute_folder(params.get("cwd"))


def _require_absolute_folder(value: object) -> Path:
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value:  # noqa: PTH117 - a text from outside
        raise RpcError(PARAMS, f"cwd is {json.dumps(value)[:60]}, expected the absolute path of a folder.")
    if not os.path.isdir(value):  # noqa: PTH112 - Path.is_dir raises for names that are too long
        raise RpcError(PARAMS, f"There is no folder {value!r}.")
    return Path(os.path.realpath(value))


def _parse_mcp_server(server: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and settings of one of the client's MCP servers."""
    try:
        name = str(server["name"])
        if server.get("type") in ("http", "sse"):
            headers = {str(h["name"]): str(h["value"]) for h in server.get("headers") or ()}
            return name, {"url": str(server["url"]), "type": server["type"], "headers": headers}
        env = {str(v["name"]): str(v["value"]) for v in server.get("env") or ()}
        return name, {
            "command": str(server["command"]),
            "args": [*map(str, server.get("args") or ())],
            "env": env,
        }
    except (KeyError, TypeError) as error:
        raise RpcError(PARAMS, f"mcpServers: a server is malformed: {error}.") from None
