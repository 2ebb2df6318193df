"""scripts: which files of a folder a command line runs, and what their interpreters would import from the folder."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.files.filesystem import is_file
from interlock.services.files.stamps import record_read
from interlock.services.shell.model import to_name_set
from interlock.services.shell.simple import ASSIGNED, split_simple_commands

_PROJECT = re.compile(r"\$(\{(GEMINI|CLAUDE)_PROJECT_DIR\}|(GEMINI|CLAUDE)_PROJECT_DIR\b)/?")
_OWN_FOLDER = re.compile(r"\$\(dirname [^)]*\)|\$\{(0|BASH_SOURCE[^}]*)%/\*\}")
"""How a shell script names its own folder."""
_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_RUNS = to_name_set(
    "bash sh zsh dash ksh fish source . eval node nodejs deno bun tsx ts-node ruby perl php lua Rscript pwsh env exec"
    " command time timeout nice nohup setsid sudo stdbuf uv poetry pdm hatch pipenv rye run"
)
"""Programs that run the file named behind them."""
_PACKAGES = to_name_set("uvx pipx npx pnpm yarn npm conda mise x dlx")
"""Programs that run a package named behind them, or a file."""
_CODE = re.compile(r"-[a-z]*c|-e|--eval")
_SEARCHED = frozenset({"PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB", "PATH"})
"""Variables with folders of code."""
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)|import[ \t]+([^\n#;]+))", re.MULTILINE)
_RELATIVE = re.compile(r"(?:require\(|from|import)\s*\(?[\"'](\.\.?/[^\"'\n]+)[\"']")
_SHADOWED = (*sorted(sys.stdlib_module_names), "sitecustomize", "usercustomize")
_MODULES = (".py", ".pyc", ".so", ".pyd")
_DEEPEST = 3
_MOST_LINES = 400


def find_code_files_and_folders(
    command: str, root: Path, exclude: Callable[[Path], bool] = lambda _: False
) -> Iterator[Path]:
    """Yield what a command line runs from a folder, there or not: files that it names, the folders of those that it
    runs, and modules that Python would find before its own (`json.py`). `root` is a real path.

    `exclude`: files that don't count, and aren't looked into.
    """
    line = _ScriptFinder(root)
    line.exclude = exclude
    yield from (path for path in line.scan_command_line(command) if not exclude(path))


def can_run_python_isolated(command: str, root: Path) -> bool:
    """Return whether Python, run by this command, needs no module from the folder, so that it can be kept from
    looking there (`PYTHONSAFEPATH`)."""
    found = _ScriptFinder(root)
    for _ in found.scan_command_line(command):
        pass
    return (
        bool(found.python or found.code)
        and not found.modules
        and not any(map(_has_sibling_modules, found.python))
    )


@dataclass
class _ScriptFinder:
    """Finds the scripts that one command line runs."""

    root: Path
    depth: int = 0

    def __post_init__(self) -> None:
        self.base = self.root
        self.python: list[Path] = []
        """Scripts that Python runs."""
        self.code = False
        """Python runs code of the command line."""
        self.modules = False
        """Python is told to look in the folder."""
        self.seen: set[Path] = set()
        self.exclude: Callable[[Path], bool] = lambda _: False

    def scan_command_line(self, command: str) -> Iterator[Path]:
        for words in split_simple_commands(_PROJECT.sub(f"{self.root}/", command)):
            if words[0] in ("cd", "pushd") and len(words) > 1:
                self.base = self.base / words[-1]
            else:
                yield from self._files_used_by_command(words)

    def _files_used_by_command(self, words: Sequence[str]) -> Iterator[Path]:
        given = [found for word in words if (found := ASSIGNED.fullmatch(word))]
        rest = [word for word in words if not ASSIGNED.fullmatch(word)]
        for name, value in ((one[1], one[2]) for one in given if one[1] in _SEARCHED):
            self.modules |= name == "PYTHONPATH"
            for folder in filter(None, value.split(os.pathsep)):
                yield from self._folder_or_shadowing_modules(self.base / folder)
        if not rest:
            return
        python = any(_PYTHON.fullmatch(Path(word).name) for word in rest)
        files = [path for word in rest if (path := self._find_file_in_root(word))]
        yield from files
        for before, word in pairwise(rest):
            if before == "-m" and python:
                self.modules = True
                yield from self._files_used_by_module(word)
            elif _CODE.fullmatch(before) and self.depth < _DEEPEST:
                yield from self._files_used_by_inline_code(word, python)
        for path in self._files_executed_by_command(rest):
            yield from self._files_needed_to_run(path, python)

    def _files_executed_by_command(self, words: Sequence[str]) -> Iterator[Path]:
        """Yield what is run of the files among the words of a command: an interpreter, and its script."""
        before, packaged = "", False
        for word in words:
            name, path = Path(word).name, self._find_file_in_root(word)
            if path:
                yield path
            if _PYTHON.fullmatch(name) or name in _RUNS | _PACKAGES:
                packaged |= name in _PACKAGES
            elif path or word == "-m" or _CODE.fullmatch(word):
                return
            elif word.startswith("-") or word.rstrip("smhd").isdecimal():
                pass
            elif packaged or not before.startswith("-"):
                return  # a program from elsewhere; what is named behind it is only read
            before = word

    def _find_file_in_root(self, word: str) -> Path | None:
        """Return the path of a file or link in the folder."""
        with suppress(OSError, ValueError):  # not a path
            path = Path(os.path.normpath(self.base / word))
            record_read(path)
            if path.is_relative_to(self.root) and (path.is_file() or path.is_symlink()):
                return path
        return None

    def _files_needed_to_run(self, path: Path, is_python: bool) -> Iterator[Path]:
        """Yield what running a file takes from the folder."""
        if path in self.seen or self.exclude(path):
            return
        self.seen.add(path)
        if _PYTHON.fullmatch(path.name):  # of a virtual environment
            yield from self._folder_or_shadowing_modules(
                path.parent.parent if path.parent.name == "bin" else path.parent
            )
            return
        if is_python or path.suffix == ".py":
            self.python.append(path)
        yield from self._folder_or_shadowing_modules(path.parent)
        with suppress(OSError):
            text = read_file(path).decode(errors="replace")
            if path.suffix == ".py":
                yield from self._possible_import_paths(text, path.parent)
            elif path.suffix in (".sh", ".bash", "") and self.depth < _DEEPEST:
                for line in _OWN_FOLDER.sub(str(path.parent), text).splitlines()[:_MOST_LINES]:
                    yield from _ScriptFinder(self.root, self.depth + 1).scan_command_line(line)
            for name in _RELATIVE.findall(text) if path.suffix not in (".py", ".sh") else ():
                module = os.path.normpath(path.parent / name)
                yield from (Path(f"{module}{end}") for end in ("", ".js", ".mjs", ".cjs", ".ts"))

    def _files_used_by_inline_code(self, text: str, is_python: bool) -> Iterator[Path]:
        if not is_python:
            inner = _ScriptFinder(self.root, self.depth + 1)
            inner.base = self.base
            yield from inner.scan_command_line(text)
            return
        self.code = True
        yield from self._folder_or_shadowing_modules(self.base)
        yield from self._possible_import_paths(text, self.base)

    def _files_used_by_module(self, name: str) -> Iterator[Path]:
        yield from self._folder_or_shadowing_modules(self.base)
        parts = name.split(".")
        top, whole = self.base / parts[0], self.base.joinpath(*parts)
        record_read(top)
        if top.is_dir():
            yield top
        for file in (whole.with_suffix(".py"), whole / "__main__.py", top.with_suffix(".py")):
            yield file
            if is_file(file):
                yield from self._files_needed_to_run(file, is_python=True)

    def _folder_or_shadowing_modules(self, folder: Path) -> Iterator[Path]:
        """Yield a folder that modules are imported from; of the root, where everybody works, only modules that would
        take the place of Python's own, and what Python has compiled."""
        folder = Path(os.path.normpath(folder))
        if folder != self.root:
            if folder.is_relative_to(self.root):
                yield folder
            return
        yield folder / "__pycache__"
        for name in _SHADOWED:
            yield folder / f"{name}.py"
            yield folder / name / "__init__.py"

    def _possible_import_paths(self, text: str, folder: Path) -> Iterator[Path]:
        """Yield the modules that Python code would import from a folder, and what these do."""
        found = (f"{a}{b}".split(",") for a, b in _IMPORT.findall(text))
        names = {
            one.split()[0].lstrip(".").partition(".")[0] for every in found for one in every if one.strip()
        }
        for name in sorted(filter(str.isidentifier, names)):
            own = name not in _SHADOWED
            record_read(folder / name)
            if (folder / name).is_dir():
                self.modules |= own
                yield folder / name
            for file in (folder / f"{name}.py", folder / name / "__init__.py"):
                yield file
                if is_file(file) and file not in self.seen:
                    self.modules |= own
                    self.seen.add(file)
                    with suppress(OSError):
                        yield from self._possible_import_paths(
                            read_file(file).decode(errors="replace"), folder
                        )


def _has_sibling_modules(script: Path) -> bool:
    """Return whether the folder of a script holds other modules, not counting those that would replace Python's
    own."""
    try:
        with os.scandir(script.parent) as entries:
            names = [entry.name for entry in entries if entry.name != script.name]
    except OSError:
        return True
    others = (name for name in names if name.partition(".")[0] not in (*_SHADOWED, "__pycache__"))
    return any(name.endswith(_MODULES) or name.isidentifier() for name in others)
