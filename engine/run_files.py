"""run_files: shows and undoes what a run's calls did to the workspace's files, where they are on this host.

Where no clone of a run's repository is, commands get one, as the last snapshot has it.
"""

import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from interlock.engine.masking import load_folder_redactor
from interlock.engine.optional_rooms import load_fleet_entry_point
from interlock.engine.read import RunRow, list_runs
from interlock.engine.store import Store, open_reader
from interlock.engine.store.approvals import list_confirmed_encodings
from interlock.engine.store.blobs import open_repository_with_snapshots, store_snapshot_if_missing
from interlock.engine.store.runs import read_options, read_repository_option
from interlock.engine.store.snapshots import (
    Snapshot,
    list_call_keys_and_planned_paths,
    list_snapshots,
    read_calls_without_snapshots,
)
from interlock.engine.store.workspaces import record_snapshot_of_person_changes
from interlock.services.configuration import load_default_configuration
from interlock.services.files.conventions import read_conventions
from interlock.services.files.filesystem import read_truncated_text
from interlock.services.files.ignore import find_generated_paths
from interlock.services.files.workspace import open_workspace
from interlock.services.snapshots.file_diffs import FileDiff, split_git_lines
from interlock.services.snapshots.restore import (
    RestorePlan,
    find_blocked_paths,
    finish_pending_restore,
    plan_restore,
    run_restore_in_subprocess,
)
from interlock.services.snapshots.snapshots import (
    ShadowRepository,
    SnapshotContents,
    SnapshotFile,
    WorkspaceSnapshots,
    shadow_repository_name,
)
from interlock.services.snapshots.workspace_tree import TooManyFilesError
from interlock.state.errors import UserError
from interlock.state.file_names import format_file_name, quote_path
from interlock.state.settings import Settings
from interlock.state.text import format_count, join_up_to, replace_surrogates
from interlock.state.workspace import NO_CONVENTIONS, FileConventions, PathRefused
from interlock.tools.text_diff import is_binary_notice, unified_diff

_SAME_TEXT = "Only bytes changed, not the text: its encoding, byte order mark or line ends.\n"
_NAMED = 5
"""Maximum paths listed in an error."""


def find_repository_and_commit_at_step(home: Path, run: str, step: int) -> tuple[str, str] | None:
    """Repository and commit of the files at a root step; None: the run has no snapshots."""
    found = list_snapshots(home, run)
    done = [s for s in found if s.root_step + 1 <= step and s.after]
    if done:
        return done[-1].repository, done[-1].after
    return (found[0].repository, found[0].before) if found else None


@dataclass
class RunFiles:
    """The files of a run's workspace, for commands."""

    home: Path
    run: RunRow

    @cached_property
    def repository_folder(self) -> Path:
        return self.home / "snapshots" / shadow_repository_name(Path(self.run.workspace))

    @cached_property
    def shadow_repository(self) -> ShadowRepository:
        return ShadowRepository(self.repository_folder)

    def finish_restore_and_take_snapshot(self) -> str:
        """Snapshot the current workspace, after finishing what an earlier command left half done."""
        root = Path(self.run.workspace)
        if not root.is_dir():
            raise UserError(
                f"No directory {str(root)!r}, in which run {self.run.run!r} worked. If it was moved, say where it is: "
                f"interlock resume {self.run.run} -C DIR"
            )
        finish_pending_restore(self.repository_folder)
        return take_folder_snapshot(self.home, root, self.run.run)

    def check_workspace_not_driven(self) -> None:
        """Raises `UserError` while a run is working in the folder, as its files would change under it."""
        for other in list_runs(self.home, "running"):
            if other.workspace == self.run.workspace:
                raise UserError(
                    f"Run {other.run!r} is working in {other.workspace!r}. Stop it first (Ctrl-C there)."
                )

    def plan_restore(self, step: int) -> tuple[RestorePlan, SnapshotContents]:
        """The work that restores the workspace to a root step, and its current contents."""
        found = find_repository_and_commit_at_step(self.home, self.run.run, step)
        now = self.shadow_repository.read_contents(self.finish_restore_and_take_snapshot())
        if found is None:
            return RestorePlan(self.run.workspace, str(self.repository_folder)), now
        name, commit = found
        folder = self.home / "snapshots" / name
        then = open_repository_with_snapshots(self.home, folder, [commit]).read_contents(commit)
        work = plan_restore(now, then, Path(self.run.workspace), folder)
        if inside := find_blocked_paths(work, now):
            raise UserError(
                f"{_format_paths(inside)} would be overwritten, and isn't in any snapshot (ignored, too large or "
                "private). Move it away, or fork into a new folder: interlock fork RUN --at STEP"
            )
        return work, now

    def run_restore_plan(self, plan: RestorePlan) -> None:
        if plan:
            run_restore_in_subprocess(plan)

    def find_paths_touched_by_calls(self, call_snapshots: Iterable[Snapshot]) -> "TouchedPaths":
        """What these calls changed, path by path."""
        found = TouchedPaths()
        for snapshot in call_snapshots:
            if snapshot.before != snapshot.after:
                found.add_changes(
                    *self._read_contents_around(snapshot), self._planned_paths.get(snapshot.call_key)
                )
        return found

    def _read_contents_around(self, snapshot: Snapshot) -> tuple[SnapshotContents, SnapshotContents]:
        after = snapshot.after or self.finish_restore_and_take_snapshot()
        return self.read_snapshot_contents(snapshot.before), self.read_snapshot_contents(after)

    @cached_property
    def _planned_paths(self) -> dict[str, str]:
        """Key of each call of a file tool → the file that it wrote; what else changed meanwhile isn't its own."""
        root = Path(self.run.workspace)
        planned = (
            (key, root / path) for key, path in list_call_keys_and_planned_paths(self.home, self.run.run)
        )
        return {key: str(path.relative_to(root)) for key, path in planned if path.is_relative_to(root)}

    def list_later_calls_by_foreign_change(
        self, call_snapshots: list[Snapshot], paths: Iterable[str]
    ) -> dict[str, list[str]]:
        """Return path → keys of the calls, newest first, that changed it since somebody else did, between two calls."""
        found: dict[str, list[str]] = {path: [] for path in paths}
        last: dict[str, SnapshotFile | None] = {}
        for snapshot in call_snapshots:
            if snapshot.before == snapshot.after:
                continue
            before, after = self._read_contents_around(snapshot)
            for path, keys in found.items():
                was, now = before.files.get(path), after.files.get(path)
                if was == now:
                    continue
                if path in last and last[path] != was:
                    keys.clear()
                keys.insert(0, snapshot.call_key)
                last[path] = now
        return found

    def find_paths_generated_by_calls(self, call_snapshots: Iterable[Snapshot]) -> set[str]:
        """Of the files that these calls changed, those that builds and caches made (`__pycache__`, build output)."""
        found = [*call_snapshots]
        if not (changed := self.find_paths_touched_by_calls(found).first.keys()):
            return set()
        there = (
            self.read_snapshot_contents(
                found[-1].after or self.finish_restore_and_take_snapshot()
            ).files.keys()
            | changed
        )
        return (
            find_generated_paths(
                there, self.read_snapshot_contents(found[0].before).files.keys(), self.paths_written_by_tools
            )
            & changed
        )

    @property
    def paths_written_by_tools(self) -> set[str]:
        """What file tools wrote."""
        return {*self._planned_paths.values()}

    def diff_each_call(self, call_snapshots: Sequence[Snapshot]) -> Iterator[str]:
        """The diff of each of these calls, in their order, as git shows it; each has the state after it."""
        ends = [commit for s in call_snapshots for commit in (s.before, s.after)]
        open_repository_with_snapshots(self.home, self.repository_folder, dict.fromkeys(ends))
        made = self.shadow_repository.diff_snapshot_pairs([*pairwise(ends)])
        names = {*self.read_snapshot_contents(ends[0]).files} if ends else set[str]()
        for number, pieces in enumerate(made):
            before = names
            gone = {piece.old for piece in pieces if piece.status in ("D", "R")}
            new = {piece.new for piece in pieces if piece.status in ("A", "R")}
            changed = {name for piece in pieces for name in (piece.old, piece.new)}
            if gone or new:
                names = (names - gone) | new
            if number % 2:  # what others did between two calls
                continue
            generated = set[str]()
            if changed - self.paths_written_by_tools:
                generated = (
                    find_generated_paths(names | changed, before, self.paths_written_by_tools) & changed
                )
            own = (piece for piece in pieces if not {piece.old, piece.new} <= generated)
            yield "".join(map(self.format_file_diff, own)) + _generated_files_line(generated)

    def format_file_diff(self, diff: FileDiff) -> str:
        """A file's diff as text. What git shows as bytes, or as binary, is read in the file's own encoding."""
        as_git_shows_it = replace_surrogates("".join(diff.lines))
        if diff.is_utf8_text or diff.status == "T":
            return as_git_shows_it
        there = [blob for blob in diff.blobs if blob]
        contents = dict(zip(there, self.shadow_repository.read_blobs(there), strict=True))
        before, after = (contents.get(blob or "") for blob in diff.blobs)
        made = unified_diff(diff.new, before, after or b"", self._read_conventions(diff.new))
        if is_binary_notice(made):
            return as_git_shows_it
        head, lines = diff.lines[: diff.text_start], split_git_lines(made.encode())
        if head[-1].startswith("+++ "):
            lines = lines[2:]  # git names both sides already
        return replace_surrogates("".join(head)) + "".join(lines or [_SAME_TEXT])

    def _read_conventions(self, path: str) -> FileConventions:
        """What a file's encoding is by its project, settings and the people who confirmed it, where the folder is on
        this host."""
        root = Path(self.run.workspace)
        return (
            read_conventions(root / path, self._confirmed_encodings, path)
            if root.is_dir()
            else NO_CONVENTIONS
        )

    @cached_property
    def _confirmed_encodings(self) -> list[tuple[str, str]]:
        """Patterns of files and their encodings; the last that matches counts."""
        with open_reader(self.home) as conn:
            confirmed = list_confirmed_encodings(conn, self.run.run) if conn else []
        by_settings = load_folder_settings(Path(self.run.workspace)).files.encodings.items()
        return [*by_settings, *((one.pattern, one.encoding) for one in confirmed)]

    def read_snapshot_contents(self, commit: str) -> SnapshotContents:
        if commit not in self._read:
            self._read[commit] = open_repository_with_snapshots(
                self.home, self.repository_folder, [commit]
            ).read_contents(commit)
        return self._read[commit]

    _read: dict[str, SnapshotContents] = field(default_factory=dict[str, SnapshotContents])

    def plan_undo(self, call_snapshots: list[Snapshot]) -> RestorePlan:
        """The work that undoes these calls. Raises `UserError` naming paths changed since.

        Generated files that changed since stay as they are.
        """
        done = self.find_paths_touched_by_calls(call_snapshots)
        now = self.read_snapshot_contents(self.finish_restore_and_take_snapshot())
        changed = {path for path in done.last if not done.can_undo(path, now.files.get(path))}
        for path in changed & self.find_paths_generated_by_calls(call_snapshots):
            del done.first[path], done.last[path]
            changed.remove(path)
        if between := {path for path in changed if now.files.get(path) == done.last[path]}:
            raise UserError(self._describe_versions_between(call_snapshots, sorted(between)))
        if changed:
            raise UserError(
                f"{_format_paths(sorted(changed))} changed since, by somebody else or by a later call, so nothing was "
                f"undone. See what this run did: interlock diff {self.run.run} --files"
            )
        then = {path: kept for path, kept in {**now.files, **done.first}.items() if kept}
        folders = {path: mode for path, mode in now.folders.items() if path not in done.folders_made}
        folders = dict(sorted({**folders, **_parent_folder_modes(then, now), **done.folders_gone}.items()))
        work = plan_restore(
            now, SnapshotContents(then, folders), Path(self.run.workspace), self.repository_folder
        )
        if inside := find_blocked_paths(work, now):
            raise UserError(
                f"{_format_paths(inside)} is there again, and no snapshot has it. Move it away first."
            )
        return work

    def _describe_versions_between(self, call_snapshots: list[Snapshot], paths: list[str]) -> str:
        """Say that somebody else changed these files between two calls, and how to get what they wrote."""
        from interlock.engine.read.calls import list_calls

        numbers = {call.key: number for number, call in enumerate(list_calls(self.home, self.run.run), 1)}
        later = self.list_later_calls_by_foreign_change(call_snapshots, paths)
        keys = {key for keys in later.values() for key in keys if key in numbers}
        undo = [
            f"interlock undo {self.run.run} --call {n}"
            for n in sorted((numbers[k] for k in keys), reverse=True)
        ]
        return (
            f"Somebody else changed {_format_paths(paths)} between two calls of this run, so nothing was undone. "
            f"To get that version back: {'; then '.join(undo)}"
        )


@dataclass
class TouchedPaths:
    """Paths changed by calls, with their state before the first call and after the last."""

    first: dict[str, SnapshotFile | None] = field(default_factory=dict[str, SnapshotFile | None])
    last: dict[str, SnapshotFile | None] = field(default_factory=dict[str, SnapshotFile | None])
    mixed: set[str] = field(default_factory=set[str])
    """Paths changed by something else between two calls."""
    folders_made: set[str] = field(default_factory=set[str])
    folders_gone: dict[str, int] = field(default_factory=dict[str, int])

    def add_changes(self, before: SnapshotContents, after: SnapshotContents, only: str | None = None) -> None:
        """`only`: the one file that the call wrote."""
        for path in {only} if only is not None else before.files.keys() | after.files.keys():
            was, now = before.files.get(path), after.files.get(path)
            if was == now:
                continue
            if path in self.last and self.last[path] != was:
                self.mixed.add(path)
            self.first.setdefault(path, was)
            self.last[path] = now
        self.folders_made |= after.folders.keys() - before.folders.keys()
        self.folders_gone |= {p: m for p, m in before.folders.items() if p not in after.folders}

    def can_undo(self, path: str, current_file: SnapshotFile | None) -> bool:
        return current_file == self.first[path] or (
            current_file == self.last[path] and path not in self.mixed
        )


def _parent_folder_modes(files: Iterable[str], now: SnapshotContents) -> dict[str, int]:
    """The files' parent folders, with their modes."""
    found: dict[str, int] = {}
    for path in files:
        while (path := path.rpartition("/")[0]) and path not in found:
            found[path] = now.folders.get(path, 0o755)
    return found


def load_folder_settings(root: Path) -> Settings:
    """A folder's current settings, for a command that drives nothing."""
    return load_default_configuration(root).loaded_settings.settings


def read_masked_workspace_text(home: Path, run: RunRow, path: str, limit: int) -> str:
    """The text of a file as the run's tools may read it, without secrets.

    Raises `PathRefused` for one that they may not, and `UnreadableError`.
    """
    root = Path(os.path.realpath(run.workspace))
    settings = load_folder_settings(root)
    workspace = open_workspace(root, settings, home / "outputs")
    real = workspace.resolve_readable(path)
    within = next((one for one in workspace.roots if real.is_relative_to(one)), None)
    if within is None:  # a long output or a plan: none is changed by a request
        raise PathRefused(f"{path!r} is outside the run's folder.")
    text = read_truncated_text(real, limit, within, workspace.read_conventions(real))
    return load_folder_redactor(root, home)(text, lines=True)


def take_folder_snapshot(home: Path, root: Path, run: str) -> str:
    """Snapshot a folder's current contents."""
    settings = load_folder_settings(root)
    made = WorkspaceSnapshots(home, open_workspace(root, settings, home / "outputs"), settings.snapshots)
    try:
        return made.take_snapshot(f"refs/runs/{run}")
    except TooManyFilesError as error:
        raise UserError(
            f"The files can't be brought back without a snapshot of them as they are: {error}."
        ) from error
    finally:
        made.save_and_close()


def require_call_snapshots(home: Path, run: RunRow, call: str | None) -> list[Snapshot]:
    """The snapshots of a run's own calls, or of one of them. Raises `UserError` if there are none."""
    found = [s for s in list_snapshots(home, run.run) if not s.inherited]
    if call is not None:
        from interlock.engine.read.calls import find_call, list_calls

        key = find_call(list_calls(home, run.run), call, run.run).key
        found = [s for s in found if s.call_key == key]
    if not found:
        what = f"Call {call!r} of run {run.run!r}" if call else f"Run {run.run!r}"
        if line := _calls_without_snapshots_line(home, run.run):
            raise UserError(f"{what} can't be taken back. {line}")
        raise UserError(
            f"{what} has no snapshots: it changed nothing, or they were off (see: interlock doctor)."
        )
    return found


def list_snapshots_if_in_place_fork(home: Path, run: RunRow) -> list[Snapshot]:
    """All snapshots of a fork in its parent's folder, with those it inherited; empty for any other run."""
    found = list_snapshots(home, run.run)
    here = shadow_repository_name(Path(run.workspace))
    return found if found and found[0].inherited and all(s.repository == here for s in found) else []


def diff_calls(home: Path, run: RunRow, call_snapshots: list[Snapshot]) -> str:
    """What these calls changed, as a git diff from before the first to after the last, for people: text of any
    encoding can be read."""
    files = RunFiles(home, run)
    found = _find_changes_of_calls(files, call_snapshots)
    diffs = files.shadow_repository.diff_paths(*found.ends, found.paths) if found.paths else []
    return "".join(map(files.format_file_diff, diffs)) + _generated_files_line(found.generated)


def make_patch_of_calls(home: Path, run: RunRow, call_snapshots: list[Snapshot]) -> bytes:
    """What these calls changed, byte for byte, for `git apply`; empty if they changed nothing."""
    files = RunFiles(home, run)
    found = _find_changes_of_calls(files, call_snapshots)
    return files.shadow_repository.make_patch(*found.ends, found.paths)


class _CallChanges(NamedTuple):
    ends: tuple[str, str]
    """The snapshots before the first of the calls and after the last."""
    paths: list[str]
    generated: set[str]
    """Further paths, of files that builds and caches made."""


def _find_changes_of_calls(files: RunFiles, call_snapshots: list[Snapshot]) -> _CallChanges:
    """Return what these calls changed themselves: others may have changed more meanwhile."""
    afters = [s.after or files.finish_restore_and_take_snapshot() for s in call_snapshots]
    pairs = [
        (s.before, after) for s, after in zip(call_snapshots, afters, strict=True) if s.before != s.after
    ]
    ends = (call_snapshots[0].before, afters[-1])
    if not pairs:
        return _CallChanges(ends, [], set())
    opened = dict.fromkeys(commit for pair in (*pairs, ends) for commit in pair)
    open_repository_with_snapshots(files.home, files.repository_folder, opened)
    steps = files.shadow_repository.diff_snapshot_pairs(pairs)
    changed = {name for pieces in steps for piece in pieces for name in (piece.old, piece.new)}
    before, after = (files.read_snapshot_contents(commit).files.keys() for commit in ends)
    generated = find_generated_paths({*after} | changed, before, files.paths_written_by_tools) & changed
    return _CallChanges(ends, sorted(changed - generated), generated)


def _generated_files_line(generated: set[str]) -> str:
    """A line that no diff has, and that programs which read diffs pass over."""
    if not generated:
        return ""
    names = join_up_to([*map(format_file_name, sorted(generated))], _NAMED)
    return f"{format_count(len(generated), 'generated file')} not shown: {names}\n"


def unrestorable_changes_line(home: Path, run: RunRow) -> str:
    """A line on what can't be taken back: calls without snapshots, and files of included directories; else empty."""
    return " ".join(
        line
        for line in (_calls_without_snapshots_line(home, run.run), _included_directories_line(home, run))
        if line
    )


def _calls_without_snapshots_line(home: Path, run: str) -> str:
    found = read_calls_without_snapshots(home, run)
    if found is None:
        return ""
    from interlock.engine.read.calls import list_calls

    made = {call.key: f"{number} ({call.tool})" for number, call in enumerate(list_calls(home, run), 1)}
    named = [made[key] for key in found.calls if key in made]
    count = len(found.calls) + found.more
    return (
        f"No snapshots were taken around {format_count(count, 'call')}, "
        f"so what {'it' if count == 1 else 'they'} changed "
        f"stays: {join_up_to(named, _NAMED)}. The reason: {found.why}."
    )


def _included_directories_line(home: Path, run: RunRow) -> str:
    """Names the run's included directories, whose files have no snapshots."""
    with open_reader(home) as conn:
        included: list[str] = (read_options(conn, run.run) if conn else {}).get("include_directories") or []
    root = Path(run.workspace)
    known = load_folder_settings(root).context.include_directories if root.is_dir() else []
    if not (
        found := sorted({str((root / Path(name).expanduser()).resolve()) for name in (*included, *known)})
    ):
        return ""
    kept = "Of the files in included directories nothing is kept, so they are left as they are"
    return f"{kept}: {_format_paths(found)}."


def check_calls_wrote_inside_workspace(home: Path, run: RunRow, call_snapshots: Iterable[Snapshot]) -> None:
    """Raises `UserError` if one of these calls wrote a file outside the workspace."""
    keys, root = {s.call_key for s in call_snapshots}, Path(run.workspace)
    paths = [str(root / path) for key, path in list_call_keys_and_planned_paths(home, run.run) if key in keys]
    if outside := [path for path in paths if not Path(path).is_relative_to(root)]:
        raise UserError(
            f"{_format_paths(outside)} lies in an included directory, of whose files nothing is kept, so nothing was "
            f"taken back. Take back single calls: interlock undo {run.run} --call N"
        )


def _format_paths(paths: list[str]) -> str:
    return join_up_to([*map(quote_path, paths)], _NAMED)


class FileChange(NamedTuple):
    """One file."""

    mark: str
    """`A`: added again, `M`: as before, `D`: gone again."""
    path: str


def list_planned_file_changes(plan: RestorePlan, current: SnapshotContents) -> Iterator[FileChange]:
    """Each change the work makes."""
    yield from (FileChange("D", path) for path in plan.gone)
    yield from (FileChange("M" if path in current.files else "A", path) for path, _, _ in plan.files)


def read_repository_option_of_run(home: Path, run: str) -> dict[str, str]:
    """What a run's options say of its repository; empty: it works in a folder."""
    with open_reader(home) as conn:
        return read_repository_option(conn, run) if conn else {}


def is_run_on_other_host(home: Path, run: RunRow) -> bool:
    """Whether a run works in a clone that isn't on this host."""
    repository = read_repository_option_of_run(home, run.run)
    at_host = repository.get("at", "").startswith(f"{os.uname().nodename}:")
    return bool(repository) and not (at_host and Path(run.workspace).is_dir())


def _has_clones_objects(home: Path, clone: Path) -> bool:
    """Whether this state's snapshots of a clone can be read: they leave out what the repository's mirror has."""
    return ShadowRepository(home / "snapshots" / shadow_repository_name(clone)).is_borrowing_objects


@contextmanager
def provide_run_with_local_files(
    home: Path, run: RunRow, *, needs_workspace: bool = True
) -> Generator[RunRow]:
    """Yield the run with its files on this host: a clone for the block, where its own is elsewhere, or another's.

    `needs_workspace`: false if its snapshots will do. Raises `RunError` if the repository can't be cloned.
    """
    readable = _has_clones_objects(home, Path(run.workspace))
    if not read_repository_option_of_run(home, run.run) or (
        readable and not (needs_workspace and is_run_on_other_host(home, run))
    ):
        yield run
        return
    made = load_fleet_entry_point(
        "interlock.repositories", "git", "Files of a run on another host need"
    ).check_out(home, run.run, home / "clones")
    try:
        yield run._replace(workspace=str(made.folder))
    finally:
        shutil.rmtree(made.folder, ignore_errors=True)


def check_run_not_delivered(home: Path, run: RunRow) -> None:
    """Raises `UserError` for a run on a repository whose changes have left its clone."""
    if run.status == "done" and read_repository_option_of_run(home, run.run):
        raise UserError(
            f"Run {run.run!r} is done, and what it changed was delivered: it can't be undone here. Go on from one of "
            f"its steps: interlock fork {run.run} --at STEP"
        )


def store_person_changes_of_repository_run(home: Path, run: RunRow, local_run: RunRow) -> None:
    """After a person changed a run's files: whoever drives a run on a repository next has them, too."""
    if not read_repository_option_of_run(home, run.run):
        return
    commit = take_folder_snapshot(home, Path(local_run.workspace), run.run)
    with Store(home).write_transaction() as conn:
        store_snapshot_if_missing(conn, RunFiles(home, local_run).shadow_repository, commit)
        record_snapshot_of_person_changes(conn, run.run, commit, elsewhere=local_run != run)
