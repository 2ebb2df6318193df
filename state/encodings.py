"""encodings: what a person confirms of a file's encoding."""

from interlock.state.messages import Frozen


class ConfirmedEncoding(Frozen):
    """An encoding that is only guessed until a person confirms it, for files that match a pattern as in .gitignore."""

    pattern: str
    encoding: str
