"""loop_detectors: detect repetition in calls and text, without a model."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from interlock.nodes.loop_noise import LONGEST_RUN, NoiseDetector
from interlock.state.loop_check import (
    CHUNK,
    DISTINCT,
    KEPT,
    LONGEST_CYCLE,
    MEAN_DISTANCE,
    OCCURRENCES,
    REPEATS,
    Kind,
)
from interlock.state.messages import Message

_BARS = "|\u2502\u2503\u2551\uff5c"
_BULLETS = "\u2022\u2023\u2043\u25a0-\u25ff\u2610-\u2612\u2713-\u2718\u2705\u274c"
_MARKUP = re.compile(
    rf"[*+–-][ \t]|[{_BULLETS}]\ufe0f?[ \t]|\d{{1,9}}[.)][ \t]|#{{1,6}}[ \t]|>|[{_BARS}]|\+[-=]{{2}}"
)
"""List items, headings, quotes, table rows and borders."""
_RULE = r"-=_*~+#.·\u2010-\u2015\u2026\u2500-\u259f"
_DIVIDER = re.compile(rf"[{_RULE}]{{3,}}")
_BEGINNING = re.compile(rf"[{_BULLETS}–]\ufe0f?|\d{{1,9}}[.)]?|[{_RULE} ]*")
_FILLER = re.compile(r"[\W_\u0640\u30fc]*")
"""Rules, dots, whitespace, symbols and empty table cells: repeating these means nothing."""
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_DIRECTED = re.compile(rf"^(?:[{_DIRECTIONS}]|\s)+")
"""What may stand before the markup of a line in right-to-left text."""
_LONGEST_ROW = 2_000
"""Characters of a table row that aren't checked: its cells may all be alike."""
_LONGEST = 200
"""A line of rule characters longer than this isn't a divider."""


_BYTES = 4
"""UTF-8 bytes counted as a token; exact enough in any script, and it adds up over pieces."""


_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:[mµn]?s|sec(?:ond)?s?|min(?:ute)?s?)\b|\d+(?::\d\d)+(?:\.\d+)?")
"""Durations and times of day: those of a repeated command differ, though nothing has changed."""


class LoopFinding(NamedTuple):
    kind: Kind
    detail: str


class LineKind(Enum):
    UNDECIDED = 0
    TEXT = 1
    MARKUP = 2
    DIVIDER = 3


_SPAN = MEAN_DISTANCE * (OCCURRENCES - 1)
"""Maximum distance spanned by the last 10 occurrences; anything further back is irrelevant."""
_FENCE = re.compile(r"`{3,}")
_TICKS = re.compile(r"`+\Z")
_SHOWN = 200
"""Characters shown of a repeated text, or of a call's arguments."""


class RepetitionDetector:
    """Detects repeated text and noise in a stream. Markup and tool calls reset it; code blocks are skipped."""

    def __init__(self) -> None:
        self.noise = ""
        """What the last piece made noise, as `NoiseDetector.feed` says."""
        self._noise = NoiseDetector()
        self._ticks = ""
        """Backticks at the end of a piece: a fence may continue in the next one."""
        self._code = False
        self._held: str | None = ""
        """Start of a line whose kind is undecided; None: in the middle of a line."""
        self._found = ""
        self._forget_text()

    def reset(self) -> None:
        """Start over: a tool call or a new prompt came."""
        self._ticks, self._code, self._held = "", False, ""
        self._forget_text()

    def feed(self, text: str) -> str:
        """Process a piece. Returns the repeated text, shortened, once a tenth occurrence is complete; else empty."""
        self._found = self.noise = ""
        text = self._ticks + text
        ticks = _TICKS.search(text)
        self._ticks = ticks[0] if ticks else ""
        for index, part in enumerate(_FENCE.split(text[: len(text) - len(self._ticks)])):
            if index:
                self._code = not self._code
                self._held = None
                self._forget_text()
            if part:
                self._process_lines(part)
        return self._found

    def _forget_text(self) -> None:
        self._noise.forget_text()
        self._row = 0
        """Characters of a table row that may still come before it is checked like other text."""
        self._text = ""
        self._base = 0
        """Position of `_text[0]`."""
        self._seen: dict[str, int | list[int]] = {}
        """Chunk → its position, or an entry of `_again`."""
        self._older: dict[str, int | list[int]] = {}
        """The same for chunks older than those in `_seen`; dropped in turn."""
        self._rejected: list[int] = []
        """Distances of the occurrences judged not to be a loop at `_rejected_at`."""
        self._rejected_at = -1

    def _process_lines(self, text: str) -> None:
        parts = text.split("\n")
        last = len(parts) - 1
        for index, part in enumerate(parts):
            whole = index < last
            if self._code:
                self._held = "" if whole else None
            elif part or whole:
                self._classify_and_track_line_part(part + "\n" if whole else part, whole)

    def _classify_and_track_line_part(self, part: str, is_complete: bool) -> None:
        if self._held is not None:
            part = self._held + part
            kind = classify_line(part, is_complete)
            if kind is LineKind.UNDECIDED:
                self._held = part
                return
            self._held = None
            if kind is not LineKind.TEXT:
                self._forget_text()
            if _DIRECTED.sub("", part).startswith(tuple(_BARS)):
                self._row = _LONGEST_ROW
            if kind is LineKind.DIVIDER:
                part = ""
        passed = min(self._row, len(part))
        self._row -= passed
        if is_complete:
            self._held, self._row = "", 0
        if part[passed:]:
            self._track_chunks(part[passed:])

    def _track_chunks(self, part: str) -> None:
        self.noise = self.noise or self._noise.feed(part)
        text, base, seen, older = self._text + part, self._base, self._seen, self._older
        begin = max(0, len(self._text) - CHUNK + 1)
        self._text = text
        for at in range(begin, len(text) - CHUNK + 1):
            chunk = text[at : at + CHUNK]
            before = seen.get(chunk)
            if before is None and older:
                before = older.get(chunk)
            if before is None:
                seen[chunk] = base + at
            else:
                self._record_occurrence(chunk, before, base + at)
            if at - begin > KEPT // 2 and len(seen) > KEPT // 2:
                older = self._older = seen
                seen = self._seen = {}
        if len(text) > KEPT:
            self._drop_oldest_text(len(text) - _SPAN - CHUNK)

    def _drop_oldest_text(self, count: int) -> None:
        """Forget the first characters and, on the second drop, the chunks that occur only there."""
        self._text = self._text[count:]
        self._base += count
        if len(self._seen) > KEPT // 2:
            self._older, self._seen = self._seen, {}

    def _record_occurrence(self, chunk: str, entry: int | list[int], position: int) -> None:
        """Record another occurrence. An entry is the last position, then the distances before it, oldest first."""
        if _FILLER.fullmatch(chunk):
            return
        if isinstance(entry, int):
            entry = [entry]
        self._seen[chunk] = entry
        entry.append(position - entry[0])
        entry[0] = position
        if len(entry) < OCCURRENCES:
            return
        if len(entry) > OCCURRENCES:
            del entry[1]
        distances = entry[1:]
        # If all occurrences moved by one, the text between them is the same, rotated by one character.
        turned = self._rejected_at == position - 1 and distances == self._rejected
        if not turned and self._detect_loop(distances, position):
            return
        self._rejected, self._rejected_at = distances, position

    def _detect_loop(self, distances: list[int], position: int) -> bool:
        if sum(distances) > _SPAN:
            return False
        between: set[str] = set()
        end, text = position - self._base, ""
        for distance in reversed(distances):
            text = self._text[end - distance : end]
            between.add(text)
            end -= distance
        if len(between) > DISTINCT:
            return False
        self._found = self._found or shorten_text(text)
        return True


class StreamDetector:
    """Detects repetition, noise, and endless length in the text and the thoughts of replies."""

    def __init__(self, limit: int = 0, loops: bool = True) -> None:
        """`limit`: tokens of one reply's text, 0: any number; `loops`: whether anything but the limit counts."""
        self._limit, self._loops = limit, loops
        self._chants = (RepetitionDetector(), RepetitionDetector())
        self._ends, self._bytes = ["", ""], [0, 0]

    def reset(self) -> None:
        """Start over: a tool call or a new prompt came."""
        for chants in self._chants:
            chants.reset()
        self.begin_reply()

    def begin_reply(self) -> None:
        """Start counting a new reply."""
        self._ends, self._bytes = ["", ""], [0, 0]

    def feed(self, piece: str, is_thought: bool = False) -> LoopFinding | None:
        """Process a piece. Thoughts may repeat themselves, and take twice the limit, counted apart."""
        if self._loops and (found := self._find_repetition_or_noise(piece, is_thought)):
            return found
        self._bytes[is_thought] += len(piece.encode(errors="replace"))
        limit = self._limit * (1 + is_thought)
        if 0 < limit * _BYTES < self._bytes[is_thought]:
            what = "thoughts" if is_thought else "reply"
            return LoopFinding(
                "length", f"the {what} ran past {limit} tokens (setting: model.maxReplyTokens)"
            )
        return None

    def _find_repetition_or_noise(self, piece: str, is_thought: bool) -> LoopFinding | None:
        chants = self._chants[is_thought]
        if (text := chants.feed(piece)) and not is_thought:
            return LoopFinding("content", f"the text “{text}” was repeated again and again")
        if chants.noise:
            return LoopFinding("noise", f"the reply ran on with {chants.noise}")
        text = self._ends[is_thought] + piece
        end = text[len(text.rstrip(None if text[-1:].isspace() else text[-1:])) :]
        self._ends[is_thought] = end
        if len(end) > LONGEST_RUN:
            shown = "blanks" if end.isspace() else f"the character {end[-1]!r}"
            return LoopFinding("noise", f"the reply ran on with {shown} alone")
        return None


def classify_line(line: str, is_complete: bool) -> LineKind:
    """`is_complete`: the line is complete; else more may come, so its kind may be undecided."""
    bare = _DIRECTED.sub("", line)
    bare = bare.rstrip() if is_complete else bare
    # A decision on a line's beginning must also hold for the whole line.
    if _MARKUP.match(bare):
        return LineKind.MARKUP
    if is_complete:
        if _DIVIDER.fullmatch(bare.replace(" ", "")) and len(line) <= _LONGEST:
            return LineKind.DIVIDER
        return LineKind.MARKUP if _MARKUP.match(bare + " ") else LineKind.TEXT
    if len(line) <= _LONGEST and _BEGINNING.fullmatch(bare):
        return LineKind.UNDECIDED
    return LineKind.TEXT


def hash_call(name: str, args: Mapping[str, Any]) -> str:
    """Hash of the name and arguments, in their order; short, because each checkpoint has 25 of them."""
    arguments = json.dumps(args, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(f"{name}:{arguments}".encode()).hexdigest()[:12]


def append_call_key(keys: Sequence[str], key: str) -> list[str]:
    """The keys with one more, limited to what the longest cycle needs."""
    return [*keys, key][-REPEATS * LONGEST_CYCLE :]


def repeated_cycle_length(keys: Sequence[str]) -> int:
    """Length of the cycle repeated 5 times at the end of the keys; 0: none."""
    lengths = range(1, LONGEST_CYCLE + 1)
    return next((length for length in lengths if _is_cycle_repeated(keys, length, REPEATS)), 0)


def _is_cycle_repeated(keys: Sequence[str], length: int, times: int) -> bool:
    last = keys[-times * length :]
    return len(last) == times * length and all(last[i] == last[i % length] for i in range(len(last)))


def is_call_polling(keys: Sequence[str], length: int, history: Sequence[Message]) -> bool:
    """Whether the last call, one of a cycle, was answered otherwise each time, but for times. Ends when all keys that
    are remembered are that cycle."""
    if _is_cycle_repeated(keys, length, REPEATS * LONGEST_CYCLE // length):
        return False
    last = history[-2 * REPEATS * LONGEST_CYCLE :]
    same = {c.id for m in last for c in m.tool_calls if hash_call(c.name, c.args) == keys[-1]}
    answers = [_TIMES.sub("", m.text) for m in last if m.role == "tool" and m.tool_call_id in same]
    return len(set(answers[1 - REPEATS :])) == REPEATS - 1


def describe_cycle(names: Sequence[str], length: int, args: Mapping[str, Any]) -> str:
    """The cycle in words; `names` are those of the calls so far, `args` those of the last one."""
    names = names[-length:]
    arguments = shorten_text(json.dumps(args, ensure_ascii=False))
    if length == 1:
        return f"the call {names[0]} {arguments} was made {REPEATS} times in a row"
    last = f"the last was {names[-1]} {arguments}"
    return f"the same {length} calls were made {REPEATS} times in a row: {', '.join(names)}; {last}"


def shorten_text(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
