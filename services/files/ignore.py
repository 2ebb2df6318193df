"""ignore: which files tools should leave alone, by git's and the user's patterns, evaluated top-down as git does; and
which folders builds and package managers made, by what marks them, as their name alone says too little."""

import os
import re
import stat
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from interlock.services.files.claude_denials import CLAUDE_SETTINGS, denied_read_patterns
from interlock.services.files.disk import read_file
from interlock.services.files.stamps import record_read

AGENT_FILES = (".geminiignore", ".rooignore")
"""They may re-include what git ignores, and a later one what an earlier one hides."""
HIDING_FILES = (".cursorignore", ".clineignore", ".aiexclude", ".codeiumignore")
"""Other agents' files: each only hides, whatever the others say."""
_GIT_FILE = ".gitignore"
_MARK = "ps_d"
"""pathspec's group for the slash after the matched name."""
_STAR = "[^/]*"
_MOST_DEEP = 3
"""Patterns with more `**` can backtrack for minutes on a deep path and are skipped."""
_MOST_LINES, _LONGEST = 20_000, 4096
"""Further lines, and those longer than a path can be, are skipped: a file of 60 MB took minutes, past any time-out."""
_LARGEST = 100_000_000
"""Maximum size of an ignore file in bytes (git: the same)."""


@dataclass(frozen=True)
class IgnorePattern:
    """One line of an ignore file."""

    regex: re.Pattern[str]
    ignores: bool
    has_slash_mark: bool

    def matches_entry(self, path: str, is_dir: bool) -> bool:
        """Return whether it matches this very entry. Parents were checked before, so a match on one of them doesn't
        count."""
        if not self.has_slash_mark:
            return self.regex.search(path) is not None
        if self.regex.pattern == f"(?P<{_MARK}>/)":
            return is_dir
        match = self.regex.search(path + "/" if is_dir else path)
        return match is not None and match.start(_MARK) in (-1, len(path))


def _prevent_backtracking(regex: str) -> str:
    """Rewrite the regex without catastrophic backtracking: a star before a literal takes the first match."""
    first, *rest = regex.split(_STAR)
    if not rest:
        return regex
    tamed = [f"(?>[^/]*?{part})" if "/" not in part else _STAR + part for part in rest[:-1]]
    return "".join([first, *tamed, _STAR, rest[-1]])


def compile_ignore_lines(lines: Iterable[str], *, folds_case: bool) -> tuple[IgnorePattern, ...]:
    """Compile patterns in reverse, as the last match decides. Lines that git can't parse are skipped, as git does."""
    flags = re.IGNORECASE if folds_case else 0
    patterns: list[IgnorePattern] = []
    for line in islice((line for line in lines if len(line) <= _LONGEST), _MOST_LINES):
        try:
            # pathspec reads `a/**/` as `a/`; git means the directories below it.
            known = line.rstrip() + "*/" if line.rstrip().endswith("/**/") else line
            regex, include = GitIgnoreSpecPattern.pattern_to_regex(known)
        except ValueError:
            continue
        if regex is None or include is None or regex.count(".+") > _MOST_DEEP:
            continue
        try:
            with warnings.catch_warnings():  # a set that holds `[[` may mean something else in a later Python
                warnings.simplefilter("ignore", FutureWarning)
                compiled = re.compile(_prevent_backtracking(regex), flags)
        except re.error:
            continue
        patterns.append(IgnorePattern(compiled, include, _MARK in compiled.groupindex))
    return tuple(reversed(patterns))


Layer = tuple[str, tuple[IgnorePattern, ...]]
"""Directory that the patterns are relative to (with a trailing slash), and the patterns."""


class AgentLayers(NamedTuple):
    """What the user's and other agents' files say."""

    own: Sequence[Layer]
    """The last match of all of them decides, before git's."""
    hiding: Sequence[Layer]
    """Each hides by itself."""

    @property
    def hides_anything(self) -> bool:
        return bool(self.own or self.hiding)


def _is_ignored_by_last_match(layers: Sequence[Layer], path: str, is_dir: bool) -> bool | None:
    """Return whether the last pattern that matches the entry ignores it; None if none does."""
    for base, patterns in reversed(layers):
        relative = path[len(base) :]
        for pattern in patterns:
            if pattern.matches_entry(relative, is_dir):
                return pattern.ignores
    return None


class IgnoreRules:
    """Rules for one root: `.gitignore` (all levels, and `.git/info/exclude`) in a git repository, then `.geminiignore`,
    `.rooignore` and custom files at the root, which may re-include what git ignores; and what other agents' files and
    Claude Code's `Read(…)` denials hide, of the root and of the repository around it."""

    def __init__(
        self,
        root: Path,
        *,
        git: bool = True,
        agent: bool = True,
        hiding: bool = True,
        custom: Sequence[Path] = (),
    ) -> None:
        """`agent`: whether the user's and other agents' files count; `hiding`: whether those of `HIDING_FILES` and
        Claude Code's denials do."""
        self._root = str(root)
        above = [str(d) for d in (root, *root.parents)]
        self._repositories = [(top, f"{_with_trailing_slash(top)}.git") for top in above]
        self._tops = self._repositories if git else []
        self._agent_files = [str(root / name) for name in AGENT_FILES] if agent else []
        self._agent_files += [str(path) for path in custom]
        self._hides = agent and hiding
        self._seen: dict[str, tuple[tuple[int, int], tuple[IgnorePattern, ...]]] = {}

    def gitignore_layers(self, directory: str) -> list[Layer]:
        """Return the layers that apply to entries of `directory`, outermost first."""
        top = self._find_work_tree_top()
        return [] if top is None else self._load_gitignore_layers(top, directory)

    def _load_gitignore_layers(self, top: str, directory: str) -> list[Layer]:
        layers = [
            (
                _with_trailing_slash(top),
                self._load_patterns(str(find_shared_git_directory(top) / "info" / "exclude")),
            )
        ]
        for level in directories_from_top_through(top, directory):
            layers = self.with_gitignore_layer(layers, level)
        return [layer for layer in layers if layer[1]]

    def with_gitignore_layer(self, layers: list[Layer], directory: str) -> list[Layer]:
        """Add a directory's own .gitignore to its parent's layers."""
        return [
            *layers,
            (
                _with_trailing_slash(directory),
                self._load_patterns(_with_trailing_slash(directory) + _GIT_FILE),
            ),
        ]

    def agent_ignore_layers(self) -> AgentLayers:
        base = _with_trailing_slash(self._root)
        own = [(base, patterns) for f in self._agent_files if (patterns := self._load_patterns(f))]
        return AgentLayers(own, [*self._hiding_layers()] if self._hides else [])

    def _hiding_layers(self) -> Iterator[Layer]:
        for folder in dict.fromkeys((self._root, self._find_repository_top() or self._root)):
            base = _with_trailing_slash(folder)
            for name in (*HIDING_FILES, *CLAUDE_SETTINGS):
                if patterns := self._load_patterns(base + name):
                    yield base, patterns

    def _find_repository_top(self) -> str | None:
        return next((top for top, git in self._repositories if os.path.lexists(git)), None)

    def is_ignored(self, path: str, is_dir: bool, *, git: bool = True) -> bool:
        """Return whether an entry below the root is ignored. With `git` false only the user's own files count."""
        agent, top = self.agent_ignore_layers(), self._find_work_tree_top() if git else None
        if top is None and not agent.hides_anything:
            return False
        layers = self._load_gitignore_layers(top, self._root) if top else []
        for level in directories_from_top_through(self._root, path)[1:]:
            if is_entry_ignored(layers, agent, level, is_dir if level == path else True):
                return True
            if top and level != path:
                layers = self.with_gitignore_layer(layers, level)
        return False

    def make_ignore_test(self, directory: str, *, git: bool = True) -> Callable[[str, bool], bool]:
        """Return a test of a directory's direct entries, by name and kind; the rules are looked up once."""
        if directory != self._root and self.is_ignored(directory, True, git=git):
            return lambda _name, _is_dir: True
        layers, agent = self.gitignore_layers(directory) if git else [], self.agent_ignore_layers()
        base = _with_trailing_slash(directory)
        return lambda name, is_dir: is_entry_ignored(layers, agent, base + name, is_dir)

    def _load_patterns(self, file: str) -> tuple[IgnorePattern, ...]:
        """Return the patterns of an ignore file; cached until it changes on disk."""
        try:
            status = os.stat(file)  # noqa: PTH116 - each look-up pays for it, and Path.stat costs twice as much
            if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
                return ()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._seen.get(file)
            if known is not None and known[0] == stamp:
                return known[1]
            text = read_file(Path(file), _LARGEST).decode("utf-8-sig", "surrogateescape")
        except OSError:  # missing or unreadable: git ignores that too
            return ()
        own = (
            ["/.rooignore"] if file == f"{_with_trailing_slash(self._root)}.rooignore" else []
        )  # Roo Code: it hides itself
        lines = (
            denied_read_patterns(text, Path(file).parent.parent)
            if file.endswith(CLAUDE_SETTINGS)
            else text.split("\n")
        )
        folds_case = _is_case_insensitive(file, status)
        patterns = compile_ignore_lines([*lines, *own], folds_case=folds_case)
        self._seen[file] = (stamp, patterns)
        return patterns

    def _find_work_tree_top(self) -> str | None:
        """Return the work tree around the root; not cached, because a run may create one."""
        return next((top for top, git in self._tops if os.path.lexists(git)), None)


def is_entry_ignored(git_layers: Sequence[Layer], agent_layers: AgentLayers, path: str, is_dir: bool) -> bool:
    """Return whether an entry whose parents aren't ignored is: the user's own files take precedence."""
    if any(_is_ignored_by_last_match([layer], path, is_dir) for layer in agent_layers.hiding):
        return True
    own = _is_ignored_by_last_match(agent_layers.own, path, is_dir)
    return bool(_is_ignored_by_last_match(git_layers, path, is_dir)) if own is None else own


def find_shared_git_directory(top: str | Path) -> Path:
    """Return the git directory of a work tree, including linked ones, whose `.git` is a file naming the real one."""
    git = Path(top, ".git")
    record_read(git)
    try:
        if git.is_file():
            git = git.parent / _read_first_line(git).removeprefix("gitdir:").strip()
            common = git / "commondir"
            record_read(common)
            git = git / _read_first_line(common) if common.is_file() else git
    except OSError:  # unreadable: treated as missing
        pass
    return git


def git_index_path(top: str | Path) -> Path:
    """Return git's index of a work tree; a linked one has its own."""
    git = Path(top, ".git")
    try:
        own = git.parent / _read_first_line(git).removeprefix("gitdir:").strip() if git.is_file() else git
    except OSError:  # unreadable: treated as missing
        own = git
    return own / "index"


def _is_case_insensitive(file: str, status: os.stat_result) -> bool:
    """Return whether the file is found under a name in another case, too: then the file system sees no difference."""
    folder, name = os.path.split(file)
    try:
        return os.path.samestat(status, os.stat(f"{_with_trailing_slash(folder)}{name.swapcase()}"))  # noqa: PTH116 - as above
    except OSError:
        return False


def _read_first_line(file: Path) -> str:
    return read_file(file).decode("utf-8", "surrogateescape").partition("\n")[0].strip()


def _with_trailing_slash(directory: str) -> str:
    return directory if directory.endswith("/") else directory + "/"


def directories_from_top_through(top: str, directory: str) -> list[str]:
    """Return `top` and each directory on the way to `directory`, ending with `directory`."""
    levels = [top]
    for name in directory[len(_with_trailing_slash(top)) :].split("/") if directory != top else ():
        levels.append(_with_trailing_slash(levels[-1]) + name)
    return levels


RESERVED = frozenset({"node_modules", "__pycache__", ".tox", ".nox"})
"""Names that only the tool uses that makes them."""
_INSIDE = frozenset({"CACHEDIR.TAG", "pyvenv.cfg", "CMakeCache.txt"})
"""Files in such a folder: the tag of caches (bford.info/cachedir), a virtual environment, a CMake build."""
_OWN = {"vendor": frozenset({"modules.txt", "autoload.php"})}
"""Folder → files in it that a package manager writes (Go, Composer)."""
_GRADLE = frozenset({"build.gradle", "build.gradle.kts"})
_BESIDE = {
    "target": frozenset({"Cargo.toml", "pom.xml", "build.sbt", "project.clj"}),
    "build": _GRADLE,
    "Pods": frozenset({"Podfile"}),
    "deps": frozenset({"mix.exs"}),
    "_build": frozenset({"mix.exs", "rebar.config", "dune-project"}),
}
"""Folder → files beside it of the build that fills it."""
_OUTPUTS = frozenset({"build", "dist", "out", "target", "coverage", "htmlcov"})
"""Folders that builds fill, and that people sometimes write in, too."""
_COMPILED = (".pyc", ".pyo", ".o", ".obj", ".class", ".egg-info")


def find_generated_paths(
    paths: Collection[str], paths_before: Collection[str], tool_written: Collection[str]
) -> set[str]:
    """Return a workspace's paths that builds and caches made: not in `paths_before`, and not `tool_written` by a file
    tool."""
    names: dict[str, set[str]] = {"": set()}
    for path in paths:
        folder = ""
        for part in path.split("/"):
            names.setdefault(folder, set()).add(part)
            folder = f"{folder}/{part}".lstrip("/")
    old = {path[:end] for path in paths_before for end in _path_component_ends(path)}

    def made(path: str) -> bool:
        folders = [path[:end] for end in _path_component_ends(path)][:-1]
        return path.endswith(_COMPILED) or any(
            is_generated_folder(
                _base_name(folder), names.get(folder.rpartition("/")[0], ()), names.get(folder, ())
            )
            or folder.endswith(_COMPILED)
            or (_base_name(folder) in _OUTPUTS and folder not in old)
            for folder in folders
        )

    return {path for path in paths if path not in tool_written and made(path)}


def _path_component_ends(path: str) -> list[int]:
    """Return where each of the path's folders ends, and the path itself."""
    return [place for place, letter in enumerate(path) if letter == "/"] + [len(path)]


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def is_generated_folder(name: str, sibling_names: Collection[str], child_names: Collection[str]) -> bool:
    """Return whether a folder holds what a build or a package manager made, by the names beside it and in it."""
    marks = _INSIDE | _OWN.get(name, frozenset())
    return (
        name in RESERVED
        or not marks.isdisjoint(child_names)
        or not _BESIDE.get(name, frozenset()).isdisjoint(sibling_names)
    )
