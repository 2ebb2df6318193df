"""git: which git commands show no file that tools may not read, in repositories that make git run nothing.

Git itself is asked, with the same revisions and conditions, which files it would show: a deleted `.env` is still there.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.disk import read_file
from interlock.services.files.protected import (
    find_private_name,
    is_harmless_git_config,
    iterate_git_hook_and_include_paths,
    system_and_user_git_config_paths,
)
from interlock.services.shell.model import to_name_set

_LARGEST = 20_000
_LARGEST_INDEX = 50_000_000
_PRIVATE = re.compile(rb"[/\x00-\x1f](\.env|\.netrc|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519))\x00")
"""Such a path in an index: behind a slash, or behind its own length."""
_SUBMODULE = b"\x00\x00\xe0\x00"
"""Mode of index entries that are repositories of their own, which `git status` enters."""


def is_inert_repository(folder: Path) -> bool:
    """Whether the repository git finds from `folder` has no settings, hooks or submodules that run programs.

    Bare repositories aren't found (tools set `safe.bareRepository=explicit`); the user's configuration is trusted.
    """
    # All of them: git passes over a `.git` that is no repository.
    return all(map(_is_git_folder_inert, _candidate_repositories(folder)))


def is_git_output_free_of_private_files(folder: Path, shows_contents: bool, compared_operands: int) -> bool:
    """Return whether git tracks no file that tools may not read, if it shows `texts`. Outside of a repository it
    compares any two folders, whatever they hold."""
    found = [
        own
        for git in _candidate_repositories(folder)
        for own, _ in _git_and_common_directories(git)
        if (own / "HEAD").is_file()
    ]
    if not found:
        return compared_operands < 2
    return not shows_contents or not any(
        _has_private_index_entry(str(own), _file_stamp(own / "index")) for own in found
    )


def _candidate_repositories(folder: Path) -> Iterator[Path]:
    """Yield everything that git may take for the repository of a folder."""
    real = Path(os.path.realpath(folder))  # git climbs from where a link leads
    places = (place / ".git" for place in (real, *real.parents))
    return (git for git in places if os.path.lexists(git))


@lru_cache(maxsize=8)
def _has_private_index_entry(git_folder: str, index_stamp: tuple[int, int, int]) -> bool:
    return (
        bool(index_stamp[2])
        and _PRIVATE.search(read_file(Path(git_folder, "index"), index_stamp[2])) is not None
    )


def _git_and_common_directories(git: Path) -> list[tuple[Path, Path]]:
    """Return the directory of a work tree and the one with its settings: the same, unless `git worktree` has linked
    it. Empty if `git` is something else, like a submodule's.

    Empty if `git` is something else, like a submodule's.
    """
    if git.is_dir():
        return [] if (git / "commondir").exists() else [(git, git)]
    try:
        own = Path(os.path.realpath(git.parent / _read_without_final_newline(git).removeprefix("gitdir: ")))
        linked = own.parent.name == "worktrees" and _read_without_final_newline(own / "commondir") == "../.."
        return (
            [(own, own.parent.parent)]
            if linked and Path(_read_without_final_newline(own / "gitdir")).samefile(git)
            else []
        )
    except (OSError, ValueError):
        return []


def user_git_exclude_files() -> Iterator[Path]:
    """Yield the files in which the user says what git, and ripgrep with it, ignores in every repository."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path's raises
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    yield settings / "ignore"
    for config in (home / ".gitconfig", settings / "config"):
        try:
            text = read_file(config, _LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        for value in _EXCLUDES.findall(text):
            yield home / os.path.expanduser(value.strip().strip('"'))  # noqa: PTH111


_EXCLUDES = re.compile(r"^\s*excludesfile\s*=(.+)$", re.MULTILINE | re.IGNORECASE)


def _read_without_final_newline(file: Path) -> str:
    return read_file(file, _LARGEST).decode().removesuffix("\n")


_COMMAND = re.compile(
    r"^\s*(?:fsmonitor|textconv|clean|smudge|process|external|command|driver|pager|editor|sshcommand|program|helper)"
    r"\s*=\s*[\"']?(?!/|~|true|false)[^\s\"']*/",
    re.MULTILINE | re.IGNORECASE,
)
"""A program that git looks for in the work tree."""


def _is_user_config_inert(tree: Path) -> bool:
    """Return whether the user's configuration makes git run nothing that lies in a work tree: no hooks of reading
    commands, no program with a relative path."""
    for config in system_and_user_git_config_paths(os.environ):
        named = [
            config,
            *(path for path, configures in iterate_git_hook_and_include_paths(config, tree) if configures),
        ]
        folders = (
            path for path, configures in iterate_git_hook_and_include_paths(config, tree) if not configures
        )
        if any(f.is_relative_to(tree) and os.path.lexists(f / "post-index-change") for f in folders):
            return False
        for file in filter(Path.is_file, named):
            if _COMMAND.search(read_file(file).decode(errors="replace")):
                return False
    return True


def _is_git_folder_inert(git: Path) -> bool:
    try:
        if not _is_user_config_inert(git.parent):
            return False
    except OSError:
        return False
    for own, common in _git_and_common_directories(git):
        if (own / "config.worktree").exists() or (common / "hooks/post-index-change").exists():
            return False
        if any(own.glob("sharedindex.*")):  # it holds further entries
            return False
        try:
            return _has_inert_config_and_index(
                str(own), str(common), _file_stamp(common / "config"), _file_stamp(own / "index")
            )
        except (OSError, ValueError):
            return False
    return False


def _file_stamp(file: Path) -> tuple[int, int, int]:
    """Return a value that differs once the file has changed."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size)


@lru_cache(maxsize=8)
def _has_inert_config_and_index(
    git_folder: str, common_folder: str, config_stamp: tuple[int, int, int], index_stamp: tuple[int, int, int]
) -> bool:
    if config_stamp[2] > _LARGEST or index_stamp[2] > _LARGEST_INDEX:
        return False
    entries = read_file(Path(git_folder, "index"), _LARGEST_INDEX) if index_stamp[2] else b""
    text = read_file(Path(common_folder, "config")).decode() if config_stamp[2] else ""
    return _SUBMODULE not in entries and is_harmless_git_config(text)


_PATCH = to_name_set("p u U patch unified word-diff check S G")
"""Options that show what is in files, or find out what they hold."""
_LISTS = to_name_set("stat numstat shortstat name-only name-status no-patch s summary raw dirstat")
"""Options that show only which files changed, unless one of the above is there, too."""
_SELECTS = to_name_set(
    "all cached staged since until after before author committer grep no-merges merges first-parent follow reverse"
    " max-count branches tags remotes merge-base diff-filter"
)
_CONTENT = to_name_set("ignore-all-space ignore-space-change w b")
"""With these, git leaves commits out that change nothing else, so that a limit on their number reaches further."""
_ORDERED = {"--graph": "--topo-order"}
_VALUED = "nUSGL"
_TIMEOUT_S = 2.0
_SAFE = (*("-c", "safe.bareRepository=explicit"), *("-c", "core.fsmonitor=false"))
_NAMES = ("--no-ext-diff", "--no-textconv", "--name-status", "-z", "--no-color")


def is_git_printing_file_contents(command: str, options: Sequence[str]) -> bool:
    """Return whether `git diff`, `show` or `log` prints what is in files. `show` may, whatever its options: of
    a blob."""
    patch = not _PATCH.isdisjoint(options)
    if command == "log":
        return patch or "L" in options
    return command == "show" or (command == "diff" and (patch or _LISTS.isdisjoint(options)))


def can_git_show_private_file(folder: Path, words: Sequence[str], is_hidden: Callable[[str], bool]) -> bool:
    """Return whether `git WORDS…` shows a private file, or one that `is_hidden` keeps from tools, or can't be known."""
    asked = _HistoryQuery.parse(folder, words)
    if asked.command == "diff" and not asked.revisions and not asked.options:
        return False  # the index is looked at before
    if asked.command == "show" and asked.only_paths:
        return False
    found = _list_shown_paths(str(folder), asked, int(time.monotonic()))
    return found is None or any(find_private_name(Path(name).parts) or is_hidden(name) for name in found)


class _HistoryQuery(NamedTuple):
    command: str
    options: tuple[str, ...]
    revisions: tuple[str, ...]
    paths: tuple[str, ...]
    only_paths: bool
    """Whether all that is named is files in revisions: `HEAD:a.py`."""
    followed: tuple[str, ...]
    """Files whose lines are shown through all renames: `-L 1,9:a.py`."""

    @classmethod
    def parse(cls, folder: Path, words: Sequence[str]) -> "_HistoryQuery":
        options: list[str] = []
        revisions: list[str] = []
        paths: list[str] = []
        rest = iter(words[1:])
        for word in rest:
            if word == "--":
                paths += rest
            elif not word.startswith("-") or word == "-":
                (paths if os.path.lexists(folder / word) else revisions).append(word)
            else:
                options += _extract_selection_options(word, rest)
        if not _CONTENT.isdisjoint(_option_names(words)):
            options = [o for o in options if not re.match(r"-n|-\d|--max-count", o)]
        followed = [w.rpartition(":")[2] for w in _line_range_values(words)] if words[0] == "log" else []
        inside = [r for r in revisions if ":" in r]
        if words[0] == "show":
            revisions = [r for r in revisions if ":" not in r]
        only = bool(inside) and not revisions
        shown = tuple(map(_to_commit_revision, revisions))
        return cls(words[0], tuple(options), shown, tuple(paths), only, tuple(followed))


def _line_range_values(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of `-L`."""
    for word, after in zip(words, (*words[1:], ""), strict=True):
        if found := re.match(r"-[a-zA-Z]*?L(.*)", word, re.DOTALL):
            yield found[1] or after


def _historical_file_names(fields: Sequence[str], followed: Sequence[str]) -> tuple[str, ...]:
    """Return the names that files ever had. `fields`: similarity, old and new name of each rename."""
    renames = [*zip(fields[1::3], fields[2::3], strict=False)]
    known = {os.path.normpath(path) for path in followed}
    while found := {
        old
        for old, new in renames
        if old not in known and any(new == path or new.endswith(f"/{path}") for path in known)
    }:
        known |= found
    return tuple(known)


def _option_names(words: Sequence[str]) -> set[str]:
    longs = {w[2:].partition("=")[0] for w in words if w.startswith("--")}
    return longs | {letter for w in words if re.match(r"-[^-]", w) for letter in w[1:]}


def _extract_selection_options(word: str, rest: Iterator[str]) -> list[str]:
    """Return what of an option selects commits and files; what it only says about their looks is left out."""
    if word.startswith("--"):
        chosen = word[2:].partition("=")[0] in _SELECTS
        return [word] if chosen else [_ORDERED[word]] if word in _ORDERED else []
    if word[1:].isdecimal():
        return [word]
    found: list[str] = []
    for place, letter in enumerate(word[1:], 1):
        if letter in _VALUED:
            value = word[place + 1 :] or next(rest, "")
            return [*found, f"-{letter}{value}"] if letter in "nSG" else found
        found += ["-i"] if letter == "i" else []
    return found


def _to_commit_revision(revision: str) -> str:
    """Return the revision as one that must be a commit: a blob or a tree has no path that could be checked."""
    for dots in ("...", ".."):
        if dots in revision:
            return dots.join(side and _to_commit_revision(side) for side in revision.split(dots, 1))
    return revision if ":" in revision else f"{revision}^{{commit}}"


@lru_cache(maxsize=64)
def _list_shown_paths(folder: str, query: _HistoryQuery, _cache_second: int) -> tuple[str, ...] | None:
    """Return the paths of what is shown; None if unknown. Cached for a second, as a decision asks several times."""
    several = () if query.command == "diff" else ("--format=", "-m")
    renames = () if "--follow" in query.options else ("--no-renames",)
    if query.followed:
        query, renames = query._replace(options=(), paths=()), ("-M", "-l0", "--diff-filter=R")
    words = (query.command, *_NAMES, *several, *renames, *query.options, *query.revisions, "--", *query.paths)
    done = _run_git(folder, *words)
    if done is None:
        return None
    if done.returncode == 0:
        names = tuple(os.fsdecode(name) for name in re.split(rb"[\0\n]", done.stdout) if name)
        return _historical_file_names(names, query.followed) if query.followed else names
    # Where nothing of that name is there, the command itself fails, too.
    there = [revision.replace("^{commit}", "") for revision in query.revisions] or ["HEAD"]
    known = _run_git(folder, "rev-parse", *there)
    return () if known is not None and known.returncode != 0 else None


def run_git_ls_files(folder: Path, words: Sequence[str]) -> Iterator[str]:
    """Yield what `git ls-files WORDS…` lists."""
    options = [
        word for word in words if word.startswith("--exclude") or word in ("-o", "-m", "-c", "--others")
    ]
    done = _run_git(
        str(folder), "ls-files", "-z", *options, "--", *(w for w in words if not w.startswith("-"))
    )
    yield from (os.fsdecode(name) for name in (done.stdout if done else b"").split(b"\0") if name)


_OPTIONS_OF_CHECKOUT = to_name_set("-b -B --orphan -d --detach -t --track -p --patch")


def files_changed_by_checkout(folder: Path, words: Sequence[str], *, index_changed: bool) -> Iterator[str]:
    """Yield the files that `git checkout … PATHS` or `git restore … PATHS` names or changes; none for a switch.

    `index_changed`: another command of the line changes the index before.
    """
    rest = list(words)
    while rest and rest[0].startswith("-"):
        if rest[0] == "-C" and len(rest) > 1:
            folder = folder / rest[1]
        rest = rest[2:] if rest[0] in ("-C", "-c", "--git-dir", "--work-tree") else rest[1:]
    if not rest or rest[0] not in ("checkout", "restore", "checkout-index", "read-tree"):
        return
    command, given = rest[0], rest[1:]
    if command == "read-tree":
        given = ["-s", given[-1], "."] if "-u" in given else ["--staged"]
    switches = command == "checkout"
    found = _parse_checkout(str(folder), given) if switches else _parse_restore(given)
    if found is None:
        return
    tree, paths = found
    yield from (os.path.join(folder, path) for path in paths)  # noqa: PTH118 - texts of a line
    if index_changed:
        yield from (os.path.join(folder, name) for name in run_git_ls_files(folder, paths))  # noqa: PTH118 - as above
    top = _run_git(str(folder), "rev-parse", "--show-toplevel")
    done = _run_git(str(folder), "diff", *_NAMES, *tree, "--", *paths)
    if top is None or done is None or done.returncode != 0 or top.returncode != 0:
        return
    names_there = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name][1::2]
    yield from (os.path.join(os.fsdecode(top.stdout).strip(), name) for name in names_there)  # noqa: PTH118 - texts of git


def _parse_checkout(folder: str, args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
    """Return the revision, if one is named, and the paths; None: it switches the whole tree."""
    if not _OPTIONS_OF_CHECKOUT.isdisjoint(args):
        return None
    if any(word.startswith("--pathspec-from-file") for word in args):
        return [word for word in args if not word.startswith("-")][:1], ["."]
    if "--" in args:
        at = args.index("--")
        return [w for w in args[:at] if not w.startswith("-")][:1], args[at + 1 :]
    operands = [word for word in args if not word.startswith("-")]
    if not operands:
        return None
    known = _run_git(folder, "rev-parse", "--verify", "--quiet", f"{operands[0]}^{{tree}}")
    if known is not None and known.returncode == 0:
        return (operands[:1], operands[1:]) if len(operands) > 1 else None
    return [], operands


def _parse_restore(args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
    """Return the revision, if one is named, and the paths; None: only the index changes."""
    if {"--staged", "-S"} & {*args} and not {"--worktree", "-W"} & {*args}:
        return None
    tree: list[str] = []
    paths: list[str] = []
    rest = iter(args)
    for word in rest:
        if word in ("-s", "--source"):
            tree = [next(rest, "")]
        elif word.startswith("--source="):
            tree = [word.partition("=")[2]]
        elif re.match(r"-s.", word):
            tree = [word[2:]]
        elif not word.startswith("-"):
            paths.append(word)
    return tree, paths or ["."]


def _run_git(folder: str, *words: str) -> "subprocess.CompletedProcess[bytes] | None":
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "--no-pager", *_SAFE, *words]
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
