"""omission: find lines that stand for omitted text, such as `# ... rest of the code ...`."""

import re
import unicodedata

_WHAT = r"(?:code|file|content|contents|implementation|body|method|methods|function|functions|class|logic|lines|text)"
_PHRASE = (
    rf"(?:(?:the )?(?:rest|remainder) of (?:(?:the|this|your|our) )?(?:\w+ ){{0,2}}?{_WHAT}"
    rf"|(?:the )?(?:existing|unchanged|remaining|previous|original|other|same) (?:\w+ )?{_WHAT}"
    rf"|{_WHAT} (?:remains?|stays?|is|are) (?:unchanged|the same))"
    r"(?: (?:here|as before|unchanged|remains unchanged|stays the same|omitted))?"
)
_KEPT = r"(?:(?:(?:remains?|stays?|is|are|kept) )?(?:unchanged|the same|omitted|as before|as is)|here)"
_SAME = rf"(?:{_PHRASE}(?: {_KEPT})?|(?:the )?rest {_KEPT}|unchanged|omitted|(?:same )?as before)"
_DOTS = r"(?:\.(?: ?\.){2,}|⋯)"
_REST = rf"(?:{_DOTS}\s*)?\(?(?:the )?rest of(?: the)?\s*{_DOTS}\s*{_DOTS}?\)?"
"""gemini-cli's: no noun, only dots."""
_MARK = r"(?://+|#+|--|/\*+|\*|<!--|\{/\*|;+|%+|\"{1,3}|REM\b|!)"
_COMMENT = rf"(?:{_MARK}|\()?"
_END = r"(?:\*/\}?|-->|\)|\"{3})?"
_LINE = (
    rf"^(?:{_COMMENT}\s*(?:{_DOTS}\s*{_PHRASE}\s*{_DOTS}?|{_PHRASE}\s*{_DOTS}|{_REST})"
    rf"|{_MARK}\s*{_DOTS}\s*(?:(?:the )?rest of (?:\w+ ){{0,3}}\w+|\(?{_SAME}\)?)\s*{_DOTS}?"
    rf"|{_MARK}\s*(?:the )?rest of (?:\w+ ){{1,3}}{_KEPT})\s*{_END}$"
)
_BRACKETED = (
    rf"^{_COMMENT}\s*(?:\[\s*{_REST}\s*\]|\[\s*{_DOTS}?\s*{_PHRASE}(?: {_KEPT})?\s*{_DOTS}?\s*\]"
    rf"|<\s*{_DOTS}?\s*{_PHRASE}(?: {_KEPT})?\s*{_DOTS}?\s*>"
    rf"|\(\s*{_DOTS}?\s*(?:{_PHRASE}(?: {_KEPT})?|unchanged|omitted|rest unchanged)\s*{_DOTS}?\s*\))\s*{_END}$"
)
"""Plain `[unchanged]` doesn't match: settings files have such section names. Compiling both takes 1 % of a start."""
_LONGEST = 120
"""Maximum characters of a placeholder line; also bounds the regex's work."""


def find_omission(text: str, allowed: str = "") -> str | None:
    """Return the first line such as `// ... rest of the code ...` that isn't also in `allowed`."""
    known = {line.strip() for line in allowed.splitlines()}
    for line in text.splitlines():
        bare = line.strip()
        if len(bare) > _LONGEST or bare in known:
            continue
        plain = " ".join(unicodedata.normalize("NFKC", bare).split())
        if re.match(_LINE, plain, re.IGNORECASE) or re.match(_BRACKETED, plain, re.IGNORECASE):
            return bare
    return None


def omission_message(line: str) -> str:
    """Return the error for a line that stands for omitted text."""
    return f"The line {line!r} stands for omitted text; write out every line of the file."
