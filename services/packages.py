"""packages: parts of Interlock that need a newer package than an application beside it may have."""

import sys
from importlib.metadata import version

_NEEDED = {"google-genai": ("3.6", "Gemini models are"), "mcp": ("2.3", "MCP servers are")}
"""Package → the oldest version that was tried, and what needs it. `pyproject.toml` lets older ones stay."""


def version_problem(package: str) -> str:
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
