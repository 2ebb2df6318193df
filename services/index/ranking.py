"""ranking: which chunks answer a question: by its words (BM25), by its meaning, or by both."""

import math
import sqlite3
from functools import cache

from interlock.services.index.words import asked as words_of
from interlock.state.search import Asked, Candidates

_WEIGHTS = "bm25(2.0, 4.0, 1.0)"
"""Of path, name and code."""
_FETCHED = 4
"""Candidates for each result that is wanted."""
_COMMON = 0.1
"""Share of the chunks from which a word is too common to be looked up, beside three rarer ones: it costs the most time
and says the least."""
_KEPT = 3
_MOST_TERMS = 24
_RANK_K = 60
"""Of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""


class _Stemmer:
    """The words as the index has them, cut by the very tokenizer."""

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


def by_words(conn: sqlite3.Connection, asked: Asked, most: int) -> list[tuple[int, float]]:
    """Chunks by id, best first, with what they are worth."""
    total = conn.execute("select count(*) from chunks").fetchone()[0]
    weights = _weights(conn, asked.query, total)
    if not weights:
        return []
    match = " OR ".join(f'"{term}"' for term in weights)
    condition, values = _narrowed(asked)
    found = conn.execute(
        f"""select terms.rowid, -terms.rank from terms
        cross join chunks on chunks.id = terms.rowid cross join files on files.id = chunks.file
        where terms match ? and rank match ? {condition} order by terms.rank limit ?""",
        (match, _WEIGHTS, *values, most),
    ).fetchall()
    full = max(found[0][1] if found else 1.0, 1e-9)
    return [(chunk, value / full) for chunk, value in found]


def _weights(conn: sqlite3.Connection, query: str, total: int) -> dict[str, float]:
    """The words to look up, the rarest first, each with its inverse document frequency."""
    stem = _stemmer()
    stems = dict.fromkeys(stem(word) for word in words_of(query))
    counts = {s: row[0] for s in stems if s and (row := _count(conn, s))}
    rare = sorted(counts, key=lambda s: (counts[s], s))[:_MOST_TERMS]
    kept = [s for place, s in enumerate(rare) if place < _KEPT or counts[s] <= total * _COMMON]
    return {s: math.log(1 + (total - counts[s] + 0.5) / (counts[s] + 0.5)) for s in kept}


def _count(conn: sqlite3.Connection, stem: str) -> tuple[int] | None:
    return conn.execute("select doc from counts where term = ?", (stem,)).fetchone()


def _narrowed(asked: Asked) -> tuple[str, list[str]]:
    """A folder holds the paths between `folder/` and the next name."""
    conditions: list[str] = []
    values: list[str] = []
    folder = asked.path.strip("/")
    if folder not in ("", "."):
        conditions.append("(files.path = ? or files.path >= ? and files.path < ?)")
        values += [folder, f"{folder}/", f"{folder}0"]
    if asked.language:
        conditions.append("files.language = ?")
        values.append(asked.language)
    return "".join(f" and {c}" for c in conditions), values


def ranked(found: Candidates, asked: Asked) -> list[tuple[int, float]]:
    """As `CodeIndex.rank`. With both measures: by reciprocal rank, 1 where a chunk is first by both."""
    if not found.meanings:
        best = found.words
    else:
        scores: dict[int, float] = {}
        for listed in (found.words, found.meanings):
            for place, (chunk, _) in enumerate(listed):
                scores[chunk] = scores.get(chunk, 0.0) + (_RANK_K + 1) / (_RANK_K + 1 + place) / 2
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [(chunk, score) for chunk, score in best if score >= asked.min_score][: asked.limit]
