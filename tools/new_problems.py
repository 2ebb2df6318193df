"""new_problems: what an edit broke in a file, found by parsing the file before and after: nothing is executed.

A file that had a problem before is never blamed on the edit. Python, JSON, TOML and YAML are parsed exactly, other
languages by tree-sitter.
"""

import json
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from interlock.tools.code_definitions import detect_language, find_first_syntax_error

_MACROS = frozenset({"c", "cpp"})
"""Their macros are no syntax that a parser knows."""
_LARGEST = 64_000
"""Bytes; parsing more of it, before and after, could take longer than a second."""


def describe_new_problem(path: str, before: bytes | None, after: bytes) -> str:
    """Return a line for the model if a file no longer parses; empty: it does, didn't before, or can't be checked."""
    find = _FINDERS.get(PurePath(path).suffix.lower())
    if find is None or before == after or len(after) > _LARGEST or not after.strip():
        return ""
    if not (problem := _find_problem(find, after)):
        return ""
    if before and before.strip() and (len(before) > _LARGEST or _find_problem(find, before)):
        return ""
    return f"The file doesn't parse now: {problem}"


def describe_new_syntax_error(path: str, before: bytes | None, after: bytes) -> str:
    """Return a line as `describe_new_problem`, for languages that only tree-sitter reads (the extra `code`)."""
    language = detect_language(path)
    if language is None or language in _MACROS or PurePath(path).suffix.lower() in _FINDERS:
        return ""
    if max(len(before or b""), len(after)) > _LARGEST:
        return ""
    line = find_first_syntax_error(after, language)
    if line is None or (before and find_first_syntax_error(before, language)):
        return ""
    return f"The file doesn't parse now: line {line} (as tree-sitter reads it)."


def _find_problem(find: Callable[[bytes], str | None], data: bytes) -> str | None:
    try:
        return find(data)
    except (RecursionError, MemoryError):  # nested too deeply for the parser, which says nothing of the file
        return None


def _find_python_problem(data: bytes) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "file", "exec", dont_inherit=True)
    except SyntaxError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"line {error.lineno}: {error.msg} (as Python {version} reads it)."
    except ValueError as error:  # a NUL character
        return f"{error}."
    return None


def _find_json_problem(data: bytes) -> str | None:
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        if error.doc.startswith(("//", "/*"), error.pos):  # a comment: many programs allow them
            return None
        return f"line {error.lineno}, column {error.colno}: {error.msg}."
    except ValueError as error:
        return f"{error}."
    return None


def _find_toml_problem(data: bytes) -> str | None:
    try:
        tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        return f"{error}."
    return None


def _find_yaml_problem(data: bytes) -> str | None:
    if b"{{" in data or b"{%" in data:  # a template, which isn't YAML yet
        return None
    import yaml

    try:
        parser: Any = yaml.CSafeLoader(data)  # its methods aren't typed
        while parser.check_event():  # nothing is built, and no alias expanded
            parser.get_event()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return f"line {mark.line + 1}: {error.problem}." if mark else f"{error.problem}."
    except (yaml.YAMLError, ValueError) as error:
        return f"{' '.join(str(error).split())}."
    return None


_FINDERS: Mapping[str, Callable[[bytes], str | None]] = {
    ".py": _find_python_problem,
    ".pyi": _find_python_problem,
    ".json": _find_json_problem,
    ".toml": _find_toml_problem,
    ".yaml": _find_yaml_problem,
    ".yml": _find_yaml_problem,
}
