"""fleet_lab: what the fleet's benchmark is made of: hosts, a model server, a proxy in front of PostgreSQL, and work."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fake_gemini.handler import Handler

_SERVER = Path(__file__).parents[1] / "tests" / "mcp_servers" / "odd.py"
INTERLOCK = [str(Path(sys.executable).with_name("interlock"))]
QUEUE = "bench"
KINDS = ("edit", "asks", "task", "server")
"""What a run does: edits and counts; the same, with approvals; in a subtask; by an MCP server, too."""
_WORK = re.compile(r"work (\d+) (\w+)( part)?")
_DRIVEN = re.compile(r"^(\w+): driven by process (\d+)$", re.MULTILINE)
_CLOCK = Path(__file__).with_name("fleet_clock.c")


class Model(ThreadingHTTPServer):
    """Speaks Gemini's protocol. Its reply follows from the request, so one that is repeated gets the same."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, count: Path, slowest_ms: tuple[int, int] = (20, 200)) -> None:
        handler = type("Bound", (Handler,), {"fake": self})
        super().__init__(("0.0.0.0", 0), handler)
        self.script, self.asked, self._count, self._delay = self, 0, count, slowest_ms
        self.options: Mapping[str, Any] = {"strict": False}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed all the time."""

    def log(self, *_: Any) -> int:
        self.asked += 1
        return self.asked

    def choose(self, found: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        delay = {"delay": random.uniform(*self._delay) / 1000}
        if "next_speaker" in found["schema"]:
            return {"text": '{"reasoning": "it is done", "next_speaker": "user"}', **delay}
        work = _WORK.search(found["first_user"]) or _WORK.search(str(body))
        if work is None:
            return {"text": "Nothing to do.", **delay}
        steps = script(int(work[1]), "part" if work[3] else work[2], self._count)
        at = min(found["model_turns"], len(steps) - 1)
        step = steps[at]
        return ({"text": step} if isinstance(step, str) else {"calls": [step]}) | delay


def script(number: int, kind: str, count: Path) -> list[Any]:
    """What the model answers in a run, in order: calls, and a text at the end."""
    edit = {"name": "write_file", "args": {"file_path": f"made-{number}.txt", "content": f"{number}\n"}}
    counts = f"sleep 0.{number % 9 + 1}; date +%s > clock; echo {number} >> {count}"
    command = {"name": "run_shell_command", "args": {"command": counts}}
    if kind == "task":
        task = {"name": "new_task", "args": {"mode": "code", "message": f"work {number} {kind} part"}}
        return [task, _completed(number)]
    if kind == "part":
        old = {"name": "write_to_file", "args": {"path": f"made-{number}.txt", "content": f"{number}\n"}}
        return [old, {"name": "execute_command", "args": {"command": counts}}, _completed(number)]
    if kind == "server":
        note = {"name": "mcp_odd_note", "args": {"text": str(number)}}
        return [edit, note, command, f"Done {number}."]
    return [edit, command, f"Done {number}."]


def _completed(number: int) -> dict[str, Any]:
    return {"name": "attempt_completion", "args": {"result": f"Done {number}."}}


class Proxy(threading.Thread):
    """Passes connections on to PostgreSQL, until it is told to cut them all."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._to, self._lock, self._open = port, threading.Lock(), set[socket.socket]()
        self._cut_until, self.cuts = 0.0, 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.start()

    def cut(self, seconds: float) -> None:
        self._cut_until = time.monotonic() + seconds
        with self._lock:
            cut, self._open = self._open, set()
        self.cuts += len(cut)
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if time.monotonic() < self._cut_until:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)
        one.close()


def laid_out(folder: Path, model: Model, store: str, at: str = "127.0.0.1") -> dict[str, str]:
    """Make the folders of a fleet whose hosts reach model and store `at` this address; returns its environment."""
    for part in ("work", "home/.interlock"):
        (folder / part).mkdir(parents=True)
    (folder / "count.txt").touch()
    log = {"ODD_LOG": str(folder / "odd.log")}
    odd = {"command": sys.executable, "args": ["-I", "-S", str(_SERVER)], "env": log}
    (folder / "home/.interlock/settings.json").write_text(json.dumps({"mcpServers": {"odd": odd}}))
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("INTERLOCK_", "GEMINI_", "GOOGLE_"))},
        "HOME": str(folder / "home"),
        "GEMINI_API_KEY": "a-key-for-loopback",
        "GOOGLE_GEMINI_BASE_URL": f"http://{at}:{model.server_address[1]}",
        "INTERLOCK_STORE": store,
    }


@dataclass
class Host:
    """Where one worker lives: this machine, or a network, host name and process table of its own."""

    number: int
    folder: Path
    env: dict[str, str]
    namespace: str = ""
    skew_s: int = 0
    concurrency: int = 2
    worker: "subprocess.Popen[bytes] | None" = None
    cut: bool = False
    paused: set[int] = field(default_factory=set[int])

    def start(self) -> None:
        """Start a worker, unless one runs."""
        if self.worker is not None and self.worker.poll() is None:
            return
        command = [*INTERLOCK, "worker", "--concurrency", str(self.concurrency), "--queue", QUEUE]
        if self.namespace:
            named = f"hostname host{self.number}; {self._clock()} exec "
            apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
            inside = ["sh", "-ec", named + '"$@"', "sh", *command]
            command = ["ip", "netns", "exec", self.namespace, *apart, *inside]
        with (self.folder / f"worker{self.number}.log").open("ab") as log:
            self.worker = subprocess.Popen(
                command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder / "work",
            )

    def _clock(self) -> str:
        """What sets this host's clock: every program there loads it, also one with an environment of its own."""
        if not self.skew_s:
            return ""
        etc = self.folder / f"etc{self.number}"
        library = etc / "clock.so"
        if not etc.exists():
            etc.mkdir()
            made = ["cc", "-O2", "-shared", "-fPIC", f"-DAHEAD={self.skew_s}", "-o", library, _CLOCK]
            subprocess.run(made, check=True)
            (etc / "ld.so.preload").write_text(f"{library}\n")
        return f"mount -t overlay overlay -o lowerdir={etc}:/etc /etc;"

    def processes(self) -> list[int]:
        """The worker and everything below it, or in its process table; the worker's own first."""
        if self.worker is None or self.worker.poll() is not None:
            return []
        below = _below()
        found, look = list[int](), [self.worker.pid]
        while look:
            found.append(look.pop(0))
            look += below.get(found[-1], [])
        return found

    def worker_pid(self) -> int | None:
        """The worker itself: in a namespace it is below what made that."""
        return next(
            (pid for pid in self.processes() if b"\0worker\0" in _words(pid) + b"\0" and _is_ours(pid)), None
        )

    def drives(self, held: list[tuple[str, str, int]]) -> dict[str, int]:
        """Run → the process that drives it for this worker. `held`: run, host and process of each held lease.

        A process that forks for all workers of a host may have made it, so it needn't be below this one.
        """
        worker = self.worker_pid()
        if worker is None:
            return {}
        ours = {(run, int(pid)) for run, pid in self._reported()}
        table = _table(worker)
        outside = {_pid_inside(pid): pid for pid in _processes() if _table(pid) == table}
        here = f"host{self.number}" if self.namespace else os.uname().nodename
        mine = (
            (run, pid) for run, host, pid in held if host.partition("/")[0] == here and (run, pid) in ours
        )
        return {run: outside[pid] for run, pid in mine if pid in outside}

    def driven(self) -> set[str]:
        """Runs that it ever drove."""
        return {run for run, _ in self._reported()}

    def _reported(self) -> list[tuple[str, str]]:
        log = self.folder / f"worker{self.number}.log"
        return _DRIVEN.findall(log.read_text(encoding="utf-8", errors="replace"))

    def signal(self, number: int) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        if self.worker is not None:
            self.signal(signal.SIGKILL)
            self.worker.wait()
            self.worker = None


def _below() -> dict[int, list[int]]:
    """Process → its children."""
    found = dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_ours(pid: int) -> bool:
    return b"python" in _words(pid).split(b"\0")[0]


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _table(pid: int) -> str:
    """Which process table it is in."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _pid_inside(pid: int) -> int:
    """Its number in its own process table."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return int(status.partition("NSpid:")[2].partition("\n")[0].split()[-1])


def runs_somewhere(words: str) -> bool:
    """Whether a process has these words in its command line."""
    return any(words.encode() in _words(pid) for pid in _processes() if pid != os.getpid())


def cpu_of(folder: Path, *, drives: bool = False) -> float:
    """Seconds of CPU of the processes that work below this folder, and of their children that have ended.

    `drives`: with what forks them for the workers of this environment, which works nowhere.
    """
    forks = [pid for pid in _processes() if drives and b"interlock.cli.warm.fork_server" in _words(pid)]
    ours = {pid for pid in forks if _words(pid).startswith(os.fsencode(sys.prefix))}
    ticks = 0
    for pid in {*left_in(folder), *ours}:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def left_in(folder: Path) -> list[int]:
    """Processes that still work below this folder, and aren't this one."""
    found = list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str((entry / "cwd").readlink()).startswith(str(folder)):
                    found.append(int(entry.name))
    return found


@dataclass
class Network:
    """A bridge with a namespace a host. A partition takes a port off the bridge: the carrier stays, packets vanish."""

    hosts: int
    name: str = field(default_factory=lambda: f"il{os.getpid() % 10_000}")

    @property
    def address(self) -> str:
        return f"10.77.{os.getpid() % 250}"

    def __enter__(self) -> "Network":
        # A bridge without an address of its own takes one of its ports', and changes it with them.
        _ip("link", "add", self.name, "address", "02:00:00:00:77:01", "type", "bridge")
        _ip("addr", "add", f"{self.address}.1/24", "dev", self.name)
        _ip("link", "set", self.name, "up")
        for host in range(self.hosts):
            space, port, inside = self.space(host), self.port(host), f"{self.name}i{host}"
            _ip("netns", "add", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", inside)
            _ip("link", "set", inside, "netns", space)
            _ip("link", "set", port, "master", self.name, "up")
            _ip("-n", space, "addr", "add", f"{self.address}.{10 + host}/24", "dev", inside)
            for link in (inside, "lo"):
                _ip("-n", space, "link", "set", link, "up")
            # Neighbours are fixed: a host that asks for an address would notice that nobody answers.
            found = ("lladdr", "02:00:00:00:77:01", "dev", inside, "nud", "permanent")
            _ip("-n", space, "neigh", "replace", f"{self.address}.1", *found)
        return self

    def __exit__(self, *_: object) -> None:
        for host in range(self.hosts):
            subprocess.run(["ip", "netns", "del", self.space(host)], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["ip", "link", "del", self.port(host)], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.name], check=False)

    def space(self, host: int) -> str:
        return f"{self.name}h{host}"

    def port(self, host: int) -> str:
        return f"{self.name}p{host}"

    def cut(self, host: int) -> None:
        _ip("link", "set", self.port(host), "nomaster")

    def heal(self, host: int) -> None:
        _ip("link", "set", self.port(host), "master", self.name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Variables of this process, for a while."""
    kept = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
