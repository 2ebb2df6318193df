"""variables: which shell variables a line may set without changing what its commands do."""

import re

from interlock.services.shell.model import names

HARMLESS_VARIABLES = names(
    "CI NO_COLOR FORCE_COLOR CLICOLOR TERM COLUMNS LINES LANG LC_ALL LC_CTYPE TZ NODE_ENV RAILS_ENV DEBUG VERBOSE"
    " PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG SOURCE_DATE_EPOCH"
)
"""Set before a command they leave what it does as it is, so that a rule for the command still holds."""
_OWN = re.compile(r"(?!histchars$)[a-z][a-z0-9]*", re.ASCII)
"""Names that people give variables of a line; bash and programs have none such, but for that one."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READS_ANEW = re.compile(r"BASH\w*|POSIXLY_CORRECT|SHELLOPTS|IFS|ENV|GIT_CONFIG\w*")
"""Bash or git reads the rest in another way, or more files, whatever the value."""
_PLAIN_VALUE = re.compile(r"\d*")


def assignment_problem(name: str, value: str) -> str | None:
    """Why an assignment may run more than can be seen, as a clause. `value`: as written.

    Bash evaluates the value of some variables as arithmetic (`BASHPID`, `RANDOM`), where `a[$(…)]` runs a command,
    and of others as a command line; a number is neither.
    """
    if name in HARMLESS_VARIABLES or _OWN.fullmatch(name):
        return "an array isn't understood" if value.startswith("(") else None
    if _NAME.fullmatch(name) is None or _READS_ANEW.fullmatch(name) or not _PLAIN_VALUE.fullmatch(value):
        return f"sets {name[:60]}, whose value bash or another program may evaluate"
    return None


def sets_clause(name: str) -> str | None:
    """What is dangerous about setting it for other commands, as a clause."""
    if name in HARMLESS_VARIABLES or _OWN.fullmatch(name):
        return None
    return f"sets {name[:60]}, which may change what commands do"
