"""paths: which addresses are the page itself, and how much a request may bring."""

BODY_LIMIT = 8_000_000
"""Bytes of one request's body."""
_PAGES = ("request", "run", "all", "start", "flows", "stats")


def is_shell(path: str) -> bool:
    """Whether a path is the page itself, which holds no data."""
    return path == "/" or path.startswith("/static/") or first_part(path) in _PAGES


def first_part(path: str) -> str:
    """The first name of a path; a request may ask for `*` or `x`, too, which have none."""
    return path.split("/")[1] if "/" in path else ""
