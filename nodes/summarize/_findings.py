"""_findings: stack traces and warnings in a command's output; no summary may lose them."""

import re
from collections.abc import Iterable, Sequence

_PYTHON = re.compile(r"\s*(?:[+|]\s*)*(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(
    r"\s+at \S.*|\s+from \S+:\d+:in .*|#\d+\s+(?:0x[0-9a-f]+ in )?\S+ \(.*"
    r"|\s*(?:Caused by: .*|Suppressed: .*|\.\.\. \d+ (?:more|common frames omitted))"
)
"""Java, JavaScript, .NET; Ruby; gdb and sanitizers. The line before the first frame says what happened."""
_RUST = re.compile(r"thread '.*' (?:\(\d+\) )?panicked at ")
_RUST_FRAME = re.compile(r"stack backtrace:|\s+\d+: .*|\s+at \S.*")
_GO = re.compile(r"(?:panic: |fatal error: |goroutine \d+ \[)")
_WARNING = re.compile(r"warn(?:ing)?s?\b", re.IGNORECASE)
_STATUS = re.compile(r"(?:Exit Code|Signal): \S+")
"""How the shell tool says that a command failed."""


def traces(text: str) -> list[str]:
    """Every distinct stack trace, word for word, in the order they came."""
    lines = text.splitlines()
    found: list[str] = []
    at = 0
    while at < len(lines):
        end = _end(lines, at)
        if end > at:
            found.append("\n".join(lines[at:end]))
        at = max(end, at + 1)
    return list(dict.fromkeys(found))


def warnings(text: str, beside: Sequence[str] = ()) -> list[str]:
    """Every distinct line with a warning that is in none of the `beside` traces."""
    told = {line for block in beside for line in block.splitlines()}
    lines = (line for line in text.splitlines() if _WARNING.search(line) and line not in told)
    return list(dict.fromkeys(lines))


def status_lines(text: str) -> list[str]:
    """The tool's last lines on how the command ended."""
    return [line for line in text.splitlines()[-3:] if _STATUS.fullmatch(line)]


def missing(wanted: Iterable[str], text: str) -> list[str]:
    """Those of which some line isn't in `text`; indentation doesn't count."""
    there = {line.strip() for line in text.splitlines()}
    return [block for block in wanted if any(line.strip() not in there for line in block.splitlines())]


def _end(lines: Sequence[str], at: int) -> int:
    """Index after the trace that begins at `at`; `at` itself: none begins there."""
    if _PYTHON.match(lines[at]):
        return _python_end(lines, at)
    if _GO.match(lines[at]):
        return next(
            (i for i in range(at + 1, len(lines)) if not lines[i].strip() and not _go_on(lines, i)),
            len(lines),
        )
    if _RUST.match(lines[at]):
        return _while(_RUST_FRAME, lines, min(at + 2, len(lines)))
    end = _while(_FRAME, lines, at + 1)
    return end if end > at + 1 else at


def _while(pattern: re.Pattern[str], lines: Sequence[str], at: int) -> int:
    """Index of the first line from `at` on that doesn't match."""
    return next((i for i in range(at, len(lines)) if not pattern.fullmatch(lines[i])), len(lines))


def _python_end(lines: Sequence[str], at: int) -> int:
    """Frames are indented deeper than the first line; the exception stands at its indentation."""
    depth = len(lines[at]) - len(lines[at].lstrip(" |+"))
    for index in range(at + 1, len(lines)):
        line = lines[index]
        if line.strip(" |") and len(line) - len(line.lstrip(" |+")) <= depth:
            return index + 1
    return len(lines)


def _go_on(lines: Sequence[str], blank: int) -> bool:
    """Go puts an empty line between goroutines."""
    return blank + 1 < len(lines) and _GO.match(lines[blank + 1]) is not None
