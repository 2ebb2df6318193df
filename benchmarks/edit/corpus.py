"""corpus: cases of edits as models get them wrong, each knowing by construction what is right.

A case is made from the right edit backwards: a window of a real file, a change to it, and with them the text that must
come out; then the strings (or the file around them) are spoilt. The matcher is never asked.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_SMART = {'"': "“”", "'": "‘’"}


@dataclass(frozen=True)
class Case:
    """`right` null: the edit must be refused."""

    kind: str
    before: bytes
    old: str
    new: str
    right: bytes | None
    expected: int | None = 1
    true_old: str = ""
    """What a helper that knows the file would answer."""
    true_new: str = ""
    repairable: bool = True
    """False: not to be repaired without a model, if at all."""
    where: tuple[int, int] = (0, 0)
    """The window in the text that may change, by offsets."""


@dataclass(frozen=True)
class Seed:
    """A right edit, before it is spoilt."""

    text: str
    start: int
    old: str
    new: str
    both: bool
    """Spoil both strings; else the old one only."""

    @property
    def right(self) -> str:
        return self.text[: self.start] + self.new + self.text[self.start + len(self.old) :]

    def case(self, kind: str, spoil: Callable[[str], str] | None = None) -> Case:
        old = spoil(self.old) if spoil else self.old
        new = spoil(self.new) if spoil and self.both else self.new
        return Case(
            kind,
            self.text.encode(),
            old,
            new,
            self.right.encode(),
            true_old=self.old,
            true_new=self.new,
            where=(self.start, self.start + len(self.old)),
        )


Maker = Callable[[Random, Seed, str], Case | None]


def seeds(random: Random, texts: list[str], least: int = 3, most: int = 9) -> Iterator[Seed]:
    """Windows of whole lines that stand in their file once, also when all whitespace is left out; and a change."""
    while True:
        text = random.choice(texts)
        lines = text.split("\n")
        count = random.randint(least, most)
        first = random.randrange(0, max(1, len(lines) - count - 1))
        window = lines[first : first + count]
        old = "\n".join(window)
        if not window[0].strip() or not window[-1].strip() or len(_bare(old)) < 40:
            continue
        if _bare(text).count(_bare(old)) != 1 or (new := _changed(random, window)) == old:
            continue
        start = sum(len(line) + 1 for line in lines[:first])
        yield Seed(text, start, old, new, random.random() < 0.5)


def _changed(random: Random, window: list[str]) -> str:
    """A line put in, taken out or changed; never the first or the last one, so that the window stays the window."""
    at = random.randrange(1, len(window) - 1) if len(window) > 2 else 0
    lines = list(window)
    line = lines[at]
    indent = line[: len(line) - len(line.lstrip())]
    how = random.choice(("put in", "take out", "change", "change"))
    if how == "put in" or not line.strip():
        near = next((w for w in reversed(lines[: at + 1]) if w.strip()), "")
        lines.insert(
            at + 1, near[: len(near) - len(near.lstrip())] + f"added_{random.randrange(999)}(value);"
        )
    elif how == "take out":
        del lines[at]
    else:
        words = list(_WORD.finditer(line))
        found = random.choice(words) if words else None
        lines[at] = (
            f"{indent}changed" if found is None else line[: found.start()] + "renamed" + line[found.end() :]
        )
    return "\n".join(lines)


def _bare(text: str) -> str:
    return "".join(text.split())


def _by_line(spoil: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(spoil(line) if line.strip() else line for line in text.split("\n"))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def exact(_: Random, seed: Seed, kind: str) -> Case | None:
    return seed.case(kind)


def indentation(random: Random, seed: Seed, kind: str) -> Case | None:
    """All lines out to the margin, or all further in or out by the same."""
    depth = min(len(_indent(line)) for line in seed.old.split("\n") if line.strip())
    how = random.choice(("margin", "in", "less"))
    if how == "in" or depth == 0:
        more = " " * random.randint(1, 5)
        return seed.case(kind, _by_line(lambda line: more + line))
    gone = depth if how == "margin" else random.randint(1, depth)
    if any(line.strip() and len(_indent(line)) < gone for line in seed.new.split("\n")):
        return None
    return seed.case(kind, _by_line(lambda line: line[gone:]))


def tabs(random: Random, seed: Seed, kind: str) -> Case | None:
    """Tabs for spaces or spaces for tabs."""
    first = {_indent(line) for line in (seed.old + "\n" + seed.new).split("\n") if _indent(line)}
    together = set("".join(first))
    width = random.choice((2, 4, 8))
    if together == {"\t"}:
        return seed.case(
            kind, _by_line(lambda line: _indent(line).replace("\t", " " * width) + line.lstrip())
        )
    widths = [w for w in (8, 4, 2) if together == {" "} and all(len(i) % w == 0 for i in first)]
    if not widths:
        return None
    return seed.case(kind, _by_line(lambda line: "\t" * (len(_indent(line)) // widths[0]) + line.lstrip()))


def trailing(random: Random, seed: Seed, kind: str) -> Case | None:
    """Blanks at line ends: in the strings, or in the file, where lines that aren't changed keep them."""
    if random.random() < 0.5:
        ends = {line: " " * random.randint(0, 3) for line in seed.old.split("\n")}
        return seed.case(kind, _by_line(lambda line: line + ends.get(line, "  ")))
    blanks = {line: random.choice((" ", "\t", "   ")) for line in seed.old.split("\n")[1:-1]}
    blanks = {line: blank for line, blank in blanks.items() if line.strip() and line == line.rstrip()}
    if not blanks:
        return None
    old, new = (
        "\n".join(line + blanks.get(line, "") for line in t.split("\n")) for t in (seed.old, seed.new)
    )
    text = seed.text[: seed.start] + old + seed.text[seed.start + len(seed.old) :]
    real = replace(seed, text=text, old=old, new=new)
    return replace(real.case(kind), old=seed.old, new=seed.new)


def crlf(random: Random, seed: Seed, kind: str) -> Case | None:
    """A file with CRLF, perhaps with a BOM or in UTF-16, or without a final newline; strings with LF or CRLF."""
    made = seed.case(kind)
    encoding = random.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16"))
    cut = random.random() < 0.3

    def stored(text: str) -> bytes:
        text = text.removesuffix("\n") if cut else text
        return text.replace("\n", "\r\n").encode(encoding)

    if cut and seed.start + len(seed.old) >= len(seed.text) - 1:
        return None
    windows = random.random() < 0.3
    old, new = (t.replace("\n", "\r\n") if windows else t for t in (seed.old, seed.new))
    return replace(made, before=stored(seed.text), right=stored(seed.right), old=old, new=new)


def quotes(_: Random, seed: Seed, kind: str) -> Case | None:
    """Typographers' quotes and dashes in the strings, where the file has none."""
    if not seed.text.isascii() or not ({'"', "'"} & set(seed.old)):
        return None

    def smart(text: str) -> str:
        for plain, (left, right) in _SMART.items():
            text = re.sub(rf"(^|[\s(\[={{,:]){plain}", rf"\1{left}", text, flags=re.MULTILINE).replace(
                plain, right
            )
        return text

    return seed.case(kind, smart)


def escapes(random: Random, seed: Seed, kind: str) -> Case | None:
    """Both strings escaped once too often: as JSON is, or their quotes only."""
    both = replace(seed, both=True)
    if random.random() < 0.6:
        return both.case(kind, lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
    if '"' not in seed.old or '\\"' in seed.old + seed.new:
        return None
    return both.case(kind, lambda text: text.replace('"', '\\"'))


def blank_lines(random: Random, seed: Seed, kind: str) -> Case | None:
    """Blank lines that the file has left out, or such as it hasn't put in; the file's own stay."""
    lines = seed.old.split("\n")
    now = seed.new.split("\n")
    fresh = [at for at, line in enumerate(now) if line not in lines]
    if any("" in now[max(0, at - 1) : at + 2] for at in fresh):
        return (
            None  # a line next to a blank one that both strings leave out: on which side of it can't be known
        )
    if "" in lines and random.random() < 0.7:
        if any(not a.strip() and not b.strip() for a, b in pairwise(lines)):
            return None
        return seed.case(kind, lambda text: "\n".join(line for line in text.split("\n") if line.strip()))
    at = lines[random.randrange(0, len(lines) - 1)]
    if not at.strip() or lines.count(at) != 1 or seed.new.split("\n").count(at) != 1:
        return None
    if "" in lines or "" in seed.new.split("\n"):
        return None
    return seed.case(kind, lambda text: text.replace(at + "\n", at + "\n\n", 1))


def token(random: Random, seed: Seed, kind: str) -> Case | None:
    """One word misremembered, a small part of the window."""
    words = [m for m in _WORD.finditer(seed.old) if len(m[0]) <= len(_bare(seed.old)) * 0.07]
    if not words:
        return None
    found = random.choice(words)
    wrong = random.choice(
        (found[0] + "s", found[0][:-1], found[0][0] + found[0], found[0][:2] + "x" + found[0][2:])
    )
    before = seed.old[: found.start()].rpartition("\n")[2]
    whole = before + seed.old[found.start() :].partition("\n")[0]
    spoilt = before + wrong + whole[len(before) + len(found[0]) :]
    if seed.old.split("\n").count(whole) != 1 or _bare(seed.text).count(_bare(spoilt)):
        return None
    return seed.case(
        kind, lambda text: "\n".join(spoilt if line == whole else line for line in text.split("\n"))
    )


def drifted(random: Random, seed: Seed, kind: str) -> Case | None:
    """Half of the words are others: only a helper that knows the file can tell what is meant."""
    words = sorted(set(_WORD.findall(seed.old)))
    if len(words) < 6:
        return None
    gone = random.sample(words, len(words) * 2 // 3)

    def other(text: str) -> str:
        for word in gone:
            text = re.sub(rf"\b{word}\b", word[::-1].lower() + "q", text)
        return text

    made = replace(seed.case(kind, other), right=None, repairable=False)
    return made if len(_bare("".join(gone))) > len(_bare(seed.old)) * 0.3 else None


def stale(random: Random, seed: Seed, kind: str) -> Case | None:
    """The window is gone from the file: taken out, or its lines are others now."""
    lines = seed.old.split("\n")
    others = [f"{_indent(line)}{''.join(random.choices('abcdefgh ', k=len(line.strip())))}" for line in lines]
    there = "\n".join(others) if random.random() < 0.5 else ""
    text = seed.text[: seed.start] + there + seed.text[seed.start + len(seed.old) :]
    return replace(seed.case(kind), before=text.encode(), right=None, true_old="", true_new="")


def repeated(random: Random, seed: Seed, kind: str) -> Case | None:
    """The window stands twice: refused when one was expected, both changed when two or all were."""
    text = seed.text + "\n" + seed.old + "\n"
    right = seed.right + "\n" + seed.new + "\n"
    made = replace(seed.case(kind), before=text.encode(), right=right.encode())
    spoil = _by_line(lambda line: "  " + line)
    if random.random() < 0.5:
        old, new = (spoil(seed.old), spoil(seed.new)) if random.random() < 0.5 else (seed.old, seed.new)
        return replace(made, old=old, new=new, right=None, true_old="", true_new="")
    return replace(made, expected=random.choice((2, None)), where=(0, len(text)))


def unicode(random: Random, seed: Seed, kind: str) -> Case | None:
    """Text beyond ASCII: composed or not, with other spaces and dashes than the file has."""
    note = random.choice(
        ("naïve café – déjà vu", "Größe: 5 µm — “ok”", "日本語のコメント、テスト", "пример 🎉 текста")
    )
    at = seed.old.split("\n")[0]
    old, new = (
        f"{at} {note}{seed.old[len(at) :]}",
        f"{seed.new.split(chr(10))[0]} {note}{seed.new[len(seed.new.split(chr(10))[0]) :]}",
    )
    if not seed.new.startswith(at):
        return None
    text = seed.text[: seed.start] + old + seed.text[seed.start + len(seed.old) :]
    real = replace(seed, text=text, old=old, new=new)
    how = random.choice(("same", "composed", "spaces", "dashes"))
    if how == "composed":
        form = lambda t: unicodedata.normalize("NFD", t)  # noqa: E731
        if form(text) == text or not unicodedata.is_normalized("NFC", text):
            return None
        return real.case(kind, form)
    spoil = {"same": lambda t: t, "spaces": lambda t: t.replace(note, note.replace(" ", "\u00a0"))}
    spoil["dashes"] = lambda t: t.replace("–", "-").replace("—", "-")
    return real.case(kind, spoil[how])


def long_lines(random: Random, seed: Seed, kind: str) -> Case | None:
    """A line of tens of thousands of characters: a piece of it as it is, or the whole of it but for blanks."""
    body = ";".join(line.strip() for line in (seed.text * 6).split("\n")[:600] if line.strip())
    place = random.randrange(len(body) // 4, len(body) // 2)
    piece = f"uniquely_{random.randrange(10**9)}=[{random.randrange(999)}]"
    long = body[:place] + piece + body[place:]
    text = f"{seed.old}\n{long}\n{seed.old}x\n"
    start = len(seed.old) + 1
    if random.random() < 0.6:
        return Seed(text, start + place, piece, piece + ";more()", False).case(kind)
    real = Seed(text, start, long, long.replace(piece, "shorter"), False)
    return replace(real.case(kind), old=random.choice(("  ", "\t")) + long + random.choice(("", " ")))


MAKERS: dict[str, Maker] = {
    "exact": exact,
    "indentation": indentation,
    "tabs and spaces": tabs,
    "trailing blanks": trailing,
    "CRLF, BOM, UTF-16": crlf,
    "smart quotes": quotes,
    "over-escaped": escapes,
    "blank lines": blank_lines,
    "one token": token,
    "heavy drift": drifted,
    "stale context": stale,
    "repeated anchors": repeated,
    "Unicode": unicode,
    "very long lines": long_lines,
}


def cases(random: Random, texts: list[str], per_kind: int) -> Iterator[Case]:
    """`per_kind` of each class. A case whose strings came out as something else in the file is left out."""
    stream = seeds(random, texts)
    for kind, make in MAKERS.items():
        made = 0
        while made < per_kind:
            case = make(random, next(stream), kind)
            if case is not None and case.old.strip() and case.old != case.new:
                made += 1
                yield case
