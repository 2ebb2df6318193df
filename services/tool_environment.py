"""tool_environment: the environment that tool processes get. No secrets, and nothing that waits for a terminal."""

import re
from collections.abc import Collection, Mapping

_SECRET = re.compile(
    r"(^|_)(API_?KEY|TOKEN|SECRET|KEY|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$|PASSWORD|SECRET|ACCESS_KEY|PRIVATE_KEY",
    re.IGNORECASE,
)
_NO_TERMINAL = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
}
_FOR_TERMINALS = frozenset({"COLUMNS", "LINES", "FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM"})


def is_secret(name: str) -> bool:
    """By name: *_KEY, *_TOKEN, *_SECRET, *PASSWORD* and their like."""
    return _SECRET.search(name) is not None


def tool_environment(environ: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """`environ` without secrets (but for the names in `keep`), made for a process that nobody watches."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in keep or not (is_secret(name) or name in _FOR_TERMINALS)
    }
    return kept | _NO_TERMINAL
