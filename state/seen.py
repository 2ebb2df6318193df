"""seen: what a conversation knows of the workspace's files: as its model last read, wrote or was told of each."""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, Protocol

from interlock.state.errors import ToolError
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
    """For a later diff; None: not text, or not loaded."""


class UnseenTextError(ToolError):
    """The model would write over text that it hasn't seen; the message shows some."""

    def __init__(self, kind: str, message: str, seen: tuple[SeenFile, ...] = ()) -> None:
        """`seen`: files that the message shows."""
        super().__init__(kind, message)
        self.seen = seen


class SeenFiles(Protocol):
    """What a conversation had seen when it sent a message with calls: results of the same batch don't count, only what
    the batch itself wrote."""

    def find_seen_file(self, path: str) -> SeenFile | None:
        """The file as last seen, without its text; None: never."""
        ...

    def load_text(self, path: str) -> str | None:
        """The text of a file as last seen, without secrets; None: too long, or not text."""
        ...

    def redact(self, text: str) -> str:
        """Take secrets out of a text, as out of the texts that were seen."""
        ...


class SeenLog(Protocol):
    """What one conversation saw of files (`docs/internals.md#what-the-model-saw`)."""

    def before(self, message: str) -> SeenFiles:
        """What it had seen when it sent the message with this id."""
        ...

    def list_newest(self) -> Sequence[SeenFile]:
        """Each file as it was last seen or told of, without its text."""
        ...

    def record(self, record: str, files: Iterable[SeenFile]) -> None:
        """Record that a message of the conversation shows these files."""
        ...

    def forget(self, records: Collection[str]) -> None:
        """Forget what these messages show: the model doesn't get them."""
        ...

    def find_recorded_note(self, head: str) -> str | None:
        """In a replay, return what the model was told after `head` of changed files; elsewhere None."""
        ...


class ChangedFile(Frozen):
    """A file that is no longer as a model knows it."""

    now: SeenFile
    """`told` unless `diff` says all that changed."""
    diff: str
    """From what the model knows to what is there; empty: unknown or long."""
