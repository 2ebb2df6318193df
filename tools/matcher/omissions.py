"""omissions: finds lines that stand for code which the model left out."""

import re

_WHAT = r"(?:code|file|content|contents|implementation|body|method|methods|function|functions|class|logic|lines|text)"
_PHRASE = (
    rf"(?:(?:the )?(?:rest|remainder) of (?:(?:the|this|your|our) )?(?:\w+ ){{0,2}}?{_WHAT}"
    rf"|(?:the )?(?:existing|unchanged|remaining|previous|original|other|same) (?:\w+ )?{_WHAT}"
    rf"|{_WHAT} (?:remains?|stays?|is|are) (?:unchanged|the same))"
    r"(?: (?:here|as before|unchanged|remains unchanged|stays the same|omitted))?"
)
_DOTS = r"(?:\.{3,}|…)"
_COMMENT = r"(?://+|#+|--|/\*+|\*|<!--|\{/\*|;+|%+|\"{3}|\()?"
_LINE = re.compile(
    rf"^{_COMMENT}\s*(?:{_DOTS}\s*{_PHRASE}\s*{_DOTS}?|{_PHRASE}\s*{_DOTS})\s*(?:\*/\}}?|-->|\)|\"{{3}})?$",
    re.IGNORECASE,
)
_BRACKETED = re.compile(
    rf"^{_COMMENT}\s*(?:\[\s*{_DOTS}?\s*{_PHRASE}\s*{_DOTS}?\s*\]"
    rf"|\(\s*{_DOTS}?\s*(?:{_PHRASE}|unchanged|omitted|rest unchanged)\s*{_DOTS}?\s*\))\s*(?:\*/\}}?|-->)?$",
    re.IGNORECASE,
)
"""`[unchanged]` alone isn't one: settings files have sections of that form."""
_LONGEST = 120
"""Characters of a line that may be a placeholder; also bounds the work of the expression."""


def omission(text: str, allowed: str = "") -> str | None:
    """The first line such as `// ... rest of the code ...` that doesn't stand in `allowed` too."""
    known = {line.strip() for line in allowed.splitlines()}
    for line in text.splitlines():
        bare = line.strip()
        if len(bare) > _LONGEST or bare in known:
            continue
        plain = " ".join(bare.split())
        if _LINE.match(plain) or _BRACKETED.match(plain):
            return bare
    return None


def omission_message(line: str) -> str:
    return (
        f"The line {line!r} stands for text that was left out; write out every line that the file shall have."
    )
