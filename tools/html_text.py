"""html_text: convert HTML to readable text. A separate program (stdin to stdout), so that hostile pages can be killed.

Argument 1: the page's URL, for resolving relative links. First line printed: the title.
"""

import codecs
import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "canvas", "object"})
_PARAGRAPHS = frozenset({"blockquote", "dl", "figure", "ol", "p", "pre", "table", "ul"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_LINES = frozenset(
    {"address", "article", "aside", "body", "details", "dd", "div", "dt", "fieldset", "figcaption", "footer"}
    | {"form", "header", "hr", "li", "main", "nav", "section", "summary", "tr"}
)
"""Tags that start a line; `_PARAGRAPHS` and `_HEADINGS` also add a blank one."""
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_SNIFFED = 4096


class HtmlTextParser(HTMLParser):
    """Collects text: headings as `#`, items as `-`, links as `[text](address)`, `pre` verbatim."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self._parts: list[str] = []
        self._skipped: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._pre = 0
        self._in_title = False
        self._title: list[str] = []

    @property
    def title(self) -> str:
        return " ".join("".join(self._title).split())

    def rendered_text(self) -> str:
        """Return the text of all that was fed, without more than one blank line in a row."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = not self._title
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            self._parts.append(" | " if not self._is_at_line_start() else "")
        elif tag == "img" and (alt := dict(attrs).get("alt")):
            self._append_text(f"[image: {alt}]")
        elif tag == "a":
            self._links.append((dict(attrs).get("href") or "", len(self._parts)))
        else:
            self._break_line_for_block_tag(tag)
            self._pre += tag == "pre"
            if tag == "li":
                self._parts.append("- ")
            elif tag in _HEADINGS:
                self._parts.append("#" * int(tag[1]) + " ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._skipped:
            del self._skipped[self._skipped.index(tag) :]
        elif self._skipped:
            return
        elif tag == "a" and self._links:
            self._close_link(*self._links.pop())
        else:
            self._pre = max(0, self._pre - (tag == "pre"))
            self._break_line_for_block_tag(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._skipped:
            self._append_text(data)

    def _append_text(self, data: str) -> None:
        if self._pre:
            self._parts.append(data)
            return
        text = " ".join(data.split())
        if not text:
            self._append_space()
            return
        if data[0].isspace():
            self._append_space()
        self._parts.append(text)
        if data[-1].isspace():
            self._append_space()

    def _append_space(self) -> None:
        """Append a space unless one, or a line's start, is there."""
        if not self._is_at_line_start() and not self._parts[-1].endswith(" "):
            self._parts.append(" ")

    def _is_at_line_start(self) -> bool:
        return not self._parts or self._parts[-1].endswith("\n") or not self._parts[-1]

    def _break_line_for_block_tag(self, tag: str) -> None:
        """Start a line, and leave a blank one, if the tag does."""
        blank = tag in _PARAGRAPHS or tag in _HEADINGS
        if (blank or tag in _LINES) and not self._is_at_line_start():
            self._parts.append("\n")
        if blank and self._parts:
            self._parts.append("\n")

    def _close_link(self, href: str, start: int) -> None:
        label = "".join(self._parts[start:]).strip()
        if not label or not href or href.startswith(("#", "javascript:", "data:", "mailto:")):
            return
        space = " " if self._parts[-1].endswith(" ") else ""
        self._parts[start:] = [
            f"[{label}]({_resolve_link(self._address, href)})",
            *([space] if space else []),
        ]


def _resolve_link(address: str, href: str) -> str:
    """Return a link's absolute address; the link itself if it isn't a URL."""
    try:
        return urljoin(address, href)
    except ValueError:  # not a URL
        return href


def decode_html(data: bytes, charset: str) -> str:
    """Decode using the server's charset, else the page's own, else UTF-8."""
    named = _CHARSET.search(data[:_SNIFFED])
    return decode_with_charsets(data, charset, named[1].decode("ascii") if named else "")


_NO_CHARSETS = frozenset({"idna", "punycode", "undefined"})
"""Codecs of Python that are none of text; one takes quadratic time."""


def decode_with_charsets(data: bytes, *charsets: str) -> str:
    """Decode using the first name that is a charset, else UTF-8."""
    for name in charsets:
        try:
            if codecs.lookup(name).name not in _NO_CHARSETS:
                return data.decode(name, "replace")
        except (LookupError, ValueError):  # ValueError: NUL in the name
            continue
    return data.decode("utf-8-sig", "replace")


def main(address: str, charset: str) -> None:
    """Print title and text of the HTML on stdin."""
    page = HtmlTextParser(address)
    page.feed(decode_html(sys.stdin.buffer.read(), charset))
    page.close()
    text = f"{page.title}\n{page.rendered_text()}\n"
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
