"""hidden: keeps what a process was started with, and its memory, from other programs of the user (Linux)."""

import ctypes
import os
from pathlib import Path

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def clear_environ_and_hide_memory() -> None:
    """Empty this process's `/proc/PID/environ`, and restrict its memory and core dumps to root.

    `os.environ` is unchanged, but the C library has none of it any more. Call before there are threads.
    """
    for name in os.environ:
        os.unsetenv(name)
    # `env_start` and `env_end` of proc(5); both 0 if the kernel hides them.
    stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(stat[47]), int(stat[48])
    ctypes.memset(start, 0, end - start)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
