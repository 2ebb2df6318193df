"""git_summary: branch, changes and last commits of a repository, without running anything that it brings along."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SECONDS = 3.0
"""Time for each git command; a huge repository goes without the answer."""
_LINES = 20
"""Changed files that are listed."""
_BYTES = 256 * 1024
_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
)
"""Set while git runs a hook: they would point at another repository."""
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
_SAFE = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "core.quotePath=false",
)
"""A repository's own configuration may name programs that git would run, before anybody approved anything."""


@dataclass(frozen=True)
class _Output:
    code: int
    text: str


async def git_summary(directory: Path, env: Mapping[str, str], seconds: float = SECONDS) -> str:
    """A few lines for the model; says so where git is missing or too slow."""
    clean = {k: v for k, v in env.items() if k not in _REPOSITORY} | _QUIET
    log = _git(directory, clean, seconds, "log", "-n5", "--no-show-signature", "--no-color", "--format=%h %s")
    changes, commits = await asyncio.gather(_changes(directory, clean, seconds), log)
    if commits is None or changes is None:
        return "(git can't be run)"
    # Without a commit yet, `git log` fails.
    last = "(none)" if commits.code > 0 else commits.text.rstrip()
    return f"{changes}\nLast commits:\n{last}"


def _failure(output: _Output) -> str:
    return f"(no status: {output.text.strip() or 'git failed'})"


async def _changes(directory: Path, env: Mapping[str, str], seconds: float) -> str | None:
    filters = await _git(
        directory, env, seconds, "config", "--show-scope", "--get-regexp", r"^filter\..*\.(clean|process)$"
    )
    if filters is None:
        return None
    if filters.code not in (0, 1):
        return _failure(filters)
    if any(not line.startswith(("system\t", "global\t")) for line in filters.text.splitlines()):
        return "(changes not shown: finding them would run filters that this repository configures)"
    status = await _git(
        directory, env, seconds, "status", "--short", "--branch", "--ignore-submodules=all", "--no-renames"
    )
    if status is None:
        return None
    if status.code != 0:
        return _failure(status)
    branch, *files = status.text.splitlines()
    more = [f"… {len(files) - _LINES} more"] if len(files) > _LINES else []
    return "\n".join([branch, *(files[:_LINES] or ["(no changes)"]), *more])


async def _git(directory: Path, env: Mapping[str, str], seconds: float, *args: str) -> _Output | None:
    """None: there is no git. At most 256 KB of output are taken; what lasts too long is killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_SAFE,
            *args,
            cwd=directory,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            data = await _read(process.stdout)
            code = 0 if len(data) >= _BYTES else await process.wait()
    except TimeoutError:
        return _Output(-1, f"git {args[0]} took longer than {seconds:g} s")
    finally:
        await _end(process)
    return _Output(code, data.decode(errors="replace"))


async def _read(stream: asyncio.StreamReader) -> bytes:
    data = b""
    while len(data) < _BYTES and (chunk := await stream.read(_BYTES - len(data))):
        data += chunk
    return data


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
