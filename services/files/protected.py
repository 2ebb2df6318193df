"""protected: files that the program trusts, and files that nobody may touch: one list for tools, sandbox and trust."""

import fnmatch
import os
import re
import stat
import sys
import time
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from interlock.services.files.disk import read_file
from interlock.services.files.protected_links import LinkFolder, ProtectedLinkIndex
from interlock.services.files.stamps import real_path, record_read
from interlock.state.file_names import quote_path
from interlock.state.workspace import PathRefused, Protection

SETTINGS_FOLDERS = (".gemini", ".interlock")
"""Looked up in the home directory, then in the workspace; later ones win."""
_TABLE = Path(__file__).with_name("protected.toml")


class ProtectionKind(NamedTuple):
    """Why a name is protected."""

    what: str
    """What is stored there; shown to people."""
    trusted: tuple[str, ...] = ()
    """Globs below it ("" for itself) that apply only in a trusted folder."""
    new: bool = True
    """False if creating one could only take rights away."""


YOUR_OWN = "your own configuration"
_MEMORY = ProtectionKind("instructions for the model")
RULES = (".roorules", ".clinerules")
"""Roo Code's; a mode's own files end in `-MODE`."""


@cache
def _load_protection_table() -> Mapping[str, ProtectionKind]:
    """Return each name and pattern of `protected.toml`."""
    rows: list[dict[str, Any]] = tomllib.loads(read_file(_TABLE).decode())["obeyed"]
    kinds = (
        (row, ProtectionKind(row["what"], tuple(row.get("trusted", ())), row.get("new", True)))
        for row in rows
    )
    return {name: kind for row, kind in kinds for name in row["names"]}


@cache
def builtin_protected_names() -> Mapping[str, ProtectionKind]:
    """Return the protected names of files and folders, as people write them, at any depth of the workspace."""
    return {name: kind for name, kind in _load_protection_table().items() if "*" not in name}


@cache
def protected_pattern_examples() -> Sequence[str]:
    """Return names that the patterns of the table stand for, a few for each."""
    return [
        name.replace("*", by)
        for name in _load_protection_table()
        if "*" in name
        for by in ("", "a", "local", "json")
    ]


def is_safe_to_create(name: str) -> bool:
    """Return whether making a file of this name could only take rights away: an ignore file."""
    kind = _kinds_by_folded_name(tuple(builtin_protected_names())).get(fold_name(name))
    return kind is not None and not kind.new


@cache
def _compile_name_patterns() -> tuple[re.Pattern[str], Sequence[ProtectionKind]]:
    """Return one pattern for all further names, folded, as whole trees of names are looked at; and why what its first
    group matches is protected, what its second does, and so on."""
    found = {name: kind for name, kind in _load_protection_table().items() if "*" in name}
    groups = (f"({fnmatch.translate(name.casefold())})" for name in found)
    return re.compile("|".join(groups)), [*found.values()]


def _find_kind_by_pattern(name: str) -> ProtectionKind | None:
    pattern, kinds = _compile_name_patterns()
    found = pattern.match(name)
    return kinds[found.lastindex - 1] if found and found.lastindex else None


_NAMES = frozenset({".git", ".env", "git~1", "env~1"})
"""`docs/internals.md#policy`, with their Windows short names; other names such as `.env.local` are allowed."""
_KEPT = (".env", ".netrc", ".git-credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
"""Private files with one fixed name."""
_MOST_ENTRIES = 20_000
_CREDENTIALS = re.compile(
    r"gha-creds-.*\.json|\.git-credentials|\.netrc|id_(rsa|dsa|ecdsa|ed25519)", re.DOTALL
)
"""Names of credential files: written by CI, git's and curl's stores, private SSH keys."""
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that some file systems ignore, besides those of category Cf (joiners, direction marks, …)."""


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """Return one name for spellings that some file system treats as the same: case, composition, full width,
    zero-width characters, trailing dots and blanks, a stream after a colon."""
    if not name.isascii():
        name = _fold_unicode(name)
    return name.partition(":")[0].rstrip(". ").casefold()


def _fold_unicode(name: str) -> str:
    seen = (c for c in unicodedata.normalize("NFKC", name.casefold()) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", _IGNORABLE.sub("", "".join(seen)))


def is_private_name(name: str) -> bool:
    """Return whether a name is one of git's, credentials', or keys' that tools may never touch."""
    known = fold_name(name)
    return known in _NAMES or _CREDENTIALS.fullmatch(known) is not None


def find_private_name(parts: Iterable[str]) -> str | None:
    """Return the first private one of a path's names below its root."""
    return next(filter(is_private_name, parts), None)


def find_private_hard_link(
    path: Path, root: Path, is_hidden: Callable[[str], bool] | None = None
) -> str | None:
    """Return a private file below `root`, or beside or above `path`, of which `path` is a hard link.

    `is_hidden`: whether the user keeps a file from tools; None: they keep none.

    Checked only for files with several links, and in at most 20,000 entries outside of `node_modules`. Links to files
    elsewhere look like those that package managers create by the thousand; whoever can create one could have copied
    the file as well.
    """
    status = _stat_or_none(path)
    if status is None or status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
        return None
    above = [d for d in path.parents if d.is_relative_to(root)]
    twins = (str(d / name) for d in above for name in _KEPT)
    beside = next((t for t in twins if (s := _stat_or_none(t)) and os.path.samestat(s, status)), None)
    linked_just_now = status.st_ctime_ns if time.time_ns() - status.st_ctime_ns < 3e9 else 0
    found = _find_hard_linked_private_files(str(root), is_hidden, int(time.monotonic()), linked_just_now)
    return beside or found.get((status.st_dev, status.st_ino))


@lru_cache(maxsize=4)
def _find_hard_linked_private_files(
    root: str, is_hidden: Callable[[str], bool] | None, _cache_second: int, _changed_ns: int
) -> Mapping[tuple[int, int], str]:
    """Return the private and hidden files below a folder that have several links, by device and inode.

    Cached for a second, unless the file asked about has got a link since.
    """
    found: dict[tuple[int, int], str] = {}
    left = _MOST_ENTRIES
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "node_modules" and not is_private_name(name)]
        for name in files if is_hidden else filter(is_private_name, files):
            path = os.path.join(folder, name)  # noqa: PTH118 - of os.walk
            status = _stat_or_none(path)
            if status and status.st_nlink > 1 and (is_private_name(name) or (is_hidden and is_hidden(path))):
                found[status.st_dev, status.st_ino] = path
        left -= len(folders) + len(files)
        if left < 0:
            break
    return found


def _stat_or_none(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


@dataclass(frozen=True)
class ProtectedPaths:
    """Protected names at any depth of a root, and individual places."""

    memory: Sequence[str] = ()
    """Names of memory files, besides the usual ones."""
    places: Mapping[Path, str] = field(default_factory=dict[Path, str])
    """Real path → what is stored there."""
    home: Path | None = None
    """Hidden entries directly in it are the user's configuration."""
    made: set[str] = field(default_factory=set[str])
    """Paths that a tool made, which somebody allowed, and the folders above them."""
    written: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """The hash of what a tool last wrote to each of these."""
    link_folders: Sequence[LinkFolder] = ()
    """Folders outside of protected names whose links lead to what programs obey."""
    link_indexes: dict[tuple[Path, ...], ProtectedLinkIndex] = field(
        default_factory=dict[tuple[Path, ...], ProtectedLinkIndex]
    )
    """By roots."""
    on_made: list[Callable[[Sequence[str]], None]] = field(
        default_factory=list["Callable[[Sequence[str]], None]"]
    )
    """Called with those paths before they are made."""

    def announce_new_path(self, path: Path) -> None:
        """Note a path that is about to be made, with the folders above it, and tell who listens."""
        paths = [str(path), *map(str, path.parents)]
        self.made.update(paths)
        for tell in self.on_made:
            tell(paths)

    def record_written_digest(self, path: Path, digest: str | None) -> None:
        """Note what a tool wrote to a path that it made: a command that began before could write it, too."""
        if str(path) in self.made:
            self.written[str(path)] = digest

    def protection_kinds_by_folded_name(self) -> Mapping[str, ProtectionKind]:
        return _kinds_by_folded_name(self.all_protected_names())

    def make_protection_kind_lookup(self) -> Callable[[str], ProtectionKind | None]:
        """Return a function from a folded name to why it is protected."""
        names = self.protection_kinds_by_folded_name()
        return lambda name: names.get(name) or _find_kind_by_pattern(name)

    def all_protected_names(self) -> tuple[str, ...]:
        """Return the names as people write them."""
        return tuple(dict.fromkeys((*builtin_protected_names(), *self.memory)))

    def find_protection_by_name(self, path: Path) -> Protection | None:
        """Return the protection of a relative path by its names alone."""
        kinds = self.make_protection_kind_lookup()
        return next((Protection(p, kind.what) for p in path.parts if (kind := kinds(fold_name(p)))), None)

    def open_link_index(self, roots: Iterable[Path]) -> ProtectedLinkIndex:
        """Return the links below protected names of these roots, listed once it is asked."""
        if (known := tuple(roots)) not in self.link_indexes:
            kinds = self.make_protection_kind_lookup()
            self.link_indexes[known] = ProtectedLinkIndex(
                known,
                self.link_folders,
                lambda name: (kind := kinds(fold_name(name))) and kind.what,
                _fold_path,
            )
        return self.link_indexes[known]

    def find_path_protection(self, path: Path, roots: Sequence[Path]) -> Protection | None:
        """Return the protection of an absolute path without `..`: by its names, or because a link leads to it."""
        inside = [root for root in roots if path.is_relative_to(root)]
        for root in inside:
            if named := self.find_protection_by_name(
                path.relative_to(root)
            ) or find_git_repository_protection(path, root):
                return named
        for place in (path, *path.parents):
            if place in self.places:
                return Protection(place.name, self.places[place])
        if self.home is not None and path != self.home and path.is_relative_to(self.home):
            first = path.relative_to(self.home).parts[0]
            if first.startswith(".") and not any(r.is_relative_to(self.home / first) for r in inside):
                return Protection(first, YOUR_OWN)
        return self.open_link_index(roots).find_targets().find_protection(path, _fold_path)

    def find_hard_link_protection(self, path: Path, roots: Sequence[Path]) -> Protection | None:
        """Return the protection that a file has by another name. Looks for one only if the file has several links."""
        status = _stat_or_none(path)
        if status is None or status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
            return None
        return self.open_link_index(roots).find_hard_link(path, status)


def _fold_path(path: Path) -> str:
    return "".join(f"/{fold_name(part)}" for part in path.parts[1:])


@lru_cache(maxsize=4)
def _kinds_by_folded_name(names: tuple[str, ...]) -> Mapping[str, ProtectionKind]:
    known = builtin_protected_names()
    return {fold_name(name): known.get(name, _MEMORY) for name in names}


_OF_REPOSITORY = frozenset({"head", "config", "config.worktree", "commondir", "hooks", "objects", "refs"})
_SETTING = _OF_REPOSITORY - {"objects", "refs"}


def looks_like_git_repository(folded_names: Collection[str]) -> bool:
    """Return whether git takes a folder with these names, folded, for a repository, whatever its own name is."""
    return "head" in folded_names and ({"objects", "refs"} <= {*folded_names} or "commondir" in folded_names)


def find_git_repository_protection(path: Path, root: Path) -> Protection | None:
    """Return the protection of what makes a folder a repository, or says what git runs in one that isn't named
    `.git`: git obeys it once a person enters the folder."""
    parts = path.parts
    for at in range(len(root.parts), len(parts)):
        part = fold_name(parts[at])
        if part not in _OF_REPOSITORY:
            continue
        folder = Path(*parts[:at])
        try:
            there = {*map(fold_name, os.listdir(folder))}  # noqa: PTH208
        except OSError:
            there = set[str]()
        if looks_like_git_repository({*there, part}) and (
            part in _SETTING or not looks_like_git_repository(there)
        ):
            return Protection(folder.name, "a repository, whose settings git obeys")
    return None


def program_search_folders(env: Mapping[str, str]) -> Iterator[Path]:
    """Return the folders searched for programs, also by hooks and MCP servers, and this program's own."""
    listed = (f for f in env.get("PATH", "").split(os.pathsep) if f)
    return (real_path(folder) for folder in (*listed, sys.prefix))


_SAFE_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|quotepath|longpaths)"
    r"|(remote|branch)\.(url|pushurl|fetch|remote|merge|rebase|tagopt|prune|description|vscode-merge-base)"
    r"|user\.(name|email)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|autosetupremote)|color\.\w+"
    r"|commit\.gpgsign|tag\.gpgsign|merge\.(ff|conflictstyle)|rerere\.\w+|advice\.\w+"
)
"""Keys that contain no command, path or other configuration file. All others may."""
_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)(?:\s+\"(?:[^\"\\\n]|\\.)*\")?\s*\]")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=[^\\]*)?")


def is_harmless_git_config(text: str) -> bool:
    """Return whether nothing in a repository's configuration makes git run a program or look elsewhere."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
            line = line[header.end() :].strip()
            if not line:
                continue
        key = _KEY.fullmatch(line)
        if key is None or not _SAFE_KEYS.fullmatch(f"{section}.{key[1].lower()}"):
            return False
    return True


def is_harmless_git_key(key: str) -> bool:
    """Return whether a key of git's configuration, as `git config` takes it, holds no command, path or other
    configuration."""
    section, *_, name = key.split(".") if "." in key else ("", key)
    return _SAFE_KEYS.fullmatch(f"{section}.{name}".lower()) is not None


def system_and_user_git_config_paths(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield git's configuration files outside of repositories, existing or not: the system's and the user's."""
    home = env.get("HOME")
    folder = env.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    usual = ["/etc/gitconfig", folder and f"{folder}/git/config", home and f"{home}/.gitconfig"]
    named = (env.get(name) for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"))
    return (real_path(name) for name in (*usual, *named) if name)


_HOOKS = re.compile(r"^\s*hookspath\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_INCLUDE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_NESTED = 10
"""git's own limit on includes in includes."""


def iterate_git_hook_and_include_paths(
    config: Path, work_tree: Path, depth: int = 0, seen: set[Path] | None = None
) -> Iterator[tuple[Path, bool]]:
    """Yield what a git configuration of the work tree `work_tree` names, existing or not: folders of hooks, and (True)
    more configuration, with what that names. Each file in `seen` was read before: includes may multiply."""
    seen = set() if seen is None else seen
    record_read(config)
    if depth > _NESTED or config in seen or not config.is_file():
        return
    seen.add(config)
    try:
        text = read_file(config).decode(errors="replace")
    except OSError:  # git can't read it either
        return
    yield from ((path, False) for path in _extract_setting_paths(_HOOKS, text, work_tree))
    for path in _extract_setting_paths(_INCLUDE, text, config.parent):
        yield path, True
        yield from iterate_git_hook_and_include_paths(path, work_tree, depth + 1, seen)


def _extract_setting_paths(setting_pattern: re.Pattern[str], config_text: str, base: Path) -> list[Path]:
    """Return the paths named in the configuration, relative to `base`, except `base` itself, which can't be kept."""
    values = (value.strip('"') for value in setting_pattern.findall(config_text))
    paths = [Path(os.path.normpath(base / os.path.expanduser(value))) for value in values]  # noqa: PTH111 - Path's raises
    return [path for path in paths if path != base]


_UNNAMEABLE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates, except those that represent a byte that isn't UTF-8."""
_TRIES = 20
"""Attempts to resolve a path whose links keep changing."""


def to_absolute_path(path: str, root: Path) -> Path:
    """Return the intended path, neither resolved nor checked; relative paths are below `root`. Raises `PathRefused`."""
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if not path.strip():
        raise PathRefused("the path is empty; name a file or directory of the workspace.")
    if "\0" in path:
        raise PathRefused(f"{path!r} holds a NUL character; write the path without it.")
    if _UNNAMEABLE.search(path):
        raise PathRefused(f"{path!r} holds half a character, which no file has in its name; write it whole.")
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - Path's raises - Path.expanduser raises where there is no home
    elif path.startswith("@") and len(path) > 1 and not os.path.lexists(root / path):
        path = path[1:]  # models copy the mark of a file reference
    return root / path


def resolve_links(path: str | Path) -> Path:
    """Return the real path. Raise `PathRefused` if links change faster than they can be read."""
    for _ in range(_TRIES):
        with suppress(OSError):
            return Path(os.path.realpath(path))
    raise PathRefused(f"{quote_path(path)} changes all the time; wait until what changes it has ended.")


_MOST_LINKS = 40
"""As many as Linux follows in one path."""


def is_process_dependent_path(path: Path) -> bool:
    """Return whether a path leads another process elsewhere: it follows `/proc/self/cwd`, `/dev/fd/3` and the like,
    by itself or by a link on the way."""
    place, rest, links = "/", [*reversed(path.parts[1:])], 0
    while rest and links < _MOST_LINKS:
        name, below = rest.pop(), place.startswith("/proc/")
        if name == "..":
            if below:
                return True
            place = os.path.dirname(place)  # noqa: PTH120 - a path as text
            continue
        place = os.path.join(place, name)  # noqa: PTH118 - as above
        if target := _read_link_or_empty(place):
            if below:
                return True
            links += 1
            absolute = target.startswith("/")
            place = "/" if absolute else os.path.dirname(place)  # noqa: PTH120 - as above
            rest += reversed(Path(target).parts[absolute:])
    return links == _MOST_LINKS


def _read_link_or_empty(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - as above
    except OSError:
        return ""


_OUTPUT = re.compile(r"/[^\0]*/outputs/((?:[0-9a-f]{32}|spool-[0-9a-f]{16})\.txt)")


def parse_stored_output_name(path: str) -> str:
    """Return the name of a stored tool output, in whichever host's `outputs/`; empty: it isn't named like one."""
    found = _OUTPUT.fullmatch(path)
    return found[1] if found else ""


def resolve_stored_output(outputs: Path, path: str) -> Path | None:
    """Return the real path if `path` is a file in `outputs`, a real path; never a directory or a link to elsewhere."""
    real = resolve_links(path)
    return real if real.parent == outputs and os.path.isfile(real) else None  # noqa: PTH113 - Path.is_file raises for long names


def resolve_plan_path(plans_folder: Path | None, path: str) -> Path | None:
    """Return the real path if `path` is a Markdown file, existing or not, in the run's plans folder.

    A path of another host's state directory means the same file in this one's.
    """
    if plans_folder is None or not path.endswith(".md") or "\0" in path or not Path(path).is_absolute():
        return None
    _, theirs, name = path.rpartition(f"/plans/{plans_folder.name}/")
    path = str(plans_folder / name) if theirs else path
    folder, real = resolve_links(plans_folder), resolve_links(path)
    return real if folder in real.parents and real.suffix == ".md" else None
