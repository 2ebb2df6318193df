"""lost: the error of a language server that can't be used any more."""

from interlock.state.errors import InterlockError


class ServerLostError(InterlockError):
    """A language server ended, says nothing, or can't be understood."""
