"""server: runs the application on loopback until Ctrl-C, and says meanwhile where it is."""

import os
import socket
import sys
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from interlock.cli.web.app import Page
from interlock.cli.web.guard import BODY_LIMIT, Access
from interlock.engine.client import Options
from interlock.state.errors import UserError

_LEAVE_S = 1
"""Seconds that open requests have at the end."""
_SENDING = 128 * 1024
"""Bytes that the system holds for a reader that takes nothing; by default it lets that grow to some megabytes."""


def run(options: Options, access: Access, opened: bool) -> int:
    """Serve, and print the address first. Raises `UserError` if the port is taken."""
    listening = _listening(access.port)
    port = listening.getsockname()[1]
    page = Page(options, access._replace(port=port))
    at = f"http://127.0.0.1:{port}"
    address = f"{at}/#token={page.tokens.page}"
    sys.stdout.write(f"Serving this user's runs. Open: {address}\n")
    if access.proxy:
        sys.stdout.write(f"Through the proxy: https://{access.proxy.host}/#token={page.tokens.page}\n")
    if access.only_reads:
        sys.stdout.write(f"Nobody can decide or change anything here. {access.only_reads}\n")
    sys.stdout.write("Stop with Ctrl-C; runs go on.\n")
    sys.stdout.flush()
    if opened and not webbrowser.open(f"{at}/#token={page.tokens.once()}"):
        sys.stdout.write("No browser was found. Open the address yourself.\n")
        sys.stdout.flush()
    with _found(options.home, at):
        uvicorn.Server(_config(page)).run(sockets=[listening])
    return 0


def _config(page: Page) -> uvicorn.Config:
    return uvicorn.Config(
        page.guard,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LEAVE_S,
        ws="websockets-sansio",
        ws_max_size=BODY_LIMIT,
        lifespan="on",
    )


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()  # before the address is printed: whoever reads it may connect at once
    except OSError as error:
        made.close()
        raise UserError(f"Can't serve on port {port}: {error.strerror}. Choose another: --port N") from error
    return made


@contextmanager
def _found(home: Path, at: str) -> Generator[None]:
    """Lets `interlock` say where a run that parks can be decided (`served_at`)."""
    file = home / "server.address"
    file.write_text(f"{os.getpid()} {at}\n")
    try:
        yield
    finally:
        if file.exists() and file.read_text().startswith(f"{os.getpid()} "):
            file.unlink()
