"""shared_folders: runs that are driven in one folder at the same time, which change each other's files."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from interlock.engine.options import Options
from interlock.engine.read import RunRow, list_runs
from interlock.engine.store import Store, explain_store_errors
from interlock.state.text import join_up_to, to_one_line

_NAMED = 5
_GUARD = "Each sees what others changed before it writes over it. Keep runs apart with: --worktree"


def _share_files(one: RunRow, other: RunRow) -> bool:
    """Whether a run's folder is, or lies in, the other's. A task and its subtask take turns."""
    if any(a.subtask and a.parent == b.run for a, b in ((one, other), (other, one))):
        return False
    here, there = Path(one.workspace), Path(other.workspace)
    return here.is_relative_to(there) or there.is_relative_to(here)


def other_runs_in_folder_lines(store: Store, run: str, options: Options) -> list[str]:
    """Return a line that names the other runs at work in the folder of a run that is driven, if there are any.

    Lines of a batch are expected to share it.
    """
    if options.batch is not None or options.repository is not None:
        return []
    with explain_store_errors(store.path):
        running = list_runs(store.home, "running")
    own = next((row for row in running if row.run == run), None)
    found = [row for row in running if own and row is not own and _share_files(own, row)]
    if not found:
        return []
    named = join_up_to([f"{row.run} ({to_one_line(row.title, 40)})" for row in found], _NAMED)
    return [
        f"{'Another run works' if len(found) == 1 else 'Other runs work'} in this folder: {named}. {_GUARD}"
    ]


def shared_folder_lines(rows: Sequence[RunRow]) -> list[str]:
    """Return a line for each folder in which several of these runs are at work."""
    running = [row for row in rows if row.status == "running"]
    shared: dict[str, dict[str, None]] = {}
    for one, other in combinations(running, 2):
        if _share_files(one, other):
            folder = min(one.workspace, other.workspace, key=len)
            shared.setdefault(folder, {}).update({other.run: None, one.run: None})
    return [
        f"Runs {join_up_to([*runs], _NAMED)} work in {folder!r} at once. {_GUARD}"
        for folder, runs in shared.items()
    ]
