"""sandbox: the command line that puts a command into bubblewrap."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.protected_paths import ProtectedPaths
from interlock.services.sandbox.mounts import Mounts
from interlock.services.sandbox.placeholders import held
from interlock.services.sandbox.survey import survey
from interlock.services.sandbox.system import system_mounts

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
