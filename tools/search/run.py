"""run: one search by ripgrep, or by our own program where there is none; the same lines from both."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from interlock.state.calls import ToolResult, cancelled, failure
from interlock.state.tooling import Ended, ToolContext
from interlock.tools.search import ripgrep as _ripgrep
from interlock.tools.search.globs import matcher
from interlock.tools.search.proof import proven
from interlock.tools.search.ripgrep import Line, Search

_TIMEOUT_S = 30
_AGENT_FILES = (".geminiignore", ".rooignore")


@dataclass(frozen=True)
class Found:
    """Matches and the lines around them."""

    lines: list[Line]
    more: bool
    """The program was stopped: there is more."""


class Grep:
    """The searches of one call. Raises `SearchError`."""

    def __init__(self, context: ToolContext, *, no_ignore: bool) -> None:
        self._context = context
        self._no_ignore = no_ignore
        use = (context.settings.tools.model_extra or {}).get("useRipgrep", True)
        self._program = _ripgrep.find_ripgrep() if use else None

    async def find(self, search: Search, exclude: str | None) -> Found:
        """Lines of files that may be seen, in order of path and number; none that matches `exclude` counts."""
        ended = await self._execute(self._with_ignore_files(search))
        parsed = _ripgrep.parse_lines(ended.output)
        lines = await asyncio.to_thread(lambda: list(self._shown(parsed, search)))
        if exclude:
            lines = await self._without(lines, search, exclude)
        return Found(lines, more=len(ended.output.encode()) >= _ripgrep.OUTPUT_BYTES)

    def _shown(self, lines: Iterable[Line], search: Search) -> Iterator[Line]:
        inside = any("node_modules" in path.parts for path in search.paths)
        workspace = self._context.workspace
        for path, group in groupby(lines, key=lambda line: search.root / line.path):
            if self._no_ignore or inside or not workspace.ignored(path):
                yield from proven(
                    (row._replace(path=path) for row in group), workspace, ignored=self._no_ignore
                )

    async def _execute(self, search: Search) -> Ended:
        if self._program:
            return await self._run(_ripgrep.ripgrep_argv(self._program, search), search)
        files = await asyncio.to_thread(lambda: list(self._files(search)))
        request = _ripgrep.fallback_request(search, files)
        return await self._run(_ripgrep.fallback_argv(), search, request)

    async def _without(self, lines: list[Line], search: Search, exclude: str) -> list[Line]:
        text = "".join(f"{line.text}\n" for line in lines)
        argv = _ripgrep.exclude_argv(self._program, search, exclude)
        ended = await self._run(argv, search, text.encode("utf-8", "replace"))
        numbers = {
            int(row.partition(":")[0]) for row in ended.output.splitlines() if row.partition(":")[0].isdigit()
        }
        kept = ((line, number not in numbers) for number, line in enumerate(lines, 1))
        return [line._replace(is_match=line.is_match and keep) for line, keep in kept]

    async def _run(self, argv: list[str], search: Search, stdin: bytes | None = None) -> Ended:
        ended = await self._context.processes.run(
            argv,
            cwd=search.root,
            timeout_s=_TIMEOUT_S,
            limit_chars=_ripgrep.OUTPUT_BYTES + 1,
            stdin=stdin,
            ours=True,
        )
        if ended.how == "cancelled":
            raise SearchError(cancelled("The search was cancelled."))
        if ended.how == "timeout":
            text = f"The search was ended after {_TIMEOUT_S} s; narrow dir_path, include_pattern or pattern."
            raise SearchError(failure("timeout", text))
        if ended.how == "not_started":
            raise SearchError(
                failure("not_started", f"The search program could not be started: {ended.output}.")
            )
        # Without a word: what it was to search went away meanwhile.
        if ended.exit_code == 2 and ended.output.strip() and "\0" not in ended.output:
            raise SearchError(_refused(search, _ripgrep.problem(ended.output)))
        return ended

    def _with_ignore_files(self, search: Search) -> Search:
        """What ripgrep may skip by itself. Where the user's files bring back what git ignores, it can't: we filter."""
        filtering: dict[str, Any] = self._context.settings.context.file_filtering
        names = [*_AGENT_FILES] if filtering.get("respectGeminiIgnore", True) else []
        names += filtering.get("customIgnoreFilePaths", ())
        files = [path for name in names if (path := search.root / name).is_file()]
        git = filtering.get("respectGitIgnore", True) and not self._no_ignore
        if any(_brings_back(path) for path in files):
            return replace(search, all_files=True)
        return replace(search, all_files=not git, ignore_files=tuple(files))

    def _files(self, search: Search) -> Iterator[Path]:
        glob = search.include
        test = matcher(glob if glob and "/" in glob.strip("/") else f"**/{glob or '*'}")
        for start in search.paths:
            for path in self._context.workspace.walk(start, include_ignored=self._no_ignore):
                if path == start or (
                    not path.is_symlink() and test(path.relative_to(search.root).as_posix())
                ):
                    yield path


class SearchError(Exception):
    """Carries the result that the model gets instead of lines."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.content)
        self.result = result


def _brings_back(file: Path) -> bool:
    try:
        return any(line.startswith(b"!") for line in file.read_bytes().splitlines())
    except OSError:
        return False


def _refused(search: Search, why: str) -> ToolResult:
    text = (
        f"Pattern {search.pattern!r} can't be used: {why}. Set fixed_strings to search for the text itself."
    )
    return failure("invalid_pattern", text)
