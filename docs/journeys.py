"""journeys: README's three ways to start, recorded as terminal casts and timed: `make pictures`.

A real shell on a real terminal, in an empty home, gets the lines that README shows, one after the other. Each
recording is a file `NAME.cast` in version 2 of asciicast (`asciinema play FILE`). A server on this machine stands for
the model, and a file for `crontab`; everything else is real. Prints how long each journey took, without the
installation.
"""

import codecs
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from typing_extensions import override

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
import five_minutes  # noqa: E402 - beside this file
from fake_gemini.fake import FakeGemini  # noqa: E402 - beside the tests
from session.terminal import ENTRY, Terminal  # noqa: E402 - beside the tests

COLUMNS, ROWS, PROMPT = 100, 30, "$ "
README = (HERE.parent / "README.md").read_text(encoding="utf-8")


class RecordedTerminal(Terminal):
    """A shell whose output is kept with the second at which it came."""

    def __init__(self, folder: Path, programs: Path, **env: str) -> None:
        path = f"{programs}:{ENTRY.parent}:{os.environ['PATH']}"
        super().__init__(
            folder,
            columns=COLUMNS,
            rows=ROWS,
            env={"PATH": path, "PS1": PROMPT, "COLORTERM": "truecolor", **env},
            command=("bash", "--norc", "-i"),
        )
        self.begun = time.monotonic()
        self.pieces: list[tuple[float, str]] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @override
    def _more(self) -> bytes:
        data = super()._more()
        if text := self._decoder.decode(data):
            self.pieces.append((self.seconds, text))
        return data

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def wait_for_prompt(self, number: int) -> None:
        """Wait until the shell has shown its prompt so many times, and stands at the last one."""

        def is_ready() -> bool:
            prompts = [line for line in self.scrollback if line.startswith(PROMPT.strip())]
            return len(prompts) == number and prompts[-1] == PROMPT.strip()

        assert self._comes(is_ready), "\n".join(self.scrollback)

    def write_cast(self, file: Path, title: str) -> None:
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title}
        lines = [header, *([round(at, 3), "o", text] for at, text in self.pieces)]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8"
        )


def read_journey(heading: str) -> tuple[list[str], dict[str, str]]:
    """Return the command lines of a section of README, and its Python files by name."""
    section = README.partition(f"### {heading}\n")[2].partition("\n##")[0]
    block = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[0]
    files = re.findall(r"^```python\n# file: (\S+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [line for line in block.splitlines() if not line.startswith("# ")], dict(files)


def record_repair(target: Path, folder: Path) -> str:
    """Give a key, let a failing test be repaired, and approve the edit."""
    (line,), _ = read_journey("Repair something in your repository")
    shop = five_minutes.made_shop(folder)
    replies = {**five_minutes.REPLIES, "replies": five_minutes.REPLIES["replies"][2:]}
    with (
        FakeGemini(replies) as gemini,
        RecordedTerminal(shop, folder, GOOGLE_GEMINI_BASE_URL=gemini.url) as terminal,
    ):
        terminal.wait_for_prompt(1)
        terminal.type(f"{line}\r")
        five_minutes.first_start(terminal)
        terminal.waits_for("[y]")
        first = terminal.seconds
        for _ in range(3):  # a command, the edit, the command again
            terminal.waits_for("[y]")
            terminal.press("y")
            terminal.waits_for("[y]", gone=True)
        terminal.waits_for("test passes.")
        five_minutes.rests(terminal)
        terminal.press("c-d")
        terminal.waits_for_line(rf"{re.escape(PROMPT.strip())}$")
        terminal.write_cast(target / "repair.cast", "Interlock: repair a failing test")
        assert "percent / 100\n" in (shop / "prices.py").read_text()
        return f"first request after {first:.0f} s, done after {terminal.seconds:.0f} s"


def record_commands(target: Path, folder: Path, heading: str, name: str, shown: str) -> str:
    """Run the lines of a journey one after the other, each when the shell is ready."""
    lines, files = read_journey(heading)
    (work := folder / "work").mkdir()
    for file, code in files.items():
        (work / file).write_text(code)
    crontab = folder / "crontab"
    crontab.write_text(f"#!/bin/sh\ncase $1 in -l) cat {folder}/kept ;; -) cat > {folder}/kept ;; esac\n")
    crontab.chmod(0o700)
    with RecordedTerminal(work, folder) as terminal:
        for number, line in enumerate(lines, 1):
            terminal.wait_for_prompt(number)
            terminal.type(f"{line}\r")
        terminal.wait_for_prompt(len(lines) + 1)
        assert shown in "\n".join(terminal.scrollback), terminal.scrollback
        terminal.write_cast(target / f"{name}.cast", f"Interlock: {heading.lower()}")
        return f"done after {terminal.seconds:.0f} s"


def main() -> None:
    """`journeys.py [FOLDER]`: writes the casts there; default: docs/pictures."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "pictures"
    graph, cron = "Let your LangGraph graph wait for an approval", "Run your own workflow from cron"
    for name, record in (
        ("repair", lambda folder: record_repair(target, folder)),
        ("graph", lambda folder: record_commands(target, folder, graph, "graph", "yes")),
        ("cron", lambda folder: record_commands(target, folder, cron, "cron", "triage")),
    ):
        with tempfile.TemporaryDirectory(prefix="journey-") as folder:
            print(f"{name}: {record(Path(folder))}")


if __name__ == "__main__":
    main()
