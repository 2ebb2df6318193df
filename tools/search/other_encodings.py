"""other_encodings: search files that aren't UTF-8, which ripgrep reads as bytes: their texts go to it as one stream."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.state.calls import ToolError
from interlock.state.tooling import ToolContext
from interlock.tools.file_content import decode_text_file
from interlock.tools.workspace_files import read_file_bytes

_TAIL, _OTHER = r"[\x80-\xBF]", r"(?:[^\x80-\xBF]|$)"
NOT_UTF_8 = "(?-u)" + "|".join(
    (
        r"[\xC0\xC1\xF5-\xFF]",
        rf"(?:^|[\x00-\x7F]){_TAIL}",
        rf"[\xC2-\xF4]{_OTHER}",
        rf"[\xC2-\xDF]{_TAIL}{{2}}",
        rf"[\xE0-\xF4]{_TAIL}{_OTHER}",
        rf"[\xE0-\xEF]{_TAIL}{{3}}",
        rf"[\xF0-\xF4]{_TAIL}{{2}}{_OTHER}",
        rf"[\xF0-\xF4]{_TAIL}{{4}}",
        r"\xE0[\x80-\x9F]|\xED[\xA0-\xBF]|\xF0[\x80-\x8F]|\xF4[\x90-\xBF]",
    )
)
"""Matches in every line, as bytes, that isn't UTF-8."""
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]|(?<!\\)\.|\[\^|\\[wWSDpPxuB]|\(\?")
_MOST_FILES, _MOST_BYTES = 1_000, 20_000_000
"""Limits the time for finding out encodings to some seconds."""


def may_match_beyond_ascii(pattern: str, *, is_literal: bool) -> bool:
    """Return whether a pattern may match characters that are other bytes in another encoding."""
    return not pattern.isascii() if is_literal else _BEYOND_ASCII.search(pattern) is not None


@dataclass
class OtherTexts:
    """Texts of files that aren't UTF-8, and the line of the stream at which each begins."""

    texts: list[str]
    paths: list[Path]
    starts: list[int]
    skipped: int = 0
    """Files that weren't read, as there were too many."""

    @property
    def stream(self) -> bytes:
        return "".join(self.texts).encode()

    def locate(self, number: int) -> tuple[Path, int]:
        """Return the file of a line of the stream, and the line's number in it; both from 1."""
        at = bisect_right(self.starts, number) - 1
        return self.paths[at], number - self.starts[at] + 1


def read_other_texts(
    paths: Sequence[Path],
    context: ToolContext,
    resolve: Callable[[Path], Path | None],
    check: Callable[[], None],
) -> OtherTexts:
    """Read files that may be shown; `resolve` returns their real paths, or none."""
    found, size, next_line = OtherTexts([], [], []), 0, 1
    for number, path in enumerate(paths):
        check()
        if number >= _MOST_FILES or size > _MOST_BYTES:
            found.skipped = len(paths) - number
            break
        real = resolve(path)
        if real is None:
            continue
        with suppress(ToolError):  # too large, or gone meanwhile
            data = read_file_bytes(context.workspace, real)
            file = decode_text_file(data, context.workspace.read_conventions(real), real.name)
            if file is None:
                continue
            size += len(data)
            text = file.text if file.text.endswith("\n") else file.text + "\n"
            found.paths.append(path)
            found.texts.append(text)
            found.starts.append(next_line)
            next_line += text.count("\n")
    return found
