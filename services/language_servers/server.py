"""server: one language server: its start, the texts that it has, and what it finds in them."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.workspace.position_codec import PositionCodec

from interlock.services.language_servers.client import RpcClient
from interlock.services.language_servers.lost import ServerLostError
from interlock.services.language_servers.problems import Problem, split_lines
from interlock.services.language_servers.table import InstalledServer, language_of
from interlock.services.process.stdio_program import StdioProgram
from interlock.state.text import dict_or_empty, list_or_empty

_ANSWER_S = 30.0
"""Seconds until a server that doesn't answer is given up (opencode: 45 for the start, 10 for an answer)."""
_SILENCE_S, _USUAL_SILENCE_S = 5.0, 2.0
"""Seconds without a word about a file until a server is asked whether it is alive: at first, and once it was.

Some publish nothing about a file without problems, as typescript-language-server 6.0.
"""
_QUIET_S, _QUIET_WITHOUT_VERSIONS_S = 0.15, 0.5
"""Servers publish what they find in pieces: seconds of silence that end an answer (opencode: 0.15).

Without the text's version a piece can be about the text before: typescript-language-server 6.0 sends such pieces, and
0.15 s of silence missed some.
"""
_RETRY_S = 0.1
_RETRIED = (-32801, -32802)
"""Errors of the protocol that mean: the server had other work, ask again (content modified, server cancelled)."""


@dataclass
class _Document:
    """A file whose text the server has."""

    text: str
    version: int = 1
    published: list[Any] = field(default_factory=list[Any])
    is_published: bool = False
    """The server published something about this version."""
    is_versioned: bool = False
    """What it publishes names the version."""
    problems: list[Problem] | None = None
    """What the server found in the text; None: it hasn't said yet."""


class LanguageServer:
    """A running server. One caller at a time."""

    def __init__(self, installed: InstalledServer, program: StdioProgram) -> None:
        folder = installed.folder
        self._installed = installed
        self._folders = [types.WorkspaceFolder(uri=folder.as_uri(), name=folder.name)]
        self._rpc = RpcClient(program, installed.settings(), self._folders)
        self._documents: dict[str, _Document] = {}
        """By path, as the server's addresses name it: two addresses can name one file."""
        self._busy: set[str] = set()
        """Work that the server has announced and not ended, such as reading the project."""
        self._news = asyncio.Event()
        self._pull_ids: list[str | None] = []
        """Kinds of problems that the server wants to be asked for; None: the one without a name."""
        self._silence_s = _SILENCE_S
        self._units = types.PositionEncodingKind.Utf16
        for method, handle in (
            ("textDocument/publishDiagnostics", self._take_published),
            ("$/progress", self._take_progress),
            ("client/registerCapability", self._take_registrations),
        ):
            self._rpc.on(method, handle)

    async def start(self) -> None:
        """Introduce us to the server. Raises `ServerLostError`."""
        self._rpc.start()
        params = types.InitializeParams(
            process_id=None,  # a server in a sandbox wouldn't see it, and end; the supervisor ends it
            root_uri=self._folders[0].uri,
            root_path=str(self._installed.folder),
            workspace_folders=self._folders,
            initialization_options=self._installed.server.initialization or None,
            capabilities=_CAPABILITIES,
        )
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self._rpc.request(types.INITIALIZE, params)
        except TimeoutError as error:
            raise ServerLostError(f"it didn't answer for {_ANSWER_S:.0f} s") from error
        except JsonRpcException as error:
            raise ServerLostError(f"it doesn't start: {error}") from error
        able = dict_or_empty(dict_or_empty(answer).get("capabilities"))
        with suppress(ValueError):  # it says nothing, or what the protocol doesn't know: the default counts
            self._units = types.PositionEncodingKind(able.get("positionEncoding"))
        if (provider := able.get("diagnosticProvider")) is not None:
            self._pull_ids.append(dict_or_empty(provider).get("identifier"))
        self._rpc.notify(types.INITIALIZED, types.InitializedParams())
        if settings := self._installed.settings():
            params = types.DidChangeConfigurationParams(settings=settings)
            self._rpc.notify(types.WORKSPACE_DID_CHANGE_CONFIGURATION, params)

    def known_problems(self, path: Path, text: str) -> list[Problem] | None:
        """Return what the server found in a text of a file when it was last asked; None: it wasn't asked."""
        document = self._documents.get(str(path))
        return document.problems if document and document.text == text else None

    async def find_problems(self, path: Path, text: str, *, again: bool = False) -> list[Problem]:
        """Return the errors that the server finds in a text of a file, whatever is on the disk.

        `again`: ask also if the answer is known. Raises `ServerLostError`.
        """
        self._rpc.allow_more()
        document = self._send_text(path, text, again)
        if document.problems is None:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    found = await self._pull_or_wait_for_published(path, document)
            except TimeoutError as error:
                raise ServerLostError(f"it said nothing about {path.name!r} for {_ANSWER_S:.0f} s") from error
            document.problems = self._parse_problems([*found, *document.published], text)
        return document.problems

    def close_removed_files(self) -> None:
        """Tell the server of files that were renamed or deleted since it got their texts."""
        for path in [path for path in self._documents if not Path(path).exists()]:
            del self._documents[path]
            item = types.TextDocumentIdentifier(uri=Path(path).as_uri())
            self._rpc.notify(types.TEXT_DOCUMENT_DID_CLOSE, types.DidCloseTextDocumentParams(item))
            event = types.FileEvent(uri=item.uri, type=types.FileChangeType.Deleted)
            params = types.DidChangeWatchedFilesParams(changes=[event])
            self._rpc.notify(types.WORKSPACE_DID_CHANGE_WATCHED_FILES, params)

    async def close(self) -> None:
        await self._rpc.close()

    def _send_text(self, path: Path, text: str, again: bool) -> _Document:
        document = self._documents.get(str(path))
        if document is None:
            document = self._documents[str(path)] = _Document(text)
            item = types.TextDocumentItem(
                uri=path.as_uri(), language_id=language_of(path), version=1, text=text
            )
            self._rpc.notify(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item))
        elif document.text != text or again:
            document.text, document.version = text, document.version + 1
            document.published, document.is_published, document.problems = [], False, None
            named = types.VersionedTextDocumentIdentifier(version=document.version, uri=path.as_uri())
            whole = types.TextDocumentContentChangeWholeDocument(text=text)
            params = types.DidChangeTextDocumentParams(text_document=named, content_changes=[whole])
            self._rpc.notify(types.TEXT_DOCUMENT_DID_CHANGE, params)
        return document

    async def _pull_or_wait_for_published(self, path: Path, document: _Document) -> list[Any]:
        """Return what the server answers; what it publishes by itself is in `document` then."""
        try:
            async with asyncio.timeout(self._silence_s):
                while not (
                    self._pull_ids or document.is_published
                ):  # it may say later that it wants to be asked
                    await self._wait_for_news()
        except TimeoutError:
            await self._require_life_sign()
            self._silence_s = _USUAL_SILENCE_S
        if self._pull_ids:
            return await self._pull(path)
        await self._wait_until_quiet(_QUIET_S if document.is_versioned else _QUIET_WITHOUT_VERSIONS_S)
        return []

    async def _require_life_sign(self) -> None:
        """Wait for an answer to a request that no server knows. Raise `ServerLostError`, or `TimeoutError` later."""
        with suppress(JsonRpcException):
            await self._rpc.request("$/interlock/alive", None)

    async def _wait_until_quiet(self, quiet_s: float) -> None:
        """Return when the server has been silent for a moment, and does no other work."""
        while True:
            try:
                async with asyncio.timeout(quiet_s):
                    await self._wait_for_news()
            except TimeoutError:
                if not self._busy:
                    return
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Wait until the server publishes, begins or ends something. Raise `ServerLostError` if it is lost."""
        self._news.clear()
        waiting = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({waiting, self._rpc.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._rpc.lost.done():
            raise ServerLostError(self._rpc.lost.result())

    async def _pull(self, path: Path) -> list[Any]:
        item = types.TextDocumentIdentifier(uri=path.as_uri())
        found: list[Any] = []
        for name in dict.fromkeys(self._pull_ids):
            params = types.DocumentDiagnosticParams(text_document=item, identifier=name)
            found += list_or_empty(dict_or_empty(await self._request_when_ready(params)).get("items"))
        return found

    async def _request_when_ready(self, params: types.DocumentDiagnosticParams) -> Any:
        while True:
            try:
                return await self._rpc.request(types.TEXT_DOCUMENT_DIAGNOSTIC, params)
            except JsonRpcException as error:
                if error.code not in _RETRIED:
                    raise ServerLostError(f"it can't be asked for problems: {error}") from error
            await asyncio.sleep(_RETRY_S)

    def _parse_problems(self, items: list[Any], text: str) -> list[Problem]:
        lines, codec = split_lines(text), PositionCodec(self._units)
        parsed = (_parse_problem(dict_or_empty(item), lines, codec) for item in items)
        return [problem for problem in dict.fromkeys(parsed) if problem]

    def _take_published(self, params: Any) -> None:
        params = dict_or_empty(params)
        document = self._documents.get(_path_of_uri(params.get("uri")))
        if document is None or params.get("version") not in (None, document.version):
            return
        document.published = list_or_empty(params.get("diagnostics"))
        document.is_published, document.is_versioned = True, params.get("version") is not None
        self._news.set()

    def _take_progress(self, params: Any) -> None:
        params = dict_or_empty(params)
        kind, token = dict_or_empty(params.get("value")).get("kind"), str(params.get("token"))
        if kind == "begin":
            self._busy.add(token)
        elif kind == "end":
            self._busy.discard(token)
        self._news.set()

    def _take_registrations(self, params: Any) -> None:
        for registration in map(dict_or_empty, list_or_empty(dict_or_empty(params).get("registrations"))):
            if registration.get("method") == types.TEXT_DOCUMENT_DIAGNOSTIC:
                self._pull_ids.append(dict_or_empty(registration.get("registerOptions")).get("identifier"))
        self._news.set()


_CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(
        position_encodings=[types.PositionEncodingKind.Utf32, types.PositionEncodingKind.Utf16]
    ),
    window=types.WindowClientCapabilities(work_done_progress=True),
    workspace=types.WorkspaceClientCapabilities(
        configuration=True,
        workspace_folders=True,
        did_change_configuration=types.DidChangeConfigurationClientCapabilities(dynamic_registration=True),
        diagnostics=types.DiagnosticWorkspaceClientCapabilities(refresh_support=True),
    ),
    text_document=types.TextDocumentClientCapabilities(
        synchronization=types.TextDocumentSyncClientCapabilities(),
        publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
        diagnostic=types.DiagnosticClientCapabilities(dynamic_registration=True),
    ),
)


def _parse_problem(item: dict[str, Any], lines: list[str], codec: PositionCodec) -> Problem | None:
    """Return an error in a server's list; None: it is less than an error, or can't be read."""
    start = dict_or_empty(dict_or_empty(item.get("range")).get("start"))
    line, units, message = start.get("line"), start.get("character"), item.get("message")
    message = dict_or_empty(message).get("value", message)  # the protocol allows marked-up text
    if not (isinstance(line, int) and isinstance(units, int) and isinstance(message, str)):
        return None
    if item.get("severity", 1) != types.DiagnosticSeverity.Error or not 0 <= line < len(lines):
        return None
    column = codec.position_from_client_units(lines, types.Position(line, max(units, 0))).character
    code, source = item.get("code"), item.get("source")
    return Problem(line, column, message, str(code or ""), source if isinstance(source, str) else "")


def _path_of_uri(uri: Any) -> str:
    if not isinstance(uri, str) or not uri.startswith("file:"):
        return ""
    return unquote_to_bytes(urlsplit(uri).path).decode(errors="surrogateescape")
