"""workspace_summary: describes the workspace in the first request: its directory tree and its git repository."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from time import monotonic

from interlock.services.files.ignore import is_generated_folder

ENTRIES = 200
"""Maximum lines of a listing (gemini-cli: 200)."""
_BELOW = 30
"""Maximum lines per directory below the root, so that one full folder doesn't use up the listing."""
_SCANNED, _SCANNED_IN_ALL = 5_000, 10_000
"""Maximum entries considered per directory and in total: about 0.1 s."""
_READ = 200_000
"""Maximum entries read from one directory before choosing among them."""
_SECONDS = 2.0
"""After this time no more directories are opened: a slow file system must not hold up the first request."""
_HIDDEN = frozenset({".git"})

IgnoredIn = Callable[[Path], Callable[[str, bool], bool]]
"""Same as `Workspace.ignored_in`."""


def list_tree(root: Path, ignored_in: IgnoredIn, limit: int = ENTRIES) -> str:
    """List names below `root`, indented; links aren't followed, and `…` marks omissions, such as the content of folders
    that a build made (`is_made`)."""
    end = monotonic() + _SECONDS
    shown: dict[Path, list[os.DirEntry[str]]] = {}
    omitted: dict[Path, int] = {}
    queue: deque[tuple[Path, Collection[str]]] = deque([(root, ())])
    left = _SCANNED_IN_ALL
    while queue and limit > 0 and left > 0 and monotonic() < end:
        directory, beside = queue.popleft()
        found = _list_entries(directory, min(left, _SCANNED))
        left -= len(found)
        names = {e.name for e in found}
        if directory != root and is_generated_folder(directory.name, beside, names):
            continue
        ignored = ignored_in(directory)
        # Links are followed: patterns for directories match links to them too.
        kept = [e for e in found if e.name not in _HIDDEN]
        entries = [e for e in kept if not ignored(e.name, _is_directory(e, follow_symlinks=True))]
        shown[directory] = entries[: limit if directory == root else min(limit, _BELOW)]
        omitted[directory] = len(entries) - len(shown[directory])
        limit -= len(shown[directory])
        inner = (
            e for e in shown[directory] if _is_directory(e) and not is_generated_folder(e.name, names, ())
        )
        queue.extend((Path(e.path), names) for e in inner)
    return "\n".join(_format_lines(root, shown, omitted, "")) or "(empty)"


def _list_entries(directory: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            # Sorted, so that the choice is stable: directory order is arbitrary.
            return nsmallest(most, islice(found, _READ), key=lambda e: (not _is_directory(e), e.name))
    except OSError:
        return []


def _is_directory(entry: os.DirEntry[str], *, follow_symlinks: bool = False) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow_symlinks)
    except OSError:
        return False


def _format_lines(
    directory: Path, shown: dict[Path, list[os.DirEntry[str]]], omitted: dict[Path, int], indent: str
) -> list[str]:
    lines: list[str] = []
    for entry in shown.get(directory, []):
        # Escaped onto one line: control characters can't disguise a name.
        path, name = Path(entry.path), entry.name if entry.name.isprintable() else ascii(entry.name)
        if not _is_directory(entry):
            lines.append(indent + name)
        elif path in shown:
            lines.append(f"{indent}{name}/")
            lines += _format_lines(path, shown, omitted, indent + "  ")
        else:
            lines.append(f"{indent}{name}/ …")
    if omitted.get(directory):
        lines.append(f"{indent}… {omitted[directory]} more")
    return lines


SECONDS = 3.0
"""Time-out per git command; huge repositories get no answer."""
_LINES = 20
"""Maximum number of changed files listed."""
_BYTES = 256 * 1024
_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    "GIT_PREFIX",
)
"""Set by git while it runs a hook; they would point at another repository."""
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
"""A repository's own configuration may name programs for git to run, before anyone has approved anything."""


@dataclass(frozen=True)
class _GitOutput:
    """What git said."""

    code: int
    text: str


async def summarize_repository(directory: Path, env: Mapping[str, str], seconds: float = SECONDS) -> str:
    """Summarize the repository in a few lines for the model; reports if git is missing or too slow."""
    clean = {k: v for k, v in env.items() if k not in _REPOSITORY} | _QUIET
    log = _run_git(
        directory, clean, seconds, "log", "-n5", "--no-show-signature", "--no-color", "--format=%h %s"
    )
    changes, commits = await asyncio.gather(_describe_changes(directory, clean, seconds), log)
    if commits is None or changes is None:
        return "(git can't be run)"
    # `git log` fails if there are no commits yet.
    last = "(none)" if commits.code > 0 else commits.text.rstrip()
    return f"{changes}\nLast commits:\n{last}"


def _failure_line(output: _GitOutput) -> str:
    return f"(no status: {output.text.strip() or 'git failed'})"


async def _describe_changes(directory: Path, env: Mapping[str, str], seconds: float) -> str | None:
    filters = await _run_git(
        directory, env, seconds, "config", "--show-scope", "--get-regexp", r"^filter\..*\.(clean|process)$"
    )
    if filters is None:
        return None
    if filters.code not in (0, 1):
        return _failure_line(filters)
    if any(not line.startswith(("system\t", "global\t")) for line in filters.text.splitlines()):
        return "(changes not shown: finding them would run filters that this repository configures)"
    status = await _run_git(
        directory, env, seconds, "status", "--short", "--branch", "--ignore-submodules=all", "--no-renames"
    )
    if status is None:
        return None
    if status.code != 0:
        return _failure_line(status)
    branch, *files = status.text.splitlines()
    more = [f"… {len(files) - _LINES} more"] if len(files) > _LINES else []
    return "\n".join([branch, *(files[:_LINES] or ["(no changes)"]), *more])


async def _run_git(directory: Path, env: Mapping[str, str], seconds: float, *args: str) -> _GitOutput | None:
    """Run git; None if it can't be started. Reads at most 256 KB of output; kills the process on time-out."""
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
            data = await _read_limited(process.stdout)
            code = 0 if len(data) >= _BYTES else await process.wait()
    except TimeoutError:
        return _GitOutput(-1, f"git {args[0]} took longer than {seconds:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return _GitOutput(code, data.decode(errors="replace"))


async def _read_limited(stream: asyncio.StreamReader) -> bytes:
    data = b""
    while len(data) < _BYTES and (chunk := await stream.read(_BYTES - len(data))):
        data += chunk
    return data
