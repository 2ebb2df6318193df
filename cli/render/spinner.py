"""spinner: one moving line on a terminal: what runs, for how long, how many tokens so far."""

import time
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from interlock.cli.render.output import amount, elapsed


class Progress:
    """Shown between lines of output; hidden while text streams. Called from one thread."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._started = time.monotonic()
        self.node = "starting"
        self.detail = ""
        self.tokens = 0

    def __rich__(self) -> Spinner:
        parts = [self.node, elapsed(time.monotonic() - self._started)]
        if self.tokens:
            parts.append(f"{amount(self.tokens)} tokens")
        text = " · ".join([*parts, self.detail] if self.detail else parts)
        line = Text(text, style="dim", no_wrap=True, overflow="ellipsis", end="")
        line.truncate(max(self._console.width - 4, 10), overflow="ellipsis")
        self._spinner.update(text=line)
        return self._spinner

    def show(self) -> None:
        if self._live is None:
            # Its own redirection of stdout and stderr would delay and reflow what we print.
            self._live = Live(
                self,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
