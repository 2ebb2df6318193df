"""worktrees: lists the git worktrees of a repository with their runs, merges them and removes them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from interlock.engine.options import Options
from interlock.engine.read import RunRow, list_runs
from interlock.engine.worktrees import git_environment, resolve_start_folder, select_runs_in_folder
from interlock.services.worktrees.listing import (
    WorktreeEntry,
    find_worktree,
    list_branches_without_worktree,
    list_linked_worktrees,
)
from interlock.services.worktrees.merge import commit_all, merge_worktree
from interlock.services.worktrees.removal import remove_worktree
from interlock.services.worktrees.repository import GitRepository, find_repository, require_harmless_config
from interlock.services.worktrees.unsaved_work import WorktreeWork, find_unsaved_work
from interlock.state.errors import UserError
from interlock.state.text import format_count


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
        """What only the worktree has, in a few words."""
        if self.entry.is_incomplete:
            return "incomplete"
        lines = [*(["missing"] if self.entry.missing else []), *self.work.lines]
        return "; ".join(lines) or "nothing to merge"


class Worktrees:
    """The worktrees of the repository around a folder, whoever made them."""

    def __init__(self, options: Options) -> None:
        """Raises `UserError` if the folder is in no repository, `UntrustedError` if its settings name programs."""
        self._options = options
        self._environment = git_environment(options)
        self.folder = resolve_start_folder(options)
        found = find_repository(self.folder, self._environment)
        if found is None:
            raise UserError(f"{str(self.folder)!r} isn't in a git repository. Name a folder that is: -C DIR")
        self._trusted = options.trusts(self.folder)
        require_harmless_config(found, self._trusted)
        self.repository: GitRepository = found

    @cached_property
    def _include_patterns(self) -> Sequence[str]:
        return self._options.configuration(self.folder).loaded_settings.settings.worktree.include

    @cached_property
    def _runs(self) -> Sequence[RunRow]:
        return list_runs(self._options.home)

    def list_worktrees(self) -> list[WorktreeView]:
        return [
            self._build_view(entry) for entry in list_linked_worktrees(self.repository, self._environment)
        ]

    def list_branches_without_worktree(self) -> dict[str, int]:
        """Return the branches whose worktrees are gone, each with the number of its unmerged commits."""
        return list_branches_without_worktree(self.repository, self._environment)

    def find_worktree(self, name: str) -> WorktreeView:
        """Return the worktree that has this name, branch or path. Raises `UserError`."""
        return self._build_view(find_worktree(self.repository, name, self._environment))

    def _build_view(self, entry: WorktreeEntry) -> WorktreeView:
        work = find_unsaved_work(
            self.repository, entry, self._include_patterns, self._environment, is_trusted=self._trusted
        )
        return WorktreeView(entry, work, select_runs_in_folder(self._runs, entry.path))

    def merge(self, view: WorktreeView, message: str = "") -> list[str]:
        """Merge a worktree into the work tree of the folder; return a line for each thing done.

        `message`: commit uncommitted files first, with this message. Raises `UserError`; then nothing was merged.
        """
        entry, done = view.entry, list[str]()
        if row := view.driven_run:
            raise UserError(
                f"Run {row.run!r} is working in {str(entry.path)!r}. Wait until it ends, or stop it: "
                f"interlock cancel {row.run}"
            )
        if entry.is_incomplete:
            raise UserError(
                f"Worktree {entry.name!r} is incomplete. Remove it: interlock worktrees remove {entry.name}"
            )
        if view.work.unfinished:
            raise UserError(
                f"Worktree {entry.name!r} has {', '.join(view.work.unfinished)}. Finish or abort it in "
                f"{str(entry.path)!r} first."
            )
        uncommitted = view.work.changed
        if uncommitted and not message:
            raise UserError(
                f"Worktree {entry.name!r} has uncommitted work ({view.work.lines[0]}). Commit it as you merge: "
                f"interlock worktrees merge {entry.name} -m MESSAGE"
            )
        if uncommitted:
            commit_all(entry, message, self._environment, hooks=self._trusted)
            done.append(f"Committed {format_count(len(uncommitted), 'changed file')}.")
            entry = find_worktree(self.repository, str(entry.path), self._environment)
        done.append(merge_worktree(self.repository, entry, self._environment, hooks=self._trusted))
        if names := view.work.submodules:
            done.append(
                f"Commits of {', '.join(names)} are only in the worktree. Push them from there before you remove it."
            )
        return done

    def remove(self, view: WorktreeView, *, force: bool = False) -> list[str]:
        """Remove a worktree; return a line for each thing done. `force`: a person said that its work may go.

        Raises `UserError` if it has work, or a run works in it.
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
        return remove_worktree(self.repository, view.entry, self._environment, force=force)
