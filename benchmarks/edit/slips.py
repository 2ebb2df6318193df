"""slips: edits with small mistakes; each can be repaired without a model."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from case import WORD, Case, Seed, bare

_SMART = {'"': "“”", "'": "‘’"}


def by_line(spoil: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(spoil(line) if line.strip() else line for line in text.split("\n"))


def indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def exact(_: Random, seed: Seed, kind: str) -> Case | None:
    return seed.case(kind)


def indentation(random: Random, seed: Seed, kind: str) -> Case | None:
    """All lines moved to the margin, or indented further or less by the same amount."""
    depth = min(len(indent(line)) for line in seed.old.split("\n") if line.strip())
    how = random.choice(("margin", "in", "less"))
    if how == "in" or depth == 0:
        more = " " * random.randint(1, 5)
        return seed.case(kind, by_line(lambda line: more + line))
    gone = depth if how == "margin" else random.randint(1, depth)
    if any(line.strip() and len(indent(line)) < gone for line in seed.new.split("\n")):
        return None
    return seed.case(kind, by_line(lambda line: line[gone:]))


def tabs(random: Random, seed: Seed, kind: str) -> Case | None:
    """Tabs for spaces or spaces for tabs."""
    first = {indent(line) for line in (seed.old + "\n" + seed.new).split("\n") if indent(line)}
    together = set("".join(first))
    width = random.choice((2, 4, 8))
    if together == {"\t"}:
        return seed.case(kind, by_line(lambda line: indent(line).replace("\t", " " * width) + line.lstrip()))
    widths = [w for w in (8, 4, 2) if together == {" "} and all(len(i) % w == 0 for i in first)]
    if not widths:
        return None
    return seed.case(kind, by_line(lambda line: "\t" * (len(indent(line)) // widths[0]) + line.lstrip()))


def trailing(random: Random, seed: Seed, kind: str) -> Case | None:
    """Trailing whitespace: in the strings, or in the file, where unchanged lines keep it."""
    if random.random() < 0.5:
        ends = {line: " " * random.randint(0, 3) for line in seed.old.split("\n")}
        return seed.case(kind, by_line(lambda line: line + ends.get(line, "  ")))
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
    """Typographic quotes and dashes in the strings, but not in the file."""
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
    """Both strings escaped once too often: as in JSON, or just their quotes."""
    both = replace(seed, both=True)
    if random.random() < 0.6:
        return both.case(kind, lambda text: json.dumps(text, ensure_ascii=False)[1:-1])
    if '"' not in seed.old or '\\"' in seed.old + seed.new:
        return None
    return both.case(kind, lambda text: text.replace('"', '\\"'))


def blank_lines(random: Random, seed: Seed, kind: str) -> Case | None:
    """Blank lines missing from the strings, or added to them; the file's own stay."""
    lines = seed.old.split("\n")
    now = seed.new.split("\n")
    fresh = [at for at, line in enumerate(now) if line not in lines]
    if any("" in now[max(0, at - 1) : at + 2] for at in fresh):
        return None  # a line next to a blank one that both strings omit: its side can't be known
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
    words = [m for m in WORD.finditer(seed.old) if len(m[0]) <= len(bare(seed.old)) * 0.07]
    if not words:
        return None
    found = random.choice(words)
    wrong = random.choice(
        (found[0] + "s", found[0][:-1], found[0][0] + found[0], found[0][:2] + "x" + found[0][2:])
    )
    before = seed.old[: found.start()].rpartition("\n")[2]
    whole = before + seed.old[found.start() :].partition("\n")[0]
    spoilt = before + wrong + whole[len(before) + len(found[0]) :]
    if seed.old.split("\n").count(whole) != 1 or bare(seed.text).count(bare(spoilt)):
        return None
    return seed.case(
        kind, lambda text: "\n".join(spoilt if line == whole else line for line in text.split("\n"))
    )
