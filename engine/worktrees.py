"""worktrees: the git worktree of a run: made before the run begins, and taken away again if nothing came of it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.engine.options import Options
from interlock.engine.read import RunRow, list_runs
from interlock.services.worktrees import (
    GitRepository,
    MadeWorktree,
    default_worktrees_folder,
    find_repository,
    make_or_reuse_worktree,
    remove_untouched_worktree,
    require_harmless_config,
)
from interlock.state.errors import UserError


@dataclass(frozen=True)
class EnteredWorktree:
    """A worktree that a run is to work in."""

    options: Options
    """Options of the run, with the worktree as its workspace."""
    repository: GitRepository
    made: MadeWorktree

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of it: a line each."""
        return self.made.notes

    def remove_if_unused(self) -> bool:
        """As `remove_if_untouched`, and no run has begun in it."""
        return not list_runs_in_folder(self.options.home, self.made.path) and self.remove_if_untouched()

    def remove_if_untouched(self) -> bool:
        """Remove the worktree if it was made now and nothing was done in it; return whether that was so."""
        return remove_untouched_worktree(self.repository, self.made, git_environment(self.options))


def list_runs_in_folder(home: Path, folder: Path) -> list[RunRow]:
    """Return the runs that work in a folder or below it, the latest changed first."""
    top = str(folder)
    return [row for row in list_runs(home) if row.workspace == top or row.workspace.startswith(f"{top}/")]


def git_environment(options: Options) -> Mapping[str, str]:
    return options.env or os.environ


def should_enter_worktree(options: Options, is_conversation: bool) -> bool:
    """Return whether a run that begins needs a worktree that isn't there yet: one was asked for, or settings say so."""
    if options.worktree is not None:
        return "path" not in options.worktree
    if not is_conversation or options.repository or options.schedule:
        return False
    root = _workspace(options)
    settings = options.configuration(root).loaded_settings.settings.worktree
    if not settings.enabled or not any((place / ".git").exists() for place in (root, *root.parents)):
        return False
    found = find_repository(root, git_environment(options))
    return found is not None and found.top in (None, found.main)


def enter_worktree(options: Options, default_name: str) -> EnteredWorktree:
    """Make the worktree that a run asks for, or find it, and return the run's options in it. Raises `UserError`.

    `default_name`: its name if none is asked for.
    """
    if options.repository:
        raise UserError(
            "--worktree: a worker clones the repository, and each run has a clone. Leave it out with --repo."
        )
    if options.schedule:
        raise UserError("--worktree: a schedule starts many runs. Leave it out.")
    root, env = _workspace(options), git_environment(options)
    repository = find_repository(root, env)
    if repository is None:
        raise UserError(
            f"--worktree needs a git repository, and {str(root)!r} is in none. Make it one (git init, git commit), or "
            "leave --worktree out."
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
    """Say what to do with a run whose worktree isn't on this machine."""
    path, branch, repository = worktree["path"], worktree["branch"], worktree["repository"]
    where = f"Run {run!r} works in the git worktree {path!r}, which isn't there"
    if not Path(repository).is_dir():
        return (
            f"{where}; neither is its repository {repository!r}. In a clone that has branch {branch!r}, say where to "
            f"go on: interlock resume {run} -C DIR"
        )
    return (
        f"{where}. To make it again: git -C {repository} worktree add {path} {branch}. To go on elsewhere: interlock "
        f"resume {run} -C DIR"
    )


def _workspace(options: Options) -> Path:
    return Path(os.path.realpath(options.workspace or Path.cwd()))
