"""open: the sandbox that settings ask for, tried once; or the one line that says why there can be none."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from interlock.services.protected_paths import ProtectedPaths
from interlock.services.sandbox.bubblewrap import find_bwrap, remedy, trouble
from interlock.services.sandbox.sandbox import Sandbox
from interlock.state.errors import ConfigError, SandboxError
from interlock.state.settings import ToolSettings

_WITHOUT = "or run without the sandbox (no -s; tools.sandbox, GEMINI_SANDBOX and INTERLOCK_SANDBOX unset)"
_READ = ":ro"


def open_sandbox(
    settings: ToolSettings,
    *,
    roots: Sequence[Path],
    home: Path,
    state: Path,
    env: Mapping[str, str],
    protected: ProtectedPaths | None = None,
) -> Sandbox | None:
    """None: settings ask for none. Raises `SandboxError` where there can be none, `ConfigError` for a bad path."""
    if not settings.sandbox:
        return None
    if settings.sandbox not in (True, "bwrap", "bubblewrap"):
        raise SandboxError(
            f"There is no sandbox {settings.sandbox!r} here, only 'bwrap' (true means the same): name that, {_WITHOUT}."
        )
    writable, readable = _paths(settings.sandbox_paths, home)
    return _tried(
        Sandbox(
            program=_program(env, roots),
            roots=roots,
            homes=_homes(roots, home, env),
            state=Path(os.path.realpath(state)),
            env=env,
            network=settings.sandbox_network,
            writable=writable,
            readable=readable,
            protected=protected or ProtectedPaths(),
        )
    )


def check_here(env: Mapping[str, str]) -> str:
    """The program, if a sandbox can be made on this machine. Raises `SandboxError`."""
    program = _program(env, ())
    _tried(Sandbox(program, (), (), Path(os.devnull), env))
    return program


def _program(env: Mapping[str, str], roots: Sequence[Path]) -> str:
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"The sandbox is bubblewrap, which needs Linux, and this is {sys.platform}: use Linux, {_WITHOUT}."
        )
    if program := find_bwrap(env, roots):
        return program
    raise SandboxError(
        "The sandbox needs bubblewrap, and there is no 'bwrap' on the PATH: install the package bubblewrap"
        f" (or: pip install 'interlock-agent[sandbox]'), {_WITHOUT}."
    )


def _tried(sandbox: Sandbox) -> Sandbox:
    where = sandbox.roots[0] if sandbox.roots else Path("/")
    try:
        with sandbox.entered(where) as argv:
            problem = trouble(argv, {"PATH": sandbox.env.get("PATH", os.defpath)})
    except OSError as error:
        problem = str(error)
    if problem:
        raise SandboxError(f"Bubblewrap can't make a sandbox here: {problem!r}; {remedy()}, {_WITHOUT}.")
    return sandbox


def _homes(roots: Sequence[Path], home: Path, env: Mapping[str, str]) -> list[Path]:
    """Raises `SandboxError` where a root holds a home directory: everything in it would be shown."""
    named = [home, *([Path(env["HOME"])] if env.get("HOME") else [])]
    homes = list(dict.fromkeys(p for p in (Path(os.path.realpath(h)) for h in named) if p != Path("/")))
    for root in roots:
        if root == Path("/") or any(h.is_relative_to(root) for h in homes):
            raise SandboxError(
                f"{str(root)!r} holds the home directory, and a sandbox there would hide nothing of it:"
                f" start in a project's own folder, {_WITHOUT}."
            )
    return homes


def _paths(named: Sequence[str], home: Path) -> tuple[list[Path], list[Path]]:
    """Writable and readable ones."""
    writable: list[Path] = []
    readable: list[Path] = []
    for name in named:
        text = name.removesuffix(_READ)
        path = home / text[2:] if text.startswith("~/") else Path(text)
        if not path.is_absolute() or "\0" in text or not path.exists() or path == Path("/"):
            raise ConfigError(
                f"tools.sandboxAllowedPaths: {name!r} can't be shown to commands; expected a file or folder that"
                " exists, absolute or from '~/', with ':ro' after it if it is only to be read."
            )
        (readable if name.endswith(_READ) else writable).append(Path(os.path.realpath(path)))
    return writable, readable
