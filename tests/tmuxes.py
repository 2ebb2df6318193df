"""tmuxes: a program in tmux, a terminal that people use, on a server of its own."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from patience import until


class Tmux:
    """One window."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder.parent / "tmux"
        self.home = folder.parent / "home"
        self.home.mkdir(exist_ok=True)

    def do(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", os.devnull, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def opens(self, *command: str, columns: int = 80, rows: int = 24) -> None:
        env = [f"HOME={self.home}", f"PATH={os.environ['PATH']}", "LANG=C.UTF-8"]
        size = ("-x", str(columns), "-y", str(rows))
        window = ["env", "-i", *env, "TERM=tmux-256color", *command]
        self.do("new-session", "-d", "-c", str(self.folder), *size, *window)

    @property
    def text(self) -> str:
        """The scrollback and the visible lines."""
        return self.do("capture-pane", "-p", "-J", "-S", "-20000")

    def waits_for(self, text: str) -> None:
        until(lambda: text in self.text, repr(text))

    def types(self, text: str) -> None:
        self.do("send-keys", "-l", text)

    def presses(self, *keys: str) -> None:
        self.do("send-keys", *keys)

    def says(self, prompt: str) -> None:
        self.types(prompt)
        self.waits_for(prompt)
        self.presses("Enter")

    def closes(self, kill: bool = False) -> None:
        """End the server, and wait until it is gone: a new one can't begin at the socket of one that is going.

        `kill`: what runs in the window is killed before it hears of this.
        """
        try:
            server, program = self.do("display-message", "-p", "#{pid} #{pane_pid}").split()
        except subprocess.CalledProcessError:
            return  # it has ended by itself
        if kill:
            os.kill(int(program), signal.SIGKILL)
        with suppress(subprocess.CalledProcessError):  # it ends with its last window
            self.do("kill-server")
        until(lambda: not Path("/proc", server).exists(), "the end of tmux")
