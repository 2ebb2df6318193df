"""markdown: streams an answer: finished blocks become lines once, the rest is a live tail."""

import re
from collections.abc import Sequence

from markdown_it.tree import SyntaxTreeNode
from rich.text import Text

from interlock.cli.session.markdown_layout import (
    MarkdownLayout,
    language_of_fence,
    needs_blank_line,
    parse_markdown_blocks,
)

LIMIT = 16_000
"""Characters of an unfinished block beyond which it is finished as it is, which keeps the work linear."""
_CHUNK, _CONTEXT = 12, 48
"""Lines of a code fence finished together, and lines before them that give the highlighter context."""
_SEEN = 6_000
"""Characters of unfinished text used for the tail."""
_GROWTH = 1.25
"""Factor by which a text must grow after a fruitless parse before it is parsed again."""
_BEGINS = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)]|```|~~~|#)")
"""A list item, a fence or a heading: what comes before it may be finished."""
_UNDECIDED = re.compile(r"\s*(?:[-=*_#>`~+|: ]+|\d+[.)]?)\s*")
"""The start of a line that can still become anything: shown once it is clear what it is."""
_CLOSED_BY_BLANK = {"paragraph", "table", "blockquote"}
_CLOSED_AT_ONCE = {"heading", "hr"}


class MarkdownStream:
    """Takes an answer in pieces. The result doesn't depend on how it was split."""

    def __init__(self, page: MarkdownLayout) -> None:
        self.page = page
        """May be replaced to change the width; finished lines stay as they are."""
        self._partial: list[str] = []
        self._partial_size = 0
        self._pending: list[str] = []
        self._size = 0
        self._next_try = 0.0
        self._before = ""
        """Type of the last finished block."""
        self._gap = False
        """A blank line has followed it."""
        self._number = 0
        """Number of the next item in a list whose first items are finished; 0: none."""
        self._fence: _OpenCodeFence | None = None

    def feed(self, text: str) -> list[Text]:
        shown: list[Text] = []
        *lines, rest = text.split("\n")
        for line in lines:
            shown += self._add_to_line(line)
            shown += self._feed_line(self._take_line())
        return shown + self._add_to_line(rest)

    def finish(self) -> list[Text]:
        shown = self._feed_line(self._take_line()) if self._partial_size else []
        if self._fence:
            shown += self._fence.finish_lines(self.page)
            self._fence = None
        return shown + self._finish_settled_blocks(final=True)

    def render_unfinished(self) -> list[Text]:
        """The unfinished text as it looks now; only the end of a long one."""
        self._partial = ["".join(self._partial)]
        partial = self._partial[0][-_SEEN:]
        if self._fence:
            return self._fence.render_unfinished(self.page, partial)
        lines: list[str] = []
        size = len(partial)
        for line in reversed(self._pending):
            size += len(line)
            if size > _SEEN:
                break
            lines.append(line)
        lines.reverse()
        if partial and not _UNDECIDED.fullmatch(partial):
            lines.append(partial)
        nodes = parse_markdown_blocks(lines)
        if not nodes:
            return []
        apart = bool(self._before) and (self._gap or needs_blank_line(self._before, nodes[0], lines))
        number = self._number if lines[:1] == self._pending[:1] else 0
        first = self.page.layout_block(nodes[0], lines, number)
        rest = self.page.layout_blocks(nodes[1:], lines)
        if rest and needs_blank_line(nodes[0].type, nodes[1], lines):
            rest.insert(0, Text(""))
        return [*([Text("")] if apart else []), *first, *rest]

    def _add_to_line(self, piece: str) -> list[Text]:
        """Add to an unfinished line; a very long one is split at a space."""
        shown: list[Text] = []
        while self._partial_size + len(piece) > LIMIT:
            room = LIMIT - self._partial_size
            self._partial.append(piece[:room])
            whole, piece = self._take_line(), piece[room:]
            at = whole.rfind(" ", LIMIT // 2) + 1 or len(whole)
            shown += self._feed_line(whole[:at])
            shown += self._force_finish_block()
            piece = whole[at:] + piece
        if piece:
            self._partial.append(piece)
            self._partial_size += len(piece)
        return shown

    def _take_line(self) -> str:
        line = "".join(self._partial)
        self._partial, self._partial_size = [], 0
        return line

    def _feed_line(self, line: str) -> list[Text]:
        if self._fence:
            shown = self._fence.feed_line(line, self.page)
            if self._fence.closed:
                self._fence, self._before, self._gap = None, "fence", False
            return shown
        after_blank = bool(self._pending) and not self._pending[-1].strip()
        self._pending.append(line)
        self._size += len(line) + 1
        decides = not line.strip() or after_blank or _BEGINS.match(line)
        if self._size > LIMIT:
            return self._finish_settled_blocks() + (self._force_finish_block() if self._size > LIMIT else [])
        return self._finish_settled_blocks() if decides and self._size >= self._next_try else []

    def _finish_settled_blocks(self, final: bool = False) -> list[Text]:
        """Finish the blocks that can't change any more; `final`: all of them."""
        lines, self._pending = self._pending, []
        nodes = parse_markdown_blocks(lines)
        shown: list[Text] = []
        for node in nodes[:-1]:
            shown += self._finish_block(node, lines)
        kept = len(lines)
        if nodes:
            more, kept = self._finish_last_block(nodes[-1], lines, final)
            shown += more
        if kept:
            self._gap = not lines[kept - 1].strip()
        rest = lines[kept:]
        if self._fence:
            self._size, self._next_try = 0, 0
            for line in rest:
                shown += self._feed_line(line)
            return shown
        self._pending = rest
        self._size = sum(len(line) + 1 for line in rest)
        self._next_try = self._size * _GROWTH
        return shown

    def _finish_last_block(
        self, node: SyntaxTreeNode, lines: Sequence[str], final: bool
    ) -> tuple[list[Text], int]:
        """The finished part of the last block, and the line its unfinished part starts on."""
        start = (node.map or (0, 0))[0]
        if node.type == "fence" and not final:
            shown = self._blank_line_above(node, lines)
            self._fence = _OpenCodeFence(lines[start], node)
            shown += [Text(lines[start].strip(), "dim")] if self.page.should_show_fences() else []
            return shown, start + 1
        blank = not lines[-1].strip()
        if final or node.type in _CLOSED_AT_ONCE or (blank and node.type in _CLOSED_BY_BLANK):
            return self._finish_block(node, lines), len(lines)
        if node.type in ("bullet_list", "ordered_list") and len(node.children) > 1:
            return self._finish_all_but_last_item(node, lines)
        return [], start

    def _finish_all_but_last_item(self, node: SyntaxTreeNode, lines: Sequence[str]) -> tuple[list[Text], int]:
        last = (node.children[-1].map or (0, 0))[0]
        if lines[last].startswith("    "):
            return [], (node.map or (0, 0))[0]  # alone it would be code
        number = self._number or int(str(node.attrs.get("start", 1)))
        shown = self._finish_block(parse_markdown_blocks(lines[:last])[-1], lines)
        self._number = number + len(node.children) - 1
        return shown, last

    def _finish_block(self, node: SyntaxTreeNode, lines: Sequence[str]) -> list[Text]:
        shown = self._blank_line_above(node, lines)
        shown += self.page.layout_block(node, lines, self._number)
        self._number = 0
        return shown

    def _blank_line_above(self, node: SyntaxTreeNode, lines: Sequence[str]) -> list[Text]:
        """The blank line above a block, if it needs one."""
        at = (node.map or (0, 0))[0]
        goes_on = self._number > 0
        before, self._before = self._before, node.type
        gap = (self._gap and not any(line.strip() for line in lines[:at])) or (
            at > 0 and not lines[at - 1].strip()
        )
        close = {before, node.type} <= {"paragraph", "bullet_list", "ordered_list"}
        return [Text("")] if before and (gap or not (goes_on or close)) else []

    def _force_finish_block(self) -> list[Text]:
        """Finish a block that is too long; a table's head is kept, and repeated above what follows."""
        lines = self._pending
        shown = self._finish_settled_blocks(final=True)
        nodes = parse_markdown_blocks(lines[:2]) if len(lines) > 2 else []
        if nodes and nodes[-1].type == "table":
            self._pending = [*lines[:2]]
            self._size = sum(len(line) + 1 for line in self._pending)
        self._gap = False
        return shown


class _OpenCodeFence:
    """An open code block: its lines can't change any more."""

    def __init__(self, opening: str, node: SyntaxTreeNode) -> None:
        self._indent = len(opening) - len(opening.lstrip(" "))
        self._close = re.compile(rf" {{0,3}}{re.escape(node.markup[0])}{{{len(node.markup)},}}[ \t]*")
        self._language = language_of_fence(node.info)
        self._lines: list[str] = []
        self._context: list[str] = []
        self.closed = False

    def feed_line(self, line: str, layout: MarkdownLayout) -> list[Text]:
        if self._close.fullmatch(line):
            self.closed = True
            return [
                *self.finish_lines(layout),
                *([Text(line.strip(), "dim")] if layout.should_show_fences() else []),
            ]
        self._lines.append(self._dedent(line))
        return self.finish_lines(layout) if len(self._lines) >= _CHUNK else []

    def finish_lines(self, layout: MarkdownLayout) -> list[Text]:
        """Finish the pending lines."""
        shown = self._highlight_lines(layout, self._lines)
        self._context = [*self._context, *self._lines][-_CONTEXT:]
        self._lines = []
        return shown

    def render_unfinished(self, layout: MarkdownLayout, partial: str) -> list[Text]:
        last = [self._dedent(partial)] if partial and not self._close.fullmatch(partial) else []
        return self._highlight_lines(layout, [*self._lines, *last])

    def _highlight_lines(self, layout: MarkdownLayout, lines: Sequence[str]) -> list[Text]:
        return layout.highlight_code([*self._context, *lines], self._language, len(self._context))

    def _dedent(self, line: str) -> str:
        spaces = len(line) - len(line.lstrip(" "))
        return line[min(self._indent, spaces) :]
