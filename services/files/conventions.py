"""conventions: what `.editorconfig` and `.gitattributes` say about a file: its encoding, line ends and indentation."""

import io
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from interlock.services.files.disk import read_file
from interlock.state.workspace import FileConventions

_LARGEST = 200_000
"""Bytes of such a file that counts; a longer one is skipped."""
_MOST_STARS = 6
"""Patterns with more can backtrack for long and are skipped."""
_MOST_LINES, _LONGEST = 5_000, 1_000
_LINE_ENDS: Mapping[str, Literal["\n", "\r\n", "\r"]] = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
_MOST_COLUMNS = 16


def read_conventions(
    path: Path, confirmed: Sequence[tuple[str, str]] = (), relative: str = ""
) -> FileConventions:
    """Return what is said about a file, which may not exist. `confirmed`: patterns for `relative`, its path in the
    workspace, and the encodings that a person confirmed; the last that matches counts."""
    editor, git = _read_editorconfig(path), _read_git_attributes(path)
    eol = _LINE_ENDS.get(git.get("eol", ""))
    editor_end = _LINE_ENDS.get(editor.get("end_of_line", ""))
    final = editor.get("insert_final_newline")
    return FileConventions(
        working_tree_encoding=git.get("working-tree-encoding", ""),
        confirmed_encoding=next(
            (name for glob, name in reversed(confirmed) if _matches_git_pattern(relative, glob)), ""
        ),
        charset=editor.get("charset", "").removeprefix("unset"),
        line_end=eol or editor_end or "",
        line_end_source=".gitattributes" if eol else ".editorconfig",
        final_newline=None if final not in ("true", "false") else final == "true",
        indent=_build_indentation(editor),
    )


def _build_indentation(editor: Mapping[str, str]) -> str:
    if editor.get("indent_style") == "tab":
        return "\t"
    size = editor.get("indent_size", "")
    columns = int(size) if size.isascii() and size.isdigit() and len(size) < 3 else 0
    return " " * min(columns or 4, _MOST_COLUMNS) if editor.get("indent_style") == "space" else ""


def _read_text(path: str) -> str:
    """Return the text of a file that is regular, in place and not too long; else it is empty."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return ""
        return read_file(Path(path), _LARGEST).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _read_editorconfig(path: Path) -> dict[str, str]:
    """Return the properties of a file, those of the nearest `.editorconfig` first."""
    found: dict[str, str] = {}
    for folder in path.parents:
        if text := _read_text(f"{folder}/.editorconfig"):
            options, is_root = _parse_editorconfig(text, path.relative_to(folder).as_posix())
            found = {**options, **found}
            if is_root:
                break
    return {name: value.strip().lower() for name, value in found.items()}


def _parse_editorconfig(text: str, relative: str) -> tuple[dict[str, str], bool]:
    """Return the properties of a path below the file's folder, and whether no file further up counts."""
    from editorconfig.exceptions import ParsingError
    from editorconfig.ini import EditorConfigParser

    class Parser(EditorConfigParser):
        def matches_filename(self, config_filename: str, glob: str) -> bool:
            if glob.count("*") > _MOST_STARS or len(glob) > _LONGEST:
                return False
            try:
                return super().matches_filename(config_filename, glob)
            except re.error:
                return False

    parser = Parser(f"/{relative}")  # as if it lay in `/`: the folder's own name may look like a pattern
    with suppress(ParsingError):  # of lines that mean nothing; the others were read
        parser._read(io.StringIO(text), "/.editorconfig")  # pyright: ignore[reportPrivateUsage, reportArgumentType]
    return dict(parser.options), parser.root_file


def _read_git_attributes(path: Path) -> dict[str, str]:
    """Return the attributes of a file in a git work tree: `eol` and `working-tree-encoding`, where a value is set."""
    found: dict[str, str] = {}
    for folder in path.parents:
        if text := _read_text(f"{folder}/.gitattributes"):
            found = {**_parse_git_attributes(text, path.relative_to(folder).as_posix()), **found}
        if os.path.lexists(f"{folder}/.git"):
            return {name: value for name, value in found.items() if value}
    return {}


def _parse_git_attributes(text: str, relative: str) -> dict[str, str]:
    """Return attributes by name, those that are unset with an empty value; the last line counts."""
    found: dict[str, str] = {}
    for line in text.splitlines()[:_MOST_LINES]:
        pattern, _, words = line.strip().partition(" ")
        if not words or pattern.startswith(("#", "!", "[")) or len(line) > _LONGEST:
            continue
        named = {
            name.lstrip("-!"): value
            for name, _, value in (word.partition("=") for word in words.split())
            if name.lstrip("-!") in ("eol", "working-tree-encoding")
        }
        binary = {"binary", "-text"} & set(words.split())
        if (named or binary) and _matches_git_pattern(relative, pattern):
            found.update(named or {"eol": ""})
    return found


def _matches_git_pattern(relative: str, pattern: str) -> bool:
    if pattern.count("*") > _MOST_STARS or len(pattern) > _LONGEST or pattern.endswith("/"):
        return False
    try:
        regex, include = GitIgnoreSpecPattern.pattern_to_regex(pattern)
    except ValueError:
        return False
    found = re.search(regex, relative) if regex and include else None
    return found is not None and not found.groupdict().get("ps_d")
