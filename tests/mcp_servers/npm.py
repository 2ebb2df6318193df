"""npm: npm packages, installed once per machine into their own folder; tests without them are skipped."""

import fcntl
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@google/gemini-cli@0.61.0",
    "acpx@0.19.1",
)
_NODE = 20
_INSTALL_S = 300
_INSTALL = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


@cache
def programs() -> Path:
    """The folder of their programs."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm isn't installed: servers from npm, gemini-cli and acpx aren't tried")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < _NODE:
        pytest.skip(f"Node is {version}: servers from npm, gemini-cli and acpx need {_NODE} or newer")
    names = "".join(c if c.isalnum() else "-" for c in "".join(PACKAGES))
    folder = Path(tempfile.gettempdir()) / f"interlock-tests-{names}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            (folder / "package.json").write_text("{}")
            done = subprocess.run(
                [npm, *_INSTALL, *PACKAGES], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S
            )
            if done.returncode != 0:
                pytest.skip(f"npm can't install here: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            (folder / "whole").touch()
    return folder / "node_modules" / ".bin"
