"""test_table: says which files are tests or decide which tests run, and which of them a check's command runs."""

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache, cached_property
from itertools import chain, dropwhile, pairwise
from os.path import normpath
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel

from interlock.services.shell.simple import ASSIGNED, split_simple_commands

Kind = Literal["", "test", "settings", "mixed", "whole", "code"]
"""`test`: a test, or something in a test folder. `settings`: it decides which tests run. `mixed`: some keys or targets
concern tests. `whole`: some of it does, but can't be told apart. `code`: tests may lie beside the code. Empty: none."""


class Runner(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """A test runner; fields as `tests.toml` explains them."""

    name: str
    source: str
    programs: tuple[str, ...] = ()
    tests: tuple[str, ...]
    settings: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    quiet: bool = False


class Mixed(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """Files of which a part concerns tests; fields as `tests.toml` explains them."""

    files: tuple[str, ...]
    format: Literal["json", "toml", "ini", "yaml", "make", "code", "whole"]
    keys: tuple[str, ...] = ()
    targets: str = ""


@cache
def _load_tests_toml() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tests.toml").read_text(encoding="utf-8"))


@cache
def load_runners() -> Sequence[Runner]:
    return [Runner.model_validate(row) for row in _load_tests_toml()["runner"]]


@cache
def _load_mixed_file_rows() -> Sequence[tuple[Callable[[str], bool], Mixed]]:
    rows = map(Mixed.model_validate, _load_tests_toml()["mixed"])
    return [(compile_path_matcher(row.files), row) for row in rows]


@cache
def _test_folder_pattern() -> re.Pattern[str]:
    folders = _load_tests_toml()["folders"]
    no, yes = ("|".join(map(re.escape, folders[name])) for name in ("not", "names"))
    return re.compile(rf"(?:(?!(?:{no})/)[^/]+/)*?(?:{yes})/(?:(?!(?:{no})/)[^/]+/)*[^/]+")


@cache
def _third_party_folder_pattern() -> re.Pattern[str]:
    """Paths in folders with packages of others and in caches."""
    return re.compile(rf"(?:.*/)?(?:{'|'.join(map(re.escape, _load_tests_toml()['folders']['not']))})/.*")


@cache
def _generated_folder_names_and_markers() -> tuple[frozenset[str], frozenset[str]]:
    """Return names of folders that builds and package managers fill, and names that lie in such folders."""
    folders = _load_tests_toml()["folders"]
    return frozenset(folders["made"]), frozenset(folders["marks"])


@cache
def compile_path_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a relative path matches one of these patterns, written as in `tests.toml`."""
    if not patterns:
        return lambda _: False
    names = [pattern for pattern in patterns if "/" not in pattern]
    paths = [pattern for pattern in patterns if "/" in pattern]
    # Apart, as a name is found in half the time that it takes to look for it at the end of a path.
    by_name, by_path = (
        re.compile("|".join(map(to_regex, some)) or "(?!)")
        for to_regex, some in ((_segment_to_regex, names), (_pattern_to_regex, paths))
    )
    return lambda path: bool(by_name.fullmatch(path[path.rfind("/") + 1 :]) or by_path.fullmatch(path))


def _pattern_to_regex(pattern: str) -> str:
    anchored, pattern = pattern.startswith("/"), pattern.removeprefix("/").removeprefix("./")
    parts = (".*" if part == "**" else _segment_to_regex(part) for part in pattern.split("/"))
    text = "/".join(parts).replace("/.*/", "/(?:.*/)?").removeprefix(".*/")
    rest = "" if pattern.endswith("**") else "(?:/.*)?" if pattern.endswith("/") else ""
    begin = "" if anchored else "(?:.*/)?"
    return f"(?:{begin}{text}{rest})"


def _segment_to_regex(pattern: str) -> str:
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
    linked: tuple[str, ...] = ()
    """Folders that links to folders of tests lead to, as `find_linked_test_folders` returns them."""

    def file_kind(self, path: str) -> Kind:
        """Return what a path relative to the workspace is."""
        if self.is_third_party(path):
            return ""
        is_in_table = _any_pattern_matcher()(path)
        if is_in_table and _runner_file_matcher("settings")(path):
            return "settings"
        if (
            (is_in_table and _runner_file_matcher("tests")(path))
            or _test_folder_pattern().fullmatch(path)
            or self._is_named_or_configured_test(path)
        ):
            return "test"
        row = self.find_mixed_file_row(path) if is_in_table else None
        if row is None:
            return ""
        return row.format if row.format in ("whole", "code") else "mixed"

    def is_third_party(self, path: str) -> bool:
        """Return whether a path lies in a folder with packages of others, or in a cache."""
        return _third_party_folder_pattern().fullmatch(path) is not None

    def link_kind(self, path: str) -> Kind:
        """As `file_kind`, of a link, which may stand for a folder of tests or for a runner's package."""
        inside, own = self.file_kind(f"{path}/_"), self.file_kind(path)
        return inside if inside == "settings" or (inside == "test" and own != "settings") else own

    def find_linked_test_folders(self, links: Mapping[str, str]) -> tuple[str, ...]:
        """Return the folders of the workspace that links to folders of tests lead to, each with a slash at its end.

        `links`: path → target. A link that itself lies among tests leads to what is tested.
        """
        found: set[str] = set()
        for path, target in links.items():
            beside = path[: path.rfind("/") + 1]
            inside = normpath(f"{beside}{target}" if not target.startswith("/") else target)
            is_below = inside.partition("/")[0] not in ("", ".", "..") and not path.startswith(f"{inside}/")
            if is_below and self.link_kind(path) == "test" != self.file_kind(f"{beside}_"):
                found.add(f"{inside}/")
        return tuple(sorted(found))

    def is_generated_folder(self, folder: str, names: Set[str]) -> bool:
        """Return whether a folder that no snapshot holds is the work of a build or a package manager; `names`:
        those in it."""
        made, marks = _generated_folder_names_and_markers()
        if not marks.isdisjoint(names):
            return True
        name = folder.rpartition("/")[2]
        return name in made and not any(name in one.split("/") for one in self.runner_operands)

    def find_mixed_file_row(self, path: str) -> Mixed | None:
        """Return the row of a file of which only a part concerns tests."""
        return next((row for matches, row in _load_mixed_file_rows() if matches(path)), None)

    def is_test_or_settings(self, path: str) -> bool:
        """Return whether all of a file is a test, or decides which tests run."""
        return self.file_kind(path) in ("test", "settings")

    @cached_property
    def command_words(self) -> frozenset[str]:
        """All words of the command line."""
        return frozenset(re.findall(r"[\w.:@/+-]+", self.command))

    @cached_property
    def named_runners(self) -> Sequence[Runner]:
        """The runners that the line names."""
        return [
            runner
            for words in _split_commands_without_assignments(self.command)
            for runner in _find_runners(words)
        ]

    @cached_property
    def named_test_paths(self) -> Sequence[str]:
        """Relative paths that the line hands to a runner: files and folders of tests, whatever they are called."""
        return [*self._iterate_runner_operands(include_code=False)]

    @cached_property
    def runner_operands(self) -> Sequence[str]:
        """Relative paths that the line hands to a runner, also where they hold the code that is tested."""
        return [*self._iterate_runner_operands(include_code=True)]

    def _iterate_runner_operands(self, *, include_code: bool) -> Iterator[str]:
        for words in filter(_find_runners, _split_commands_without_assignments(self.command)):
            if not include_code and any("doctest" in word for word in words):
                continue
            for word in words[1:]:
                path = word.partition("::")[0].removeprefix("./").rstrip("/")
                if path and not word.startswith(("-", "/")) and ".." not in path.split("/"):
                    yield path
                    if "unittest" in words and path.replace(".", "").isidentifier():
                        yield f"{path.replace('.', '/')}.py"

    def _is_named_or_configured_test(self, path: str) -> bool:
        return (
            path in self.named_test_paths
            or path.startswith(self._named_or_linked_test_folders)
            or self._configured_test_matcher(path)
        )

    @cached_property
    def _named_or_linked_test_folders(self) -> tuple[str, ...]:
        """Folders of tests that the line names, or links lead to, each with a slash at its end."""
        named = (f"{one}/" for one in self.named_test_paths if _FOLDER.search(one.rpartition("/")[2]))
        return (*named, *self.linked)

    @cached_property
    def _configured_test_matcher(self) -> Callable[[str], bool]:
        return compile_path_matcher(
            tuple(
                dict.fromkeys(
                    (*_pytest_patterns(self.read), *_jest_patterns(self.read), *self._command_line_patterns())
                )
            )
        )

    def _command_line_patterns(self) -> Iterator[str]:
        """Yield the patterns that the line itself gives: `unittest discover -s checks -p 'check*.py'`."""
        for words in _split_commands_without_assignments(self.command):
            for option, value in pairwise(words):
                if option in ("-p", "--pattern") and "unittest" in words:
                    yield value
                if option in ("-s", "--start-directory") and "unittest" in words and value not in (".", "./"):
                    yield f"/{value.strip('./')}/**"


@cache
def _runner_file_matcher(kind: Literal["tests", "settings"]) -> Callable[[str], bool]:
    """Match the files that any runner takes for tests, or for its settings."""
    files = ((r.tests if kind == "tests" else r.settings) for r in load_runners())
    return compile_path_matcher(tuple(chain.from_iterable(files)))


@cache
def _any_pattern_matcher() -> Callable[[str], bool]:
    """Match what any row does, at once: whole trees of files are looked at."""
    rows = ((*runner.tests, *runner.settings) for runner in load_runners())
    return compile_path_matcher(tuple(chain(*rows, *(row.files for _, row in _load_mixed_file_rows()))))


def _find_runners(words: Sequence[str]) -> list[Runner]:
    """Return the runners that a simple command names."""
    names = {Path(word).name for word in words}
    called = " ".join((Path(words[0]).name, *words[1:2]))
    node = called == "node --test" or (Path(words[0]).name == "node" and "--test" in words)
    return [
        r for r in load_runners() if names & {*r.programs} or r.name == called or (node and r.name == "node")
    ]


def _split_commands_without_assignments(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell line, without assignments before it."""
    commands = ([*dropwhile(ASSIGNED.fullmatch, words)] for words in split_simple_commands(line))
    return filter(None, commands)


def _pytest_patterns(read: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the patterns of pytest's own settings: `python_files`, `testpaths`."""
    for section in _read_pytest_sections(read):
        files = section.get("python_files", "")
        yield from files.split() if isinstance(files, str) else map(str, files)
        paths = section.get("testpaths", "")
        for path in paths.split() if isinstance(paths, str) else map(str, paths):
            if path.strip("./"):
                yield f"/{path.strip('/').removeprefix('./')}/**"


def _read_pytest_sections(read: Callable[[str], str | None]) -> Iterator[Mapping[str, Any]]:
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


def is_output_without_test_run(table: CheckTable, output: str) -> bool:
    """Return whether the output of a check says that no test ran, or a runner that the line names says nothing of
    tests.

    A runner counts tests at the end of its output, which may have lost its beginning.
    """
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output)
    if any(_has_match(runner.some, text) for runner in load_runners()):
        return False
    if any(_has_match(runner.none, text) for runner in load_runners()):
        return True
    telling = [runner for runner in table.named_runners if runner.some and not runner.quiet]
    return bool(telling) and not _is_output_redirected_or_quiet(table.command)


def _has_match(patterns: Sequence[str], text: str) -> bool:
    return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns)


def _is_output_redirected_or_quiet(line: str) -> bool:
    """Return whether the line sends the output elsewhere, or asks for less of it."""
    words = [word for words in split_simple_commands(line) for word in words]
    less = (
        re.fullmatch(r"-q{2,}|--quiet|--silent|-s|--no-summary|--reporters?(=.*)?|--format(=.*)?|-o|-f", w)
        for w in words
    )
    return bool(re.search(r"[>|]", line)) or any(less)
