"""jsonc: JSON with // and /* */ comments and trailing commas, parsed so that errors keep their line and column.

Comments and trailing commas become blanks of the same length, and the standard parser does the rest: of the
libraries that read this dialect, none keeps positions in its errors without also accepting far more than JSON.
"""

import json
import re
from typing import NoReturn

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n\r]*|/\*.*?\*/|[^\s]', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n\r]")


def parse(text: str) -> object:
    """The value. Raises `json.JSONDecodeError` with the position in `text`; other `ValueError`s have none."""
    try:
        return json.loads(_blanked(text), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _blanked(text: str) -> str:
    """`text` as plain JSON of the same length."""
    pieces: list[str] = []
    end = 0
    comma: int | None = None  # index in `pieces` of a comma that a closing bracket would make a trailing one
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
        # Not after an opening bracket or another comma: `[,]` and `[1,,]` are mistakes in this dialect too.
        comma = len(pieces) - 1 if token == "," and last not in ("", ",", "[", "{", ":") else None
        last = token
    return "".join([*pieces, text[end:]])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
