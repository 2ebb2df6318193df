"""packages: parts of Interlock that need a newer package than an application beside it may have, and the command that
adds a package for the way in which Interlock was installed."""

import shlex
import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, requires, version
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
EXTRAS: Mapping[str, str] = {
    "anthropic": "Claude models",
    "openai": "GPT models, OpenRouter, Azure, and local servers: Ollama, llama.cpp, vLLM, LM Studio",
    "bedrock": "models of Amazon Bedrock",
    "all-models": "the models above, and Ollama, Groq, Mistral, DeepSeek and xAI by their own packages",
    "fleet": "runs in PostgreSQL, for workers on several hosts",
    "memory": "memories of LangGraph graphs, and importing their threads from SQLite",
    "search": "code search without an embedding service",
    "code": "outlines of source files in 13 languages",
    "browser": "a browser for the model; Chromium must be on the PATH",
    "sandbox": "bubblewrap, where the system has none",
    "otel": "traces and metrics for a collector",
    "png": "diagrams as PNG, where Graphviz is missing",
    "studio": "LangGraph's own development server",
}
"""Extra of the distribution → what it adds."""


def extra_packages(extra: str) -> list[str]:
    """Return the requirements of an extra, other extras resolved; empty where Interlock has no metadata."""
    from packaging.requirements import Requirement

    try:
        listed = [Requirement(line) for line in requires(_NAME) or ()]
    except PackageNotFoundError:
        return []
    found: dict[str, None] = {}
    for one in listed:
        if not one.marker or not one.marker.evaluate({"extra": extra}) or one.marker.evaluate({"extra": ""}):
            continue
        if one.name == _NAME:
            found |= dict.fromkeys(name for more in sorted(one.extras) for name in extra_packages(more))
        else:
            bounds = ",".join(
                sorted(f">={spec.version}" if spec.operator == ">=" else str(spec) for spec in one.specifier)
            )
            inner = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
            found[f"{one.name}{inner}{bounds}"] = None
    return list(found)


def missing_packages(packages: list[str]) -> list[str]:
    """Return those of these requirements that this environment doesn't meet."""
    from packaging.requirements import Requirement

    invalidate_caches()

    def is_met(requirement: Requirement) -> bool:
        try:
            return requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            return False

    return [package for package in packages if not is_met(Requirement(package))]


def install_packages(packages: list[str]) -> str:
    """Install packages where this Interlock runs, and return what went wrong, in one line; empty: nothing.

    The installer writes its progress to this process's stderr. It reads no input.
    """
    import subprocess

    command = install_command(*packages)
    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False
        )
    except OSError as error:
        return f"{command} can't be run: {error.strerror}."
    if done.returncode:
        return f"{command} failed with exit code {done.returncode}. Its last lines say why."
    if left := missing_packages(packages):
        return f"{command} ended, but {', '.join(left)} can't be found by this Interlock. Start it again."
    return ""


def install_command(
    *packages: str, upgrade: bool = False, prefix: Path | None = None, python: str = ""
) -> str:
    """Return the shell command that installs packages where this Interlock runs.

    `prefix` and `python` are the environment and its interpreter; by default those of this process.
    """
    folder, program = prefix or Path(sys.prefix), python or sys.executable
    if (folder / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "inject", *(["--force"] if upgrade else []), _NAME, *packages])
    if (folder / "uv-receipt.toml").is_file():
        own, others = _read_uv_receipt(folder)
        more = [word for name in [*others, *packages] for word in ("--with", name)]
        newer = [word for name in packages for word in ("--upgrade-package", name)] if upgrade else []
        return shlex.join(["uv", "tool", "install", *more, *newer, own])
    if _is_uv_environment(folder):
        more = ["--upgrade"] if upgrade else []
        return shlex.join(["uv", "pip", "install", *more, "--python", program, *packages])
    return shlex.join([program, "-m", "pip", "install", *(["-U"] if upgrade else []), *packages])


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
