"""worktrees: makes the git worktree of a run before the run begins, and removes it again if nothing used it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.engine.options import Options
from interlock.engine.read import RunRow, list_runs
from interlock.services.worktrees.listing import default_worktrees_folder
from interlock.services.worktrees.making import MadeWorktree, make_or_reuse_worktree
from interlock.services.worktrees.removal import remove_untouched_worktree
from interlock.services.worktrees.repository import GitRepository, find_repository, require_harmless_config
from interlock.state.errors import UserError
from interlock.state.file_names import quote_path


@dataclass(frozen=True)
class EnteredWorktree:
    """A worktree that a run is to work in."""

    options: Options
    """Options of the run, with the worktree as its workspace."""
    repository: GitRepository
    made: MadeWorktree

    @property
    def notes(self) -> Sequence[str]:
        """Lines for the person who starts the run."""
        return self.made.notes

    def remove_if_unused(self) -> bool:
        """Remove the worktree if it was made now, no run began in it and no file changed; return whether it did."""
        if select_runs_in_folder(list_runs(self.options.home), self.made.path):
            return False
        return remove_untouched_worktree(self.repository, self.made, git_environment(self.options))


def select_runs_in_folder(runs: Iterable[RunRow], folder: Path) -> list[RunRow]:
    """Return those of the runs that work in a folder or below it."""
    return [row for row in runs if Path(row.workspace).is_relative_to(folder)]


def git_environment(options: Options) -> Mapping[str, str]:
    """Return the environment in which git runs: the person's."""
    return options.env or os.environ


def resolve_start_folder(options: Options) -> Path:
    """Return the real path of the folder that a command was given, or else runs in."""
    return Path(os.path.realpath(options.workspace or Path.cwd()))


def should_enter_worktree(options: Options, is_conversation: bool) -> bool:
    """Return whether a run must begin in a worktree that has yet to be made: a person or the settings asked for one."""
    if options.worktree is not None:
        return "path" not in options.worktree
    if not is_conversation or options.repository or options.schedule:
        return False
    root = resolve_start_folder(options)
    settings = options.configuration(root).loaded_settings.settings.worktree
    if not settings.enabled or not any((place / ".git").exists() for place in (root, *root.parents)):
        return False
    found = find_repository(root, git_environment(options))
    return found is not None and found.top in (None, found.main)


def enter_worktree(options: Options, default_name: str) -> EnteredWorktree:
    """Make or find the worktree that a run asks for, and return it with the run's options in it. Raises `UserError`.

    `default_name`: its name if the person gave none.
    """
    if options.repository:
        raise UserError(
            "With --repo each run already has a clone of its own. Leave out --worktree or --repo."
        )
    if options.schedule:
        raise UserError("A schedule starts many runs, so they can't share a worktree. Leave out --worktree.")
    root, env = resolve_start_folder(options), git_environment(options)
    repository = find_repository(root, env)
    if repository is None:
        raise UserError(
            f"--worktree needs a git repository, and {quote_path(root)} isn't in one. Make it one (git init, git "
            "commit), or leave out --worktree."
        )
    is_trusted = options.trusts(root)
    require_harmless_config(repository, is_trusted)
    settings = options.configuration(root).loaded_settings.settings.worktree
    folder = settings.find_folder(repository.main, options.user_home) or default_worktrees_folder(repository)
    name = (options.worktree or {}).get("name") or default_name
    made = make_or_reuse_worktree(
        repository, name, folder, settings.include, env, reads_include_file=is_trusted
    )
    below = made.path / repository.below
    known = {
        "name": name,
        "path": str(made.path),
        "branch": made.branch,
        "repository": str(repository.main),
    }
    workspace = below if below.is_dir() else made.path
    return EnteredWorktree(replace(options, workspace=workspace, worktree=known), repository, made)


def missing_worktree_advice(run: str, worktree: Mapping[str, str]) -> str:
    """Return what to do with a run whose worktree isn't on this machine."""
    path, branch, repository = worktree["path"], worktree["branch"], worktree["repository"]
    where = f"Run {run!r} works in the git worktree {quote_path(path)}, which is missing"
    if not Path(repository).is_dir():
        return (
            f"{where}, and so is its repository {quote_path(repository)}. To resume the run in a clone that has branch "
            f"{branch!r}: interlock resume {run} -C DIR"
        )
    return (
        f"{where}. To make it again: git -C {repository} worktree add {path} {branch}. To resume the run elsewhere: "
        f"interlock resume {run} -C DIR"
    )
