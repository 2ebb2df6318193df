"""json_with_comments: JSON as people write it by hand, with comments and trailing commas; deep nesting is refused."""

import json
import re
from collections.abc import Collection
from typing import NoReturn, cast

_DEEPEST = 64
"""Maximum nesting depth; a JSON Schema needs about a dozen levels."""
_TOO_DEEP = "it is nested too deeply"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n\r]*|/\*.*?\*/|[^\s]', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n\r]")


def parse_json_with_comments(text: str) -> object:
    """Parse JSON with comments. Raises `json.JSONDecodeError` with the position in `text`, or plain `ValueError`."""
    try:
        value: object = json.loads(
            _blank_comments_and_trailing_commas(text), parse_constant=_reject_json_constant
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    reject_deep_nesting(value)
    return value


def reject_deep_nesting(value: object) -> None:
    """Raise `ValueError` if a parsed value is nested so deeply that walking it could exhaust Python's stack."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _list_inner_values(outer)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _list_inner_values(value: object) -> Collection[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _blank_comments_and_trailing_commas(text: str) -> str:
    """Blank out comments and trailing commas; the result has the same length as `text`."""
    pieces: list[str] = []
    end = 0
    comma: int | None = None  # index in `pieces` of a comma that would be trailing before a closing bracket
    last = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        pieces.append(text[end : match.start()])
        end = match.end()
        if len(token) > 1 and token[0] == "/":
            pieces.append(_NOT_NEWLINE.sub(" ", token))
            continue
        if token in "]}" and comma is not None:
            pieces[comma] = " "
        pieces.append(token)
        # Not after an opening bracket or another comma: `[,]` and `[1,,]` are errors in this dialect too.
        comma = len(pieces) - 1 if token == "," and last not in ("", ",", "[", "{", ":") else None
        last = token
    return "".join([*pieces, text[end:]])


def _reject_json_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
