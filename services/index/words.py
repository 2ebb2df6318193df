"""words: code as the words that it is made of, so that a question finds `parseHttpDate` and `parse_http_date`."""

import re
from functools import lru_cache

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""Of a name: `HTTP` and `Server` of `HTTPServer`, digits apart; of one in other letters what `_` parts."""
_SAID = re.compile(r'"""(.*?)(?:"""|\Z)|^[ \t]*(?:#|//|--|/?\*)([^\n]*)$', re.DOTALL | re.MULTILINE)
"""Docstrings and comments: questions are asked in their language."""
_SILENT = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all also an and any are as at be because been before being between both but by can
        could did do does doing done each either else ever every find for from get give gets given had has
        have having he her here him his how i if in into is it its itself just know let like look made make
        makes many may me might more most much must my need no not now of off on only or other our out over
        own please same she should show so some such tell than that the their them then there these they
        this those through to too under until up us use used uses using very want was we were what when
        where which while who whom whose why will with within without would you your code function functions
        method methods class classes implementation implemented implements handled handles happens works
        work
        """,
    )
)
"""Words of questions that say nothing of what is looked for."""


def split(text: str) -> str:
    """The words of a text in lower case; of a name that has parts the parts, too."""
    return " ".join([_spelled(word) for word in _WORD.findall(text)])


def columns(path: str, name: str, code: str) -> tuple[str, str, str, str]:
    """The words of a chunk as the index has them: of its path, its name, what people say in it, and all of it.

    The path is without its suffix, which is the language's.
    """
    said = " ".join(part for match in _SAID.finditer(code) for part in match.groups() if part)
    return split(path.rpartition(".")[0] or path), split(name), split(said), split(code)


@lru_cache(maxsize=1 << 16)
def _spelled(word: str) -> str:
    parts = _PART.findall(word) if word.isascii() else [part for part in word.split("_") if part]
    low = word.lower()
    return low if len(parts) < 2 else " ".join([low, *parts]).lower()


def asked(query: str) -> list[str]:
    """The words of a question that say what is looked for, each once; all of them where none else is left."""
    words = list(dict.fromkeys(split(query).split()))
    return [word for word in words if word not in _SILENT] or words
