"""submodules: checks submodules of a worktree out without the network, and finds commits that only they have."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from interlock.services.worktrees.repository import (
    find_commit,
    git_failure_text,
    join_file_names,
    read_git_list,
    read_git_text,
    run_git,
)
from interlock.state.file_names import quote_path


def _list_submodule_paths(top: Path, env: Mapping[str, str]) -> list[str]:
    """Return the paths of the submodules of a work tree."""
    if not (top / ".gitmodules").is_file():
        return []
    entries = read_git_list(top, "ls-files", "--stage", "-z", env=env)
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def populate_submodules(source: Path, target: Path, env: Mapping[str, str]) -> list[str]:
    """Clone submodules from those of `source`, without the network; return a line that names those left empty."""
    empty = [*_clone_submodules_and_list_empty(source, target, env)]
    if not empty:
        return []
    return [
        f"Empty submodules: {join_file_names(empty)}. To fetch them: git -C {quote_path(target)} submodule update "
        "--init --recursive"
    ]


def _clone_submodules_and_list_empty(source: Path, target: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Clone submodules, also those of submodules; yield each that stays empty, and why."""
    for path in _list_submodule_paths(target, env):
        is_there = (target / path / ".git").exists()
        if problem := "" if is_there else _clone_submodule(source, target, path, env):
            yield f"{path} ({problem})"
            continue
        yield from (
            f"{path}/{below}" for below in _clone_submodules_and_list_empty(source / path, target / path, env)
        )


def _clone_submodule(source: Path, target: Path, path: str, env: Mapping[str, str]) -> str:
    """Clone one submodule from the one in `source`; return why that can't be done, or an empty string."""
    if not (source / path / ".git").exists():
        return "not checked out in the repository"
    own = read_git_text(source / path, "rev-parse", "--absolute-git-dir", env=env).removesuffix("\n")
    listed = read_git_list(
        target, "config", "-z", "-f", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$", env=env
    )
    names = {value: key for key, _, value in (line.partition("\n") for line in listed)}
    if path not in names:
        return "not in .gitmodules"
    name = names[path].removeprefix("submodule.").removesuffix(".path")
    if "=" in name:  # git would read `-c` below as a value of another key
        return "its name has a '='"
    allowed = ("-c", "protocol.file.allow=always", "-c", f"submodule.{name}.url={own}")
    update = ("submodule", "--quiet", "update", "--init", "--checkout", "--", path)
    done = run_git(target, *allowed, *update, env=env, check=False)
    if done.returncode:
        return git_failure_text(done)
    address = run_git(source / path, "config", "remote.origin.url", env=env, check=False)
    if address.returncode == 0:
        url = os.fsdecode(address.stdout).removesuffix("\n")
        run_git(target / path, "config", "remote.origin.url", url, env=env)
    return ""


def list_submodules_with_work(source: Path | None, top: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the submodules with commits that would be lost with the worktree.

    `source`: the main work tree, whose submodules may have them, too.
    """
    for path in _list_submodule_paths(top, env):
        own = top / path
        if not (own / ".git").exists():
            continue
        tips = {
            *read_git_text(own, "for-each-ref", "--format=%(objectname)", "refs/heads", env=env).split(),
            *filter(None, [find_commit(own, "HEAD", env)]),
        }
        beside = source / path if source and (source / path / ".git").exists() else None
        if any(not _is_commit_elsewhere(own, beside, tip, env) for tip in tips):
            yield path
        yield from (f"{path}/{below}" for below in list_submodules_with_work(beside, own, env))


def _is_commit_elsewhere(own: Path, beside: Path | None, commit: str, env: Mapping[str, str]) -> bool:
    """Return whether a commit of a submodule is in `beside`, or in what the submodule knows of its remotes."""
    if (
        beside
        and not run_git(beside, "cat-file", "-e", f"{commit}^{{commit}}", env=env, check=False).returncode
    ):
        return True
    asked = ("rev-list", "--count", commit, "--not", "--remotes", "--tags")
    return read_git_text(own, *asked, env=env).strip() == "0"
