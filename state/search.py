"""search: input, output and state of the `search` pipeline, and what nodes and tools ask of the index."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from pydantic import Field

from interlock.state.messages import Frozen
from interlock.state.run import ErrorInfo, Labelled, WorkflowInput, WorkflowOutput

MOST_RESULTS, LEAST_SCORE = 50, 0.4
"""Roo Code's."""
IndexUse = Literal["auto", "only", "never"]
IndexStatus = Literal["indexed", "indexing", "none", "failed"]
Progress = Callable[[int, int], None]
"""How far the index is: files of all files."""


class SearchInput(WorkflowInput):
    """Input of `search`."""

    query: str | None = Field(None, description="what is looked for, in words ★; needed unless index is only")
    path: str | None = Field(None, description="a folder or file of the workspace; default: all of it")
    language: str | None = Field(None, description="only files in this language: python, typescript, …")
    limit: int = Field(MOST_RESULTS, ge=1, le=200, description="most results")
    min_score: float = Field(LEAST_SCORE, ge=0, le=1, description="results below it are left out")
    index: IndexUse = Field(
        "auto", description="auto: bring it up to date first; only: and don't search; never: as it is"
    )


class Hit(Frozen):
    """One chunk that was found; lines count from 1."""

    path: str
    """Relative to the workspace."""
    start_line: int
    end_line: int
    score: float
    """0 to 1: beside the best answer by words; with meanings, 1 where it is the best by both."""
    code: str


class IndexInfo(Frozen):
    """The index, after it was brought up to date or not."""

    state: IndexStatus
    """`indexing`: somebody is at it, and not all files are in it; `none`: there is none."""
    files: int = 0
    chunks: int = 0
    added: int = 0
    """Files that came into it now, those that changed among them."""
    removed: int = 0
    error: str | None = None
    """Why it is not complete, or only words were compared."""


class SearchOutput(WorkflowOutput):
    """Output of `search`."""

    status: Literal["done", "failed"]
    results: list[Hit]
    index: IndexInfo
    error: ErrorInfo | None = None


class SearchState(Labelled, total=False):
    """State of `search`; what waits to be indexed is found again by whoever goes on."""

    request: str
    """Chain record of what is asked for."""
    added: int
    removed: int
    found: str
    """Chain record of the hits; empty: none yet."""
    index_error: str
    search_status: Literal["done", "failed", ""]
    error: dict[str, str]


class Asked(Frozen):
    """One question to the index."""

    query: str
    path: str = "."
    language: str | None = None
    limit: int = MOST_RESULTS
    min_score: float = LEAST_SCORE


class Candidates(Frozen):
    """Chunks by id, with what each is worth by that measure, best first."""

    words: tuple[tuple[int, float], ...] = ()
    """0 to 1: beside the best."""
    meanings: tuple[tuple[int, float], ...] = ()
    """Cosine of the angle between the vectors."""
    error: str | None = None
    """Why meanings weren't compared, where that was wanted."""


class CodeIndex(Protocol):
    """The index of a run's workspace. One process at a time brings it up to date; any number may search.

    A phase that is entered first, as after a kill, makes up for those before it.
    """

    @property
    def embeds(self) -> bool:
        """An embedding model is set, so meanings are compared, too."""
        ...

    def checked(self, asked: Asked) -> Asked:
        """With its path as the index has it. Raises `ToolError` for one that isn't there, and unknown languages."""
        ...

    async def scan(self) -> bool:
        """Look which files there are. False: another process is bringing the index up to date."""
        ...

    async def compare(self) -> tuple[int, int]:
        """Files that must be indexed, and those that were taken out because they are gone."""
        ...

    async def chunk(self) -> int:
        """Cut the next files into chunks; how many files those are."""
        ...

    async def embed(self) -> None:
        """Give these chunks their vectors. Raises `ToolError`."""
        ...

    async def store(self) -> tuple[int, int]:
        """Commit these files; how many are still to do, and of how many."""
        ...

    async def release(self) -> None:
        """Let another process bring it up to date."""
        ...

    async def query(self, asked: Asked) -> Candidates:
        """The chunks that may answer, by words and by meaning."""
        ...

    def rank(self, found: Candidates, asked: Asked) -> list[tuple[int, float]]:
        """The best of them with their scores, best first, each once."""
        ...

    async def read(self, ranked: Sequence[tuple[int, float]]) -> list[Hit]:
        """As they stand in the index; one that is gone meanwhile is left out."""
        ...

    async def info(self) -> IndexInfo: ...

    async def update(self, report: Progress, within_s: float) -> IndexInfo:
        """All phases, at most so long; what is left over is for the next time."""
        ...
