"""failures: reads which tests failed, and why, in what a test runner printed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from interlock.state.checks import FailedTest

_MOST, _DETAIL_CHARS = 50, 2_000
"""Failed tests that are kept, and characters of what is printed of each: its beginning and its end."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class RunnerOutput:
    """How one runner prints failed tests. `test`, `path` and `message` are groups of the patterns."""

    name: str
    block: str
    """The line that begins the details of a failed test."""
    end: str = r"(?!)"
    """A line that ends the details; the next block does, too."""
    line: str = r"(?!)"
    """A line that names a failed test without details."""
    broken: str = r"(?!)"
    """In a test's details: the runner couldn't load it, so that its own tests didn't run."""


RUNNERS: Sequence[RunnerOutput] = (
    RunnerOutput(
        "pytest",
        block=r"^_{3,} (?:ERROR (?:collecting|at \w+ of) )?(?P<test>\S.*?) _{3,}$",
        end=r"^(?:={3,} |-{10,} generated)",
        line=r"^(?:FAILED|ERROR) (?P<path>[^\s:]+\.\w+)(?:::(?P<test>.+?))?(?: - (?P<message>.*))?$",
        broken=r"^(?:ImportError while importing|E +(?:SyntaxError|IndentationError|ImportError|ModuleNotFoundError))",
    ),
    RunnerOutput(
        "unittest",
        block=r"^(?:FAIL|ERROR): (?P<test>\w+ \([\w.<>]+\)(?: .*)?|\w+ \([\w.]+\))$",
        end=r"^(?:={60,}|Ran \d+ tests? in )",
        broken=r"^ImportError: Failed to import test module",
    ),
    RunnerOutput(
        "jest",
        block=r"^ {0,4}● (?P<test>(?!Console$).+)$",
        end=r"^(?:Test Suites: |Summary of all failing tests)",
        broken=r"^ *(?:Test suite failed to run|SyntaxError:)",
    ),
    RunnerOutput(
        "vitest",
        block=r"^ *FAIL +(?P<path>[\w./@+-]+\.\w+)(?: > (?P<test>.+?))?(?: \[ .+ \])?$",
        end=r"^(?:⎯{20,}| *Test Files +)",
        broken=r"^ *(?:Error: Failed to (?:load|parse|resolve)|SyntaxError:)",
    ),
    RunnerOutput(
        "node",
        block=r"^ *(?:not ok \d+ - |✖ )(?P<test>(?!failing tests:).+?)(?: \([\d.]+ms\))?$",
        end=r"^(?:ℹ |# |1\.\.|test at )",
        broken=r"^ *(?:Error: )?(?:SyntaxError|Error \[ERR_MODULE_NOT_FOUND\])",
    ),
    RunnerOutput(
        "go",
        block=r"^ *--- FAIL: (?P<test>\S+)",
        end=r"^(?:--- PASS|=== |FAIL|ok |PASS|exit status)",
        line=r"^(?P<path>[\w./-]+\.go):\d+:\d+: (?P<message>.+)$",
    ),
    RunnerOutput(
        "cargo",
        block=r"^---- (?P<test>\S+) stdout ----$",
        end=r"^(?:failures:|test result: )",
        line=r"^test (?P<test>\S+) \.\.\. FAILED$",
    ),
    RunnerOutput(
        "compiler",
        block=r"^(?P<message>error(?:\[E\d+\])?: (?!could not compile|aborting).+)$",
        end=r"^(?:warning|error: (?:could not compile|aborting))",
        broken=r"^error",
    ),
)
"""Tried with the output of pytest 8, unittest of CPython 3.11, node, go 1.19 and cargo. Jest, vitest and rustc are read
after their documentation."""


class _Found(NamedTuple):
    test: str
    path: str
    detail: str
    is_broken: bool


def parse_failures(output: str) -> tuple[FailedTest, ...]:
    """Return the failed tests that an output names, in its order; none if no runner's form is known in it."""
    text = _COLOURS.sub("", output).replace("\r\n", "\n")
    if "<testcase" in text:
        found = [*_parse_junit_xml(text)]
    else:
        by_runner = ([*_parse_runner_output(row, text)] for row in RUNNERS)
        found = next(filter(None, by_runner), list[_Found]())
    merged: dict[str, FailedTest] = {}
    for one in found:
        name = f"{one.path}::{one.test}" if one.path and one.test else one.test or one.path
        known = merged.get(name) or FailedTest(name=name)
        detail = known.detail if len(known.detail) >= len(one.detail) else one.detail
        is_broken = known.is_broken or one.is_broken
        merged[name] = FailedTest(name=name, detail=detail, is_broken=is_broken)
    return tuple([*merged.values()][:_MOST])


def _parse_runner_output(row: RunnerOutput, text: str) -> Iterator[_Found]:
    block, end, line = (re.compile(pattern) for pattern in (row.block, row.end, row.line))
    broken = re.compile(row.broken, re.MULTILINE)
    lines = text.split("\n")
    details = dict[str, str]()
    for at, shown in enumerate(lines):
        if head := block.match(shown):
            stop = next(
                (n for n in range(at + 1, len(lines)) if block.match(lines[n]) or end.match(lines[n])),
                len(lines),
            )
            detail = _shorten_middle("\n".join(lines[at:stop]).strip())
            groups = head.groupdict()
            test = groups.get("test") or groups.get("message") or ""
            details[test] = detail
            if row.name != "pytest":  # which names each test once more, with its file
                yield _Found(test, groups.get("path") or "", detail, bool(broken.search(detail)))
    for shown in lines:
        if named := line.match(shown):
            groups = named.groupdict()
            test, path = groups.get("test") or "", groups.get("path") or ""
            key = test.replace("::", ".") or path
            detail = details.get(key) or details.get(test) or groups.get("message") or ""
            yield _Found(
                test, path, detail, bool(broken.search(detail)) or (row.name == "pytest" and not test)
            )
    if row.name == "pytest" and details and not any(map(line.match, lines)):
        yield from (_Found(test, "", detail, bool(broken.search(detail))) for test, detail in details.items())


def _parse_junit_xml(text: str) -> Iterator[_Found]:
    """Yield the failed cases of JUnit's XML; by patterns, as it may stand between other output."""
    for case in re.finditer(r"<testcase\b([^>]*?)(?:/>|>(.*?)</testcase>)", text, re.DOTALL):
        problem = re.search(r"<(failure|error)\b([^>]*?)(?:/>|>(.*?)</\1>)", case[2] or "", re.DOTALL)
        if problem:
            names = dict(re.findall(r'([\w-]+)="([^"]*)"', case[1]))
            test = ".".join(filter(None, (names.get("classname"), names.get("name"))))
            message = dict(re.findall(r'([\w-]+)="([^"]*)"', problem[2])).get("message", "")
            detail = _unescape_xml(f"{message}\n{problem[3] or ''}".strip())
            yield _Found(
                _unescape_xml(test), names.get("file", ""), _shorten_middle(detail), problem[1] == "error"
            )


def _unescape_xml(text: str) -> str:
    from html import unescape

    return unescape(re.sub(r"<!\[CDATA\[(.*?)\]\]>", r"\1", text, flags=re.DOTALL))


def _shorten_middle(text: str) -> str:
    """Return the beginning and the end: a traceback begins with the test, and its error stands last."""
    if len(text) <= _DETAIL_CHARS:
        return text
    half = _DETAIL_CHARS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
