"""toad: Toad, a client of the Agent Client Protocol in a terminal, installed once per machine into its own folder.

It needs Python 3.14. Where there is none, a Debian machine's mirror has one in `sid`: its packages are unpacked into
that folder, with the C library they need. Tests are skipped where neither is to be had.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from folders import put, tree

VERSION = "0.6.20"
_INSTALL_S = 300
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


@cache
def toad() -> Path:
    """The program."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux isn't installed: Toad isn't tried")
    folder = Path(tempfile.gettempdir()) / f"interlock-tests-toad-{VERSION}"
    folder.mkdir(exist_ok=True)
    program = folder / "toad"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            try:
                _install(program)
            except (OSError, subprocess.SubprocessError) as error:
                said = str(getattr(error, "stderr", "") or error).strip().splitlines()
                pytest.skip(f"Toad can't be installed here: {(said or ['?'])[-1]}")
    return program


def _install(program: Path) -> None:
    folder = program.parent
    python = shutil.which("python3.14") or str(_unpacked(folder))
    wanted = [
        "install",
        "--quiet",
        "--only-binary=:all:",
        "--target",
        "packages",
        f"batrachian-toad=={VERSION}",
    ]
    _run([sys.executable, "-m", "pip", "--python", python, *wanted], folder)
    _script(program, f'PYTHONPATH={folder}/packages exec {python} -P -m toad "$@"')


def _unpacked(folder: Path) -> Path:
    """Python 3.14 of Debian's unstable, beside the machine's own."""
    mirror = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], folder)
    if not mirror:
        raise OSError("apt names no mirror that would have Python 3.14")
    tree(folder, {"sources": f"deb [signed-by={_KEYS}] {mirror.splitlines()[0]} sid main\n", "status": ""})
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    places = {
        "Dir::Etc::sourcelist": folder / "sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(word for item in places.items() for word in ("-o", f"{item[0]}={item[1]}"))]
    _run([*apt, "update"], folder)
    _run([*apt, "install", "-y", "--download-only", "--no-install-recommends", "python3.14"], folder)
    for package in (folder / "cache" / "archives").glob("*.deb"):
        _run(["dpkg", "-x", str(package), "root"], folder)
    for name in ("lists", "cache"):
        shutil.rmtree(folder / name)
    binary, (libraries, *_) = (
        folder / "root/usr/bin/python3.14",
        [*(folder / "root/usr/lib").glob("*-linux-*")],
    )
    loader = next(path for path in libraries.glob("ld-linux-*.so.*"))
    python = folder / "python3.14"
    _script(python, f'exec {loader} --library-path {libraries} --argv0 {binary} {binary} "$@"')
    return python


def _script(file: Path, line: str) -> None:
    put(file, f"#!/bin/sh\n{line}\n")


def _run(command: list[str], folder: Path) -> str:
    env = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=_INSTALL_S, check=True
    )
    return done.stdout
