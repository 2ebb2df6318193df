"""delivery: what becomes of the changes that a run made in a clone: a patch in the store, and a branch that is pushed.

The push is a run of `tools` with one command, so the policy decides on it and people approve it as any other. But git
runs in this worker's mirror, not in the clone, whose settings and hooks the run may have changed.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath

from interlock import engine
from interlock.engine.driver.delegation import derive_run_id
from interlock.engine.driver.run_definition import restore_options
from interlock.engine.options import Options, Outcome
from interlock.engine.read import RunRow, find_exact_run, find_run
from interlock.engine.run_files import read_repository_option_of_run
from interlock.engine.store import Store, open_reader
from interlock.engine.store.blobs import open_repository_with_snapshots, store_blob
from interlock.engine.store.queue import mark_run_failed_and_revoke_lease
from interlock.engine.store.runs import read_run_options
from interlock.engine.store.workspaces import (
    does_run_exist,
    find_first_snapshot,
    find_newest_snapshot,
    set_repository_option,
)
from interlock.fleet.checkout import (
    UNKEPT,
    Checkout,
    configured_clone_folder,
    load_worker_fleet_settings,
    read_stored_commits,
)
from interlock.fleet.commits import CloneCommits, unpack_objects_temporarily
from interlock.fleet.mirrors import Mirror, run_git
from interlock.services.snapshots.snapshots import ShadowRepository, shadow_repository_name
from interlock.state.calls import ToolResult, error_result
from interlock.state.errors import InterlockError, RunError
from interlock.state.repository import Repository
from interlock.state.tooling import Tool, ToolContext
from interlock.tools.run_shell_command import TOOL, RunShellCommandArgs

_AUTHOR = "Interlock"
_GIT = ".git"
_MOST_NAMED = 50
"""Files that aren't delivered and are named."""
_CHUNK = 1 << 20
_ABOUT_GIT = re.compile(r"\.git(: | in .+: )")
"""What is told of a clone's own repository: anew by each host that delivers."""


def deliver_run_changes(home: Path, checkout: Checkout, outcome: Outcome, options: Options) -> None:
    """Deliver what a run that is done has changed; the clone isn't needed any more then."""
    if outcome.status != "done":
        return
    try:
        pushing = _store_changes_and_start_push(home, checkout, outcome, options)
    except InterlockError as error:
        _fail_run_after_delivery_error(home, outcome.run, str(error))
        return
    if not pushing:
        shutil.rmtree(checkout.folder, ignore_errors=True)


def _store_changes_and_start_push(home: Path, checkout: Checkout, outcome: Outcome, options: Options) -> bool:
    """Returns whether a run that pushes was begun."""
    if "pushes" in checkout.options:
        (response,) = outcome.output["responses"]
        if response["status"] != "success":
            again = f"To push again: interlock resume {checkout.options['pushes']} --detach"
            raise RunError(f"{str(response.get('content') or 'The push was refused').rstrip('.')}. {again}")
        return False
    with open_reader(home) as conn:
        assert conn is not None
        first, last = find_first_snapshot(conn, outcome.run), find_newest_snapshot(conn, outcome.run)
    if checkout.options["deliver"] == "none":
        return False
    what, kept = {**checkout.options}, read_repository_option_of_run(home, outcome.run)
    what |= {UNKEPT: kept[UNKEPT]} if UNKEPT in kept else {}
    elsewhere = (place for place in what.get(UNKEPT, "").splitlines() if place != what["at"])
    unread, commits = [f"{_GIT} in {place}: its commits couldn't be kept" for place in elsewhere], None
    try:
        commits = CloneCommits(
            checkout.folder, checkout.mirror, checkout.options["commit"]
        ).read_commits_if_changed()
    except RunError as error:
        unread.append(f"{_GIT}: {error}")
    snapshots = _open_snapshot_repository(home, checkout.folder, first, last)
    if what.get("left_behind_at") == last:  # a kill moved the delivery: these files are on the other host
        known = [path for path in json.loads(what["left_behind"]) if not _ABOUT_GIT.match(path)]
    else:
        before = what.get("moved_from", "").splitlines()  # no other host can look there
        known = [
            *_list_undelivered_files(checkout, snapshots, last),
            *(f"files that git ignores, in {at}" for at in before),
        ]
    left = [*known, *unread]
    if left or "left_behind" in what:
        what |= {"left_behind": json.dumps(left), "left_behind_at": last}
        with Store(home).write_transaction() as conn:
            set_repository_option(conn, outcome.run, what)
    if first == last and not commits:
        return False
    patch = snapshots.make_patch(first, last)
    is_pushed = checkout.options["deliver"] == "branch" and (patch or commits)
    pushing = _derive_push_run_id(home, outcome.run, last) if is_pushed else ""
    with Store(home).write_transaction() as conn:
        if patch:
            store_blob(
                conn,
                f"patches/{outcome.run}",
                _undelivered_paths_patch_header(left) + patch,
                owner=outcome.run,
            )
        if commits:
            store_blob(conn, f"commits/{outcome.run}", commits, owner=outcome.run)
        if pushing:
            what["pushed_by"] = pushing
            if kept_back := _list_new_likely_secret_files(
                checkout.mirror, checkout.options["commit"], snapshots, first, last
            ):
                what["kept_back"] = "\n".join(kept_back)
            set_repository_option(conn, outcome.run, what)
    if pushing:
        checkout = replace(checkout, options=what)
        _enqueue_push_run(home, checkout, outcome.run, pushing, (first, last), options)
    return bool(pushing)


def _list_undelivered_files(checkout: Checkout, snapshots: ShadowRepository, snapshot: str) -> list[str]:
    kept = {*snapshots.read_contents(snapshot).files} if snapshot else set[str]()
    entries = _tree_entries_by_path(checkout.mirror, checkout.options["commit"])
    return _list_undelivered_paths(
        checkout.folder, kept, {path: about.split()[2] for path, about in entries.items()}
    )


def _list_undelivered_paths(
    folder: Path, delivered: Collection[str], cloned_blob_ids: Mapping[str, str]
) -> list[str]:
    """Return the paths, in order; a folder of which nothing is delivered counts as one, and ends in a slash.

    `delivered`: what snapshots have, and so is delivered; `cloned_blob_ids`: path → git's id of the files that were
    cloned.
    """
    known = {*delivered, *cloned_blob_ids}
    full = {str(above) for path in known for above in PurePosixPath(path).parents}
    return sorted(_iterate_undelivered_paths(folder, "", full, delivered, cloned_blob_ids))


def _iterate_undelivered_paths(
    folder: Path,
    subfolder: str,
    partly_delivered_folders: Collection[str],
    delivered: Collection[str],
    cloned_blob_ids: Mapping[str, str],
) -> Iterator[str]:
    try:
        with os.scandir(folder / subfolder) as found:
            entries = [*found]
    except OSError:  # the run took the right to list it away
        yield f"{subfolder}/"
        return
    for entry in entries:
        path = f"{subfolder}/{entry.name}" if subfolder else entry.name
        if entry.is_dir(follow_symlinks=False):
            if path in partly_delivered_folders:
                yield from _iterate_undelivered_paths(
                    folder, path, partly_delivered_folders, delivered, cloned_blob_ids
                )
            elif entry.name != ".git" and not _is_empty_folder(entry.path):
                yield f"{path}/"
        elif path not in delivered and cloned_blob_ids.get(path) != _git_blob_id_or_empty(Path(entry)):
            yield path


def _is_empty_folder(folder: str) -> bool:
    try:
        with os.scandir(folder) as found:
            return not any(found)
    except OSError:
        return False


def _git_blob_id_or_empty(file: Path) -> str:
    """Return Git's id of a file's bytes, or of a link's target; empty if it can't be read."""
    try:
        return _git_blob_id(file)
    except OSError:
        return ""


def _git_blob_id(file: Path) -> str:
    found = file.lstat()
    if stat.S_ISLNK(found.st_mode):
        target = os.fsencode(file.readlink())
        return hashlib.sha1(b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest()
    if not stat.S_ISREG(found.st_mode):
        return ""
    digest = hashlib.sha1(b"blob %d\0" % found.st_size, usedforsecurity=False)
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _tree_entries_by_path(mirror: Mirror, commit: str) -> dict[str, str]:
    """Return the files of a commit: path → mode, kind and id."""
    listed = run_git("ls-tree", "-r", "-z", "--full-tree", commit, folder=mirror.folder)
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {path: about for about, _, path in entries}


def _undelivered_paths_patch_header(paths: Sequence[str]) -> bytes:
    """Return the lines before a patch, which `git apply` skips."""
    named = "".join(f"Not in this patch: {path!r}\n" for path in paths[:_MOST_NAMED])
    more = f"… and {len(paths) - _MOST_NAMED} more\n" if len(paths) > _MOST_NAMED else ""
    return f"{named}{more}\n".encode(errors="surrogateescape") if paths else b""


_LIKELY_SECRET = re.compile(
    r"\.env(?!.*\.(example|sample|template|dist)$).*|.*\.(pem|key|p12|pfx|jks|keystore)", re.IGNORECASE
)
"""Names of new files that nobody asked to push: they may hold keys or passwords."""


def _list_new_likely_secret_files(
    mirror: Mirror, commit: str, snapshots: ShadowRepository, first: str, last: str
) -> list[str]:
    """Return files whose names suggest keys, that the run made and the commit that was cloned hasn't."""
    changed = [
        entry.partition("\t")[2]
        for entry in snapshots.format_changed_index_entries(first, last).split("\0")
        if entry
    ]
    found = [path for path in changed if _LIKELY_SECRET.fullmatch(path.rpartition("/")[2])]
    if not found:
        return []
    there = run_git(
        "ls-tree", "-z", "--name-only", "--full-tree", commit, "--", *found, folder=mirror.folder
    ).split("\0")
    return [path for path in found if path not in there]


def _filter_out_index_entries(index_entries: str, paths: Collection[str]) -> str:
    """Return entries for git's index, except those of these files."""
    entries = (entry for entry in index_entries.split("\0") if entry)
    return "".join(f"{entry}\0" for entry in entries if entry.partition("\t")[2] not in paths)


def _paths_withheld_from_push(repository_options: Mapping[str, str]) -> list[str]:
    return [path for path in repository_options.get("kept_back", "").split("\n") if path]


def _derive_push_run_id(home: Path, run: str, snapshot: str) -> str:
    """Return the id of the run that pushes; another one if that has failed, and somebody resumed this run."""
    name = derive_run_id(f"delivery of {run} at {snapshot}")
    while (before := find_exact_run(home, name)) and before.status in ("failed", "cancelled"):
        name = derive_run_id(f"delivery of {run} at {snapshot}, after {name}")
    return name


def _open_snapshot_repository(home: Path, folder: Path, *commits: str) -> ShadowRepository:
    return open_repository_with_snapshots(home, home / "snapshots" / shadow_repository_name(folder), commits)


def _fail_run_after_delivery_error(home: Path, run: str, why: str) -> None:
    with Store(home).write_transaction() as conn:
        mark_run_failed_and_revoke_lease(conn, run, "delivery", why)


def _enqueue_push_run(
    home: Path,
    checkout: Checkout,
    run: str,
    push_run: str,
    first_and_last_snapshot: tuple[str, str],
    options: Options,
) -> None:
    """Queue the run that pushes, unless that was done before a kill."""
    row = find_run(home, run)
    with open_reader(home) as conn:
        assert conn is not None
        if does_run_exist(conn, push_run):
            return
    kept = restore_options(options, read_run_options(home, run), str(checkout.folder))
    what = {
        **checkout.options,
        "deliver": "none",
        "pushes": run,
        "first": first_and_last_snapshot[0],
        "last": first_and_last_snapshot[1],
    }
    what.pop("pushed_by", None)  # a push that failed
    begun = replace(kept, queue=row.queue or "", repository=what, placed=None)
    call = {"name": TOOL.name, "args": {"command": push_command(what), "description": f"deliver run {run}"}}
    asyncio.run(engine.run("tools", {"calls": [call]}, options=begun, run_id=push_run))


def push_command(repository_options: Mapping[str, str]) -> str:
    """Return the push as people and the policy see it."""
    return f"git push {repository_options['url']} HEAD:refs/heads/{_branch_name(repository_options)}"


def _branch_name(repository_options: Mapping[str, str]) -> str:
    return f"interlock/{repository_options['pushes']}"


def push_tool_overrides(home: Path, folder: Path, repository_options: Mapping[str, str]) -> dict[str, Tool]:
    """Return the shell that pushes, in the run that delivers another; other runs have no tools of their own."""
    return (
        {TOOL.name: _make_push_tool(home, folder, repository_options)}
        if "pushes" in repository_options
        else {}
    )


def _make_push_tool(home: Path, folder: Path, repository_options: Mapping[str, str]) -> Tool:
    """Takes the place of the shell in the run that pushes."""

    async def run(args: RunShellCommandArgs, _context: ToolContext) -> ToolResult:
        if args.command != push_command(repository_options):
            return error_result(
                "changed", "A push can be approved or refused, but not changed. Nothing was pushed."
            )
        try:
            commit = await asyncio.to_thread(_commit_and_push_changes, home, folder, repository_options)
        except RunError as error:
            return error_result(
                "push",
                f"Branch {_branch_name(repository_options)!r} wasn't pushed to {repository_options['url']!r}: {error}",
            )
        done = f"Pushed {commit[:12]} to {_branch_name(repository_options)} of {repository_options['url']}."
        left = (
            f" Not pushed, as they may hold keys: {', '.join(kept)}."
            if (kept := _paths_withheld_from_push(repository_options))
            else ""
        )
        return ToolResult(status="success", content=done + left)

    return replace(TOOL, run=run, idempotent=True)


def _commit_and_push_changes(home: Path, folder: Path, repository_options: Mapping[str, str]) -> str:
    workspaces = configured_clone_folder(os.environ)
    assert workspaces is not None
    repository = Repository(repository_options["url"], repository_options["ref"])
    mirror = Mirror.for_repository(repository, workspaces, load_worker_fleet_settings(os.environ))
    snapshots = _open_snapshot_repository(
        home, folder, repository_options["first"], repository_options["last"]
    )
    row = find_run(home, repository_options["pushes"])
    with ExitStack() as stack:
        borrowed, its_own = [snapshots.objects_folder], ""
        if commits := read_stored_commits(home, row.run):
            borrowed.append(stack.enter_context(unpack_objects_temporarily(commits, mirror)))
            its_own = commits.head_commit
        commit = _build_delivery_commit(mirror, snapshots, row, repository_options, borrowed, its_own)
        mirror.push_branch(commit, _branch_name(repository_options), borrowed)
    return commit


def _build_delivery_commit(
    mirror: Mirror,
    snapshots: ShadowRepository,
    run: RunRow,
    repository_options: Mapping[str, str],
    object_folders: Sequence[Path],
    run_commit: str,
) -> str:
    """The newest of the run's own commits, else the one that was cloned, with the run's changes since: files that no
    snapshot has stay as they are there.

    It is the same however often it is made, so a push that a kill cut short can be repeated. `run_commit`: the commit
    that the run left checked out. It counts if it follows the one that was cloned, and no commit between has a file
    that may hold a key.
    """
    with tempfile.TemporaryDirectory() as scratch:
        alternates = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(map(str, object_folders))}
        env = {**alternates, "GIT_INDEX_FILE": str(Path(scratch, "index"))}
        author = {
            f"GIT_{who}_{part}": value
            for who in ("AUTHOR", "COMMITTER")
            for part, value in (*_author_identity(mirror), ("DATE", f"{run.created:.0f} +0000"))
        }
        parent = (
            run_commit
            if _is_pushable_commit(mirror, repository_options["commit"], run_commit, env)
            else repository_options["commit"]
        )
        run_git("read-tree", parent, folder=mirror.folder, env=env)
        kept_back = _paths_withheld_from_push(repository_options)
        if parent != repository_options["commit"]:
            undone = _index_entries_restoring_cloned_files(mirror, snapshots, repository_options, parent, env)
            run_git("update-index", "-z", "--index-info", folder=mirror.folder, env=env, stdin_text=undone)
        changes = _filter_out_index_entries(
            snapshots.format_changed_index_entries(repository_options["first"], repository_options["last"]),
            kept_back,
        )
        run_git("update-index", "-z", "--index-info", folder=mirror.folder, env=env, stdin_text=changes)
        tree = run_git("write-tree", folder=mirror.folder, env=env)
        about = f"{run.title}\n\nInterlock-Run: {repository_options['pushes']}\n"
        not_pushed = [*kept_back, *json.loads(repository_options.get("left_behind", "[]"))[:_MOST_NAMED]]
        about += "".join(f"Interlock-Not-Pushed: {path}\n" for path in not_pushed if path.isprintable())
        if parent != repository_options["commit"] and tree == run_git(
            "rev-parse", f"{parent}^{{tree}}", folder=mirror.folder, env=env
        ):
            return parent
        return run_git(
            "commit-tree", tree, "-p", parent, folder=mirror.folder, env={**env, **author}, stdin_text=about
        )


def _is_pushable_commit(mirror: Mirror, cloned_commit: str, run_commit: str, env: dict[str, str]) -> bool:
    """Return whether a commit of the run's follows the one that was cloned, without a new file that may hold a key."""
    if run_commit in ("", cloned_commit):
        return False
    try:
        run_git("merge-base", "--is-ancestor", cloned_commit, run_commit, folder=mirror.folder, env=env)
    except RunError:
        return False
    span = (
        "--no-renames",
        "--diff-filter=A",
        "--name-only",
        "--format=",
        "-z",
        f"{cloned_commit}..{run_commit}",
    )
    added = run_git("log", "-m", *span, folder=mirror.folder, env=env).split("\0")
    return not any(_LIKELY_SECRET.fullmatch(path.strip("\n").rpartition("/")[2]) for path in added)


def _index_entries_restoring_cloned_files(
    mirror: Mirror,
    snapshots: ShadowRepository,
    repository_options: Mapping[str, str],
    run_commit: str,
    env: dict[str, str],
) -> str:
    """What the run's commits changed and its files have as they were cloned, as `git update-index -z` takes it."""
    span = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", repository_options["commit"], run_commit)
    committed = [path for path in run_git(*span, folder=mirror.folder, env=env).split("\0") if path]
    known = {
        *snapshots.read_contents(repository_options["first"]).files,
        *snapshots.read_contents(repository_options["last"]).files,
    }
    cloned = _tree_entries_by_path(mirror, repository_options["commit"])
    gone = f"0 {'0' * 40}"
    return "".join(f"{cloned.get(path, gone)}\t{path}\0" for path in committed if path in known)


def _author_identity(mirror: Mirror) -> list[tuple[str, str]]:
    """Return name and address of whoever the worker's git settings name."""

    def setting(name: str, default: str) -> str:
        return run_git(
            "config", "--default", default, "--get", name, folder=mirror.folder, ignore_host_settings=False
        )

    return [("NAME", setting("user.name", _AUTHOR)), ("EMAIL", setting("user.email", "interlock@localhost"))]
