"""heredoc: where a here-document ends, found without the parser, to compare with what it found."""

from typing import TYPE_CHECKING

from interlock.services.shell.words import read_word

if TYPE_CHECKING:
    from tree_sitter import Node


def quoted(delimiter: str) -> bool:
    """Nothing in the body is expanded."""
    return any(c in delimiter for c in "'\"\\")


def heredoc_problem(text: str, node: "Node") -> str | None:
    """Why bash may read another body than the parser did; None: both agree."""
    parts = {child.type: child for child in node.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    if start is None or end is None:
        return "a here-document without its end"
    source = text[start.start_byte : start.end_byte]
    word = read_word(text, start.start_byte, start.end_byte, {})
    if word is None or not word.literal:
        return "a here-document whose end can't be read"
    if text[start.end_byte : start.end_byte + 1] not in ("", *" \t\n;|&<>()"):
        return "a here-document whose end isn't read in full"
    strip = "<<-" in parts
    if _end_of(text, start.end_byte, word.text, strip) != end.start_byte + _tabs(text, end.start_byte):
        return "a here-document that ends elsewhere"
    body = parts.get("heredoc_body")
    if body is not None and not quoted(source) and "\\\n" in text[body.start_byte : body.end_byte]:
        return "a here-document with joined lines"
    return None


def _tabs(text: str, at: int) -> int:
    return len(text[at:]) - len(text[at:].lstrip("\t"))


def _end_of(text: str, after: int, delimiter: str, strip: bool) -> int | None:
    """Offset of the line that is the delimiter, tabs before it left out; the body starts on the next line."""
    at = text.find("\n", after) + 1
    while at > 0:
        close = text.find("\n", at)
        line = text[at : close if close >= 0 else len(text)]
        if (line.lstrip("\t") if strip else line) == delimiter:
            return at + (_tabs(text, at) if strip else 0)
        at = close + 1
    return None
