"""corpus: cases of edits as models get them wrong, each with a result that is right by construction.

A case is built backwards from a correct edit: a window of a real file, a change to it, and the text that must result;
then the strings (or the file around them) are spoilt. The matcher is never consulted.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from case import WORD, Case, Seed, bare, seeds
from slips import (
    blank_lines,
    by_line,
    crlf,
    escapes,
    exact,
    indent,
    indentation,
    quotes,
    tabs,
    token,
    trailing,
)

Maker = Callable[[Random, Seed, str], Case | None]


def drifted(random: Random, seed: Seed, kind: str) -> Case | None:
    """A third of the words are kept: only a model that knows the file can tell what is meant."""
    words = sorted(set(WORD.findall(seed.old)))
    if len(words) < 6:
        return None
    gone = random.sample(words, len(words) * 2 // 3)

    def other(text: str) -> str:
        for word in gone:
            text = re.sub(rf"\b{word}\b", word[::-1].lower() + "q", text)
        return text

    made = replace(seed.case(kind, other), right=None, repairable=False)
    return made if len(bare("".join(gone))) > len(bare(seed.old)) * 0.3 else None


def stale(random: Random, seed: Seed, kind: str) -> Case | None:
    """The window is gone from the file: removed, or replaced by other lines."""
    lines = seed.old.split("\n")
    others = [f"{indent(line)}{''.join(random.choices('abcdefgh ', k=len(line.strip())))}" for line in lines]
    there = "\n".join(others) if random.random() < 0.5 else ""
    text = seed.text[: seed.start] + there + seed.text[seed.start + len(seed.old) :]
    return replace(seed.case(kind), before=text.encode(), right=None, true_old="", true_new="")


def repeated(random: Random, seed: Seed, kind: str) -> Case | None:
    """The window occurs twice: refused if one was expected, both changed if two or all were."""
    text = seed.text + "\n" + seed.old + "\n"
    right = seed.right + "\n" + seed.new + "\n"
    made = replace(seed.case(kind), before=text.encode(), right=right.encode())
    spoil = by_line(lambda line: "  " + line)
    if random.random() < 0.5:
        old, new = (spoil(seed.old), spoil(seed.new)) if random.random() < 0.5 else (seed.old, seed.new)
        return replace(made, old=old, new=new, right=None, true_old="", true_new="")
    return replace(made, expected=random.choice((2, None)), where=(0, len(text)))


def unicode(random: Random, seed: Seed, kind: str) -> Case | None:
    """Text beyond ASCII: normalized differently or not, with other spaces and dashes than in the file."""
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
        form = lambda t: unicodedata.normalize("NFD", t)  # noqa: E731 - one of many forms
        if form(text) == text or not unicodedata.is_normalized("NFC", text):
            return None
        return real.case(kind, form)
    spoil = {"same": lambda t: t, "spaces": lambda t: t.replace(note, note.replace(" ", "\u00a0"))}
    spoil["dashes"] = lambda t: t.replace("–", "-").replace("—", "-")
    return real.case(kind, spoil[how])


def long_lines(random: Random, seed: Seed, kind: str) -> Case | None:
    """A line of tens of thousands of characters: an exact piece of it, or all of it with other whitespace."""
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
    """`per_kind` cases of each class, without those whose `old` is blank or equals `new`."""
    stream = seeds(random, texts)
    for kind, make in MAKERS.items():
        made = 0
        while made < per_kind:
            case = make(random, next(stream), kind)
            if case is not None and case.old.strip() and case.old != case.new:
                made += 1
                yield case
