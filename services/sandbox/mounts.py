"""mounts: what of the machine a sandbox shows, as arguments for bubblewrap, and whether the kernel made just that: a
command waits in its finished sandbox until it did.

bubblewrap resolves paths while it mounts. A process that swaps a folder and a link meanwhile could lead a mount to
another place, so the finished sandbox is compared with what was meant before anything runs in it.
"""

import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interlock.state.errors import SandboxError


class _MountMode(NamedTuple):
    """How a path is mounted."""

    options: Sequence[str]
    source: Path | None = None
    """What of the host is bound there; None: nothing."""
    read_only: bool = False


class Mounts:
    """Path → how it is mounted. Anything not below one of them doesn't exist in the sandbox."""

    def __init__(self) -> None:
        self._how: dict[Path, _MountMode] = {}

    def add_link(self, path: Path) -> None:
        self._how[path] = _MountMode(["--symlink", str(path.readlink()), str(path)])

    def add_read_only(self, path: Path) -> None:
        self._how[path] = _MountMode(["--ro-bind", str(path), str(path)], path, read_only=True)

    def add_writable(self, path: Path) -> None:
        self._how[path] = _MountMode(["--bind", str(path), str(path)], path)

    def pin_path(self, path: Path) -> None:
        """Keep `path` from being moved, so that mounts below it stay in place; otherwise it is unchanged."""
        if path not in self._how:
            self.add_writable(path)

    def hide_path(self, path: Path) -> None:
        """Make a folder empty, or a file unreadable; neither can be removed or replaced."""
        if path.is_dir():
            self._how[path] = _MountMode(["--tmpfs", str(path), "--remount-ro", str(path)], read_only=True)
        else:
            self._how[path] = _MountMode(
                ["--ro-bind", os.devnull, str(path)], Path(os.devnull), read_only=True
            )

    def add_tmpfs(self, path: Path) -> None:
        """Mount an empty temporary folder that is gone with the command."""
        self._how[path] = _MountMode(["--tmpfs", str(path)])

    def merge(self, other: "Mounts") -> None:
        """Add the mounts of `other`, which take precedence."""
        self._how.update(other._how)

    def is_host_visible(self, path: Path) -> bool:
        """Return whether the nearest mount at or above `path` shows the host's files."""
        above = [self._how[p] for p in (path, *path.parents) if p in self._how]
        return bool(above) and above[0].source is not None

    def bubblewrap_arguments(self, folder: Path, *, below: bool) -> list[str]:
        """Return what bubblewrap is given for the paths `below` a folder, or for all others; the outer ones first."""
        by_depth = sorted(self._how, key=lambda path: (len(path.parts), path))
        chosen = (path for path in by_depth if path.is_relative_to(folder) == below)
        return [part for path in chosen for part in self._how[path].options]

    def find_mount_difference(self, sandbox_mountinfo: str, host_mountinfo: str) -> str | None:
        """Compare a sandbox's `/proc/PID/mountinfo` with what was meant; returns the first difference, or None.

        `host_mountinfo`: the same file of a process outside, which says where each path of the host is.
        """
        rows, outside = _parse_mountinfo(sandbox_mountinfo), _MountTable(_parse_mountinfo(host_mountinfo))
        inside = _MountTable(rows)
        if not inside.has_mount("/") or "ro" not in inside.top_mount("/").options:
            return "its root isn't read-only"
        meant = {str(path): how for path, how in self._how.items() if how.options[0] != "--symlink"}
        for path, how in meant.items():
            if not inside.has_mount(path):
                return f"nothing is mounted at {path!r}"
            if problem := _describe_mismatch(inside.top_mount(path), how, outside):
                return f"{problem} is mounted at {path!r}"
            if not inside.is_mount_visible(path):
                return f"the mount at {path!r} is covered"
        for row in rows:
            if row.point not in meant and not self._is_implied_mount(row, meant, outside):
                return f"something is mounted at {row.point!r}"
        return None

    def protected_paths_by_mount_id(self, mountinfo: str) -> dict[str, str]:
        """Return the number of each mount in a sandbox that keeps a path from being written or read → that path."""
        table = _MountTable(_parse_mountinfo(mountinfo))
        kept = (str(path) for path, how in self._how.items() if how.read_only)
        return {table.top_mount(path).id: path for path in kept}

    def _is_implied_mount(
        self, row: "_MountRow", expected: Mapping[str, _MountMode], host_table: "_MountTable"
    ) -> bool:
        """Return whether bubblewrap makes it in every sandbox, or it is a mount of the host below what was bound."""
        point = Path(row.point)
        above = next((p for p in map(str, point.parents) if p in expected), None)
        if above is None:
            return row.point == "/" or point.parts[1] in ("proc", "dev")
        source = expected[above].source
        there = str(source / point.relative_to(above)) if source else ""
        return (
            host_table.has_mount(there) and host_table.top_mount(there).device_and_root == row.device_and_root
        )


class _MountRow(NamedTuple):
    """A line of `mountinfo` (proc(5))."""

    id: str
    parent: str
    device: str
    root: str
    """What of the file system is mounted."""
    point: str
    options: Sequence[str]
    kind: str

    @property
    def device_and_root(self) -> tuple[str, str]:
        return self.device, self.root


def _mount_ids(mountinfo: str) -> set[str]:
    """Return the numbers of all mounts in a `/proc/PID/mountinfo`."""
    return {row.id for row in _parse_mountinfo(mountinfo)}


def _is_setup_finished(mountinfo: str) -> bool:
    """Return whether a sandbox's `/proc/PID/mountinfo` shows bubblewrap's last step: its folder `newroot` is
    the root."""
    roots = [row for row in _parse_mountinfo(mountinfo) if row.point == "/"]
    return [(row.kind, row.root) for row in roots] == [("tmpfs", "/newroot")]


_ESCAPED = re.compile(r"\\([0-7]{3})")


def _parse_mountinfo(mountinfo: str) -> list[_MountRow]:
    def unescape_field(text: str) -> str:
        return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)

    rows: list[_MountRow] = []
    for line in filter(None, mountinfo.split("\n")):  # a name may hold other ends of lines
        own, _, system = line.partition(" - ")
        number, parent, device, root, point, options = own.split(" ")[:6]
        rows.append(
            _MountRow(
                number,
                parent,
                device,
                unescape_field(root),
                unescape_field(point),
                options.split(","),
                system.split(" ")[0],
            )
        )
    return rows


class _MountTable:
    """Mounts by their mount points."""

    def __init__(self, rows: Sequence[_MountRow]) -> None:
        self._at: dict[str, list[_MountRow]] = {}
        for row in rows:
            self._at.setdefault(row.point, []).append(row)

    def has_mount(self, point: str) -> bool:
        return point in self._at

    def top_mount(self, point: str) -> _MountRow:
        """Return the mount that is seen at a mount point: no other at the same point stands on it."""
        stacked = self._at[point]
        below = {row.parent for row in stacked}
        return next(row for row in stacked if row.id not in below)

    def is_mount_visible(self, point: str) -> bool:
        """Return whether what is mounted at a point stands on what is seen above it."""
        stacked = self._at[point]
        own = {row.id for row in stacked}
        lowest = next(row for row in stacked if row.parent not in own)
        above = next((str(p) for p in Path(point).parents if str(p) in self._at), None)
        return above is None or lowest.parent == self.top_mount(above).id

    def locate_path(self, path: Path) -> tuple[_MountRow, str]:
        """Return the mount that a path lies on, and the path within its file system."""
        point = next(p for p in (path, *path.parents) if str(p) in self._at)
        row = self.top_mount(str(point))
        below = path.relative_to(point).parts
        return row, "/".join((row.root.rstrip("/"), *below)) or "/"


def _describe_mismatch(row: _MountRow, expected: _MountMode, host_table: _MountTable) -> str | None:
    """Name what is mounted if it isn't what was meant."""
    if expected.read_only and "ro" not in row.options:
        return "what can be written"
    if expected.source is None:
        return None if (row.kind, row.root) == ("tmpfs", "/") else repr(row.root)
    host, root = host_table.locate_path(expected.source)
    if row.device_and_root != (host.device, root):
        return repr(row.root)
    if "ro" in row.options and not expected.read_only and "ro" not in host.options:
        return "what can only be read"
    return None


# ---- the gate behind which a command waits until the kernel's mounts are those that were meant

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

    def bubblewrap_options(self, info_fd: int, wait_fd: int) -> list[str]:
        """Return bubblewrap's options for the numbers that it gets the descriptors as."""
        return ["--info-fd", str(info_fd), "--block-fd", str(wait_fd)]

    def close_child_ends(self) -> None:
        """Close bubblewrap's ends, once it has them."""
        for descriptor in (self.info, self.wait):
            if descriptor >= 0:
                os.close(descriptor)
        self.info = self.wait = -1

    def verify_and_start_command(self, timeout_s: float = MADE_WITHIN_S) -> bool:
        """Let the command start; returns False if bubblewrap ended first. Blocks.

        Raises `OSError` if it takes longer than `timeout_s`, `WorkspaceChangedError` if another
        sandbox was made than was meant.
        Then the command has not started, and it never will: the caller ends it.
        """
        until = time.monotonic() + timeout_s
        try:
            pid = self._wait_for_child_pid(until)
            made = pid and self._wait_for_mounts(pid, until)
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None
        if not pid or not made:
            return False
        host = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
        if difference := self.mounts.find_mount_difference(made, host):
            raise WorkspaceChangedError(_CHANGED.format(difference=difference))
        try:
            self._watch_and_kill_on_lost_mount(pid, made)
        except OSError:  # it has ended
            return False
        self.opened = True
        self._go.send(b"x")
        return True

    def _watch_and_kill_on_lost_mount(self, pid: int, mountinfo: str) -> None:
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
        protecting = self.mounts.protected_paths_by_mount_id(mountinfo)

        def watch_changes() -> None:
            changes = select.poll()
            changes.register(table, select.POLLPRI)
            changes.register(stop, select.POLLIN)
            while stop not in (descriptor for descriptor, _ in changes.poll()):
                now = os.fsdecode(_read_proc_file(table))
                if now and (lost := protecting.keys() - _mount_ids(now)):
                    self.uncovered = min(protecting[number] for number in lost)
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(first, signal.SIGKILL)
                    return

        thread = threading.Thread(target=watch_changes, name="sandbox", daemon=True)
        self._stack.callback(thread.join)
        self._stack.callback(os.close, end)
        thread.start()

    def _wait_for_child_pid(self, deadline: float) -> int | None:
        """Return the process in the sandbox, or None if bubblewrap ended before it had one."""
        heard = b""
        while not (found := _PID.search(heard)):
            if not select.select([self._news], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            data = os.read(self._news, 4096)
            if not data:
                return None
            heard += data
        return int(found[1])

    def _wait_for_mounts(self, pid: int, deadline: float) -> str | None:
        """Return the process's mounts once all are made, or None if it has ended."""
        while time.monotonic() < deadline:
            try:
                made = os.fsdecode(Path(f"/proc/{pid}/mountinfo").read_bytes())
            except PermissionError:  # while it changes its rights
                made = ""
            except OSError:
                return None
            if _is_setup_finished(made):
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
