"""output: what every command writes with: colours, one-line texts, figures, tables, JSON. Imports little."""

import os
import re
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO, cast

from interlock.services.process.stdout import original_stdout
from interlock.state.clock import unix_time
from interlock.state.text import abbreviate_home as abbreviate_home
from interlock.state.text import format_compact_number as format_compact_number
from interlock.state.text import format_count as format_count
from interlock.state.text import format_diff_stat as format_diff_stat
from interlock.state.text import format_duration as format_duration
from interlock.state.text import is_diff as is_diff
from interlock.state.text import make_visible, sanitize_for_terminal, to_visible_json
from interlock.state.text import shorten as shorten
from interlock.state.text import to_one_line as to_one_line

if TYPE_CHECKING:
    from interlock.state.events import NotificationEvent

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "reverse": "7"}
DECISION_COLOURS = {"none": "dim", "allow": "green", "ask": "yellow", "deny": "red", "block": "red"}
CHANGE_COLOURS = {"A": "green", "M": "yellow", "D": "red"}
"""Colours of decisions and file changes."""
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles that programs send to a terminal."""

_CODE = "|".join(_CODES.values())
_OURS = re.compile(rf"(\x1b\[(?:(?:{_CODE})(?:;(?:{_CODE}))*|0)m)")


_page: ContextVar[tuple[TextIO, TextIO] | None] = ContextVar("page", default=None)


@contextmanager
def redirect_output(results: TextIO, remarks: TextIO) -> Generator[None]:
    """Let the commands called in this context write their results and remarks there; nobody can be asked."""
    token = _page.set((results, remarks))
    try:
        yield
    finally:
        _page.reset(token)


def result_paint() -> "Paint":
    """Where a command's result goes: stdout, or the page of whoever called it."""
    return Paint(_result_stream())


def _result_stream() -> TextIO:
    page = _page.get()
    return page[0] if page else original_stdout()


def remark_paint() -> "Paint":
    """Where a command's remarks go: stderr, or the page of whoever called it."""
    page = _page.get()
    return Paint(page[1] if page else sys.stderr)


def command_input() -> TextIO | None:
    """What a command reads; None: there is nobody and nothing to read."""
    return None if _page.get() else sys.stdin


class Paint:
    """Colours for one stream; none unless it is a terminal (`NO_COLOR` and `TERM=dumb` turn them off there)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.has_colours = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def __call__(self, text: str, *styles: str) -> str:
        if not self.has_colours or not text:
            return text
        return f"\x1b[{';'.join(_CODES[s] for s in styles)}m{text}\x1b[0m"

    def print_line(self, line: str = "", *, keep_newlines: bool = False) -> None:
        """Write one line; control characters are escaped, except our own colours.

        `keep_newlines`: the text has several lines, and only harmful characters are escaped.
        """
        parts = _OURS.split(line) if self.has_colours else [line]
        shown = [
            sanitize_for_terminal(p) if keep_newlines else make_visible(p).replace("\n", "\\n")
            for p in parts[::2]
        ]
        colours = [*parts[1::2], ""]
        self._stream.write("".join(t + c for t, c in zip(shown, colours, strict=True)) + "\n")

    def print_lines(self, lines: Iterable[str], *, keep_newlines: bool = False) -> None:
        for line in lines:
            self.print_line(line, keep_newlines=keep_newlines)

    @property
    def width(self) -> int:
        """Columns; 100 where there is no terminal."""
        return shutil.get_terminal_size((100, 24)).columns if self.is_terminal else 100


def strip_codes_and_overwritten_text(output: str) -> str:
    """A line of a program's output without colours; if it overwrites itself, its last state."""
    return sanitize_for_terminal(_SEQUENCE.sub("", output).rstrip("\r").rpartition("\r")[2])


def format_age(timestamp: float) -> str:
    """How long ago; `timestamp` is Unix time."""
    seconds = max(unix_time() - timestamp, 0)
    return "just now" if seconds < 10 else f"{format_duration(seconds)} ago"


def format_dollars(usd: float | None) -> str:
    """`—`: unknown."""
    return "—" if usd is None else f"${usd:.2f}" if usd >= 1 or not usd else f"${usd:.4f}"


def format_node_path(path: Iterable[tuple[str, int]]) -> str:
    """`turn → tools ×2 → turn`."""
    return " → ".join(node if times == 1 else f"{node} ×{times}" for node, times in path)


_NARROW = 10
"""Columns that a cut column of a table keeps."""


def print_table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    flexible: Sequence[int] = (-1,),
    max_width_in_pipe: int | None = None,
) -> None:
    """Aligned columns on stdout, as `table_lines` makes them."""
    paint = result_paint()
    paint.print_lines(table_lines(rows, header, flexible, max_width_in_pipe, paint=paint))


def table_lines(
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    flexible: Sequence[int] = (-1,),
    max_width_in_pipe: int | None = None,
    *,
    paint: Paint,
) -> Iterator[str]:
    """Aligned columns; on a terminal, the `flexible` ones are cut, in order, so that a row fits one line.

    `max_width_in_pipe`: the width that rows have to fit where there is no terminal; None: any.
    """
    table = [
        [make_visible(cell).replace("\n", " ") for cell in row]
        for row in ([header] if header else []) + list(rows)
    ]
    if not table:
        return
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    most = paint.width if paint.is_terminal else max_width_in_pipe
    for column in flexible if most else ():
        over = sum(widths) + 2 * (len(widths) - 1) - (most or 0)
        widths[column] = max(widths[column] - max(over, 0), min(widths[column], _NARROW))
    for number, row in enumerate(table):
        cells = [f"{shorten(cell, width):<{width}}" for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        yield paint(line, "dim") if header and number == 0 else line


def write_json(value: Any, indent: int | None = None) -> None:
    """One JSON value and a line end, in one write."""
    stream = _result_stream()
    stream.write(to_visible_json(value, indent) + "\n")
    stream.flush()


def print_json(value: Any) -> None:
    write_json(value, 2)


def json_to_readable_lines(value: Any) -> list[str]:
    """A JSON value in lines for people: `name: value`, deeper parts indented, texts with their own lines.

    Without names that have no value.
    """
    if isinstance(value, Mapping):
        parts = cast(Mapping[str, Any], value).items()
        return [
            line for name, part in parts if part not in (None, "") for line in _named_value_lines(name, part)
        ]
    if isinstance(value, list):
        each = map(json_to_readable_lines, cast(list[Any], value))
        return [("  " if at else "- ") + line for lines in each for at, line in enumerate(lines)]
    return value.splitlines() if isinstance(value, str) else [to_visible_json(value)]


def _named_value_lines(name: str, part: Any) -> list[str]:
    lines = ["none"] if part in ([], {}) else json_to_readable_lines(part)
    if len(lines) == 1 and not (isinstance(part, (list, dict)) and part):
        return [f"{name}: {lines[0]}"]
    return [f"{name}:", *("  " + line for line in lines)]


def print_warnings(warnings: Iterable[str]) -> None:
    for line in warnings:
        remark_paint().print_line(f"warning: {to_one_line(line)}")


def redirect_stdout_to_null() -> None:
    """Redirect stdout to nowhere once its reader is gone (`| head`), so that Python's flush at exit can't fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), original_stdout().fileno())


def redact_secrets(text: str) -> str:
    """Redact secrets: errors quote settings, URLs and servers' responses; headlines quote the prompt."""
    from interlock.services.secrets.environment import secret_variables
    from interlock.services.secrets.redaction import Redactor

    return Redactor(secret_variables(os.environ))(text)


def notify_terminal(event: "NotificationEvent", stream: TextIO) -> None:
    """Notify that a run waits, by the bell or a desktop notification (OSC 9 or 777); on a terminal only."""
    if not stream.isatty():
        return
    title, message = (make_visible(" ".join(text.split())) for text in (event.title, event.message))
    sequences = {
        "bell": "\a",
        "osc9": f"\x1b]9;{title}: {message}\a",
        "osc777": f"\x1b]777;notify;{title.replace(';', ',')};{message.replace(';', ',')}\a",
    }
    stream.write("".join(sequences[way] for way in event.ways))
    stream.flush()
