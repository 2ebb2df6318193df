"""start_gate: keeps a command waiting in its finished sandbox until the kernel's mounts are those that were meant."""

import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.services.sandbox.mounts import Mounts, is_setup_finished, mount_ids
from interlock.state.errors import SandboxError

ATTEMPTS = 5
"""Sandboxes that are made for a command, each anew, while something in the workspace is moved."""
MADE_WITHIN_S = 10.0
"""bubblewrap needs milliseconds, on a loaded machine more."""
_LOOK_S = 0.0005
_PID = re.compile(rb'"child-pid":\s*(\d+)[^}]*}', re.DOTALL)
_CHANGED = (
    "The sandbox isn't as it was meant: {difference}. Something in the workspace was moved while it was made. Stop what"
    " changes the workspace, then try again."
)


class WorkspaceChangedError(SandboxError):
    """The workspace changed while the sandbox was made."""


@dataclass
class Gate:
    """The two descriptors by which bubblewrap says that it is ready, and waits."""

    mounts: Mounts
    info: int
    """Where bubblewrap writes; the caller hands it on and closes it."""
    wait: int
    """What bubblewrap reads before it starts the command; likewise."""
    _news: int
    _go: socket.socket
    _stack: ExitStack
    opened: bool = False
    uncovered: str = ""
    """A path whose protection was lost while the command ran, which was ended for it."""

    def bubblewrap_options(self, info: int, wait: int) -> list[str]:
        """Return bubblewrap's options for the numbers that it gets the descriptors as."""
        return ["--info-fd", str(info), "--block-fd", str(wait)]

    def close_child_ends(self) -> None:
        """Close bubblewrap's ends, once it has them."""
        for descriptor in (self.info, self.wait):
            if descriptor >= 0:
                os.close(descriptor)
        self.info = self.wait = -1

    def start_command(self, within_s: float = MADE_WITHIN_S) -> bool:
        """Let the command start; returns False if bubblewrap ended first. Blocks.

        Raises `OSError` if it takes longer than `within_s`, `WorkspaceChangedError` if another
        sandbox was made than was meant.
        Then the command has not started, and it never will: the caller ends it.
        """
        until = time.monotonic() + within_s
        try:
            pid = self._wait_for_child(until)
            made = pid and self._wait_for_mounts(pid, until)
        except TimeoutError:
            raise TimeoutError(f"no answer within {within_s:g} s") from None
        if not pid or not made:
            return False
        host = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
        if difference := self.mounts.find_difference(made, host):
            raise WorkspaceChangedError(_CHANGED.format(difference=difference))
        try:
            self._watch_mounts(pid, made)
        except OSError:  # it has ended
            return False
        self.opened = True
        self._go.send(b"x")
        return True

    def _watch_mounts(self, pid: int, made: str) -> None:
        """End all processes of the sandbox as soon as a protecting mount is gone.

        A mount stands on a file. Where something outside replaces that file, as git does with its configuration and
        editors do, the kernel takes the mount away, and the command could write the new file.
        """
        table = os.open(f"/proc/{pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._stack.callback(os.close, table)
        first = os.pidfd_open(pid)
        self._stack.callback(os.close, first)
        stop, end = os.pipe()
        self._stack.callback(os.close, stop)
        protecting = self.mounts.protecting_mount_ids(made)

        def watch_changes() -> None:
            changes = select.poll()
            changes.register(table, select.POLLPRI)
            changes.register(stop, select.POLLIN)
            while stop not in (descriptor for descriptor, _ in changes.poll()):
                now = os.fsdecode(_read_proc_file(table))
                if now and (lost := protecting.keys() - mount_ids(now)):
                    self.uncovered = min(protecting[number] for number in lost)
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(first, signal.SIGKILL)
                    return

        thread = threading.Thread(target=watch_changes, name="sandbox", daemon=True)
        self._stack.callback(thread.join)
        self._stack.callback(os.close, end)
        thread.start()

    def _wait_for_child(self, until: float) -> int | None:
        """Return the process in the sandbox, or None if bubblewrap ended before it had one."""
        heard = b""
        while not (found := _PID.search(heard)):
            if not select.select([self._news], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            data = os.read(self._news, 4096)
            if not data:
                return None
            heard += data
        return int(found[1])

    def _wait_for_mounts(self, pid: int, until: float) -> str | None:
        """Return the process's mounts once all are made, or None if it has ended."""
        while time.monotonic() < until:
            try:
                made = os.fsdecode(Path(f"/proc/{pid}/mountinfo").read_bytes())
            except PermissionError:  # while it changes its rights
                made = ""
            except OSError:
                return None
            if is_setup_finished(made):
                return made
            time.sleep(_LOOK_S)
        raise TimeoutError


@contextmanager
def open_gate(mounts: Mounts) -> Generator[Gate]:
    """Make a gate for one command. Raises `OSError`."""
    news, info = os.pipe()
    # A socket without a connection has no end-of-file, at which bubblewrap would start the command.
    go, wait = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ExitStack() as stack, go:
        stack.callback(os.close, news)
        made = Gate(mounts, info, wait.detach(), news, go, stack)
        stack.callback(made.close_child_ends)
        yield made


def _read_proc_file(descriptor: int) -> bytes:
    """Read a file of the kernel anew; nothing if its process has ended."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts: list[bytes] = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:
        return b""
    return b"".join(parts)
