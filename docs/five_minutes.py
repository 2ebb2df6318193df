"""five_minutes: a newcomer's first five minutes, recorded: `make pictures`.

A real `interlock` on a real terminal, from an empty home: the key, a first question, a first edit approved, and that
edit taken back. What is drawn is what stood on the screen. Only the model isn't real: a server on this machine that
speaks Gemini's protocol (`tests/fake_gemini/`) gives the replies below, so that it works offline and always alike.
"""

import re
import subprocess
import sys
import tempfile
import time
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
import demo  # noqa: E402 - beside this file
from fake_gemini.fake import FakeGemini  # noqa: E402 - beside the tests
from session.terminal import Terminal  # noqa: E402 - beside the tests

COLUMNS, ROWS, THEME = 100, 32, DIMMED_MONOKAI
KEY = "AIzaSy-not-a-real-key-0123456789"
QUESTION = "What is in this repository?"
FIX = "The test fails. Find out why, and fix it."
TEST = "python3 -m unittest"
ANSWER = """\
A small shop, in two files:

- `prices.py` has one function, `discount(price, percent)`.
- `test_prices.py` tests it with a quarter off 80.

Run its test with `python3 -m unittest`.
"""
DONE = "`discount` took a tenth for each percent, not a hundredth. One line changed: the test passes."
REPLIES: dict[str, Any] = {
    "rules": [
        {"match": {"schema": "next_speaker"}, "reply": '{"reasoning": "answered", "next_speaker": "user"}'},
        {"match": {"schema": "model_choice"}, "reply": '{"reasoning": "small", "model_choice": "flash"}'},
        {"match": {"last_user": "test of the connection"}, "reply": "ready"},
    ],
    "replies": [
        {
            "calls": [
                {"name": "read_file", "args": {"file_path": name}} for name in ("prices.py", "test_prices.py")
            ]
        },
        {"text": ANSWER, "chunks": 8},
        {"text": "Let me see it fail.", "calls": [{"name": "run_shell_command", "args": {"command": TEST}}]},
        {
            "text": "`discount` divides by 10 where it should divide by 100.",
            "calls": [
                {
                    "name": "replace",
                    "args": {
                        "file_path": "prices.py",
                        "old_string": "price * percent / 10",
                        "new_string": "price * percent / 100",
                        "instruction": "A percentage is a hundredth.",
                    },
                }
            ],
        },
        {"calls": [{"name": "run_shell_command", "args": {"command": TEST}}]},
        {"text": DONE, "chunks": 4},
    ],
}
_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}
"""pyte's names of colours, where rich has others."""


def main() -> None:
    """`five_minutes.py [FOLDER [COLUMNS [light]]]`: writes the pictures there; default: docs/pictures, 100, dark."""
    global COLUMNS, THEME
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "pictures"
    COLUMNS = int(sys.argv[2]) if len(sys.argv) > 2 else COLUMNS
    THEME = DEFAULT_TERMINAL_THEME if sys.argv[3:] == ["light"] else THEME
    with tempfile.TemporaryDirectory(prefix="five-minutes-") as folder, FakeGemini(REPLIES) as gemini:
        shop = made_shop(Path(folder))
        env = {"GOOGLE_GEMINI_BASE_URL": gemini.url, "COLORTERM": "truecolor"}
        with Terminal(shop, columns=COLUMNS, rows=ROWS, env=env) as terminal:
            first_start(terminal)
            first_question(terminal, target)
            first_edit(terminal, target)
            undo(terminal, target, shop)


def made_shop(folder: Path) -> Path:
    """A git repository with a failing test; the demo's."""
    demo.make_repository(folder / "shop")
    (folder / "shop" / ".gitignore").write_text("__pycache__/\n")
    return folder / "shop"


def first_start(terminal: Terminal) -> None:
    terminal.waits_for("Which one? [1]")
    terminal.press("enter")
    terminal.waits_for("Key (hidden):")
    terminal.type(f"{KEY}\r")
    terminal.waits_for("Model [auto")
    terminal.press("enter")
    terminal.waits_for("Stored: the key")
    terminal.waits_for("⎇")


def first_question(terminal: Terminal, target: Path) -> None:
    terminal.say(QUESTION)
    terminal.waits_for("Run its test with")
    rests(terminal)
    draw(terminal, target / "question.svg", "the first start, and a first question")


def first_edit(terminal: Terminal, target: Path) -> None:
    terminal.say(FIX)
    terminal.waits_for("[y] Yes")
    terminal.press("y")  # the command that runs the test
    terminal.waits_for("prices.py (+1")
    terminal.waits_for("[y] Yes")
    draw(terminal, target / "edit.svg", "a first edit, before it is made")
    terminal.press("y")
    terminal.waits_for("[y] Yes", gone=True)
    terminal.waits_for("[y] Yes")
    terminal.press("y")
    terminal.waits_for("test passes.")
    rests(terminal)
    passed = subprocess.run(TEST.split(), cwd=terminal.folder, capture_output=True, check=False)
    assert passed.returncode == 0, passed.stderr.decode()


def undo(terminal: Terminal, target: Path, shop: Path) -> None:
    terminal.say("/undo")
    terminal.waits_for("M prices.py")
    draw(terminal, target / "undo.svg", "and taken back")
    assert "percent / 10\n" in (shop / "prices.py").read_text()


def rests(terminal: Terminal) -> None:
    """The agent has ended: nothing turns any more."""
    terminal.waits_for("· ⎇")  # after the tokens, or what they cost
    while re.search("[⠀-⣿]", "\n".join(terminal.screen)):
        time.sleep(0.05)


def draw(terminal: Terminal, file: Path, title: str) -> None:
    """The screen as it is, as an SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(shown(terminal), end="")
    file.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title=f"interlock: {title}", theme=THEME, unique_id=file.stem)
    file.write_text(svg, encoding="utf-8")


def shown(terminal: Terminal) -> Text:
    """Text and styles of the screen, without the empty lines at its end."""
    with terminal._news:
        buffer = terminal._pyte.buffer
        lines = [line([buffer[y][x] for x in range(COLUMNS)]) for y in range(ROWS)]
    while lines and not lines[-1].plain:
        lines.pop()
    return Text("\n").join(lines)


def line(chars: list[Any]) -> Text:
    parts = groupby(chars, styled)
    text = Text.assemble(*(("".join(char.data for char in same), style) for style, same in parts))
    text.rstrip()
    return text


def styled(char: Any) -> Style:
    return Style(
        color=colour(char.fg),
        bgcolor=colour(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def colour(name: str) -> str | None:
    if name == "default":
        return None
    if (len(name) == 6 and not name.isalpha()) or set(name) <= set("abcdef0123456789"):
        return f"#{name}"
    name = _NAMES.get(name, name)
    return name.replace("bright", "bright_") if name.startswith("bright") and "_" not in name else name


if __name__ == "__main__":
    main()
