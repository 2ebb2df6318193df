"""inline_tests: restores or compares tests beside the code that they test, such as Rust's `mod tests`."""

import ast
import doctest
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

_SCRIPTS = frozenset({".ts", ".tsx", ".js", ".jsx", ".mjs", ".mts"})


def restore_inline_tests(path: str, old: str, new: str) -> str:
    """Return the code of today with the tests of before; equal to `new` if these have not changed.

    Raises `ValueError` if they have, and can't be told apart.
    """
    match PurePath(path).suffix:
        case ".rs":
            return _restore_rust_tests(old, new)
        case ".py":
            changed = bool(Counter(_python_doctests(old)) - Counter(_python_doctests(new)))
        case ".zig":
            changed = bool(Counter(_split_blocks(old, r"^test\b")) - Counter(_split_blocks(new, r"^test\b")))
        case ".d":
            changed = bool(
                Counter(_split_blocks(old, r"\bunittest\b")) - Counter(_split_blocks(new, r"\bunittest\b"))
            )
        case suffix:
            assert suffix in _SCRIPTS, suffix
            changed = _vitest_in_source(old) != _vitest_in_source(new) and bool(_vitest_in_source(old))
    if changed:
        raise ValueError("tests beside the code have changed")
    return new


def _python_doctests(text: str) -> Iterator[tuple[str, str]]:
    """Yield the examples of a Python module's docstrings."""
    if ">>>" not in text:
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    for shown in filter(None, map(ast.get_docstring, nodes)):
        yield from ((e.source, e.want) for e in doctest.DocTestParser().get_examples(shown))


def _split_blocks(text: str, start: str) -> Iterator[str]:
    """Yield the blocks that begin so, each up to a brace at its line's beginning or the next block."""
    begins = [found.start() for found in re.finditer(start, text, re.MULTILINE)]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        closed = re.compile(r"^\}", re.MULTILINE).search(text, begin, end)
        yield text[begin : closed.end() if closed else end]


def _vitest_in_source(text: str) -> str:
    """Return vitest's tests in a source file, which stand at its end."""
    at = text.find("import.meta.vitest")
    return text[at:].rstrip() if at >= 0 else ""


class _Item(NamedTuple):
    start: int
    end: int
    depth: int
    text: str


_SKIPPED = re.compile(
    r"//[^\n]*|(?:b|c)?r(#*)\"(?:.|\n)*?\"\1|(?:b|c)?\"(?:\\(?:.|\n)|[^\"\\])*\"|b?'(?:\\(?:u\{[0-9a-fA-F_]+\}|x..|.)|[^'\\\n])'"
)
"""Comments, texts and characters of Rust; a lifetime is no character."""
_TEST = re.compile(
    r"#\[(?:cfg\((?:test|all\((?:[^()]*,)?test[,)]|any\((?:[^()]*,)?test[,)])|(?:\w+::)*(?:test|bench|rstest|test_case|quickcheck"
    r"|wasm_bindgen_test|proptest|serial)(?:\]|\())"
)
_WHOLE = re.compile(r"^\s*#!\[cfg\(test\)\]", re.MULTILINE)


def _restore_rust_tests(old: str, new: str) -> str:
    if _WHOLE.search(old):
        return old
    before, now = [*_rust_test_items(old)], [*_rust_test_items(new)]
    if Counter(_rust_doctests(old)) - Counter(_rust_doctests(new)):
        raise ValueError("examples in comments have changed")
    if [item.text for item in before] == [item.text for item in now]:
        return new
    if any(item.depth for item in (*before, *now)):
        raise ValueError("tests inside of other modules have changed")
    rest, at = "", 0
    for item in now:
        rest, at = rest + new[at : item.start], item.end
    rest += new[at:]
    return "\n".join([rest, *(item.text for item in before), ""])


def _rust_doctests(text: str) -> Iterator[str]:
    """Yield the examples in Rust's documentation comments, which are tests, too."""
    comments = "\n".join(m[1] for m in re.finditer(r"^\s*//[/!] ?(.*)$", text, re.MULTILINE))
    yield from re.findall(
        r"^```(?:rust|should_panic|no_run|\w*)?\n(.*?)^```", comments, re.MULTILINE | re.DOTALL
    )


def _rust_test_items(text: str) -> Iterator[_Item]:
    """Yield the items that are only compiled for tests, from their first attribute to their end."""
    at, depth, pending, is_test = 0, 0, -1, False
    while at < len(text):
        if skipped := _end_of_literal(text, at):
            at = skipped
        elif text.startswith("#[", at):
            end = _end_of_bracket(text, at + 1, "[", "]")
            pending = at if pending < 0 else pending
            is_test = is_test or _TEST.match(re.sub(r"\s+", "", text[at:end])) is not None
            at = end
        elif text[at].isspace():
            at += 1
        elif is_test:
            end = _end_of_item(text, at)
            yield _Item(pending, end, depth, text[pending:end])
            at, pending, is_test = end, -1, False
        else:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at, pending = at + 1, -1


def _end_of_item(text: str, at: int) -> int:
    """Return where the item that begins here ends: behind a semicolon, or behind its braces."""
    inner = 0
    while at < len(text):
        if skipped := _end_of_literal(text, at):
            at = skipped
            continue
        sign = text[at]
        if sign in "([":
            inner += 1
        elif sign in ")]":
            inner -= 1
        elif sign == ";" and not inner:
            return at + 1
        elif sign == "{":
            end = _end_of_bracket(text, at, "{", "}")
            if not inner:
                return end
            at = end - 1
        at += 1
    raise ValueError("an item has no end")


def _end_of_bracket(text: str, at: int, opens: str, closes: str) -> int:
    """Return the place behind the bracket that closes the one here."""
    depth = 0
    while at < len(text):
        if skipped := _end_of_literal(text, at):
            at = skipped
            continue
        depth += {opens: 1, closes: -1}.get(text[at], 0)
        at += 1
        if not depth:
            return at
    raise ValueError(f"{opens!r} isn't closed")


def _end_of_literal(text: str, at: int) -> int:
    """Return the end of the comment, text or character that begins here; 0: none does."""
    if text.startswith("/*", at):
        depth, place = 0, at
        for found in re.compile(r"/\*|\*/").finditer(text, at):
            depth += 1 if found[0] == "/*" else -1
            place = found.end()
            if not depth:
                return place
        raise ValueError("a comment isn't closed")
    found = _SKIPPED.match(text, at)
    if found is None or (text[at] in "bcr" and at and (text[at - 1].isalnum() or text[at - 1] == "_")):
        return 0
    return found.end()
