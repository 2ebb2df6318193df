"""user_code: whether users' own code may run here. Someone who only looks must not make files run as they are now."""

from contextvars import ContextVar

from interlock.state.errors import UserError

FORBIDDEN: ContextVar[str] = ContextVar("FORBIDDEN", default="")
"""Why no file, package or function of a user may run in this context; empty: they may."""


class CodeForbiddenError(UserError):
    """Something needs a user's code to run where none may."""

    kind = "code"


def check_user_code_allowed(place: str) -> None:
    """Raise `CodeForbiddenError` if code of users may not run here. `place`: where the code is, for a person."""
    if why := FORBIDDEN.get():
        raise CodeForbiddenError(f"This would run the code of {place} as it is now. {why}")
