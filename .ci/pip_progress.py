"""pip_progress: draws the output of `pip install` as one line that changes: how long, what pip does, and with what.

Reads pip's output on stdin. Without a terminal it prints a line for each phase.
"""

import re
import sys
import threading
import time

PHASES = {"Collecting": "finding", "Downloading": "downloading", "Installing": "installing"}
EVERY_S = 1.0


class Progress:
    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.count = 0
        self.phase = "starting pip"
        self.ended = threading.Event()

    def read_line(self, line: str) -> None:
        """Take what pip does from a line such as `Collecting anyio>=4.16`; others change nothing."""
        word, _, rest = line.strip().partition(" ")
        if word not in PHASES or rest.startswith(("build", "backend")):
            return
        self.count += word == "Collecting"
        what = "all of them" if word == "Installing" else re.split(r"[-<>=!~\[;( ]", rest)[0]
        phase = f"{PHASES[word]} package {self.count}: {what}"
        if not sys.stdout.isatty() and PHASES[word] not in self.phase:
            print(f"  {PHASES[word]} packages …", flush=True)
        self.phase = phase

    def draw_until_ended(self) -> None:
        while not self.ended.wait(EVERY_S):
            text = f"  {time.monotonic() - self.begun:.0f} s · {self.phase}"
            print(f"\r{text[:78]:<78}", end="", flush=True)
        print(f"\r{'':78}\r  {self.count} packages in {time.monotonic() - self.begun:.0f} s", flush=True)


def main() -> None:
    progress = Progress()
    drawing = threading.Thread(target=progress.draw_until_ended)
    if sys.stdout.isatty():
        drawing.start()
    try:
        for line in sys.stdin:
            progress.read_line(line)
    finally:
        progress.ended.set()


if __name__ == "__main__":
    main()
