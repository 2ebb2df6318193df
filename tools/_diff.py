"""_diff: what a change would look like, for people."""

import difflib

from interlock.tools._text import decode, lines_of

_MOST_LINES = 20_000
"""Above this many lines in both files together difflib takes seconds: what both begin and end with is cut off, and the
rest shown as one block."""
_MOST_CHARS = 100_000
_CONTEXT = 3


def unified_diff(path: str, before: bytes | None, after: bytes) -> str:
    """Unified diff with the file's workspace-relative name; empty when nothing changes, cut past 100,000 characters."""
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"Binary file {path} differs.\n"
    header = ["/dev/null" if before is None else f"a/{path}", f"b/{path}"]
    if len(old) + len(new) > _MOST_LINES:
        text = _block_diff(header, old, new)
    else:
        text = "".join(difflib.unified_diff(old, new, *header, n=_CONTEXT))
    if before is None and not text:
        text = f"--- /dev/null\n+++ b/{path}\n"
    return _capped(text)


def _lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    file = decode(data)
    if file is None:
        return None
    lines = [line + "\n" for line in lines_of(_visible_endings(file.raw))]
    if lines and not file.raw.endswith("\n"):
        lines[-1] += "\\ No newline at end of file\n"
    return lines


def _visible_endings(raw: str) -> str:
    """Uniform CRLF isn't shown; in a file that mixes endings each CR is, as an edit may change them."""
    plain = raw.replace("\r\n", "\n")
    return plain if raw.count("\r\n") == raw.count("\n") else raw.replace("\r\n", "␍\n")


def _block_diff(header: list[str], old: list[str], new: list[str]) -> str:
    start = _common(old, new)
    end = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    if start == len(old) == len(new):
        return ""
    lead = old[max(0, start - _CONTEXT) : start]
    trail = old[len(old) - end : len(old) - end + _CONTEXT]
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    around = len(lead) + len(trail)
    first = start - len(lead) + 1
    parts = [f"--- {header[0]}\n+++ {header[1]}\n"]
    parts.append(f"@@ -{first},{len(gone) + around} +{first},{len(come) + around} @@\n")
    parts += [" " + line for line in lead] + ["-" + line for line in gone]
    parts += ["+" + line for line in come] + [" " + line for line in trail]
    return "".join(parts)


def _common(one: list[str], other: list[str]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _capped(text: str) -> str:
    if len(text) <= _MOST_CHARS:
        return text
    shown = text[: text.rfind("\n", 0, _MOST_CHARS) + 1]
    return f"{shown}… {text.count(chr(10)) - shown.count(chr(10))} more lines of this diff aren't shown.\n"
