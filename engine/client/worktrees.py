"""worktrees: the git worktrees of a repository, with the runs that work in them: listed, merged and removed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from interlock.engine.options import Options
from interlock.engine.read import RunRow
from interlock.engine.worktrees import git_environment, list_runs_in_folder
from interlock.services.worktrees import (
    GitRepository,
    WorktreeEntry,
    WorktreeWork,
    commit_all,
    find_repository,
    find_unsaved_work,
    find_worktree,
    list_branches_without_worktree,
    list_linked_worktrees,
    merge_worktree,
    remove_worktree,
    require_harmless_config,
)
from interlock.state.errors import UserError


@dataclass(frozen=True)
class WorktreeView:
    """A worktree, what only it has, and the runs that work in it, the latest changed first."""

    entry: WorktreeEntry
    work: WorktreeWork
    runs: Sequence[RunRow]

    @property
    def driven_run(self) -> RunRow | None:
        return next((row for row in self.runs if row.status == "running"), None)

    @property
    def state_text(self) -> str:
        """What becomes of it, in a few words."""
        if self.entry.is_incomplete:
            return "incomplete"
        lines = [*(["missing"] if self.entry.missing else []), *self.work.lines]
        return "; ".join(lines) or "nothing to merge"


class Worktrees:
    """The worktrees of the repository around a folder, whoever made them."""

    def __init__(self, options: Options) -> None:
        """Raises `UserError` if the folder is in no repository, `UntrustedError` if its settings name programs."""
        self._options = options
        self.folder = Path(os.path.realpath(options.workspace or Path.cwd()))
        found = find_repository(self.folder, self._env)
        if found is None:
            raise UserError(f"{str(self.folder)!r} is in no git repository. Name one of its folders: -C DIR")
        self._trusted = options.trusts(self.folder)
        require_harmless_config(found, self._trusted)
        self.repository: GitRepository = found

    @property
    def _env(self) -> Mapping[str, str]:
        return git_environment(self._options)

    @cached_property
    def _include(self) -> Sequence[str]:
        return self._options.configuration(self.folder).loaded_settings.settings.worktree.include

    def list_worktrees(self) -> list[WorktreeView]:
        return [self._view(entry) for entry in list_linked_worktrees(self.repository, self._env)]

    def list_branches_without_worktree(self) -> dict[str, int]:
        """Branches of worktrees that are gone, each with its commits that aren't merged."""
        return list_branches_without_worktree(self.repository, self._env)

    def find_worktree(self, name: str) -> WorktreeView:
        """The worktree of a name, branch or path. Raises `UserError`."""
        return self._view(find_worktree(self.repository, name, self._env))

    def _view(self, entry: WorktreeEntry) -> WorktreeView:
        work = find_unsaved_work(self.repository, entry, self._include, self._env)
        return WorktreeView(entry, work, list_runs_in_folder(self._options.home, entry.path))

    def merge(self, view: WorktreeView, message: str = "") -> list[str]:
        """Merge a worktree into the work tree of the folder. `message`: commit what isn't committed, with this message.

        Returns a line for each thing done. Raises `UserError`; then nothing was merged.
        """
        entry, done = view.entry, list[str]()
        if row := view.driven_run:
            raise UserError(
                f"Run {row.run!r} is working in {str(entry.path)!r}. Wait until it ends, or: interlock cancel"
            )
        if entry.is_incomplete:
            raise UserError(
                f"Worktree {entry.name!r} is incomplete. Remove it: interlock worktrees remove {entry.name}"
            )
        if view.work.unfinished:
            raise UserError(
                f"Worktree {entry.name!r} has {', '.join(view.work.unfinished)}. Finish that first."
            )
        uncommitted = self._uncommitted(view)
        if uncommitted and not message:
            raise UserError(
                f"Worktree {entry.name!r} has uncommitted work ({view.work.lines[0]}). Commit it as you merge: "
                f"interlock worktrees merge {entry.name} -m MESSAGE"
            )
        if uncommitted:
            commit_all(entry, message, self._env, hooks=self._trusted)
            done.append(f"Committed {len(uncommitted)} changed file{'s' if len(uncommitted) > 1 else ''}.")
            entry = find_worktree(self.repository, str(entry.path), self._env)
        done.append(merge_worktree(self.repository, entry, self._env, hooks=self._trusted))
        if names := view.work.submodules:
            done.append(f"Commits of {', '.join(names)} are only in the worktree. Push them from there.")
        return done

    def _uncommitted(self, view: WorktreeView) -> Sequence[str]:
        """Return the changes that git would commit: not the copies of ignored files."""
        return find_unsaved_work(self.repository, view.entry, (), self._env, reads_include_file=False).changed

    def remove(self, view: WorktreeView, *, force: bool = False) -> list[str]:
        """Remove a worktree; returns a line for each thing done. `force`: a person said that the work may go.

        Raises `UserError` for one with work, or with a run that is driven in it.
        """
        if row := view.driven_run:
            raise UserError(
                f"Run {row.run!r} is working in {str(view.entry.path)!r}. Stop it first: interlock cancel {row.run}"
            )
        if self.folder.is_relative_to(os.path.realpath(view.entry.path)):
            raise UserError(
                f"You are in {str(view.entry.path)!r}. Remove it from elsewhere: -C {self.repository.main}"
            )
        if view.work.lines and not force:
            raise UserError(
                f"Worktree {view.entry.name!r} has {'; '.join(view.work.lines)}. Nothing was removed."
            )
        return remove_worktree(self.repository, view.entry, self._env, force=force)
