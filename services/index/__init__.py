"""index: the searchable content of a workspace: built incrementally, in batches of files, and queried.

The rest of the house imports only this.
"""

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from interlock.services.files.disk import convert_store_errors
from interlock.services.files.filesystem import sha256
from interlock.services.index.database import IndexFile, write_transaction
from interlock.services.index.embedding import Embedder
from interlock.services.index.ranking import VectorSearch, rank_candidates, search_by_words, to_index_columns
from interlock.services.index.sources import (
    PreparedFile,
    Source,
    iterate_source_files,
    outermost_excluded_folder,
    prepare_file_for_index,
    read_source,
)
from interlock.services.secrets.redaction import Redactor
from interlock.state.calls import ToolError
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.search import Candidates, Hit, IndexInfo, IndexQuery, Progress
from interlock.state.workspace import Workspace
from interlock.tools.code_definitions import load_languages

T = TypeVar("T")
_BATCH_FILES, _BATCH_BYTES = 200, 1 << 20
"""Limits per transaction: the work that a kill can lose."""
_CANDIDATES = 4
"""Per requested result."""
WAIT_S = 0.5
"""Seconds between looks at an index that another process is updating."""


class WorkspaceIndex:
    """Implements `CodeIndex`. Phases run in a thread, one at a time; nothing is opened before it is needed."""

    def __init__(
        self, home: Path, workspace: Workspace, redact: Redactor, embedder: Embedder | None = None
    ) -> None:
        self._workspace, self._embedder, self._redact = workspace, embedder, redact
        self._failed = ""
        """Why this update computes no vectors, although a model is set."""
        self._file = IndexFile(home, workspace.root, embedder.identity if embedder else "")
        self._meanings = VectorSearch()
        self._one = threading.Lock()
        self._updating = asyncio.Lock()
        self._named = "."
        self._found: list[Source] | None = None
        self._pending: deque[Source] | None = None
        self._batch: list[PreparedFile] = []
        self._total = 0
        self._lacking: set[str] = set()
        """Unchanged files that are indexed without vectors."""
        self._check: Callable[[], None] = lambda: None
        """Aborts the work in its thread once the caller is gone."""

    @property
    def has_embeddings(self) -> bool:
        return self._embedder is not None and not self._failed

    def validate_query(self, query: IndexQuery) -> IndexQuery:
        if query.language is not None and query.language not in load_languages():
            near = get_close_matches(query.language, load_languages(), 3, 0.5) or sorted(load_languages())
            raise ToolError(
                "invalid_tool_params", f"No language {query.language!r}; there is {', '.join(near)}."
            )
        path, root = self._workspace.resolve_readable(query.path), self._workspace.root
        if not path.is_relative_to(root):
            raise ToolError(
                "path_refused", f"{quote_name(query.path)} isn't indexed, only the workspace itself is."
            )
        if not path.exists():
            raise ToolError("file_not_found", f"No file or folder {quote_name(query.path)} in the workspace.")
        return query.model_copy(update={"path": path.relative_to(root).as_posix()})

    def include_excluded_folder_of(self, path: str) -> "WorkspaceIndex":
        self._named = path
        return self

    async def try_lock_and_scan_files(self) -> bool:
        return await self._run_exclusively(self._try_lock_and_scan_files)

    async def compare_files_and_remove_gone(self) -> tuple[int, int]:
        return await self._run_exclusively(self._compare_files_and_remove_gone)

    async def chunk_next_files(self) -> int:
        return await self._run_exclusively(self._chunk_next_files)

    async def embed_next_files(self) -> None:
        if not self._batch:  # the previous process cut them
            await self.chunk_next_files()
        if self._embedder is None or self._failed:
            return
        texts = [f"{f.source.path} {c.name}\n{c.text}" for f in self._batch for c in f.chunks]
        try:
            vectors = iter(await self._embedder.embed_texts(texts))
        except ToolError as error:
            # Go on by words alone; files that only lack vectors wait for the next update.
            self._failed = str(error)
            self._batch = [file for file in self._batch if file.source.path not in self._lacking]
            self._pending = deque(s for s in self._pending or () if s.path not in self._lacking)
            raise
        self._batch = [f._replace(vectors=[next(vectors) for _ in f.chunks]) for f in self._batch]

    async def store_next_files(self) -> tuple[int, int]:
        if not self._batch:
            with suppress(ToolError):  # the query says why only words are compared
                await (self.embed_next_files() if self.has_embeddings else self.chunk_next_files())
        return await self._run_exclusively(self._store_next_files)

    async def release_lock(self) -> None:
        await self._run_exclusively(self._release_lock)  # cancelled work may still be running in its thread

    async def find_candidates(self, query: IndexQuery) -> Candidates:
        error, vector = self._failed or None, None
        if self._embedder is not None and not self._failed:
            try:
                (vector,) = await self._embedder.embed_texts([query.query], is_query=True)
            except ToolError as failed:
                error = str(failed)
        found = await self._run_exclusively(self._find_candidates, query, vector)
        return found.model_copy(update={"error": error})

    def rank_candidates(self, candidates: Candidates, query: IndexQuery) -> list[tuple[int, float]]:
        return rank_candidates(candidates, query)

    async def read_hits(self, ranked: Sequence[tuple[int, float]]) -> list[Hit]:
        return await self._run_exclusively(self._read_hits, ranked)

    async def read_index_info(self) -> IndexInfo:
        return await self._run_exclusively(self._read_info)

    async def update(self, path: str, on_progress: Progress, within_s: float) -> IndexInfo:
        async with self._updating:
            until = time.monotonic() + within_s
            while not await self.include_excluded_folder_of(path).try_lock_and_scan_files():
                if time.monotonic() >= until:
                    return (await self.read_index_info()).model_copy(update={"state": "indexing"})
                on_progress(*await self.count_indexed_and_all_files())
                await asyncio.sleep(WAIT_S)
            try:
                left, removed = await self.compare_files_and_remove_gone()
                added = 0
                while left and time.monotonic() < until:
                    added += await self.chunk_next_files()
                    if self.has_embeddings:
                        with suppress(ToolError):  # the query says why only words are compared
                            await self.embed_next_files()
                    left, total = await self.store_next_files()
                    on_progress(total - left, total)
                return (await self.read_index_info()).model_copy(update={"added": added, "removed": removed})
            finally:
                await self.release_lock()

    def close(self) -> None:
        with self._one:
            self._file.close()

    async def _run_exclusively(self, work: Callable[..., T], *args: object) -> T:
        def locked(stop: StopFlag) -> T:
            with self._one, convert_store_errors(self._file.path, sqlite3.DatabaseError):
                self._check = stop.raise_if_stopped
                self._check()
                return work(*args)

        return await run_in_thread(locked)

    def _try_lock_and_scan_files(self) -> bool:
        if not self._file.try_lock():
            return False
        found = iterate_source_files(self._workspace, self._named, self._check)
        self._found = [source for source in found if self._redact(source.path) == source.path]
        self._pending, self._batch, self._failed = None, [], ""
        return True

    def _release_lock(self) -> None:
        self._found, self._pending, self._batch = None, None, []
        self._file.unlock()

    def _compare_files_and_remove_gone(self) -> tuple[int, int]:
        if self._found is None and not self._try_lock_and_scan_files():
            self._pending = deque()  # another process is building it
            return 0, 0
        conn = self._file.open_or_rebuild_for_writing()
        found = self._found or []
        # Files of a folder that another search named stay as they are, as long as it is there.
        kept = {
            inside
            for (inside,) in conn.execute("select distinct inside from files")
            if self._should_keep_folder(inside)
        }
        rows = conn.execute("select path, inside, embedded, signature, sha256 from files")
        known = {row[0]: row[1:] for row in rows if row[1] not in kept}
        pending, same, lacking = list[Source](), list[Source](), list[Source]()
        for source in found:
            self._check()
            inside, embedded, signature, digest = known.pop(source.path, ("", 1, "", ""))
            unmoved = inside == source.inside
            if not (unmoved and signature and signature == source.signature):
                touched = unmoved and digest and self._file_digest(source) == digest
                (same if touched else pending).append(source)
                if not touched:
                    continue
            if not embedded:
                lacking.append(source)
        with write_transaction(conn):
            conn.executemany(
                "update files set signature = ? where path = ?",
                [(s.signature, s.path) for s in same if s.signature],
            )
            conn.execute("update meta set value = ? where key = 'complete'", ("" if pending else "1",))
            conn.execute("update meta set value = ? where key = 'total'", (str(len(found)),))
        for path in known:
            self._check()
            with write_transaction(conn):
                _delete_file_rows(conn, path)
        self._pending, self._total = deque([*pending, *lacking]), len(found)
        self._lacking = {source.path for source in lacking}
        return len(self._pending), len(known)

    def _should_keep_folder(self, folder: str) -> bool:
        if folder in ("", outermost_excluded_folder(self._workspace, self._named)):
            return False
        return (
            outermost_excluded_folder(self._workspace, folder) == folder
            and (self._workspace.root / folder).exists()
        )

    def _file_digest(self, source: Source) -> str:
        data = read_source(self._workspace, source.path)
        return "" if data is None else sha256(data)

    def _chunk_next_files(self) -> int:
        if self._pending is None:
            self._compare_files_and_remove_gone()
        self._batch, size = [], 0
        for source in list(self._pending or ())[:_BATCH_FILES]:
            self._check()
            data = read_source(self._workspace, source.path)
            conventions = self._workspace.read_conventions(self._workspace.root / source.path)
            self._batch.append(prepare_file_for_index(source, data or b"", self._redact, conventions))
            size += len(data or b"")
            if size > _BATCH_BYTES:
                break
        return sum(file.source.path not in self._lacking for file in self._batch)

    def _store_next_files(self) -> tuple[int, int]:
        if self._pending is None or not self._batch:
            return 0, self._total
        conn = self._file.open_or_rebuild_for_writing()
        if self._has_other_vector_size(conn):
            self._file.recreate_tables()
            return self._compare_files_and_remove_gone()[0], self._total
        with write_transaction(conn):
            for file in self._batch:
                _delete_file_rows(conn, file.source.path)
                _insert_file_rows(conn, file, embedded=not self._failed)
            last = len(self._pending) <= len(self._batch)
            conn.execute("update meta set value = ? where key = 'complete'", ("1" if last else "",))
        for _ in self._batch:
            self._pending.popleft()
        self._batch = []
        return len(self._pending), self._total

    def _has_other_vector_size(self, conn: sqlite3.Connection) -> bool:
        """Return whether the model with this name now returns vectors of another length."""
        made = next((v for file in self._batch for v in file.vectors), None)
        stored = conn.execute("select length(vector) from vectors limit 1").fetchone()
        return made is not None and stored is not None and stored[0] != len(made)

    def _find_candidates(self, query: IndexQuery, vector: bytes | None) -> Candidates:
        conn = self._file.open_for_reading()
        if conn is None:
            return Candidates()
        most = query.limit * _CANDIDATES
        words = tuple(search_by_words(conn, query, most))
        if vector is None:
            return Candidates(words=words)
        return Candidates(
            words=words, meanings=tuple(self._meanings.find_nearest_chunks(conn, vector, query, most))
        )

    def _read_hits(self, ranked: Sequence[tuple[int, float]]) -> list[Hit]:
        conn = self._file.open_for_reading()
        if conn is None:
            return []
        sql = """select path, start, end, code from chunks join files on files.id = chunks.file
            where chunks.id = ?"""
        rows = ((conn.execute(sql, (chunk,)).fetchone(), score) for chunk, score in ranked)
        return [
            Hit(path=row[0], start_line=row[1], end_line=row[2], score=round(score, 4), code=row[3])
            for row, score in rows
            if row is not None
        ]

    async def count_indexed_and_all_files(self) -> tuple[int, int]:
        return await self._run_exclusively(self._count_indexed_and_all_files)

    def _count_indexed_and_all_files(self) -> tuple[int, int]:
        if (conn := self._file.open_for_reading()) is None:
            return 0, 0
        (total,) = conn.execute("select value from meta where key = 'total'").fetchone()
        (files,) = conn.execute("select count(*) from files").fetchone()
        return files, max(files, int(total))

    def _read_info(self) -> IndexInfo:
        conn = self._file.open_for_reading()
        if conn is None:
            return IndexInfo(state="none")
        files = conn.execute("select count(*) from files").fetchone()[0]
        count = conn.execute("select count(*) from chunks").fetchone()[0]
        complete = conn.execute("select value from meta where key = 'complete'").fetchone()[0]
        return IndexInfo(state="indexed" if complete else "indexing", files=files, chunks=count)


def _delete_file_rows(conn: sqlite3.Connection, path: str) -> None:
    """Delete a file. The word index stores no text, so deletion must pass the indexed text again."""
    row = conn.execute("select id from files where path = ?", (path,)).fetchone()
    if row is None:
        return
    for chunk, name, code in conn.execute("select id, name, code from chunks where file = ?", row).fetchall():
        conn.execute(
            "insert into terms (terms, rowid, path, name, said, code) values ('delete', ?, ?, ?, ?, ?)",
            (chunk, *to_index_columns(path, name, code)),
        )
    conn.execute("delete from files where id = ?", row)


def _insert_file_rows(conn: sqlite3.Connection, file: PreparedFile, embedded: bool) -> None:
    source = file.source
    (file_id,) = conn.execute(
        "insert into files (path, language, inside, embedded, signature, sha256)"
        " values (?, ?, ?, ?, ?, ?) returning id",
        (source.path, source.language, source.inside, embedded, source.signature, file.sha256),
    ).fetchone()
    for place, (chunk, words) in enumerate(zip(file.chunks, file.words, strict=True)):
        row = (file_id, chunk.start, chunk.end, chunk.name, chunk.text)
        added = conn.execute("insert into chunks (file, start, end, name, code) values (?, ?, ?, ?, ?)", row)
        conn.execute(
            "insert into terms (rowid, path, name, said, code) values (?, ?, ?, ?, ?)",
            (added.lastrowid, *words),
        )
        if file.vectors:
            conn.execute("insert into vectors values (?, ?)", (added.lastrowid, file.vectors[place]))


def open_index(
    home: Path, workspace: Workspace, embeddings: str, env: Mapping[str, str], redact: Redactor
) -> WorkspaceIndex:
    """Open an index; `embeddings` is the configured model, or empty for word search only."""
    embedder = Embedder(embeddings, env, redact) if embeddings else None
    return WorkspaceIndex(home, workspace, redact, embedder)
