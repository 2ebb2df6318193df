"""program: the process that holds a run's browser: one action per socket connection, answers in JSON.

Its supervisor ends it and the browser with the run. All the browser's traffic goes through its own proxy, which
resolves each host once, checks the result and connects to exactly that.
"""

import asyncio
import base64
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from interlock.state.calls import ToolError
from interlock.tools.host_addresses import describe_private_host, resolve_host

_PREFIX = "interlock-browser-"
_LOAD_MS = 15_000
"""Milliseconds a page may take to load before it is shown as it is."""
_TOLD_TRIES, _TOLD_S = 20, 0.05
_SETTLE_MS = 300
"""Milliseconds to wait after an action for its effects."""
_MOST_LOGGED = 50
_MOST_CHARS = 500
_HEAD_BYTES = 64 * 1024
_LONGEST_BASE = 35
"""Characters: paths of the sockets in the folder, the browser's included, are limited to 107."""
_YOUNG_S = 60
"""Seconds during which a folder may exist without being locked yet."""
_ARGS = (
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
)


class Proxy:
    """The browser's only way to the network. Private hosts are reachable only if a person named them."""

    def __init__(self) -> None:
        self.private_hosts: set[str] = set()
        """Launched hosts, which may be private."""
        self.requested_hosts: set[str] = set()
        """Hosts requested by pages; requests the browser makes on its own are refused."""
        self.refused: list[str] = []

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one request or one tunnel; answer 502 if its host is refused."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, rest = head.split(b" ", 2)
            tunnel = method == b"CONNECT"
            parts = urlsplit("//" + target.decode() if tunnel else target.decode())
            try:
                there, back = await self._connect_to_requested_host(parts.hostname or "", parts.port or 80)
            except (ToolError, OSError) as error:
                self.refused += [] if isinstance(error, ConnectionAbortedError) else [str(error)]
                body = str(error).encode("utf-8", "replace")
                writer.write(
                    b"HTTP/1.1 502 Refused\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
                    + body
                )
                writer.close()
                return
            if tunnel:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                back.write(b" ".join((method, path.encode(), _disable_keep_alive(rest))))
            await asyncio.gather(_copy_stream(reader, back), _copy_stream(there, writer))
        writer.close()

    async def _connect_to_requested_host(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host that a page asked for. Raise `ToolError` if it is private and wasn't launched."""
        for _ in range(_TOLD_TRIES):  # the page's request may be reported after its connection
            if host not in self.requested_hosts:
                await asyncio.sleep(_TOLD_S)
        if host not in self.requested_hosts:
            raise ConnectionAbortedError(f"No page asks for {host}.")
        addresses = await resolve_host(host)
        if (why := describe_private_host(host, addresses)) and host not in self.private_hosts:
            raise ToolError(
                "redirect", f"{host}:{port} was not reached: {why}, and it wasn't launched itself."
            )
        *others, last = addresses
        for address in others:
            with suppress(OSError):
                return await asyncio.open_connection(address, port)
        return await asyncio.open_connection(last, port)


def _disable_keep_alive(request_head: bytes) -> bytes:
    """Return request headers that allow one request per connection, so that the next one is checked too."""
    upgrade = b"\r\nupgrade:" in request_head.lower()
    lines = request_head.split(b"\r\n")
    names = (b"proxy-connection:", b"proxy-authorization:", *(() if upgrade else (b"connection:",)))
    kept = [line for line in lines if not line.lower().startswith(names)]
    return b"\r\n".join([kept[0], *([] if upgrade else [b"Connection: close"]), *kept[1:]])


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one stream into another until it ends."""
    with suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class BrowserSession:
    """The browser and its current page."""

    def __init__(self, browser: Any, proxy: Proxy) -> None:
        self._browser, self._proxy = browser, proxy
        self._context: Any = None
        self._page: Any = None
        self._mouse = (0, 0)
        self._logged: list[str] = []

    async def perform_action(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform the action and describe the resulting page."""
        self._logged.clear()
        self._proxy.refused.clear()
        action = request["action"]
        if action == "launch":
            await self._launch_page(request)
        elif self._page is None:
            return {"error": "There is no page."}
        else:
            await self._perform_page_action(action, request)
        await self._wait_until_settled()
        return await self._describe_page()

    async def _launch_page(self, request: dict[str, Any]) -> None:
        """Open a new browser context at the address; hosts named in the request may be private."""
        if self._context is not None:
            await self._context.close()
        self._proxy.private_hosts = {*request["private"]}
        self._proxy.requested_hosts.clear()
        width, height = request["size"]
        self._context = await self._browser.new_context(
            viewport={"width": width, "height": height}, accept_downloads=False, service_workers="block"
        )
        self._mouse = (0, 0)
        self._context.on("page", self._switch_to_page)
        self._context.on("request", self._admit_requested_host)
        await self._context.new_page()
        with suppress(_timeout_error_class()):
            await self._page.goto(request["url"], timeout=_LOAD_MS)

    def _switch_to_page(self, page: Any) -> None:
        """Make a page the current one, whoever opened it."""
        self._page = page
        page.on("console", self._log_console_message)
        page.on("pageerror", self._log_page_error)
        page.on("websocket", self._admit_requested_host)
        page.on("close", self._replace_closed_page)

    def _admit_requested_host(self, request: Any) -> None:
        """Note the host of a request or a web socket."""
        self._proxy.requested_hosts.add((urlsplit(str(request.url)).hostname or "").lower())

    def _replace_closed_page(self, page: Any) -> None:
        """Make the last page that is left the current one."""
        if self._page is page:
            self._page = self._context.pages[-1] if self._context.pages else None

    def _log_console_message(self, message: Any) -> None:
        if not message.location["url"].endswith("/favicon.ico"):  # requested by the browser, not the page
            self._append_log(f"[{message.type}] {message.text}")

    def _log_page_error(self, error: Any) -> None:
        self._append_log(f"[error] {error}")

    def _append_log(self, text: str) -> None:
        """Log a text, cut, unless enough is logged."""
        if len(self._logged) < _MOST_LOGGED:
            self._logged.append(text[:_MOST_CHARS])

    async def _perform_page_action(self, action: str, request: dict[str, Any]) -> None:
        """Perform any action but `launch` on the current page."""
        page = self._page
        if action in ("click", "hover"):
            self._mouse = tuple(request["coordinate"])
            await page.mouse.move(*self._mouse)
            if action == "click":
                await page.mouse.click(*self._mouse)
        elif action == "type":
            await page.keyboard.type(request["text"])
        elif action == "resize":
            width, height = request["size"]
            await page.set_viewport_size({"width": width, "height": height})
        else:
            size = page.viewport_size or {"height": 600}
            await page.mouse.wheel(0, size["height"] if action == "scroll_down" else -size["height"])

    async def _wait_until_settled(self) -> None:
        """Wait for the action's effects and for the page to load."""
        if self._page is not None:
            with suppress(_timeout_error_class()):
                await self._page.wait_for_timeout(_SETTLE_MS)
                await self._page.wait_for_load_state("load", timeout=_LOAD_MS)

    async def _describe_page(self) -> dict[str, Any]:
        """Return the current page with a screenshot, or an error if it closed itself."""
        if self._page is None:
            return {"error": "The page closed itself; launch another."}
        shot = await self._page.screenshot(type="png", timeout=_LOAD_MS)
        return {
            "url": self._page.url,
            "title": await self._page.title(),
            "mouse": self._mouse,
            "logged": self._logged,
            "refused": [*dict.fromkeys(self._proxy.refused)][:_MOST_LOGGED],
            "screenshot": base64.b64encode(shot).decode(),
        }


def _timeout_error_class() -> type[Exception]:
    return import_module("playwright.async_api").TimeoutError


async def _answer_connection(
    session: BrowserSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Answer one connection; return whether it asked for the last action."""
    error = import_module("playwright.async_api").Error
    asked = json.loads(await reader.readline())
    last = asked["action"] == "close"
    try:
        answer: dict[str, Any] = {} if last else await session.perform_action(asked)
    except error as problem:
        answer = {"error": str(problem).partition("\n")[0]}
    writer.write(json.dumps(answer).encode() + b"\n")
    with suppress(OSError):
        await writer.drain()
    writer.close()
    return last


async def serve_browser(folder: Path, executable: str) -> None:
    """Serve until an action closes the browser, or it exits."""
    proxy, over, turn = Proxy(), asyncio.Event(), asyncio.Lock()
    gate = await asyncio.start_server(proxy.handle_connection, "127.0.0.1", 0, limit=_HEAD_BYTES)
    port = gate.sockets[0].getsockname()[1]
    async with import_module("playwright.async_api").async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable or None,
            chromium_sandbox=os.geteuid() != 0,  # it refuses to run as root
            proxy={"server": f"http://127.0.0.1:{port}"},
            args=[*_ARGS],
        )
        session = BrowserSession(browser, proxy)

        def ended(_: Any) -> None:
            over.set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with turn:
                if await _answer_connection(session, reader, writer):
                    over.set()

        browser.on("disconnected", ended)
        server = await asyncio.start_unix_server(connected, folder / "socket")
        print(json.dumps({"socket": str(folder / "socket")}), flush=True)
        await over.wait()
        server.close()
        await browser.close()


def _clean_up_and_create_locked_folder() -> tuple[Path, int]:
    """Create a private folder, locked while this runs; delete folders of dead processes."""
    base = tempfile.gettempdir()
    base = base if len(base) <= _LONGEST_BASE else "/tmp"
    for old in Path(base).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = old.stat()
            settled = time.time() - status.st_mtime > _YOUNG_S
            if settled and status.st_uid == os.geteuid() and _try_lock_folder(old) is not None:
                shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = _try_lock_folder(folder)
    assert lock is not None
    return folder, lock


def _try_lock_folder(folder: Path) -> int | None:
    """Lock a folder and return the lock's descriptor; None: somebody else has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def main(argv: Sequence[str]) -> None:
    """Serve a browser until it closes; `argv` has its executable; empty: Playwright's own."""
    folder, _ = _clean_up_and_create_locked_folder()
    os.environ["TMPDIR"] = str(folder)
    try:
        asyncio.run(serve_browser(folder, argv[0]))
    except Exception as error:
        print(json.dumps({"error": str(error).strip().partition("\n")[0]}), flush=True)
        sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
