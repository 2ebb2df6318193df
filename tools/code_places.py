"""code_places: functions of a source file, and a model's new version of one put in its place."""

import ast
import re
import textwrap
from collections.abc import Sequence
from pathlib import PurePath

from interlock.tools.code_definitions import (
    Definition,
    detect_language,
    find_definitions,
    grammar_modules,
    is_parser_installed,
)

_IMPORT = re.compile(r"^(?:import\s+\S|from\s+\S+\s+import\s)")
_LEAST_SHARE = 0.5
"""Of a file's lines, that a new version of a file without definitions must have to count as whole."""


def definitions_or_none(text: str, path: str | PurePath) -> list[Definition] | None:
    """Return a file's functions, methods and classes in textual order; None if its language can't be parsed here.

    Python is parsed without the extra `code`, if it is well-formed.
    """
    language = detect_language(path)
    if language == "python":
        try:
            return _python_definitions(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            if not is_parser_installed():
                return None
    if language is None or language not in grammar_modules() or not is_parser_installed():
        return None
    return find_definitions(text.encode("utf-8", "replace"), language)


def _python_definitions(module: ast.Module) -> list[Definition]:
    found: list[Definition] = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append(Definition(node.name, start, node.end_lineno or node.lineno))
    return sorted(found, key=lambda one: (one.start, -one.end))


def innermost_definitions(found: Sequence[Definition]) -> list[Definition]:
    """Return the definitions that hold no other."""
    return [
        one
        for one in found
        if not any(other is not one and one.start <= other.start and other.end <= one.end for other in found)
    ]


def outermost_definitions(found: Sequence[Definition]) -> list[Definition]:
    """Return the definitions that lie in no other."""
    return [
        one
        for one in found
        if not any(other is not one and other.start <= one.start and one.end <= other.end for other in found)
    ]


def syntax_problem(text: str, path: str | PurePath) -> str:
    """Return what is wrong with Python's syntax; empty: nothing, or it is another language."""
    if detect_language(path) != "python":
        return ""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def put_new_version(text: str, answer: str, path: str, name: str = "", near_line: int = 1) -> tuple[str, str]:
    """Return the file with the new version that a model wrote, and why there is none; one of them is empty.

    `name`, `near_line`: of the function that was asked for; empty: the whole file. An answer to a request for a whole
    file may hold only some of its functions: they replace those of the same name, and the rest stays.
    """
    own, new = definitions_or_none(text, path), definitions_or_none(answer, path)
    if own is None or new is None or not own:
        return _take_whole_file(text, answer)
    if name:
        old = min(
            (one for one in own if one.name == name), key=lambda one: abs(one.start - near_line), default=None
        )
        wanted = next((one for one in new if one.name == name), None)
        if old is None or wanted is None:
            return "", f"the answer holds no new version of {name}"
        return _replace_definitions(text, answer, [(old, wanted)]), ""
    mine, theirs = _qualified_names(own), _qualified_names(new)
    is_whole = {*mine.values()} <= {*theirs.values()} and _share_of_outside_lines(text, own, answer) >= 0.5
    if is_whole and (len(own) != len(new) or _share_of_outside_lines(text, own, answer) < 1):
        return answer.rstrip("\n") + "\n", ""
    pairs = [
        (old, one)
        for one in innermost_definitions(new)
        if len(found := [o for o in innermost_definitions(own) if _is_named_alike(mine[o], theirs[one])]) == 1
        for old in found
    ]
    if not pairs:
        return "", "the answer holds none of the file's functions: it is cut off, or about something else"
    return _replace_definitions(text, answer, pairs), ""


def _take_whole_file(text: str, answer: str) -> tuple[str, str]:
    if answer.count("\n") + 1 < _LEAST_SHARE * text.count("\n"):
        return "", "the answer is much shorter than the file: it is cut off"
    return answer.rstrip("\n") + "\n", ""


def _qualified_names(found: Sequence[Definition]) -> dict[Definition, str]:
    """Return each definition with its name behind those of the definitions around it."""
    return {
        one: ".".join(
            [
                around.name
                for around in found
                if around.start <= one.start and one.end <= around.end and around != one
            ]
            + [one.name]
        )
        for one in found
    }


def _is_named_alike(own: str, new: str) -> bool:
    """Return whether a definition is meant by a name, which may leave out what is around it."""
    return own == new or own.endswith(f".{new}")


def _share_of_outside_lines(text: str, own: Sequence[Definition], answer: str) -> float:
    """Return how many of the lines outside of all definitions, such as imports, are in the answer, from 0 to 1."""
    inside = {n for one in own for n in range(one.start, one.end + 1)}
    outside = [line.strip() for n, line in enumerate(text.split("\n"), 1) if n not in inside]
    outside = [line for line in outside if line and line[0] not in "#/*\"'"]
    there = {line.strip() for line in answer.split("\n")}
    return sum(line in there for line in outside) / len(outside) if outside else 1.0


def _replace_definitions(text: str, answer: str, pairs: Sequence[tuple[Definition, Definition]]) -> str:
    """Return the text with definitions replaced by others, and the imports that the answer has before these."""
    lines, written = text.split("\n"), answer.split("\n")
    for old, new in sorted(pairs, key=lambda pair: -pair[0].start):
        before = lines[old.start - 1 : old.end]
        after = _reindent(written[new.start - 1 : new.end], _indent(before[0]))
        lines[old.start - 1 : old.end] = _keep_docstring(before, after)
    first = min(new.start for _, new in pairs)
    wanted = [line for line in written[: first - 1] if _IMPORT.match(line) and line not in lines]
    at = next((n for n, line in enumerate(lines) if _IMPORT.match(line)), _line_behind_docstring(text))
    return "\n".join([*lines[:at], *wanted, *lines[at:]])


def _keep_docstring(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """Return a Python function's new lines with the docstring that it had, if the new version leaves it out."""
    try:
        old, new = (ast.parse(textwrap.dedent("\n".join(lines))).body[0] for lines in (before, after))
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return after
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if not isinstance(old, kinds) or not isinstance(new, kinds) or ast.get_docstring(new) is not None:
        return after
    if ast.get_docstring(old) is None or new.body[0].lineno == new.lineno:
        return after
    first, at = old.body[0], new.body[0].lineno - 1
    return [*after[:at], *before[first.lineno - 1 : first.end_lineno], *after[at:]]


def _line_behind_docstring(text: str) -> int:
    """Return how many lines stand before what a Python module begins with."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    begins = module.body[0] if module.body else None
    if (
        isinstance(begins, ast.Expr)
        and isinstance(begins.value, ast.Constant)
        and isinstance(begins.value.value, str)
    ):
        return begins.end_lineno or 0
    return 0


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _reindent(lines: Sequence[str], indent: str) -> list[str]:
    have = _indent(lines[0])
    return [indent + line.removeprefix(have) if line.strip() else line for line in lines]
