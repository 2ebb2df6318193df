"""table: which files of a workspace are tests, or decide which tests run, and what a check's command runs of them."""

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel

Kind = Literal["", "test", "settings", "mixed", "whole", "code"]
"""`test`: a test, or something in a test folder. `settings`: it decides which tests run. `mixed`: some keys or targets
concern tests. `whole`: some of it does, but can't be told apart. `code`: tests may lie beside the code. Empty: none."""


class Runner(BaseModel, extra="forbid", frozen=True):
    """A test runner; fields as `tests.toml` explains them."""

    name: str
    source: str
    programs: tuple[str, ...] = ()
    tests: tuple[str, ...]
    settings: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    quiet: bool = False


class Mixed(BaseModel, extra="forbid", frozen=True):
    """Files of which a part concerns tests; fields as `tests.toml` explains them."""

    files: tuple[str, ...]
    format: Literal["json", "toml", "ini", "yaml", "make", "code", "whole"]
    keys: tuple[str, ...] = ()
    targets: str = ""


@cache
def _document() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tests.toml").read_text(encoding="utf-8"))


@cache
def runners() -> Sequence[Runner]:
    return [Runner.model_validate(row) for row in _document()["runner"]]


@cache
def _mixed() -> Sequence[tuple[Callable[[str], bool], Mixed]]:
    rows = map(Mixed.model_validate, _document()["mixed"])
    return [(matcher_of(row.files), row) for row in rows]


@cache
def _in_folders() -> re.Pattern[str]:
    folders = _document()["folders"]
    no, yes = ("|".join(map(re.escape, folders[name])) for name in ("not", "names"))
    return re.compile(rf"(?:(?!(?:{no})/)[^/]+/)*?(?:{yes})/(?:(?!(?:{no})/)[^/]+/)*[^/]+")


@cache
def _of_others() -> re.Pattern[str]:
    """Paths in folders with packages of others and in caches."""
    return re.compile(rf"(?:.*/)?(?:{'|'.join(map(re.escape, _document()['folders']['not']))})/.*")


@cache
def matcher_of(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a relative path matches one of these patterns, written as in `tests.toml`."""
    if not patterns:
        return lambda _: False
    found = re.compile("|".join(map(_as_regex, patterns)))
    return lambda path: found.fullmatch(path) is not None


def _as_regex(pattern: str) -> str:
    anchored, pattern = pattern.startswith("/"), pattern.removeprefix("/").removeprefix("./")
    parts = (".*" if part == "**" else _part(part) for part in pattern.split("/"))
    text = "/".join(parts).replace("/.*/", "/(?:.*/)?").removeprefix(".*/")
    rest = "" if pattern.endswith("**") else "(?:/.*)?" if pattern.endswith("/") else ""
    begin = "" if anchored else "(?:.*/)?"
    return f"(?:{begin}{text}{rest})"


def _part(pattern: str) -> str:
    text = translate(pattern)
    for end in (r"\Z", r"\z"):
        text = text.removesuffix(end)
    return text.replace(".*", "[^/]*") if "*" in pattern else text


_FOLDER = re.compile(r"test|spec|check|feature", re.IGNORECASE)
"""In the name of a folder that a line names: all of it is tests. Another may hold a package with its tests."""


@dataclass(frozen=True)
class CheckTable:
    """The table, with what a command line and a project's own settings add to it."""

    command: str
    read: Callable[[str], str | None] = field(default=lambda _: None, compare=False)
    """Read one of the project's files as it was when the run began; None: it didn't exist."""

    def kind_of(self, path: str) -> Kind:
        """Return what a path relative to the workspace is."""
        if self.is_foreign(path):
            return ""
        if _is_setting()(path):
            return "settings"
        if _is_test()(path) or _in_folders().fullmatch(path) or self._is_own(path):
            return "test"
        row = self.mixed(path)
        if row is None:
            return ""
        return row.format if row.format in ("whole", "code") else "mixed"

    def is_foreign(self, path: str) -> bool:
        """Whether a path lies in a folder with packages of others, or in a cache."""
        return _of_others().fullmatch(path) is not None

    def mixed(self, path: str) -> Mixed | None:
        """Return the row of a file of which only a part concerns tests."""
        return next((row for matches, row in _mixed() if matches(path)), None)

    def is_test(self, path: str) -> bool:
        """Whether all of a file is a test, or decides which tests run."""
        return self.kind_of(path) in ("test", "settings")

    @cached_property
    def words(self) -> frozenset[str]:
        """All words of the command line."""
        return frozenset(re.findall(r"[\w.:@/+-]+", self.command))

    @cached_property
    def programs(self) -> Sequence[Runner]:
        """The runners that the line names."""
        return [runner for words in simple_commands(self.command) for runner in _runners_in(words)]

    @cached_property
    def named(self) -> Sequence[str]:
        """Relative paths that the line hands to a runner: files and folders of tests, whatever they are called."""
        return [*self._operands(code=False)]

    @cached_property
    def operands(self) -> Sequence[str]:
        """Relative paths that the line hands to a runner, also where they hold the code that is tested."""
        return [*self._operands(code=True)]

    def _operands(self, *, code: bool) -> Iterator[str]:
        for words in filter(_runners_in, simple_commands(self.command)):
            if not code and any("doctest" in word for word in words):
                continue
            for word in words[1:]:
                path = word.partition("::")[0].removeprefix("./").rstrip("/")
                if path and not word.startswith(("-", "/")) and ".." not in path.split("/"):
                    yield path
                    if "unittest" in words and path.replace(".", "").isidentifier():
                        yield f"{path.replace('.', '/')}.py"

    def _is_own(self, path: str) -> bool:
        below = (one for one in self.named if _FOLDER.search(one.rpartition("/")[2]))
        return (
            path in self.named or any(path.startswith(f"{one}/") for one in below) or self._configured(path)
        )

    @cached_property
    def _configured(self) -> Callable[[str], bool]:
        return matcher_of(
            tuple(dict.fromkeys((*_pytest_patterns(self.read), *_jest_patterns(self.read), *self._options())))
        )

    def _options(self) -> Iterator[str]:
        """Yield the patterns that the line itself gives: `unittest discover -s checks -p 'check*.py'`."""
        for words in simple_commands(self.command):
            for option, value in pairwise(words):
                if option in ("-p", "--pattern") and "unittest" in words:
                    yield value
                if option in ("-s", "--start-directory") and "unittest" in words and value not in (".", "./"):
                    yield f"/{value.strip('./')}/**"


@cache
def _is_setting() -> Callable[[str], bool]:
    return matcher_of(tuple(pattern for runner in runners() for pattern in runner.settings))


@cache
def _is_test() -> Callable[[str], bool]:
    return matcher_of(tuple(pattern for runner in runners() for pattern in runner.tests))


def _runners_in(words: Sequence[str]) -> list[Runner]:
    """Return the runners that a simple command names."""
    names = {Path(word).name for word in words}
    called = " ".join((Path(words[0]).name, *words[1:2]))
    node = called == "node --test" or (Path(words[0]).name == "node" and "--test" in words)
    return [r for r in runners() if names & {*r.programs} or r.name == called or (node and r.name == "node")]


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell line, without assignments before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace_split, lexer.commenters, lexer.whitespace = True, "", " \t\r"
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote
        tokens = line.split()
    words: list[str] = []
    for token in [*tokens, ";"]:
        if token and set(token) <= set("();<>|&\n"):
            if words:
                yield words
            words = []
        elif words or not re.fullmatch(r"[A-Za-z_]\w*=.*", token, re.DOTALL):
            words.append(token)


def _pytest_patterns(read: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the patterns of pytest's own settings: `python_files`, `testpaths`."""
    for section in _pytest_sections(read):
        files = section.get("python_files", "")
        yield from files.split() if isinstance(files, str) else map(str, files)
        paths = section.get("testpaths", "")
        for path in paths.split() if isinstance(paths, str) else map(str, paths):
            if path.strip("./"):
                yield f"/{path.strip('/').removeprefix('./')}/**"


def _pytest_sections(read: Callable[[str], str | None]) -> Iterator[Mapping[str, Any]]:
    for name, sections in (
        ("pytest.ini", ("pytest",)),
        ("tox.ini", ("pytest",)),
        ("setup.cfg", ("tool:pytest",)),
    ):
        parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
        with suppress(configparser.Error):
            parser.read_string(read(name) or "")
            yield from (dict(parser[s]) for s in sections if parser.has_section(s))
    with suppress(tomllib.TOMLDecodeError, AttributeError):
        pytest = tomllib.loads(read("pyproject.toml") or "").get("tool", {}).get("pytest", {})
        yield pytest.get("ini_options", pytest)


def _jest_patterns(read: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the globs of jest's `testMatch` in package.json."""
    with suppress(ValueError, AttributeError):
        found: Any = json.loads(read("package.json") or "{}").get("jest", {}).get("testMatch", ())
        for glob in cast(Sequence[Any], found):
            if isinstance(glob, str) and not re.search(r"[()!]", glob):
                yield glob.replace("<rootDir>/", "/")
