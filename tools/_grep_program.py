"""_grep_program: searches files with Python's `re` where there is no ripgrep. A program of its own, so that it can be
ended: a regular expression of a model can take for ever.

With arguments PATTERN FLAGS: prints the numbers of matching stdin lines. Without: reads a request (JSON) from stdin
and prints `path NUL number [:-] text` as ripgrep does.
"""

import codecs
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from typing import Any, cast

_CUT = 2100
"""Characters of a line that are printed; the reader cuts it further, and says so."""
_SNIFFED = 65_536
"""Bytes that are looked at for a NUL before a file is searched (ripgrep's buffer)."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": r"\w",
    "blank": r" \t",
}


def compile_pattern(pattern: str, *, fixed: bool, case_sensitive: bool) -> re.Pattern[str]:
    """With the POSIX classes that Rust's expressions have. Raises `re.error`."""
    text = re.escape(pattern) if fixed else pattern
    for name, members in _CLASSES.items():
        text = text.replace(f"[:{name}:]", members)
    return re.compile(text, 0 if case_sensitive else re.IGNORECASE)


def lines_of(path: str) -> list[str]:
    """A text file's lines; none when it is binary or can't be read."""
    try:
        # A pipe that was put there meanwhile would be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a descriptor
            data = file.read()
    except OSError:
        return []
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _split(data[len(mark) :].decode(encoding, "replace"))
    if b"\0" in data[:_SNIFFED]:
        return []
    return _split(data.partition(b"\0")[0].decode("utf-8", "replace"))


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def matching(pattern: re.Pattern[str], lines: Iterable[str], most: int) -> list[int]:
    """Indices of the first `most` lines that match; 0: all of them."""
    found: list[int] = []
    for index, line in enumerate(lines):
        if pattern.search(line):
            found.append(index)
            if len(found) == most:
                break
    return found


def records(path: str, lines: list[str], found: list[int], before: int, after: int) -> Iterator[str]:
    hits = set(found)
    shown = {i for hit in found for i in range(max(0, hit - before), min(len(lines), hit + after + 1))}
    for index in sorted(shown):
        kind = ":" if index in hits else "-"
        yield f"{path}\0{index + 1}{kind}{lines[index][:_CUT]}\n"


def search(wanted: dict[str, Any]) -> int:
    pattern = compile_pattern(
        wanted["pattern"], fixed=wanted["fixed_strings"], case_sensitive=wanted["case_sensitive"]
    )
    any_found = False
    for path in wanted["paths"]:
        lines = lines_of(path)
        found = matching(pattern, lines, wanted["most_per_file"])
        any_found = any_found or bool(found)
        sys.stdout.writelines(records(path, lines, found, wanted["before"], wanted["after"]))
    return 0 if any_found else 1


def filter_stdin(pattern: str, flags: str) -> int:
    compiled = compile_pattern(pattern, fixed=False, case_sensitive="i" not in flags)
    numbers = matching(compiled, _split(sys.stdin.read()), 0)
    sys.stdout.writelines(f"{number + 1}:\n" for number in numbers)
    return 0 if numbers else 1


def main() -> int:
    cast(TextIOWrapper, sys.stdin).reconfigure(encoding="utf-8", errors="surrogateescape")
    cast(TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    try:
        return filter_stdin(sys.argv[1], sys.argv[2]) if len(sys.argv) > 2 else search(json.load(sys.stdin))
    except re.error as error:
        sys.stdout.write(f"error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
