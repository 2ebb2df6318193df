"""clock: the time of day that rows and lists say. On a server's store it is the server's: hosts' clocks may differ."""

import time

_ahead = 0.0
_PRECISE_S = 1.0
"""Seconds that an answer may take: less isn't a difference of clocks."""


def unix_time() -> float:
    return time.time() + _ahead


def adjust_to_server_clock(server_time: float) -> None:
    """Count by a server's clock, which says this now."""
    global _ahead
    if abs(server_time - unix_time()) > _PRECISE_S:
        _ahead = server_time - time.time()
