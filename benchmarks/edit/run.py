"""run: the edit matcher on a generated corpus, beside Python's obvious alternatives; and `apply_diff` on the same.

To run it alone: `python benchmarks/edit/run.py [SEED]`; a seed taken from the date runs, too.
"""

import importlib
import sys
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from interlock.tools.file_content import decode_text_file
from interlock.tools.matcher.edit import EditProblem, apply_spans, locate_edit_with_corrections
from interlock.tools.matcher.find import find_exact_match, find_match
from interlock.tools.matcher.windows import WorkBudget

HERE = str(Path(__file__).parent)
SEED = 20240607
PER_KIND = 90
_RIVAL_CASES = 12
"""Cases per class for difflib, which takes a tenth of a second for each."""
_AIM = 0.97

Edit = Callable[[bytes, str, str, int | None], bytes | None]
COLUMNS = ("right", "with model", "refused rightly", "refused", "other text", "WRONG PLACE", "ENDINGS")


def _sibling(name: str) -> Any:
    sys.path.insert(0, HERE)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(HERE)


def matcher(before: bytes, old: str, new: str, expected: int | None) -> bytes | None:
    """The file as `replace` would write it."""
    file = decode_text_file(before)
    assert file is not None
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    found = locate_edit_with_corrections("file", file.text, old, new, expected, work=WorkBudget())
    return None if isinstance(found, EditProblem) else file.encode(apply_spans(file, found.spans))


def judge(case: Any, edit: Edit) -> str:
    """The result's column. The model's answer is the true strings, or the same again where nothing is right."""
    after = edit(case.before, case.old, case.new, case.expected)
    if after is None:
        if case.right is None and not case.true_old:
            return "refused rightly"
        helped = edit(case.before, case.true_old, case.true_new, case.expected)
        truth = case.right if case.right is not None else _helped_right(case)
        if helped == truth:
            return "with model" if case.repairable else "refused rightly+"
        return "refused"
    if after == case.right:
        return "right"
    if _endings(after) != _endings(case.before):
        return "ENDINGS"
    return "other text" if _inside(case, after) else "WRONG PLACE"


def _helped_right(case: Any) -> bytes:
    text = case.before.decode()
    start, end = case.where
    return (text[:start] + case.true_new + text[end:]).encode()


def _endings(data: bytes) -> tuple[bool, ...]:
    """Byte order mark, encoding, CRLF, lone LF, final newline: what changing lines mustn't change."""
    file = decode_text_file(data)
    assert file is not None
    raw = file.raw
    return (
        file.mark != b"",
        file.encoding == "utf-8",
        "\r\n" in raw,
        "\n" in raw.replace("\r\n", ""),
        raw.endswith("\n"),
    )


def _inside(case: Any, after: bytes) -> bool:
    """Whether only the intended window has changed."""
    if case.right is None:
        return False
    before, now = decode_text_file(case.before), decode_text_file(after)
    assert before is not None
    assert now is not None
    start, end = case.where
    tail = before.text[end:]
    return now.text.startswith(before.text[:start]) and now.text.endswith(tail)


def table(title: str, cases: list[Any], edit: Edit) -> Counter[str]:
    """Print one line per class; returns the sum."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    started = time.perf_counter()
    wrong: list[Any] = []
    for case in cases:
        column = judge(case, edit)
        wrong += [case] if column in COLUMNS[3:] else []
        for name in ("refused rightly", "with model") if column == "refused rightly+" else (column,):
            counts[case.kind][name] += 1
        counts[case.kind]["cases"] += 1
    print(
        f"\n{title} ({len(cases)} cases, {(time.perf_counter() - started) / len(cases) * 1000:.1f} ms each)"
    )
    print(f"{'':20}{'cases':>7}" + "".join(f"{name:>17}" for name in COLUMNS))
    total: Counter[str] = sum(counts.values(), Counter[str]())
    for kind, row in [*counts.items(), ("total", total)]:
        print(f"{kind:20}{row['cases']:>7}" + "".join(f"{row[name] or '·':>17}" for name in COLUMNS))
    if edit is matcher:
        table.wrong = wrong  # type: ignore[attr-defined]
    return total


def large() -> bool:
    """Measure a 5 MB file and 200 lines in milliseconds and memory. True if a limit is exceeded."""
    random = Random(SEED)
    lines = [
        f"{'    ' * random.randint(0, 3)}name_{random.randrange(10**6)} = f({random.random()}, key)"
        for _ in range(111_000)
    ]
    text = "\n".join(lines) + "\n"
    window = lines[70_000:70_200]
    misremembered = [
        line.replace("key", "key" + "qxzw"[n // 50]) if n % 50 == 4 else line for n, line in enumerate(window)
    ]
    olds = {
        "exact": window,
        "but for indentation": [" " + line for line in window],
        "but for blanks": [line.replace("(", "( ") for line in window],
        "nearly": misremembered,
        "not at all": [line[::-1] for line in window],
    }
    broken = False
    print(f"\na file of {len(text) / 1e6:.1f} MB, 200 lines:")
    for name, old in olds.items():
        wanted = "\n".join(old)
        look = find_exact_match if name == "exact" else lambda *edit: find_match(*edit, work=WorkBudget())
        took = min(_timed(look, text, wanted) for _ in range(3))
        tracemalloc.start()
        look(text, wanted, "x", 1)
        peak = (tracemalloc.get_traced_memory()[1] + len(text)) / len(text)
        tracemalloc.stop()
        limit = 20 if name == "exact" else 1000
        broken |= took > limit or peak > 3
        print(f"  {name:22}{took:8.1f} ms (≤ {limit}){peak:6.2f} × the file in memory (≤ 3)")
    return broken


def _timed(look: Any, text: str, wanted: str) -> float:
    started = time.perf_counter()
    look(text, wanted, "x", 1)
    return (time.perf_counter() - started) * 1000


def main(seed: int = SEED) -> int:
    """Returns 0 if nothing was changed in a wrong place, no line ending changed and the goal was met."""
    corpus, sources, rivals, blocks = map(_sibling, ("corpus", "sources", "rivals", "blocks"))
    today = int(datetime.now(UTC).strftime("%Y%m%d"))
    texts = sources.texts(Random(seed))
    broken = False
    for number in (seed, today):
        cases = list(corpus.cases(Random(number), texts, PER_KIND))
        total = table(f"the matcher, seed {number}", cases, matcher)
        repairable = sum(case.right is not None for case in cases)
        share = total["right"] / repairable
        print(
            f"right without a model: {total['right']} of {repairable} repairable = {share:.1%} (aim {_AIM:.0%})"
        )
        broken |= bool(total["WRONG PLACE"] or total["ENDINGS"]) or share < _AIM
        if number == seed:
            table("exact only", cases, rivals.exact_only)
            few = [case for at, case in enumerate(cases) if at % PER_KIND < _RIVAL_CASES]
            table("difflib, closest window", few, rivals.closest)
    for hint in blocks.HINTS:
        hinted = list(blocks.hinted_cases(Random(seed), texts, PER_KIND, hint))
        total = table(f"apply_diff, line hint: {hint}", hinted, blocks.by_apply_diff)
        broken |= bool(total["WRONG PLACE"] or total["ENDINGS"])
    return int(large() or broken)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else SEED))
