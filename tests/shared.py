"""shared: what all workers use together, made when one first asks for it by the process that started them."""

import atexit
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from socketserver import BaseRequestHandler, UnixStreamServer
from threading import Thread

_DOOR = "TEST_SHARED"
IS_OFFERED = _DOOR in os.environ

Offer = Callable[[], tuple[str, list[int]]]
"""Returns a text, and descriptors."""


def offer(offers: Mapping[str, Offer]) -> None:
    """Until this process ends, give those that it starts what they ask for: one after the other, all the same."""

    class Asked(BaseRequestHandler):
        def handle(self) -> None:
            text, fds = offers[self.request.recv(64).decode()]()
            socket.send_fds(self.request, [text.encode()], fds)

    folder = tempfile.mkdtemp(prefix="interlock-tests-")
    atexit.register(shutil.rmtree, folder)
    os.environ[_DOOR] = str(Path(folder, "door"))
    Thread(target=UnixStreamServer(os.environ[_DOOR], Asked).serve_forever, daemon=True).start()


def given(name: str) -> tuple[str, list[int]]:
    """Raises `ConnectionError` if it could not be made; that process says why."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(os.environ[_DOOR])
        door.sendall(name.encode())
        text, fds, _, _ = socket.recv_fds(door, 4096, 1)
    if not text:
        raise ConnectionError(f"the process that started this one has no {name!r}")
    return text.decode(), fds
