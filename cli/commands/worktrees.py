"""worktrees: lists the git worktrees of a repository, merges them and removes them."""

from pathlib import Path
from typing import Any

from interlock.cli.flags import build_folder_options
from interlock.cli.inputs import ask_to_confirm
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.output import (
    abbreviate_home,
    print_json,
    print_table,
    remark_paint,
    to_one_line,
)
from interlock.engine.client.worktrees import Worktrees, WorktreeView
from interlock.state.errors import UserError
from interlock.state.text import join_up_to

_EXPECTED = "Expected `worktrees`, `worktrees merge NAME` or `worktrees remove NAME…`."
_SHOWN_RUNS, _SHOWN_BRANCHES = 3, 5


@declare_arguments(
    argparse_argument(
        "action", nargs="*", metavar="merge|remove NAME", help="merge it here, or remove these"
    ),
    flag_argument("-m --message TEXT", "with merge: commit what isn't committed"),
    flag_argument("--force", "with remove: don't ask, even if work is lost"),
    flag_argument("-C --workspace --cd DIR", "of the repository of DIR", type=Path),
    flag_argument("--skip-trust", "trust this folder's settings for this command only"),
    Parser.add_json_flag,
)
def worktrees(args: Args) -> int | None:
    action, *names = args.action or ["list"]
    found = Worktrees(build_folder_options(args))
    if action == "list" and not names:
        return _list_worktrees(found, args.json)
    if action == "merge" and len(names) == 1:
        return _print_done(found.merge(found.find_worktree(names[0]), args.message or ""), args.json)
    if action in ("remove", "rm") and names:
        views = [found.find_worktree(name) for name in names]
        return _print_done([line for view in views for line in _remove(found, view, args.force)], args.json)
    raise UserError(_EXPECTED)


def _remove(found: Worktrees, view: WorktreeView, force: bool) -> list[str]:
    lines = view.work.lines
    if not lines or force or view.driven_run:
        return found.remove(view, force=force)
    name = view.entry.name
    refusal = (
        f"Worktree {name!r} has {'; '.join(lines)}. Nothing was removed. Merge it (interlock worktrees merge {name}), "
        f"or remove it with that work: interlock worktrees remove {name} --force"
    )
    if not ask_to_confirm(f"Worktree {name} has {'; '.join(lines)}. Remove it with that work?", refusal):
        return [f"Kept the worktree {str(view.entry.path)!r}."]
    return found.remove(view, force=True)


def _print_done(lines: list[str], as_json: bool) -> None:
    if as_json:
        return print_json({"done": lines})
    return remark_paint().print_lines(to_one_line(line) for line in lines)


def _list_worktrees(found: Worktrees, as_json: bool) -> None:
    views = found.list_worktrees()
    left = found.list_branches_without_worktree()
    if as_json:
        return print_json(
            [
                *(_build_json_fields(view) for view in views),
                *({"name": None, "path": None, "branch": b, "unmerged_commits": n} for b, n in left.items()),
            ]
        )
    if left:
        shown = [f"{branch} ({count} not merged)" if count else branch for branch, count in left.items()]
        remark_paint().print_line(
            f"Branches without a worktree: {to_one_line(join_up_to(shown, _SHOWN_BRANCHES))}. To make one again: "
            "interlock --worktree NAME. To delete a branch: git branch -d"
        )
    if not views and left:
        return None
    if not views:
        return remark_paint().print_line(
            f"{abbreviate_home(str(found.repository.main))} has no worktrees. Start a run in one: interlock --worktree"
        )
    rows = [
        (
            to_one_line(view.entry.name),
            to_one_line(view.entry.branch or view.entry.commit[:10]),
            to_one_line(view.state_text),
            " ".join(f"{row.run} ({row.status})" for row in view.runs[:_SHOWN_RUNS]) or "no run",
            abbreviate_home(str(view.entry.path)),
        )
        for view in views
    ]
    print_table(rows, ("name", "branch", "only there", "runs", "where"))


def _build_json_fields(view: WorktreeView) -> dict[str, Any]:
    entry = view.entry
    return {
        "name": entry.name,
        "path": str(entry.path),
        "branch": entry.branch or None,
        "commit": entry.commit,
        "missing": entry.missing,
        "incomplete": entry.is_incomplete,
        "locked": entry.locked,
        "changed": view.work.uncommitted,
        "unmerged_commits": view.work.commits,
        "unfinished": view.work.unfinished,
        "submodules": view.work.submodules,
        "runs": [{"run": row.run, "status": row.status} for row in view.runs],
    }
