"""run: codebase search: how often the answer is among the first five, beside plain grep, plain words and embeddings;
and how fast the standard library with all installed packages is indexed.

    .venv/bin/python benchmarks/search/run.py [quality] [speed]
"""

import asyncio
import os
import resource
import shutil
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.index import WorkspaceIndex, open_index
from interlock.services.index.ranking import significant_words
from interlock.services.secrets.redaction import SHAPES
from interlock.state.search import IndexQuery
from interlock.tools.code_definitions import detect_language

sys.path.insert(0, str(Path(__file__).parent))
from search_corpus import PACKAGES, Question, installed, questions, static_model

Place = tuple[str, int, int]
Search = Callable[[str], Awaitable[list[Place]]]
SHOWN, LOOKED_AT = 5, 50


def index_of(home: Path, corpus: Path, embeddings: str = "") -> WorkspaceIndex:
    return open_index(home, FolderWorkspace(corpus), embeddings, {}, SHAPES)


def ours(index: WorkspaceIndex) -> Search:
    async def search(question: str) -> list[Place]:
        asked = IndexQuery(query=question, limit=LOOKED_AT)
        hits = await index.read_hits(index.rank_candidates(await index.find_candidates(asked), asked))
        return [(hit.path, hit.start_line, hit.end_line) for hit in hits]

    return search


def grep(corpus: Path) -> Search:
    """Lines with the most of the question's words, as `grep -i` finds them, in file order."""
    lines = [
        (str(file.relative_to(corpus)), number, line.lower())
        for file in sorted(corpus.rglob("*.py"))
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
    ]

    async def search(question: str) -> list[Place]:
        words = significant_words(question)
        scored = [(sum(word in line for word in words), path, number) for path, number, line in lines]
        best = sorted((s for s in scored if s[0]), key=lambda s: -s[0])[:LOOKED_AT]
        return [(path, number, number) for _, path, number in best]

    return search


def plain_words(index_file: Path) -> Search:
    """The same chunks, stop words, weights and stemming, but words are not split further."""
    conn = sqlite3.connect(":memory:", check_same_thread=False)
    conn.execute(f"attach '{index_file}' as i")
    conn.execute(
        "create virtual table t using fts5 (path, name, code, tokenize = \"porter unicode61 tokenchars '_'\")"
    )
    conn.execute(
        "insert into t (rowid, path, name, code) select c.id, f.path, c.name, c.code"
        " from i.chunks c join i.files f on f.id = c.file"
    )

    async def search(question: str) -> list[Place]:
        match = " OR ".join(f'"{word}"' for word in significant_words(question))
        sql = """select f.path, c.start, c.end from t join i.chunks c on c.id = t.rowid join i.files f on f.id = c.file
            where t match ? and rank match 'bm25(2.0, 4.0, 1.0)' order by rank limit ?"""
        return conn.execute(sql, (match, LOOKED_AT)).fetchall()

    return search


async def quality(folder: Path) -> None:
    corpus = installed(folder / "corpus", *PACKAGES)
    asked = questions(corpus)
    words = index_of(folder / "home", corpus)
    info = await words.update(".", lambda _done, _total: None, 1e9)
    (file,) = (folder / "home" / "index").glob("*.db")
    both = index_of(folder / "home", corpus, f"model2vec:{static_model(folder)}")
    await both.update(".", lambda _done, _total: None, 1e9)
    print(f"{len(asked)} questions, {info.files} files, {info.chunks} chunks: {', '.join(PACKAGES)}")
    print(f"{'':34}recall@1  recall@5     MRR   ms a question")
    ways = {
        "grep of the words": grep(corpus),
        "BM25, words as they stand": plain_words(file),
        "BM25, code-aware (the default)": ours(words),
        "hybrid with a static model": ours(both),
    }
    for name, search in ways.items():
        print(f"{name:34}{await _scored(search, asked)}")
    words.close()
    both.close()


async def _scored(search: Search, asked: list[Question]) -> str:
    ranks: list[int] = []
    times: list[float] = []
    for question in asked:
        started = time.perf_counter()
        places = await search(question.text)
        times.append(time.perf_counter() - started)
        found = (rank for rank, place in enumerate(places, 1) if question.answered_by(*place))
        rank = next(found, 0)
        ranks.append(rank)
        if os.environ.get("SHOW") and not 0 < rank <= SHOWN:
            print(f"    {rank or '-':>3}  {question.text}  [{question.path}]  {places[:1]}")
    first, shown = (sum(0 < rank <= most for rank in ranks) / len(ranks) for most in (1, SHOWN))
    mrr = sum(1 / rank for rank in ranks if rank) / len(ranks)
    return f"{first:8.3f}  {shown:8.3f}  {mrr:6.3f}  {statistics.median(times) * 1000:8.1f}"


QUERIES = (
    *("parse an http date header", "retry a request after a timeout", "where are temporary files removed"),
    *("open a socket and listen", "compile a regular expression", "json encoder for decimals"),
    *(
        "thread pool executor shutdown",
        "escape html entities",
        "walk a directory tree",
        "merge two dictionaries",
    ),
)


async def speed(folder: Path) -> None:
    """Index the source files of the standard library and installed packages, copied."""
    corpus = folder / "python"
    for name in ("stdlib", "purelib"):
        left_out = {"__pycache__", "site-packages"} if name == "stdlib" else {"__pycache__"}

        def ignored(_folder: str, names: list[str], left_out: set[str] = left_out) -> set[str]:
            return {n for n in names if n in left_out or ("." in n and detect_language(n) is None)}

        shutil.copytree(sysconfig.get_path(name), corpus / name, ignore=ignored)
    index = index_of(folder / "home2", corpus)
    started, cpu = time.perf_counter(), time.process_time()
    info = await index.update(".", lambda _done, _total: None, 1e9)
    first, cpu = time.perf_counter() - started, time.process_time() - cpu
    sizes = list(_sizes(folder))
    print(
        f"{info.files:,} files, {sizes[0] / 1e6:.0f} MB, {info.chunks:,} chunks: {first:.1f} s ({cpu:.1f} s CPU), "
        f"{info.files / first:.0f} files/s, {sizes[0] / 1e6 / first:.1f} MB/s; index {sizes[1] / 1e6:.0f} MB, "
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB"
    )
    await asyncio.sleep(2)
    started = time.perf_counter()
    again = await index.update(".", lambda _done, _total: None, 1e9)
    second = time.perf_counter() - started
    print(
        f"again, nothing changed: {second:.2f} s, {second / first:.1%} of the first ({again.added} files indexed)"
    )
    search = ours(index)
    times: list[tuple[float, float]] = []
    for _ in range(3):
        for query in QUERIES:
            began, used = time.perf_counter(), time.process_time()
            await search(query)
            times.append((time.perf_counter() - began, time.process_time() - used))
    for name, each in zip(("", " of CPU time"), zip(*times, strict=True), strict=True):
        warm = sorted(each[len(QUERIES) :])
        median, worst, cold = (1000 * t for t in (statistics.median(warm), warm[-1], each[0]))
        print(f"query: warm median {median:.1f} ms{name}, worst {worst:.1f} ms; cold {cold:.0f} ms")
    index.close()


def _sizes(folder: Path) -> Iterator[int]:
    (file,) = (folder / "home2" / "index").glob("*.db")
    conn = sqlite3.connect(file)
    paths = [path for (path,) in conn.execute("select path from files")]
    conn.close()
    yield sum((folder / "python" / path).stat().st_size for path in paths)
    yield sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def main() -> None:
    known = {"quality": quality, "speed": speed}
    parts = [part for part in sys.argv[1:] if part in known] or [*known]
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            asyncio.run(known[part](Path(folder)))


if __name__ == "__main__":
    main()
