"""packages: parts of Interlock that need a newer package than an application beside it may have, and the command that
adds a package for the way in which Interlock was installed."""

import shlex
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_NEEDED = {"google-genai": ("3.6", "Gemini models are"), "mcp": ("2.3", "MCP servers are")}
"""Package → the oldest version that was tried, and what needs it. `pyproject.toml` lets older ones stay."""


def outdated_package_problem(package: str) -> str:
    """A line that says what is off with the version that is installed, and which one it needs; empty: nothing is."""
    from packaging.version import Version

    least, part = _NEEDED[package]
    found = version(package)
    if Version(found) >= Version(least):
        return ""
    return (
        f"{part} off: {package} is {found} here; expected {least} or newer. Install Interlock in an environment of its "
        f"own, or: {sys.executable} -m pip install '{package}>={least}'"
    )


_NAME = "interlock-agent"


def install_command(
    package: str, *, upgrade: bool = False, prefix: Path | None = None, python: str = ""
) -> str:
    """Return the shell command that installs `package` where this Interlock runs.

    `prefix` and `python` are the environment and its interpreter; by default those of this process.
    """
    folder, program = prefix or Path(sys.prefix), python or sys.executable
    if (folder / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "inject", *(["--force"] if upgrade else []), _NAME, package])
    if (folder / "uv-receipt.toml").is_file():
        own, others = _read_uv_receipt(folder)
        more = [word for name in [*others, package] for word in ("--with", name)]
        return shlex.join(
            ["uv", "tool", "install", *more, *(["--upgrade-package", package] if upgrade else []), own]
        )
    if _is_uv_environment(folder):
        more = ["--upgrade"] if upgrade else []
        return shlex.join(["uv", "pip", "install", *more, "--python", program, package])
    return shlex.join([program, "-m", "pip", "install", *(["-U"] if upgrade else []), package])


def _read_uv_receipt(folder: Path) -> tuple[str, list[str]]:
    """Return how Interlock was named when uv installed it, and the packages beside it, which a new install drops."""
    import tomllib

    told: dict[str, Any] = tomllib.loads((folder / "uv-receipt.toml").read_text())
    listed: list[dict[str, Any]] = told.get("tool", {}).get("requirements", [])
    nothing: dict[str, Any] = {}
    own = next((one for one in listed if one.get("name") == _NAME), nothing)
    source = next((own[key] for key in ("path", "directory", "url") if key in own), _NAME)
    extras = ",".join(own.get("extras", ()))
    others = [str(one["name"]) for one in listed if one.get("name") not in (None, _NAME)]
    return f"{source}[{extras}]" if extras else str(source), others


def _is_uv_environment(folder: Path) -> bool:
    """Return whether uv made the environment, without pip in it."""
    config = folder / "pyvenv.cfg"
    made = config.is_file() and any(line.startswith("uv") for line in config.read_text().splitlines())
    return made and find_spec("pip") is None
