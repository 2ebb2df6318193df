"""suspects: finds the functions and files that may hold the fault behind a failed check, likeliest first.

No model is asked. What counts: lines of tracebacks, what a failing test calls, what that calls in turn, and names that
the output or the task mention. Tests are never suspected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from interlock.services.checks.repair_files import RepairFiles
from interlock.state.checks import CheckEnd
from interlock.state.repair import Place, Suspects
from interlock.tools.code_definitions import Definition, detect_language
from interlock.tools.code_places import definitions_or_none, innermost_definitions

_MOST_PLACES, _MOST_FILES = 8, 2_000
_SMALL_LINES = 60
"""A file up to this length is corrected as a whole: a small model sees all of it anyway."""
_LARGE_LINES = 400
"""A longer file is never corrected as a whole."""
_TEST_LINES = 80
"""Lines of failing tests that a model is shown."""
_CODE = frozenset(
    {
        *(
            "python",
            "javascript",
            "typescript",
            "tsx",
            "go",
            "rust",
            "java",
            "kotlin",
            "scala",
            "c",
            "cpp",
            "csharp",
        ),
        *("ruby", "php", "swift", "lua", "elixir", "bash"),
    }
)
"""Languages whose files may hold a fault; prose and data are left alone."""
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*!?\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TEST_NAME = re.compile(r"\w+")
_INNER, _OUTER, _AT_FAILURE, _CALLED_BY_TEST, _SAME_FILE, _NAMED, _IMPORTED = (
    10.0,
    6.0,
    4.0,
    5.0,
    1.0,
    2.0,
    1.5,
)
_FADES = 0.6
"""How much of a caller's suspicion falls on what it calls."""


@dataclass
class _Suspicion:
    score: float = 0.0
    reason: str = ""
    strongest: float = 0.0

    def add(self, score: float, reason: str) -> None:
        self.score += score
        if score > self.strongest:
            self.strongest, self.reason = score, reason


@dataclass
class _Code:
    """One file that may hold the fault."""

    path: str
    text: str
    functions: Sequence[Definition] | None
    """None: the language can't be parsed."""
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")

    def body(self, function: Definition) -> str:
        return "\n".join(self.lines[function.start - 1 : function.end])


def find_suspects(
    files: RepairFiles,
    list_paths: Callable[[], Sequence[str]],
    read: Callable[[str], str | None],
    end: CheckEnd,
    task: str,
) -> Suspects:
    """Return the places that may hold the fault, with their files and the parts of tests that failed.

    `list_paths`: the workspace's files, relative. `read` returns a file's text; None: it can't be read, or it isn't a
    model's to see.
    """
    paths = [path for path in list_paths() if detect_language(path) in _CODE][:_MOST_FILES]
    output = "\n".join([*(one.detail for one in end.failures), end.output])
    tests = _failing_tests(files, paths, read, end, output)
    code = {
        path: _Code(path, text, definitions_or_none(text, path))
        for path in paths
        if files.table.file_kind(path) in ("code", "") and (text := read(path)) is not None
    }
    at = (
        (read(path) or "").split("\n")[line - 1 : line]
        for path, line in dict.fromkeys(files.find_named_lines(output))
        if path in tests
    )
    failed_lines = "\n".join(line for lines in at for line in lines)
    found = _score_places(files, code, tests, output, failed_lines, task)
    places = [*_choose_places(code, found)][:_MOST_PLACES]
    used = {place.path: code[place.path].text for place in places}
    return Suspects(places=tuple(places), files=used, tests=tests)


def _failing_tests(
    files: RepairFiles, paths: Sequence[str], read: Callable[[str], str | None], end: CheckEnd, output: str
) -> dict[str, str]:
    """Return the failing tests' files, cut to their imports and the tests that failed."""
    names = [word for one in end.failures for word in _TEST_NAME.findall(one.name)]
    named = [path for path, _ in files.find_named_lines(output)] + [
        one.name.partition("::")[0] for one in end.failures
    ]
    own = [path for path in paths if files.table.file_kind(path) == "test"]
    modules = {PurePosixPath(path).stem for path in own} & {*names}
    chosen = [path for path in dict.fromkeys(named) if path in own]
    chosen += [path for path in own if PurePosixPath(path).stem in modules and path not in chosen]
    if not chosen:  # the runner names no file: those that define what failed
        texts = ((path, read(path) or "") for path in own[:200])
        chosen = [path for path, text in texts if any(f" {name}(" in text for name in names if len(name) > 3)]
    chosen = chosen or own[:2]
    inline = [path for path in dict.fromkeys(named) if path in paths and path not in own]
    found: dict[str, str] = {}
    for path in (*chosen[:3], *([] if chosen else inline[:1])):
        if text := read(path):
            found[path] = _cut_test(
                text, path, names, [line for at, line in files.find_named_lines(output) if at == path]
            )
    return found


def _cut_test(text: str, path: str, names: Sequence[str], at: Sequence[int]) -> str:
    """Return what stands before the first test, and the tests that failed; all of a short file."""
    lines = text.split("\n")
    if len(lines) <= _TEST_LINES:
        return text
    functions = innermost_definitions(definitions_or_none(text, path) or ())
    hit = [f for f in functions if f.name in names or any(f.start <= line <= f.end for line in at)]
    ranges = [(f.start, f.end) for f in hit] or [(max(1, line - 15), line + 5) for line in at[:2]]
    kept: set[int] = {
        n for n, line in enumerate(lines[:30], 1) if re.match(r"\s*(?:import|from|use|const|require)\b", line)
    }
    for start, end in ranges:
        if len(kept) < _TEST_LINES:
            kept.update(range(start, min(end, start + _TEST_LINES) + 1))
    if not ranges:
        kept.update(range(1, _TEST_LINES))
    shown: list[str] = []
    last = 0
    for n in sorted(kept):
        if n > last + 1:
            shown.append("…" if last else "")
        shown += lines[n - 1 : n]
        last = n
    return "\n".join(shown).strip("\n")


_Key = tuple[str, int]
"""File and index of its function; -1: outside of all functions."""


def _score_places(
    files: RepairFiles,
    code: Mapping[str, _Code],
    tests: Mapping[str, str],
    output: str,
    failed_lines: str,
    task: str,
) -> dict[_Key, _Suspicion]:
    found: dict[_Key, _Suspicion] = {}
    by_name: dict[str, list[_Key]] = {}
    for path, one in code.items():
        for number, function in enumerate(one.functions or ()):
            by_name.setdefault(function.name.rpartition(".")[2], []).append((path, number))

    def suspect(key: _Key, score: float, reason: str) -> None:
        found.setdefault(key, _Suspicion()).add(score, reason)

    traced = [(path, line) for path, line in files.find_named_lines(output) if path in code]
    for nth, (path, line) in enumerate(reversed([*dict.fromkeys(traced)])):
        key = _function_at(code[path], line)
        suspect((path, key), _INNER if nth == 0 else _OUTER / nth, f"the output names its line {line}")
    imported = [path for path in files.find_modules_to_repair("", tests) if path in code]
    reached = [*imported]
    for path in imported:
        reached += [
            one for one in files.find_modules_to_repair("", {path: code[path].text}) if one not in reached
        ]
    for path in imported:
        suspect((path, -1), _IMPORTED, "a failing test imports it")
    known = {*reached} or {*code}
    words = "\n".join(tests.values())
    _suspect_called(words, _CALLED_BY_TEST, "a failing test calls it", by_name, known, {*code}, suspect)
    _suspect_called(
        failed_lines, _AT_FAILURE, "the line of a test that failed calls it", by_name, known, {*code}, suspect
    )
    level = dict(found)
    for _ in range(2):  # what the suspects call, and what that calls
        before = {key: one.score for key, one in found.items()}
        for (path, number), one in level.items():
            if number < 0:
                continue
            function = (code[path].functions or ())[number]
            reason = f"{function.name} calls it, and {one.reason}"
            body = code[path].body(function).partition("\n")[2] or code[path].body(function)
            _suspect_called(
                body,
                min(one.score, _INNER) * _FADES,
                reason,
                by_name,
                known | {path},
                {*code},
                suspect,
                skip=(path, number),
            )
        level = {key: one for key, one in found.items() if key not in before}
    for name in {*_WORD.findall(task)} & {*by_name}:
        if re.search(rf"`[^`]*\b{name}\b|\b{name}\(", task):
            for key in by_name[name]:
                suspect(key, _NAMED * 2, "the task names it")
    for path in code:
        if re.search(rf"(?<![\w/]){re.escape(path)}\b", task):
            suspect((path, -1), _NAMED * 3, "the task names its file")
    return found


def _suspect_called(
    text: str,
    score: float,
    reason: str,
    by_name: Mapping[str, Sequence[_Key]],
    known: set[str],
    everything: set[str],
    suspect: Callable[[_Key, float, str], None],
    skip: _Key | None = None,
) -> None:
    called, words = {*_CALLED.findall(text)}, {*_WORD.findall(text)}
    for name in words & {*by_name}:
        keys = [key for key in by_name[name] if key[0] in known and key != skip]
        keys = keys or [key for key in by_name[name] if key[0] in everything and key != skip]
        weight = score if name in called else score / 2
        for key in keys:
            suspect(key, weight / len(keys), reason)


def _function_at(code: _Code, line: int) -> int:
    """Return the index of the innermost function around a line; -1: none."""
    around = [n for n, f in enumerate(code.functions or ()) if f.start <= line <= f.end]
    return max(around, key=lambda n: (code.functions or ())[n].start, default=-1)


def _choose_places(code: Mapping[str, _Code], found: Mapping[_Key, _Suspicion]) -> Iterator[Place]:
    """Yield whole short files, functions of longer ones, and of those at last the file."""
    scored: list[tuple[float, Place]] = []
    of_file: dict[str, list[_Suspicion]] = {}
    for (path, number), one in found.items():
        of_file.setdefault(path, []).append(one)
        file = code[path]
        if len(file.lines) > _SMALL_LINES and number >= 0:
            function = (file.functions or ())[number]
            scored.append((one.score, _place(file, one.reason, function)))
    for path, several in of_file.items():
        file, best = code[path], max(several, key=lambda one: one.score)
        if len(file.lines) <= _SMALL_LINES:
            scored.append((best.score + _SAME_FILE * len(several) / 10, _place(file, best.reason)))
        elif len(file.lines) <= _LARGE_LINES:
            outside = found.get((path, -1))
            scored.append((outside.strongest if outside else best.score / 10, _place(file, best.reason)))
    scored.sort(key=lambda row: (-row[0], row[1].path, row[1].start_line))
    yield from (place for _, place in scored)


def _place(code: _Code, reason: str, function: Definition | None = None) -> Place:
    if function is None:
        return Place(path=code.path, start_line=1, end_line=len(code.lines), reason=reason)
    return Place(
        path=code.path, name=function.name, start_line=function.start, end_line=function.end, reason=reason
    )
