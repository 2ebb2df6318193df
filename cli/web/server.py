"""server: runs the application on loopback until Ctrl-C."""

import socket
import sys
import webbrowser

import uvicorn

from interlock.cli.web.app import Page
from interlock.engine.client import Options
from interlock.state.errors import UserError

_LEAVE_S = 1
"""Seconds that open requests have at the end."""


def run(options: Options, port: int, read_only: bool, opened: bool) -> int:
    """Serve, and print the address first. Raises `UserError` if the port is taken."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise UserError(f"Can't serve on port {port}: {error.strerror}. Choose another: --port N") from error
    port = listening.getsockname()[1]
    page = Page(options, port, read_only)
    address = f"http://127.0.0.1:{port}/#token={page.tokens.page}"
    sys.stdout.write(f"Serving this user's runs. Open: {address}\nStop with Ctrl-C; runs go on.\n")
    sys.stdout.flush()
    if opened:
        webbrowser.open(address)
    config = uvicorn.Config(
        page.guard,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LEAVE_S,
        ws="none",
        lifespan="off",
    )
    uvicorn.Server(config).run(sockets=[listening])
    return 0
