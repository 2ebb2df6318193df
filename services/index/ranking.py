"""ranking: ranks chunks for a query by words (BM25), by meaning, or by both.

Identifiers are split into words: a query finds `parseHttpDate` and `parse_http_date`.
"""

import re
import sqlite3
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from interlock.state.search import Candidates, IndexQuery

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""Parts of an ASCII name: `HTTP` and `Server` of `HTTPServer`, digits separate. Other names are split at `_`."""
_SAID = re.compile(r'"""(.*?)(?:"""|\Z)|^[ \t]*(?:#|//|--|/?\*)([^\n]*)$', re.DOTALL | re.MULTILINE)
"""Docstrings and comments: they are worded like queries."""
_SILENT = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all also an and any are as at be because been before being between both but by can
        could did do does doing done each either else ever every find for from get give gets given had has
        have having he her here him his how i if in into is it its itself just know let like look made make
        makes many may me might more most much must my need no not now of off on only or other our out over
        own please same she should show so some such tell than that the their them then there these they
        this those through to too under until up us use used uses using very want was we were what when
        where which while who whom whose why will with within without would you your code function functions
        method methods class classes implementation implemented implements handled handles happens works
        work
        """,
    )
)
"""Stop words of queries."""


def to_search_terms(text: str) -> str:
    """Return a text's words in lower case, followed by their parts if they are compound names."""
    return " ".join([_word_with_parts(word) for word in _WORD.findall(text)])


def to_index_columns(path: str, name: str, code: str) -> tuple[str, str, str, str]:
    """Return a chunk's words as indexed: from its path, name, comments, and whole text.

    The path's suffix is dropped, as it is implied by the language.
    """
    comments = " ".join(part for match in _SAID.finditer(code) for part in match.groups() if part)
    return (
        to_search_terms(path.rpartition(".")[0] or path),
        to_search_terms(name),
        to_search_terms(comments),
        to_search_terms(code),
    )


@lru_cache(maxsize=1 << 16)
def _word_with_parts(word: str) -> str:
    parts = _PART.findall(word) if word.isascii() else [part for part in word.split("_") if part]
    low = word.lower()
    return low if len(parts) < 2 else " ".join([low, *parts]).lower()


def significant_words(query: str) -> list[str]:
    """Return the distinct significant words of a query, or all of them if none is significant."""
    words = list(dict.fromkeys(to_search_terms(query).split()))
    return [word for word in words if word not in _SILENT] or words


_WEIGHTS = "bm25(2.0, 4.0, 1.0, 1.0)"
"""Weights of path, name, comments with docstrings, and whole text (`benchmarks/search`: 7 % more answers in the top
five than without the third)."""
_COMMON = 0.1
"""Words in more than this share of chunks are skipped if three rarer ones exist: they cost most and say least."""
_KEPT = 3
_MOST_PLACES = 10_000
"""Maximum total chunks containing the chosen words: query time grows with it."""
_MOST_TERMS = 24
_RANK_K = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""


class _Stemmer:
    """Stems words with the index's own tokenizer."""

    def __init__(self) -> None:
        self._conn = sqlite3.connect(":memory:", check_same_thread=False)
        self._conn.executescript(
            """create virtual table t using fts5 (
                a, tokenize = "porter unicode61 remove_diacritics 2 tokenchars '_'"
            );
            create virtual table v using fts5vocab (t, 'row');"""
        )

    def __call__(self, word: str) -> str:
        self._conn.execute("delete from t")
        self._conn.execute("insert into t values (?)", (word,))
        row = self._conn.execute("select term from v").fetchone()
        return row[0] if row else ""


_stemmer = cache(_Stemmer)


def search_by_words(conn: sqlite3.Connection, query: IndexQuery, limit: int) -> list[tuple[int, float]]:
    """Return chunk ids with scores relative to the best, best first."""
    words = _select_rarest_indexed_words(conn, query.query)
    if not words:
        return []
    match = " OR ".join(f'"{word}"' for word in words)
    condition, values = _build_filter_sql(query)
    found = conn.execute(
        f"""select terms.rowid, -terms.rank from terms
        cross join chunks on chunks.id = terms.rowid cross join files on files.id = chunks.file
        where terms match ? and rank match ? {condition} order by terms.rank limit ?""",
        (match, _WEIGHTS, *values, limit),
    ).fetchall()
    full = max(found[0][1] if found else 1.0, 1e-9)
    return [(chunk, value / full) for chunk, value in found]


def _select_rarest_indexed_words(conn: sqlite3.Connection, query: str) -> list[str]:
    """Return the query words found in the index, rarest first."""
    total = (
        conn.execute("select max(id) from chunks").fetchone()[0] or 0
    )  # count(*) takes 10 ms on large tables
    stem = _stemmer()
    words = {stem(word): word for word in significant_words(query)}
    counts = {word: row[0] for s, word in words.items() if s and (row := _select_chunk_count_row(conn, s))}
    kept: list[str] = []
    places = 0
    for word in sorted(counts, key=lambda word: (counts[word], word))[:_MOST_TERMS]:
        places += counts[word]
        if kept and (places > _MOST_PLACES or (len(kept) >= _KEPT and counts[word] > total * _COMMON)):
            break
        kept.append(word)
    return kept


def _select_chunk_count_row(conn: sqlite3.Connection, stem: str) -> tuple[int] | None:
    return conn.execute("select doc from counts where term = ?", (stem,)).fetchone()


def _build_filter_sql(query: IndexQuery) -> tuple[str, list[str]]:
    """Build the SQL filter. Paths in a folder sort between `folder/` and `folder0`."""
    folder = query.path.strip("/")
    conditions = [
        "(files.inside = '' or substr(? || '/', 1, length(files.inside) + 1) = files.inside || '/')"
    ]
    values = [folder]
    if folder not in ("", "."):
        conditions.append("(files.path = ? or files.path >= ? and files.path < ?)")
        values += [folder, f"{folder}/", f"{folder}0"]
    if query.language:
        conditions.append("files.language = ?")
        values.append(query.language)
    return "".join(f" and {c}" for c in conditions), values


class VectorSearch:
    """The index's vectors, cached in memory until it changes.

    Searches by brute force, as sqlite-vec would; that needs loadable extensions, which many Pythons lack.
    """

    def __init__(self) -> None:
        self._at: object = None
        self._ids: Any = None
        self._vectors: Any = None

    def find_nearest_chunks(
        self, conn: sqlite3.Connection, vector: bytes, query: IndexQuery, limit: int
    ) -> list[tuple[int, float]]:
        """Return chunk ids with cosine similarities, best first."""
        np: Any = import_module("numpy")

        self._load_vectors_if_changed(conn, len(vector))
        condition, values = _build_filter_sql(query)
        ids, vectors = self._ids, self._vectors
        if condition:
            rows = conn.execute(
                "select chunks.id from chunks join files on files.id = chunks.file where true" + condition,
                values,
            ).fetchall()
            chosen = np.isin(ids, np.fromiter((row[0] for row in rows), np.int64, len(rows)))
            ids, vectors = ids[chosen], vectors[chosen]
        near = vectors @ np.frombuffer(vector, np.float32)
        count = min(limit, len(near))
        best = np.argpartition(-near, count - 1)[:count] if count else np.array([], np.int64)
        best = best[np.lexsort((ids[best], -near[best]))]
        return [(int(ids[place]), float(near[place])) for place in best]

    def _load_vectors_if_changed(self, conn: sqlite3.Connection, vector_bytes: int) -> None:
        np: Any = import_module("numpy")

        now = (conn.execute("pragma data_version").fetchone()[0], conn.total_changes, vector_bytes)
        if self._at == now:
            return
        rows = conn.execute(
            "select chunk, vector from vectors where length(vector) = ? order by chunk", (vector_bytes,)
        ).fetchall()
        self._ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        joined = b"".join(row[1] for row in rows)
        self._vectors = np.frombuffer(joined, np.float32).reshape(len(rows), -1 if rows else 1)
        self._at = now


def rank_candidates(found: Candidates, query: IndexQuery) -> list[tuple[int, float]]:
    """See `CodeIndex.rank`. With both measures uses reciprocal rank: 1 for a chunk that is first in both."""
    if not found.meanings:
        best = found.words
    else:
        scores: dict[int, float] = {}
        for listed in (found.words, found.meanings):
            for place, (chunk, _) in enumerate(listed):
                scores[chunk] = scores.get(chunk, 0.0) + (_RANK_K + 1) / (_RANK_K + 1 + place) / 2
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [(chunk, score) for chunk, score in best if score >= query.min_score][: query.limit]
