"""terminal: what a person waits for in a terminal: the prompt, an answer's first word, a key during heavy streaming.

`python benchmarks/terminal.py [start first keys idle turns]`: a real process on a real pseudo-terminal, with a scripted
model. The limits (issue 16): the first word at most 30 ms later than without a session, in the same run; idle at most
1 % of a core; 300 turns in at most 150 MB.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from session.terminal import Terminal

LINE = "Some words of a long answer that goes on, with **bold** and `code` in it, number {}.\n\n"
STREAMED = 5_000_000
"""Characters of one answer."""
STREAM_S = 30.0
"""Seconds during which keys are timed while it streams."""
TURNS = 300
HEADLESS = """
import json, statistics, sys, time
from pathlib import Path
from interlock.engine import Options, resume_sync, run_sync
folder = Path(sys.argv[1])
options = Options(folder / "other", folder, folder / "work", f"script:{folder / 'replies.json'}")
seen = []
def show(event):
    if event.type == "message" and event.role == "assistant":
        seen.append(time.monotonic())
run = run_sync("main", {"prompt": "p"}, options=options, renderers=[show]).run
waits = []
for _ in range(20):
    time.sleep(0.3)
    seen.clear()
    begun = time.monotonic()
    resume_sync(run, prompt="prompt", options=options, renderers=[show])
    waits.append((seen[0] - begun) * 1000)
print(json.dumps(waits))
"""


class Unread:
    """Replaces the emulator, which would take more time than what is measured."""

    def feed(self, data: bytes) -> None:
        pass


def terminal(replies: Sequence[dict[str, Any]]) -> Terminal:
    folder = Path(tempfile.mkdtemp())
    (folder / "work").mkdir()
    (folder / "replies.json").write_text(json.dumps(replies))
    made = Terminal(folder / "work", "-m", f"script:{folder / 'replies.json'}", "--no-loop-check")
    made._stream = Unread()
    return made


def until(shown: Terminal, text: str, since: int = 0, limit_s: float = 60) -> float:
    """Milliseconds until the text is written."""
    begun = time.monotonic()
    while text.encode() not in shown.written[since:]:
        if time.monotonic() - begun > limit_s:
            raise TimeoutError(text)
        time.sleep(0.0005)
    return (time.monotonic() - begun) * 1000


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(process: int) -> int:
    line = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) // 1024


def tell(what: str, values: Sequence[float]) -> None:
    ordered = sorted(values)
    late = ordered[int(len(ordered) * 0.95)]
    print(f"{what:<52} median {statistics.median(ordered):6.0f}  p95 {late:6.0f}  max {ordered[-1]:6.0f} ms")


def start() -> None:
    prompts, keys = list[float](), list[float]()
    for _ in range(5):
        with terminal([{"text": "x"}]) as shown:
            prompts.append(until(shown, "›"))
            shown.type("Ω")
            keys.append(prompts[-1] + until(shown, "Ω"))
            time.sleep(2)
    tell("start until the prompt is there", prompts)
    tell("start until a typed key is shown", keys)


def first() -> None:
    with terminal([{"text": f"Answer {n}."} for n in range(30)]) as shown:
        time.sleep(4)
        waits = list[float]()
        for n in range(20):
            shown.type(f"prompt {n}")
            time.sleep(0.3)
            shown.press("enter")
            waits.append(until(shown, f"Answer {n}."))
            time.sleep(0.3)
        tell("Enter until the first word, in a session", waits[1:])
        command = [sys.executable, "-c", HEADLESS, str(shown.folder.parent)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    tell("the same without a session, in a warm process", json.loads(done.stdout))


def keys() -> None:
    count = STREAMED // len(LINE)
    text = "".join(map(LINE.format, range(count)))
    with terminal([{"text": text, "chunks": 50_000}]) as shown:
        time.sleep(4)
        shown.type("go\r")
        until(shown, "Some words")
        begun, lags, most = time.monotonic(), list[float](), 0
        while time.monotonic() - begun < STREAM_S and f"number {count - 1}." not in shown.written[
            -9000:
        ].decode(errors="replace"):
            since = len(shown.written)
            shown.type("Ω")
            lags.append(until(shown, "Ω", since))
            shown.press("backspace")
            time.sleep(0.1)
            most = max(most, megabytes(shown.process.pid))
        tell(f"a key while {STREAMED / 1e6:.0f} MB stream, {time.monotonic() - begun:.0f} s of it", lags)
        print(f"{'memory at most meanwhile':<52} {most} MB; written {len(shown.written) / 1e6:.1f} MB")


def idle() -> None:
    with terminal([{"text": "Done."}]) as shown:
        time.sleep(4)
        shown.type("hello\r")
        until(shown, "Done.")
        time.sleep(3)
        used, begun = cpu_s(shown.process.pid), time.monotonic()
        time.sleep(20)
        share = (cpu_s(shown.process.pid) - used) / (time.monotonic() - begun)
        print(f"{'idle':<52} {share:.2%} of a core, {megabytes(shown.process.pid)} MB")


def turns() -> None:
    words = " ".join(f"word{n}" for n in range(200))
    with terminal([{"text": f"{words} end{n}."} for n in range(TURNS)]) as shown:
        time.sleep(4)
        for n in range(TURNS):
            shown.type(f"prompt {n}")
            time.sleep(0.05)
            shown.press("enter")
            until(shown, f"end{n}.")
        print(f"{f'after {TURNS} turns':<52} {megabytes(shown.process.pid)} MB")


PARTS: dict[str, Callable[[], None]] = {
    "start": start,
    "first": first,
    "idle": idle,
    "keys": keys,
    "turns": turns,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
