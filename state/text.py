"""text: what must be true of a string before it enters state, the chain or the store."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_INT = 2**63
_INVISIBLE = re.compile(r"<!--.*?-->|[\s\u200b\u200c\u200d\u2060\ufeff]+", re.DOTALL)


def clean(text: str) -> str:
    """Replace lone surrogates, which neither UTF-8 nor SQLite can hold, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def is_visible(text: str) -> bool:
    """Something of it is left to read, without blanks, zero-width characters and HTML comments."""
    return bool(_INVISIBLE.sub("", text))


def clean_json(value: object) -> object:
    """A value that msgpack and SQLite can hold: clean strings, 64-bit integers, string keys, finite floats."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_MAX_INT <= value < _MAX_INT else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Mapping):
        return {clean(str(k)): clean_json(v) for k, v in cast(Mapping[object, object], value).items()}
    if isinstance(value, Sequence):
        return [clean_json(v) for v in cast(Sequence[object], value)]
    return clean(str(value))


def estimate_tokens(text: str) -> int:
    """Tokens before a provider has counted them: ¼ per ASCII character, 1.5 per other (`pipelines.md` §2)."""
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return int(ascii_count / 4 + (len(text) - ascii_count) * 1.5)
