"""read_file: read a text file or part of it, a picture or PDF; several text files at once."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from pydantic import Field, JsonValue, model_validator

from interlock.state.calls import ToolError, ToolResult
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import parse_file_name, quote_name
from interlock.state.seen import How, SeenFile
from interlock.state.text import format_count, join_up_to, replace_surrogates
from interlock.state.tooling import Args, FilePath, Tool, ToolContext
from interlock.state.workspace import PathRefused, Workspace, ignored_path_message
from interlock.tools.file_content import (
    MOST_CHARS,
    TextFile,
    binary_file_notice,
    decode_text_file,
    encoding_heading,
    encoding_label,
    extract_text_page,
    media_placeholder,
    omitted_lines_heading,
    split_lines,
    to_media_part_or_notice,
)
from interlock.tools.screen_text import show_on_screen
from interlock.tools.search.ripgrep import (
    compile_glob,
    expand_braces,
    has_glob_characters,
    select_paths_by_glob,
)
from interlock.tools.stale_files import make_seen_file
from interlock.tools.workspace_files import path_kind, read_file_bytes, resolve_file_if_allowed


class ReadFileArgs(Args):
    file_path: FilePath
    start_line: int | None = Field(
        default=None, ge=1, description="First line to read, counted from 1. Default 1."
    )
    end_line: int | None = Field(
        default=None,
        ge=1,
        description="Last line to read, itself included. Default: 2,000 lines from start_line on.",
    )

    @model_validator(mode="after")
    def _require_line_order(self) -> "ReadFileArgs":
        if self.end_line is not None and self.end_line < (self.start_line or 1):
            raise ValueError(
                f"end_line is {self.end_line}, expected at least start_line ({self.start_line or 1})"
            )
        return self


async def run_read_file(args: ReadFileArgs, context: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_read_file, args, context.workspace)


def _read_file(args: ReadFileArgs, workspace: Workspace) -> ToolResult:
    path = workspace.resolve_readable(args.file_path)
    data = read_file_bytes(workspace, path)
    shown = workspace.display_path(path)
    if media := to_media_part_or_notice(shown, data):
        if isinstance(media, str):
            raise ToolError("not_an_image", media.strip("[]"))
        line = media_placeholder(shown, media, len(data))
        seen = (make_seen_file(shown, data, None),)
        meta: dict[str, JsonValue] = {"summary": media.mime_type}
        return ToolResult(status="success", content=line, data=(media,), meta=meta, seen=seen)
    file = decode_text_file(data, workspace.read_conventions(path), path.name)
    if file is None:
        return ToolResult(
            status="success", content=binary_file_notice(shown, len(data)), meta={"summary": "binary"}
        )
    if not data or not file.raw:
        return ToolResult(
            status="success", content=f"[{quote_name(shown)} is empty.]", meta={"summary": "empty"}
        )
    # A command's whole output is kept byte by byte.
    if not any(path.is_relative_to(root) for root in workspace.roots):
        file = replace(file, raw=show_on_screen(file.raw))
    return _format_text_page(args, shown, data, file)


def _format_text_page(args: ReadFileArgs, display_path: str, data: bytes, file: TextFile) -> ToolResult:
    start, text = args.start_line or 1, file.text
    total = len(split_lines(text))
    if start > total:
        raise ToolError(
            "invalid_tool_params",
            f"{quote_name(display_path)} has {format_count(total, 'line')}; start_line is {start}.",
        )
    part = extract_text_page(text, start, args.end_line)
    summary = format_count(total, "line") if part.is_whole else f"lines {part.first}-{part.last} of {total}"
    summary += f", {label}" if (label := encoding_label(file.encoding)) else ""
    return ToolResult(
        status="success",
        content=replace_surrogates(encoding_heading(file) + omitted_lines_heading(part) + part.text),
        meta={"summary": summary},
        seen=(make_seen_file(display_path, data, file, "read" if part.is_whole else "part"),),
    )


def _summarize_call(args: ReadFileArgs) -> str:
    if args.start_line is None and args.end_line is None:
        return f"Read {args.file_path}"
    return f"Read {args.file_path}, lines {args.start_line or 1}-{args.end_line or ''}"


READ_FILE = Tool(
    name="read_file",
    description="Reads a text file. Shows at most 2,000 lines unless end_line asks for more, and 2,000 characters of"
    " a line; a first line in square brackets says what was left out and how to go on. Pictures and PDFs are shown as"
    " they are; of other binary files only kind and size are told.",
    args=ReadFileArgs,
    risk="read",
    summary=_summarize_call,
    run=run_read_file,
    paths=lambda args: [(args.file_path, "read")],
)


_END = "--- End of content ---"
_MOST_NAMED = 50
"""Maximum skipped files listed by name."""
_DEFAULT_EXCLUDES = (
    *("**/node_modules/**", "**/.git/**", "**/.vscode/**", "**/.idea/**", "**/dist/**", "**/build/**"),
    *("**/coverage/**", "**/__pycache__/**", "**/.venv/**", "**/*.pyc", "**/*.class", "**/*.o", "**/*.so"),
    *("**/*.zip", "**/*.gz", "**/*.tar", "**/*.jar", "**/*.exe", "**/*.dll", "**/*.log", "**/.DS_Store"),
)
"""Build artefacts, archives and editor files, as in gemini-cli."""


class ReadManyFilesArgs(Args, populate_by_name=True):
    include: list[str] = Field(
        min_length=1,
        description="Paths, directories or glob patterns, relative to the workspace, such as"
        " ['README.md', 'src/**/*.py'].",
    )
    exclude: list[str] = Field(default_factory=list[str], description="Glob patterns of files to leave out.")
    recursive: bool = Field(
        default=True, description="Whether a directory stands for all that is below it. Default true."
    )
    use_default_excludes: bool = Field(
        default=True,
        alias="useDefaultExcludes",
        description="Leave out build results, archives and editors' files that only a pattern matches. Default true.",
    )
    respect_git_ignore: bool = Field(
        default=True, description="False: read what git ignores too. Default true."
    )


async def run_read_many_files(args: ReadManyFilesArgs, context: ToolContext) -> ToolResult:
    return await run_in_thread(read_files, args, context.workspace)


def read_files(
    stop: StopFlag, args: ReadManyFilesArgs, workspace: Workspace, max_chars: int = MOST_CHARS
) -> ToolResult:
    """Return the files' texts, at most `max_chars` characters in total. Raise `ToolError` if no file is found."""
    problems: list[ToolError] = []
    chosen = _choose_files(stop, args, workspace, problems)
    if not chosen:
        reasons = " ".join(map(str, problems)) or f"No file matches {args.include!r}."
        refused = any(isinstance(problem, PathRefused) for problem in problems)
        raise ToolError("path_refused" if refused else "file_not_found", reasons)
    parts: list[str] = []
    left_out: list[str] = []
    seen: list[SeenFile] = []
    room = max_chars
    for path in sorted(chosen, key=workspace.display_path):
        stop.raise_if_stopped()
        shown = workspace.display_path(path)
        head = f"--- {shown} ---\n\n"
        left = room - len(head)
        text = _read_and_format_file(args, workspace, path, chosen[path], left, seen) if left > 0 else None
        if text is None:
            left_out.append(shown)
            continue
        room = left - len(text)
        parts.append(f"{head}{text}\n")
    return _format_files(parts, left_out, problems).model_copy(update={"seen": tuple(seen)})


def _choose_files(
    stop: StopFlag, args: ReadManyFilesArgs, workspace: Workspace, problems: list[ToolError]
) -> dict[Path, bool]:
    """Return the files to read, and whether each was named by its path. Append to `problems`."""
    chosen: dict[Path, bool] = {}
    excluded = [compile_glob(_to_relative_glob(pattern, workspace)) for pattern in args.exclude]
    defaults = [compile_glob(pattern) for pattern in _DEFAULT_EXCLUDES] if args.use_default_excludes else []
    for pattern in args.include:
        for path, named in _find_files_matching_pattern(stop, pattern, args, workspace, problems):
            stop.raise_if_stopped()
            name = workspace.display_path(path)
            # What is named is read: defaults apply only below the folder that the pattern starts with.
            below = "" if named is None else path.relative_to(named).as_posix()
            if not any(test(name) for test in excluded) and not any(test(below) for test in defaults):
                chosen[path] = named is None or chosen.get(path, False)
    return chosen


def _to_relative_glob(pattern: str, workspace: Workspace) -> str:
    return pattern.removeprefix(f"{workspace.root}/").removeprefix("./")


Select = Callable[[Sequence[Path]], list[Path]]
"""Returns those of a folder's files that a pattern means."""


def _find_files_matching_pattern(
    stop: StopFlag, pattern: str, args: ReadManyFilesArgs, workspace: Workspace, problems: list[ToolError]
) -> Iterator[tuple[Path, Path | None]]:
    """Yield files with the folder that the pattern names; None: it names the file itself. Append to `problems`."""
    try:
        path = workspace.resolve_readable(pattern)
    except PathRefused as refused:
        problems.append(refused)
        return
    kind = path_kind(workspace, path)
    if kind == "directory":
        wanted: dict[Path, Select] = {
            path: lambda files: [file for file in files if args.recursive or file.parent == path]
        }
    elif kind != "missing":
        yield path, None
        return
    elif has_glob_characters(pattern):
        wanted = _selections_by_folder(pattern, workspace)
    else:
        problems.append(ToolError("file_not_found", f"No file {quote_name(pattern)}."))
        return
    found: list[tuple[Path, Path]] = []
    refusals: list[ToolError] = []
    for folder, select in wanted.items():
        below = workspace.list_files(
            folder, include_ignored=not args.respect_git_ignore, stop=stop.raise_if_stopped
        )
        right = select([*map(Path, below)])
        if refused := _refusal_if_ignored(pattern, folder, workspace, git=args.respect_git_ignore):
            # Some may be read nevertheless, such as those in node_modules, where it is named.
            right = [
                f
                for f in right
                if resolve_file_if_allowed(workspace, f, allow_ignored=not args.respect_git_ignore)
            ]
            refusals += [] if right else [refused]
        found += [(file, folder) for file in right]
    if not found:
        problems += refusals or [ToolError("file_not_found", f"No file matches {quote_name(pattern)}.")]
    yield from found


def _selections_by_folder(pattern: str, workspace: Workspace) -> dict[Path, Select]:
    """Map each folder that an alternative of a glob pattern starts with to what selects files below it."""
    globs: dict[Path, list[str]] = {}
    for one in expand_braces(pattern.removeprefix(f"{workspace.root}/")):
        names = takewhile(lambda name: not has_glob_characters(name), one.split("/")[:-1])
        folder = workspace.root
        with suppress(PathRefused):
            named = workspace.resolve_readable("/".join(names) or ".")
            folder = named if path_kind(workspace, named) == "directory" else folder
        globs.setdefault(folder, []).append(_to_relative_glob(one, workspace))

    def make_selection(folder: Path) -> Select:
        def select(files: Sequence[Path]) -> list[Path]:
            names = {parse_file_name(workspace.display_path(file)): file for file in files}
            meant = {name for glob in globs[folder] for name in select_paths_by_glob(glob, [*names])}
            return [file for name, file in names.items() if name in meant]

        return select

    return {folder: make_selection(folder) for folder in globs}


def _refusal_if_ignored(pattern: str, folder: Path, workspace: Workspace, *, git: bool) -> PathRefused | None:
    """Return the refusal of a folder that ignore files name, and git's if `git`; None: they don't."""
    if not workspace.is_ignored(folder, git=git):
        return None
    return PathRefused(ignored_path_message(pattern, git=not workspace.is_ignored(folder, git=False)))


def _read_and_format_file(
    args: ReadManyFilesArgs,
    workspace: Workspace,
    path: Path,
    is_named: bool,
    max_chars: int,
    seen: list[SeenFile],
) -> str | None:
    """Return text shown for one file; None: skipped, as it isn't text and wasn't named. Append to `seen`."""
    real = resolve_file_if_allowed(workspace, path, allow_ignored=not args.respect_git_ignore)
    if real is None:  # a link was created since it was found
        return "[may not be read]"
    try:
        data = read_file_bytes(workspace, real)
    except ToolError as problem:
        return f"[{problem}]"
    file = decode_text_file(data, workspace.read_conventions(real), real.name)
    if file is None:
        return binary_file_notice(workspace.display_path(path), len(data)) if is_named else None
    if not file.raw:
        return "[empty]"
    part = extract_text_page(file.text, max_chars=max_chars)
    how: How = "read" if part.is_whole else "part"
    seen.append(make_seen_file(workspace.display_path(real), data, file, how))
    return encoding_heading(file) + omitted_lines_heading(part) + part.text


def _format_files(parts: list[str], left_out: list[str], problems: list[ToolError]) -> ToolResult:
    text = "\n".join([*parts, _END])
    if left_out:
        names = join_up_to(left_out, _MOST_NAMED)
        text += f"\nNot shown, because there was no more room or they aren't text: {names}."
    if problems:
        text += "\n" + "\n".join(map(str, problems))
    return ToolResult(
        status="success", content=replace_surrogates(text), meta={"summary": format_count(len(parts), "file")}
    )


READ_MANY_FILES = Tool(
    name="read_many_files",
    description="Reads several text files at once, one after the other, each under a line with its path. Use it when"
    " you need many small files; use read_file for a large one. At most 200,000 characters in all; the rest is named.",
    args=ReadManyFilesArgs,
    risk="read",
    summary=lambda args: "Read " + ", ".join(args.include),
    run=run_read_many_files,
)
