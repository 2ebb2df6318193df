"""workspaces: where the files of a run are, and the changes of its rows when another folder or host takes them over."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from interlock.engine.store import Store, encode_json_keys_parameter, json_keys_subquery_sql, select_rows
from interlock.engine.store.connection import Connection
from interlock.engine.store.runs import (
    find_ignored_tests_in_options,
    find_root_task,
    keep_sealed,
    list_run_and_subtasks,
    read_options,
    read_repository_option,
)
from interlock.services.files.disk import require_path_below
from interlock.state.clock import unix_time

NOWHERE = "nowhere:"


class RunLocation(NamedTuple):
    folder: str
    at: str
    """`HOST:DIR` of the worker that has it; `NOWHERE`: none has it any more; empty: none had it yet."""


def moved_from_option_with_location(repository: Mapping[str, str], location: str) -> str:
    """Return the option `moved_from`: the places that a run left, a line each. Files that git ignores stayed there."""
    before = repository.get("moved_from", "").splitlines()
    return "\n".join(dict.fromkeys([*before, location]))


def read_run_location(conn: Connection, run: str) -> RunLocation:
    (folder,) = conn.execute("select workspace from runs where run = $1", (run,)).fetchone()
    return RunLocation(folder, read_repository_option(conn, run).get("at", ""))


def _list_runs_in_same_clone(conn: Connection, run: str) -> list[str]:
    """The run, and those that work in the same clone: subtasks, what carries out its plan, what delivers it."""
    place = read_run_location(conn, run)
    if not place.at:
        return [run]
    rows = conn.execute("select run from runs where workspace = $1", (place.folder,)).fetchall()
    return [name for (name,) in rows]


def does_run_exist(conn: Connection, run: str) -> bool:
    return conn.execute("select 1 from runs where run = $1", (run,)).fetchone() is not None


def find_newest_snapshot(conn: Connection, run: str) -> str:
    """The last snapshot of the run's folder: the one that no other continues; empty: there is none yet."""
    rows = _list_stored_snapshots(conn, run)
    continued = {base for *_, base in rows}
    return max((row[:3] for row in rows if row[2] not in continued), default=(0.0, 0, ""))[2]


def find_first_snapshot(conn: Connection, run: str) -> str:
    """The snapshot of the files as they were cloned; empty: there is none."""
    return min((row[:3] for row in _list_stored_snapshots(conn, run) if not row[3]), default=(0.0, 0, ""))[2]


def _list_stored_snapshots(conn: Connection, run: str) -> list[tuple[float, int, str, str]]:
    """Time, place in the run, name and base of each snapshot of the run's folder."""
    runs = _list_runs_in_same_clone(conn, run)
    if not conn.blobs:
        return _list_snapshots_in_files(conn, run, runs)
    query = (
        f"select s.at, s.seq, b.name, b.base from snapshots s join blobs b on b.part = 0 "
        f"and b.name in ('snapshots/' || s.before, 'snapshots/' || s.after) where s.run in {json_keys_subquery_sql()}"
    )
    rows = conn.execute(query, (encode_json_keys_parameter(runs),)).fetchall()
    if changed := read_repository_option(conn, run).get("changed"):
        by_person = "select $1, 0, name, base from blobs where part = 0 and name = $2"
        rows += conn.execute(by_person, (unix_time(), f"snapshots/{changed}")).fetchall()
    return [(at, seq, name.removeprefix("snapshots/"), base) for at, seq, name, base in rows]


def _list_snapshots_in_files(
    conn: Connection, run: str, runs: Sequence[str]
) -> list[tuple[float, int, str, str]]:
    """As `_list_stored_snapshots`, of a store whose snapshots are in files: a call's second continues its first."""
    query = f"select at, seq, before, after from snapshots where run in {json_keys_subquery_sql()}"
    found: list[tuple[float, int, str, str]] = []
    for at, seq, before, after in conn.execute(query, (encode_json_keys_parameter(runs),)).fetchall():
        found += [(at, seq, before, ""), *([(at, seq, after, before)] if after and after != before else [])]
    if changed := read_repository_option(conn, run).get("changed"):
        found.append((unix_time(), 0, changed, ""))
    return found


def record_snapshot_of_person_changes(conn: Connection, run: str, commit: str, *, elsewhere: bool) -> None:
    """Inside a transaction: a person changed the files, which are as this snapshot now.

    `elsewhere`: not in the clone of a worker, which is then to be made anew.
    """
    for name in _list_runs_in_same_clone(conn, run):
        kept = read_repository_option(conn, name)
        place = {"at": NOWHERE} if elsewhere else {}
        if elsewhere and kept.get("at", NOWHERE) != NOWHERE:
            place["moved_from"] = moved_from_option_with_location(kept, kept["at"])
        set_repository_option(conn, name, {**kept, "changed": commit, **place})


def change_folder_of_runs_in_same_clone(
    conn: Connection, run: str, old: RunLocation, folder: str, repository: Mapping[str, str], note: str
) -> None:
    """Inside a transaction: the run, and those that work with it, have their files in another folder.

    `note`: what their models are told.
    """
    for name in _list_runs_in_same_clone(conn, run):
        now = {key: repository[key] for key in ("commit", "at", "moved_from") if key in repository}
        set_repository_option(conn, name, {**read_repository_option(conn, name), **now})
        # The paths of changes that a kill may have cut off; others are told with their host's.
        _change_folder_in_rows(conn, name, old.folder, folder, "state = 'intent' and planned is not null")
        if note:
            add_undo_note(conn, name, note)


def change_task_folder_in_store(home: Path, run: str, folder: str) -> None:
    """The run, and the task and subtasks that it belongs to, work in another folder; their snapshots come along."""
    from interlock.services.snapshots.snapshots import shadow_repository_name

    store, name = Store(home), shadow_repository_name(Path(folder))
    with closing(store.connect("FULL")) as conn:
        old, runs = (
            read_run_location(conn, run).folder,
            list_run_and_subtasks(conn, find_root_task(conn, run)),
        )
        for one in runs:
            _copy_snapshots_to_repository(conn, one, home / "snapshots", name)
        with conn.transaction():
            for one in runs:
                _change_folder_in_rows(conn, one, old, folder, "planned is not null")
                conn.update("snapshots", {"repository": name}, {"run": one})


def _copy_snapshots_to_repository(conn: Connection, run: str, folder: Path, name: str) -> None:
    """Copy what the run's snapshots hold to another repository; a second call changes nothing."""
    from interlock.services.snapshots.snapshots import ShadowRepository

    for old, commits in list_snapshots_by_repository(conn, run).items():
        if old != name:
            ShadowRepository(folder / name).copy_missing_snapshots_from(
                ShadowRepository(require_path_below(folder, old)), commits
            )


def list_snapshots_by_repository(conn: Connection, run: str) -> dict[str, list[str]]:
    """Repository → the run's snapshots in it, in the order in which they were taken, and the tests beside the first."""
    found: dict[str, list[str]] = {}
    rows = conn.execute("select repository, before, after from snapshots where run = $1 order by seq", (run,))
    for repository, *commits in rows.fetchall():
        found.setdefault(repository, []).extend(filter(None, commits))
    if ignored := find_ignored_tests_in_options(read_options(conn, run)):
        found.setdefault(ignored.repository, []).extend(filter(None, [ignored.commit]))
    return found


def _change_folder_in_rows(conn: Connection, run: str, old: str, folder: str, planned_condition: str) -> None:
    """`planned_condition`: which calls' paths."""
    with keep_sealed(conn, run):
        conn.update("runs", {"workspace": folder}, {"run": run})
    rebase_open_request_paths(conn, run, old, folder)
    _rebase_planned_paths(conn, run, old, folder, planned_condition)


def set_repository_option(conn: Connection, run: str, repository: Mapping[str, str]) -> None:
    """Inside a transaction: change what the run's options say of its repository."""
    with keep_sealed(conn, run):
        options = {**read_options(conn, run), "repository": dict(repository)}
        conn.update("runs", {"options": json.dumps(options)}, {"run": run})


def add_undo_note(conn: Connection, run: str, text: str) -> None:
    """Inside a transaction: tell the run's model in its next turn."""
    order = "select coalesce(max(seq), 0) + 1 from undone where run = $1"
    (seq,) = conn.execute(order, (run,)).fetchone()
    conn.insert("undone", {"run": run, "seq": seq, "at": unix_time(), "text": text})


def rebase_open_request_paths(conn: Connection, run: str, old: str, new: str) -> None:
    """Move the file paths in pending requests to another folder."""
    rows = conn.execute("select id, request from approvals where run = $1 and answer is null", (run,))
    for name, text in rows.fetchall():
        request = json.loads(text)
        for file in request.get("files", ()):
            file["path"] = _rebase_path(file["path"], old, new)
        conn.update("approvals", {"request": json.dumps(request)}, {"id": name})


def _rebase_planned_paths(conn: Connection, run: str, old: str, new: str, condition: str) -> None:
    rows = conn.execute(
        f"select message, idx, attempt, planned from journal where run = $1 and {condition}", (run,)
    )
    for message, idx, attempt, text in rows.fetchall():
        planned: dict[str, Any] = json.loads(text)
        planned["path"] = _rebase_path(planned["path"], old, new)
        where = {"run": run, "message": message, "idx": idx, "attempt": attempt}
        conn.update("journal", {"planned": json.dumps(planned)}, where)


def _rebase_path(path: str, old: str, new: str) -> str:
    return str(Path(new, Path(path).relative_to(old))) if Path(path).is_relative_to(old) else path


class UndoNote(NamedTuple):
    at: float
    """Unix time."""
    text: str
    told: bool
    """Whether the conversation has it."""


def record_undo_note(home: Path, run: str, text: str) -> None:
    """Keep what a person took back."""
    with Store(home).create_or_migrate().write_transaction("FULL") as conn:
        add_undo_note(conn, run, text)


def list_undo_notes(home: Path, run: str) -> list[UndoNote]:
    """What was taken back, in order."""
    rows = select_rows(
        home, "select at, text, record is not null from undone where run = $1 order by seq", run
    )
    return [UndoNote(at, text, bool(told)) for at, text, told in rows]


def copy_unreported_undo_notes_to_fork(home: Path, run: str, fork: str) -> None:
    """Let a fork in the same folder tell its model, too, what the run's own hasn't heard yet."""
    if all(one.told for one in list_undo_notes(home, fork)):
        for text in [one.text for one in list_undo_notes(home, run) if not one.told]:
            record_undo_note(home, fork, text)
