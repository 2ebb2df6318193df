"""markdown_layout: lays out parsed Markdown as terminal lines; long lines of code are left for the terminal to wrap."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from pygments.util import ClassNotFound
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text

from interlock.state.text import make_visible, sanitize_for_terminal

_ANSI = ANSISyntaxTheme(
    {
        Token: Style(),
        Comment: Style(dim=True, italic=True),
        Keyword: Style(color="magenta"),
        Keyword.Constant: Style(color="cyan"),
        Operator.Word: Style(color="magenta"),
        Name.Builtin: Style(color="cyan"),
        Name.Function: Style(bold=True),
        Name.Class: Style(bold=True),
        Name.Decorator: Style(color="yellow"),
        Name.Tag: Style(color="magenta"),
        Name.Attribute: Style(color="yellow"),
        String: Style(color="green"),
        Number: Style(color="cyan"),
    }
)
_CLOSE = {"paragraph", "bullet_list", "ordered_list"}
"""Blocks that follow each other without a blank line, unless the source has one."""
_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_RULE = 40
_WORD = re.compile(r"\S+\s*|\s+")
_ALIGN = re.compile(r"text-align:(left|right|center)")


@cache
def _markdown_parser() -> MarkdownIt:
    """Without reference links: the end of an answer can't change its beginning, and no text disappears."""
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return made.disable("reference")


def parse_markdown_blocks(lines: Sequence[str]) -> list[SyntaxTreeNode]:
    """The text's blocks, each with its source lines (`map`)."""
    return SyntaxTreeNode(_markdown_parser().parse("\n".join(lines))).children


class MarkdownLayout:
    """Lays out blocks at a given width."""

    def __init__(self, console: Console, width: int, code_style: str) -> None:
        """`code_style`: the Pygments style of code, `ansi`, or empty."""
        self._console, self._width, self._code_style = console, width, code_style

    def layout_blocks(self, nodes: Sequence[SyntaxTreeNode], source: Sequence[str]) -> list[Text]:
        """Lines of consecutive blocks, with the blank lines between them."""
        return self._layout_sequence(nodes, source, self._width)

    def layout_block(self, node: SyntaxTreeNode, source: Sequence[str], first_number: int = 0) -> list[Text]:
        """`first_number`: replaces the number of a list's first item."""
        return self._layout_node(node, source, self._width, first_number)

    def highlight_code(self, lines: Sequence[str], language: str, skip: int = 0) -> list[Text]:
        """Highlighted lines, without the first `skip` ones, which only give context."""
        lexer = _find_lexer(language) if self._code_style and language else None
        if lexer is None:
            return [Text(line) for line in lines[skip:]]
        theme = _ANSI if self._code_style == "ansi" else Syntax.get_theme(self._code_style)
        shown = Text()
        for kind, text in lexer.get_tokens("\n".join(lines)):
            shown.append(text, _drop_background(theme.get_style_for_token(kind)))
        made = [*shown.split("\n", allow_blank=True)]
        # A line stays uncoloured if the lexer changed its text.
        return [
            made[n] if n < len(made) and made[n].plain == lines[n] else Text(lines[n])
            for n in range(skip, len(lines))
        ]

    def should_show_fences(self) -> bool:
        """Whether to show fences, because nothing else marks code."""
        return not self._code_style

    def _layout_sequence(
        self, nodes: Sequence[SyntaxTreeNode], source: Sequence[str], width: int
    ) -> list[Text]:
        shown: list[Text] = []
        for index, node in enumerate(nodes):
            if index and needs_blank_line(nodes[index - 1].type, node, source):
                shown.append(Text(""))
            shown += self._layout_node(node, source, width)
        return shown

    def _layout_node(
        self, node: SyntaxTreeNode, source: Sequence[str], width: int, first_number: int = 0
    ) -> list[Text]:
        match node.type:
            case "paragraph" | "heading":
                style = "heading" if node.type == "heading" else ""
                return self._wrap_text(_inline_text(node, style), width)
            case "bullet_list" | "ordered_list":
                return self._layout_list(node, source, width, first_number)
            case "blockquote":
                inner = self._layout_sequence(node.children, source, width - 2)
                return [Text.assemble(("│ ", "dim"), line) for line in inner]
            case "fence" | "code_block":
                return self._layout_code_block(node)
            case "hr":
                return [Text("─" * min(width, _RULE), "dim")]
            case "table":
                return self._layout_table(node, width)
            case _:
                return self._wrap_text(Text(node.content if node.type == "inline" else ""), width)

    def _layout_list(
        self, node: SyntaxTreeNode, source: Sequence[str], width: int, first_number: int
    ) -> list[Text]:
        shown: list[Text] = []
        first = first_number or int(str(node.attrs.get("start", 1)))
        for index, item in enumerate(node.children):
            mark = "• " if node.type == "bullet_list" else f"{first + index}. "
            if index and needs_blank_line(item.type, item, source):
                shown.append(Text(""))
            lines = self._layout_sequence(item.children, source, width - len(mark)) or [Text("")]
            shown.append(Text.assemble((mark, "accent"), lines[0]))
            shown += [Text(" " * len(mark)).append_text(line) if line else line for line in lines[1:]]
        return shown

    def _layout_code_block(self, node: SyntaxTreeNode) -> list[Text]:
        lines = node.content.removesuffix("\n").split("\n") if node.content else []
        language = language_of_fence(node.info) if node.type == "fence" else ""
        shown = self.highlight_code(lines, language)
        if self.should_show_fences() and node.type == "fence":
            return [Text(f"{node.markup}{node.info}", "dim"), *shown, Text(node.markup, "dim")]
        return shown

    def _layout_table(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, border_style="dim")
        head, *body = node.children
        for cell in head.children[0].children:
            align = _ALIGN.search(str(cell.attrs.get("style", "")))
            justify = align[1] if align else "left"
            table.add_column(_inline_text(cell, "strong"), justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
        for row in body[0].children if body else ():
            table.add_row(*(_inline_text(cell) for cell in row.children))
        options = self._console.options.update(width=max(width, 1))
        rows = self._console.render_lines(table, options, pad=False)
        return [_text_from_segments(row) for row in rows]

    def _wrap_text(self, text: Text, width: int) -> list[Text]:
        return [
            part for line in text.split("\n", allow_blank=True) for part in _wrap_line(line, max(width, 1))
        ]


def _wrap_line(line: Text, width: int) -> Iterator[Text]:
    """Wrap at spaces. A word longer than a line stays whole: the terminal wraps it, and it can be copied."""
    line.expand_tabs(4)
    breaks: list[int] = []
    used = 0
    for word in _WORD.finditer(line.plain):
        cells = cell_len(word[0].rstrip())
        if used and used + cells > width:
            breaks.append(word.start())
            used = 0
        used += cells + len(word[0]) - len(word[0].rstrip())
    for part in line.divide(breaks):
        part.rstrip()
        yield part


def strip_controls(line: Text) -> Text:
    """The line without control characters that a terminal would obey."""
    plain = sanitize_for_terminal(line.plain)
    return line if plain == line.plain else Text(plain, line.style)


def line_to_ansi(line: Text, console: Console) -> Iterator[str]:
    """The line as ANSI text with its line end, whole however long it is."""
    if "\t" in line.plain:
        line = line.copy()
        line.expand_tabs(4)
    system = _SYSTEMS[console.color_system or "standard"]
    if not line.spans:  # rich drops the style of a text without spans
        line = Text.assemble((line.plain, line.style))
    for text, style, _ in line.render(console, "\n"):
        if not style:
            yield text
        else:
            yield (style.without_color if console.no_color else style).render(text, color_system=system)


@cache
def _find_lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


@cache
def _drop_background(style: Style) -> Style:
    """The style without a background, which would end with the text instead of the line."""
    return Style(
        color=style.color, bold=style.bold, italic=style.italic, underline=style.underline, dim=style.dim
    )


def language_of_fence(info: str) -> str:
    """The first word of a fence's info string: `python` of `python title="x"` or `{.python}`."""
    return next(iter(info.strip().strip("{}").lstrip(".").replace(",", " ").split()), "")


def needs_blank_line(previous_type: str, node: SyntaxTreeNode, source: Sequence[str]) -> bool:
    """Whether a blank line separates a block from the one before it."""
    at = (node.map or (0, 0))[0]
    written = at > 0 and not source[at - 1].strip(" \t>")
    return written or (node.type != "list_item" and not {previous_type, node.type} <= _CLOSE)


def wrap_with_hanging_indent(line: Text, width: int) -> Iterator[Text]:
    """Wrap at spaces; continuation lines are indented two more than the line itself."""
    line = line.copy()
    line.expand_tabs(4)
    if line.cell_len <= width:
        yield line
        return
    indent = min(len(line.plain) - len(line.plain.lstrip(" ")), width // 2)
    for number, part in enumerate(_wrap_line(line[indent:], width - indent - 2)):
        yield Text(" " * (indent + 2 * bool(number))).append_text(part)


def fold_line(text: Text, width: int) -> list[Text]:
    """Split the line the way a terminal of this width wraps it."""
    text = text.copy()
    text.expand_tabs(4)
    if text.cell_len <= width:
        return [text]
    ends: list[int] = []
    for piece in chop_cells(text.plain, width):
        ends.append((ends[-1] if ends else 0) + len(piece))
    return list(text.divide(ends[:-1]))


def _text_from_segments(row: Sequence[Segment]) -> Text:
    text = Text.assemble(*((segment.text, segment.style or "") for segment in row))
    text.rstrip()
    return text


def _inline_text(node: SyntaxTreeNode, style: str = "") -> Text:
    text = Text(style=style)
    for child in node.children:
        for content, kind in (
            _node_pieces(child, Style()) if child.type != "inline" else _child_pieces(child, Style())
        ):
            text.append(content, kind)
    return text


def _child_pieces(node: SyntaxTreeNode, style: Style | str) -> Iterator[tuple[str, Style | str]]:
    for child in node.children:
        yield from _node_pieces(child, style)


_INLINE = {"em": Style(italic=True), "strong": Style(bold=True), "s": Style(strike=True)}


def _node_pieces(node: SyntaxTreeNode, style: Style | str) -> Iterator[tuple[str, Style | str]]:
    match node.type:
        case "em" | "strong" | "s":
            yield from _child_pieces(node, style + _INLINE[node.type] if isinstance(style, Style) else style)
        case "code_inline":
            yield node.content, "code"
        case "softbreak" | "hardbreak":
            yield "\n", style
        case "link":
            yield from _link_pieces(node, style)
        case "image":
            yield f"[image: {node.content}] ({_visible_url(node, 'src')})", style
        case _:
            yield node.content, style


def _link_pieces(node: SyntaxTreeNode, style: Style | str) -> Iterator[tuple[str, Style | str]]:
    """Link text followed by its address, so that nobody is misled about where it leads."""
    words = [*_child_pieces(node, style)]
    yield from ((text, "link") for text, _ in words)
    url = _visible_url(node, "href")
    if url and url not in ("".join(text for text, _ in words), f"mailto:{words[0][0] if words else ''}"):
        yield f" ({url})", "dim"


def _visible_url(node: SyntaxTreeNode, attribute: str) -> str:
    return make_visible(str(node.attrs.get(attribute, "")))
