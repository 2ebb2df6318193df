"""seen: what a conversation knows of the workspace's files: as its model last read, wrote or was told of each."""

from typing import Literal, Protocol

from interlock.state.messages import Frozen

How = Literal["read", "part", "written", "told"]
"""`part`: only some of the text; `told`: that it changed, and not what."""


class SeenFile(Frozen):
    """A file as a model has seen it."""

    path: str
    """As shown to the model."""
    digest: str
    """sha256 of its bytes in hex; empty: it was gone."""
    how: How = "read"
    text: str | None = None
    """For a later diff, without secrets; None: too long, or not text."""


class SeenFiles(Protocol):
    """What a conversation had seen when it sent a message with calls: results of the same batch don't count, only what
    the batch itself wrote."""

    def find_seen_file(self, path: str) -> SeenFile | None:
        """The file as last seen, with its text; None: never."""
        ...

    def redact(self, text: str) -> str:
        """Take secrets out of a text, as out of the texts that were seen."""
        ...


class ChangedFile(Frozen):
    """A file that is no longer as a model knows it."""

    now: SeenFile
    """`told` unless `diff` says all that changed."""
    diff: str
    """From what the model knows to what is there; empty: unknown or long."""
