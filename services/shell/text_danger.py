"""text_danger: scripts of sed and awk, and editors: what of them writes files or runs commands."""

import re
from collections.abc import Sequence

from interlock.services.shell.model import Word
from interlock.services.shell.options import seen

_Words = Sequence[Word]
_SED_SAFE = re.compile(
    r"(?:(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/[gpiI0-9]*"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s\|(?:[^|\\\n]|\\.)*\|(?:[^|\\\n]|\\.)*\|[gpiI0-9]*"
    r"|/(?:[^/\\\n]|\\.)*/(?:,/(?:[^/\\\n]|\\.)*/)?[pd])"
    r"(?:\s*;\s*|$)"
)
_SED_FLAGS = frozenset("nErsuzl")
_SED_LONG = frozenset(
    ("--quiet", "--silent", "--regexp-extended", "--separate", "--posix", "--null-data", "--sandbox")
)
_AWK_ACTS = re.compile(r"system|getline|[|>@]|fflush|close")


def sed(words: _Words) -> str | None:
    scripts: list[Word] = []
    operands: list[Word] = []
    place = 1
    while place < len(words):
        word = words[place]
        place += 1
        if not word.lead.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.text == "-e" and place < len(words):
            scripts.append(words[place])
            place += 1
        elif seen([word]).has("i", "in-place"):
            return "edits files in place"
        elif not (word.literal and (word.text in _SED_LONG or set(word.text[1:]) <= _SED_FLAGS)):
            return "runs a script that can't be seen"
    if any(w.may_be_option for w in operands):
        return "runs a script that can't be seen"
    safe = all(w.literal and _only(_SED_SAFE, w.text) for w in scripts or operands[:1])
    return None if safe else "runs a script that may write files or run commands"


def _only(pattern: re.Pattern[str], text: str) -> bool:
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None or match.end() == at:
            return False
        at = match.end()
    return True


def awk(words: _Words) -> str | None:
    options = seen(words[1:])
    if options.has("fiElDdopW", "file", "include", "exec", "load", "debug") or options.unknown:
        return "runs a program that can't be seen"
    if options.long("dump-variables", "pretty-print", "profile"):
        return "writes a file"
    acts = any(not w.literal or _AWK_ACTS.search(w.text) for w in words[1:])
    return "runs a program that may write files or run commands" if acts else None


def editor(words: _Words) -> str | None:
    """vi and its kin, and pagers: `+!COMMAND`, `-c COMMAND`."""
    options = seen(words[1:])
    acts = any(w.lead.startswith("+") for w in words[1:]) or options.has("cSsoOuPHk", "cmd", "eval", "pager")
    return "runs commands of its own" if acts or options.unknown else None
