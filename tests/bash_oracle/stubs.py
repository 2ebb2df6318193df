"""stubs: runs a line in a real bash whose commands only log their arguments and can't write elsewhere."""

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bash_oracle.lines import PROGRAMS

from interlock.services.sandbox.sandbox import check_and_describe_sandbox_support, find_bubblewrap
from interlock.state.errors import SandboxError

BASH = shutil.which("bash")
TRAPS = ("CI=", "x+=", "x=", "a=", "TERM=", "sub", "--evil", "-rf")
_TURNED = "4"
"""A folder in which allowed programs are others, if `printf abcd%n PATH` makes it the search path."""
CANARIES = {"v": "--evil", "w": "a[$(c3)]", "z": "[$(c3)]", "q": "c3"}
"""Environment variables: an option, a value that runs `c3` when evaluated, the end of one, and a command."""
_LIMITED = b'ulimit -u 200 -t 2 -f 1000 -v 2000000 2>/dev/null; exec bash -c "$1"'
_REAL = ("env", "nohup", "timeout", "nice", "xargs", "bash", "sh", "find", "cat", "true", "stdbuf")
_LOGS = """#!/bin/sh
printf '%s\\037' "${0##*/}" "$@" "$PWD\x1e" >> "$ORACLE_LOG"
"""


@dataclass(frozen=True)
class Ran:
    """What a line did."""

    argvs: list[list[str]]
    """Arguments of every stub, in starting order."""
    folders: list[str]
    """The folder each of them ran in."""
    files: set[str]
    """Files created in the working directory."""


def make_stubs(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*PROGRAMS, "ls", "touch", "evil"):
        _program(folder / name, _LOGS)
    turned = folder / "turned"
    turned.mkdir(exist_ok=True)
    for name in ("c1", "git", "ls", "npm"):
        _program(turned / name, f"#!/bin/sh\nexec '{folder}/evil'\n")
    _program(folder / "time", '#!/bin/sh\nexec "$@"\n')
    for name in _REAL:
        found = shutil.which(name)
        if found is not None and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder


def _program(file: Path, text: str) -> None:
    """One that what an earlier line left may be about to execute: such a file can't be written to."""
    made = file.with_name(f".{file.name}.{os.getpid()}")
    made.write_text(text)
    made.chmod(0o755)
    made.replace(file)


@cache
def cage(folder: Path) -> list[str]:
    """The command that confines bash's redirections to `folder`; empty where no sandbox is available."""
    try:
        check_and_describe_sandbox_support(os.environ)
    except SandboxError:
        return []
    found = find_bubblewrap(os.environ)
    memory = [
        "--ro-bind-try",
        "/dev/shm",
        "/dev/shm",
    ]  # the stubs may be there, where a new /dev would hide them
    bound = ["--ro-bind", "/", "/", "--dev", "/dev", *memory, "--proc", "/proc"]
    bound += ["--bind", str(folder), str(folder)]
    apart = ["--unshare-user", "--unshare-net", "--unshare-pid", "--die-with-parent"]
    return [*_few_processes(), str(found), *bound, *apart]


def _few_processes() -> list[str]:
    """A limit on root's processes, to which `ulimit -u` doesn't apply: on the process ids of a namespace.

    Linux has one for each since 6.14; before, it was the whole machine's.
    """
    release = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])
    unshare = shutil.which("unshare")
    if os.geteuid() or release < (6, 14) or unshare is None:
        return []
    limited = 'echo 600 >/proc/sys/kernel/pid_max && exec "$@"'
    return [unshare, "--pid", "--fork", "--kill-child", "/bin/sh", "-c", limited, "sh"]


def run_line(line: str, stubs: Path, folder: Path, number: int) -> Ran:
    """Run the line in its own folder, in a sandbox; runs nothing without one.

    `number` is unique per line; `timeout` lets a command outlive its line.
    """
    log, cwd = folder / f"log{number}", folder / f"cwd{number}"
    for trap in TRAPS:  # a program where only an assignment should be read, and one in a subfolder
        (cwd / trap).mkdir(parents=True, exist_ok=True)
        (cwd / trap / "evil").symlink_to(stubs / "evil")
    (cwd / _TURNED).symlink_to(stubs / "turned")
    env = {"PATH": str(stubs), "ORACLE_LOG": str(log), "HOME": str(folder), "LC_ALL": "C.UTF-8", **CANARIES}
    caged = cage(folder)
    if not caged:
        return Ran([], [], set())
    process = subprocess.Popen(
        [*map(os.fsencode, caged), os.fsencode(str(BASH)), b"-c", _LIMITED, b"bash", os.fsencode(line)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    files = {p.name for p in cwd.iterdir()} - {*TRAPS, _TURNED}
    shutil.rmtree(cwd, ignore_errors=True)
    if not log.exists():
        return Ran([], [], files)
    text = log.read_bytes().decode(errors="surrogateescape")
    log.unlink()
    records = [record.split("\x1f") for record in text.split("\x1e\x1f")[:-1]]
    return Ran([r[:-1] for r in records], [r[-1].removeprefix(str(cwd)) for r in records], files)
