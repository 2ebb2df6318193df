"""Runs a function without a superuser's rights, in a process of its own."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NOBODY = 65534


def told_to_ordinary_user(work: Callable[[Path], Any]) -> Any:
    """What `work` returns, as JSON has it, where an ordinary user runs it in a new folder.

    What it imports is imported before: that user may not be let in where Python's own modules are.
    """
    reads, writes = os.pipe()
    with TemporaryDirectory() as folder:  # pytest's own is closed to others
        if (child := os.fork()) == 0:
            try:
                if os.geteuid() == 0:
                    os.chown(folder, NOBODY, NOBODY)
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                os.write(writes, json.dumps(work(Path(folder))).encode())
            finally:
                os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as answer:
            found = json.loads(answer.read() or "null")
        os.waitpid(child, 0)
    return found
