"""docs_tour: the README's tour is what `make run` printed, with what differs from run to run made even."""

import os
import re
import subprocess
import sys
import tempfile

from interlock.state.errors import UserError

_EVEN = (
    (re.compile(r"/[\w./-]*interlock-demo-\w+"), "/tmp/interlock-demo"),
    (re.compile(r" · (?:\d+ ms|\d+(?:\.\d+)? s)"), ""),
    (re.compile(r"in \d+\.\d+s"), "in 0.001s"),
    (re.compile(r"\S+/bin/interlock"), "interlock"),
)
_RUN = re.compile(r"^Run (\w{8}) is waiting", re.MULTILINE)

_READS = re.compile(r"(?:^✓ Read .*\n){2,}", re.MULTILINE)
"""Files are read side by side: either may be done first."""


def tour() -> str:
    """Run the demo; its output as a block. Raises `UserError` when it fails."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "interlock.cli.demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=env,
            check=False,
        )
    if done.returncode:
        raise UserError(f"The demo failed: {done.stdout.strip()[-500:]}")
    text = done.stdout.strip()
    for pattern, even in _EVEN:
        text = pattern.sub(even, text)
    if found := _RUN.search(text):
        text = text.replace(found[1], "k3m9x2pa")
    text = _READS.sub(lambda lines: "".join(sorted(lines[0].splitlines(keepends=True))), text)
    return f"```text\n{text}\n```\n"
