"""search: input, output and state of the `search` pipeline, and the protocol of the index."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from pydantic import Field

from interlock.state.messages import Frozen
from interlock.state.run import ErrorInfo, Labelled, WorkflowInput, WorkflowOutput

MOST_RESULTS, LEAST_SCORE = 50, 0.4
"""Roo Code's values."""
IndexUse = Literal["auto", "only", "never"]
IndexStatus = Literal["indexed", "indexing", "none", "failed"]
Progress = Callable[[int, int], None]
"""Indexing progress: files done, files in all."""


class SearchInput(WorkflowInput):
    query: str | None = Field(
        None, description="what to search for, in words ★; required unless index is only"
    )
    path: str | None = Field(None, description="folder or file of the workspace; default: all of it")
    language: str | None = Field(None, description="only files in this language: python, typescript, …")
    limit: int = Field(MOST_RESULTS, ge=1, le=200, description="maximum number of results")
    min_score: float = Field(LEAST_SCORE, ge=0, le=1, description="drop results with a lower score")
    index: IndexUse = Field(
        "auto", description="auto: update the index, then search; only: just update; never: just search"
    )


class Hit(Frozen):
    """One chunk that was found; lines count from 1."""

    path: str
    """Relative to the workspace."""
    start_line: int
    end_line: int
    score: float
    """0 to 1, relative to the best match: by words; with meanings, 1 is the best by both."""
    code: str


class IndexInfo(Frozen):
    """The index, after it was brought up to date or not."""

    state: IndexStatus
    """`indexing`: another process is updating it, so files may be missing; `none`: there is no index."""
    files: int = 0
    chunks: int = 0
    added: int = 0
    """Files added by this update, including changed ones."""
    removed: int = 0
    error: str | None = None
    """Why the index is incomplete, or only words were compared."""


class SearchOutput(WorkflowOutput):
    status: Literal["done", "failed"]
    results: list[Hit]
    index: IndexInfo
    error: ErrorInfo | None = None


class SearchState(Labelled, total=False):
    """State of `search`; on resume, files still to be indexed are found again."""

    request: str
    """Chain record of the request."""
    added: int
    removed: int
    found: str
    """Chain record of the hits; empty: none yet."""
    index_error: str
    search_status: Literal["done", "failed", ""]
    error: dict[str, str]


class IndexQuery(Frozen):
    """One query to the index."""

    query: str
    path: str = "."
    language: str | None = None
    limit: int = MOST_RESULTS
    min_score: float = LEAST_SCORE


class Candidates(Frozen):
    """Chunks by id with their score on each measure, best first."""

    words: tuple[tuple[int, float], ...] = ()
    """0 to 1, relative to the best."""
    meanings: tuple[tuple[int, float], ...] = ()
    """Cosine of the angle between the vectors."""
    error: str | None = None
    """Why meanings weren't compared although requested."""


class CodeIndex(Protocol):
    """The index of a run's workspace. One process at a time updates it; any number may search.

    A phase entered first, as after a kill, catches up on the phases before it.
    """

    @property
    def has_embeddings(self) -> bool:
        """Whether an embedding model is set, and didn't fail in this update, so that meanings are compared too."""
        ...

    def validate_query(self, query: IndexQuery) -> IndexQuery:
        """The query with its path normalised. Raises `ToolError` for missing paths and unknown languages."""
        ...

    def include_excluded_folder_of(self, path: str) -> "CodeIndex":
        """This index, whose phases include the hidden, ignored or made folder that the path leads to."""
        ...

    async def try_lock_and_scan_files(self) -> bool:
        """List the files. False: another process is updating the index."""
        ...

    async def compare_files_and_remove_gone(self) -> tuple[int, int]:
        """Number of files to index, and of files removed because they are gone."""
        ...

    async def chunk_next_files(self) -> int:
        """Split the next files into chunks; returns the number of files."""
        ...

    async def embed_next_files(self) -> None:
        """Compute the vectors of these chunks. Raises `ToolError`; then the update goes on by words alone."""
        ...

    async def store_next_files(self) -> tuple[int, int]:
        """Commit these files; returns how many remain, and the total."""
        ...

    async def release_lock(self) -> None:
        """Let another process update the index."""
        ...

    async def count_indexed_and_all_files(self) -> tuple[int, int]:
        """Files in the index, and in all, as far as the process that updates it knows."""
        ...

    async def find_candidates(self, query: IndexQuery) -> Candidates:
        """Candidate chunks, by words and by meaning."""
        ...

    def rank_candidates(self, candidates: Candidates, query: IndexQuery) -> list[tuple[int, float]]:
        """The best candidates with their scores, best first, without duplicates."""
        ...

    async def read_hits(self, ranked: Sequence[tuple[int, float]]) -> list[Hit]:
        """The chunks as indexed; those deleted meanwhile are left out."""
        ...

    async def read_index_info(self) -> IndexInfo: ...

    async def update(self, path: str, on_progress: Progress, within_s: float) -> IndexInfo:
        """Run all phases, naming a path, for at most `within_s`; the rest is left for next time."""
        ...
