"""text_diff: compare two texts, and show changes to people."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import Match, SequenceMatcher

from interlock.state.text import replace_surrogates, truncated_diff_notice
from interlock.state.workspace import NO_CONVENTIONS, FileConventions
from interlock.tools.file_content import TextFile, decode_text_file, split_lines

_MOST_CHARS = 100_000
_BINARY = "Binary file"
_CONTEXT = 3
_SMALL = 250_000
"""Product of both texts' lengths (in pieces) up to which difflib is used; its worst case is cubic."""
_MOST_COMPARED = 200_000_000
"""Same limit for the longest common subsequence: 25 MB and a few ms. Above it, a gap is a single replacement."""


class Comparison(SequenceMatcher[str]):
    """Matches two lists of lines or words, in bounded time even if they are long and very similar."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        self._small = len(old) * len(new) <= _SMALL
        super().__init__(None, *((old, new) if self._small else ("", "")), autojunk=False)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        """For long lists: common prefix and suffix, lines unique to both, and matches in between."""
        if self._small:
            return super().get_matching_blocks()
        blocks: list[Match] = []
        for i, j, size in [*_find_common_blocks(self._old, self._new), (len(self._old), len(self._new), 0)]:
            last = blocks[-1] if blocks else Match(0, 0, 0)
            if size and blocks and (last.a + last.size, last.b + last.size) == (i, j):
                blocks[-1] = Match(last.a, last.b, last.size + size)
            else:
                blocks.append(Match(i, j, size))
        return blocks


def _find_common_blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield common blocks (start in `old`, start in `new`, size), most of them around lines unique to both."""
    from rapidfuzz.distance import LCSseq

    start = _common_prefix_length(old, new)
    end = min(_common_prefix_length(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    yield 0, 0, start
    numbers: dict[str, int] = {}
    parts = (pieces[start : len(pieces) - end] for pieces in (old, new))
    one, other = ([numbers.setdefault(piece, len(numbers)) for piece in pieces] for pieces in parts)
    i = j = 0
    last = (len(one), len(other))
    for a, b in [*_find_unique_anchors(one, other), last]:
        if (a - i) * (b - j) <= _MOST_COMPARED:
            for op in LCSseq.opcodes(one[i:a], other[j:b]):
                if op.tag == "equal":
                    yield start + i + op.src_start, start + j + op.dest_start, op.src_end - op.src_start
        if (a, b) != last:
            yield start + a, start + b, 1
        i, j = a + 1, b + 1
    yield len(old) - end, len(new) - end, end


def _find_unique_anchors(old: list[int], new: list[int]) -> list[tuple[int, int]]:
    """Return positions of pieces unique on both sides: the longest sequence in both orders."""
    places: list[dict[int, int]] = []
    for pieces in (old, new):
        counts = Counter(pieces)
        places.append({piece: at for at, piece in enumerate(pieces) if counts[piece] == 1})
    pairs = [(at, places[1][piece]) for piece, at in places[0].items() if piece in places[1]]
    tails: list[int] = []
    rows: list[int] = []
    before: list[int] = []
    for number, (_, b) in enumerate(pairs):
        at = bisect_left(tails, b)
        before.append(rows[at - 1] if at else -1)
        tails[at : at + 1], rows[at : at + 1] = [b], [number]
    row: list[tuple[int, int]] = []
    number = rows[-1] if rows else -1
    while number >= 0:
        row.append(pairs[number])
        number = before[number]
    return row[::-1]


def unified_diff(
    path: str, before: bytes | None, after: bytes, conventions: FileConventions | None = None
) -> str:
    """Unified diff with the file's workspace-relative name; empty if nothing changes, cut after 100,000 characters."""
    old, new = _decode_both_for_diff(path, before, after, conventions or NO_CONVENTIONS)
    if old is None or new is None:
        return f"{_BINARY} {path} differs.\n"
    header = ["/dev/null" if before is None else f"a/{path}", f"b/{path}"]
    text = "".join(_format_hunks(header, Comparison(old, new), old, new))
    if before is None and not text:
        text = f"--- /dev/null\n+++ b/{path}\n"
    if len(text) <= _MOST_CHARS:
        return text
    end = text.rfind("\n", 0, _MOST_CHARS) + 1
    rest = text[end:].removesuffix("\n").split("\n")
    added, removed = (sum(line.startswith(sign) for line in rest) for sign in "+-")
    return text[:end] + truncated_diff_notice(len(rest), added, removed)


def is_binary_notice(diff: str) -> bool:
    """Return whether `unified_diff` shows nothing of a file, as it isn't text."""
    return diff.startswith(_BINARY)


def _decode_both_for_diff(
    path: str, before: bytes | None, after: bytes, conventions: FileConventions
) -> tuple[list[str] | None, list[str] | None]:
    """Return the lines of a file before and after; without one there are none; None: it isn't text."""
    old = None if before is None else decode_text_file(before, conventions, path)
    new = decode_text_file(after, conventions, path)
    is_sure = new is not None and not new.encoding.is_guess and new.encoding.errors == "strict"
    if old is not None and not is_sure and after.startswith(old.mark):
        # An edit keeps the encoding, but a guess from the new bytes might be another one.
        with suppress(UnicodeDecodeError):
            new = replace(old, raw=old.decode(after))
    return [] if before is None else _diff_lines(old), _diff_lines(new)


def _diff_lines(file: TextFile | None) -> list[str] | None:
    """Return a file's lines for a diff; None: it isn't text."""
    if file is None:
        return None
    text = replace_surrogates(file.text if file.newline == "\r" else file.raw)
    lines = [line + "\n" for line in split_lines(_show_mixed_line_endings(text))]
    if lines and not text.endswith("\n"):
        lines[-1] += "\\ No newline at end of file\n"
    return lines


def _show_mixed_line_endings(raw: str) -> str:
    """Return a text with CR made visible if its line endings are mixed, as an edit may change them."""
    if "\r" not in raw:
        return raw
    plain = raw.replace("\r\n", "\n")
    return plain if raw.count("\r\n") == raw.count("\n") else raw.replace("\r\n", "␍\n")


def _format_hunks(header: list[str], compared: Comparison, old: list[str], new: list[str]) -> Iterator[str]:
    groups = compared.get_grouped_opcodes(_CONTEXT)
    for number, group in enumerate(groups):
        if number == 0:
            yield f"--- {header[0]}\n+++ {header[1]}\n"
        first, last = group[0], group[-1]
        yield f"@@ -{_format_hunk_range(first[1], last[2])} +{_format_hunk_range(first[3], last[4])} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (" " + line for line in old[i1:i2])
            else:
                yield from ("-" + line for line in old[i1:i2])
                yield from ("+" + line for line in new[j1:j2])


def _format_hunk_range(start: int, stop: int) -> str:
    """Return a range in unified-diff format: 1-based; an empty range is given by the preceding line."""
    count = stop - start
    return str(start + 1) if count == 1 else f"{start + bool(count)},{count}"


def _common_prefix_length(one: Sequence[str], other: Sequence[str]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
