"""travel: switches to another run or an earlier step of this one, and undoes changes to files."""

from asyncio import to_thread
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from interlock.cli.render.output import CHANGED, ago, one_line
from interlock.cli.session.asking import Row
from interlock.cli.session.programs import show_printed
from interlock.engine.read import RunRow, find_run, list_runs
from interlock.engine.store.checkpoints import root_checkpoints
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

_FIRST = ("waiting", "interrupted")
"""Statuses of unfinished runs, which are offered first."""
_SHOWN = 20


def this_run(session: "Session") -> str:
    if session.run is None:
        raise UserError("Nothing has run yet in this conversation. Say what to do first, or: /resume")
    return session.run


async def clear(session: "Session", _: str) -> None:
    left = session.run
    session.switch(None)
    session.screen.note("A new conversation." + (f" The last one: /resume {left}" if left else ""))


def _of_here(session: "Session") -> list[RunRow]:
    """This workspace's runs: unfinished ones first, then the newest; a subtask is continued by its parent."""
    rows = [row for row in list_runs(session.home) if row.workspace == str(session.workspace)]
    there = {row.run for row in rows}
    tops = [row for row in rows if not (row.workflow == "task" and row.parent in there)]
    return sorted(tops, key=lambda row: row.status not in _FIRST)


def runs(session: "Session", _: str) -> Iterable[str]:
    return [row.run for row in _of_here(session)]


async def resume(session: "Session", rest: str) -> None:
    name = rest.strip()
    if not name:
        found = await to_thread(lambda: _of_here(session))
        rows = [_row(row) for row in found if row.run != session.run]
        if not rows:
            raise UserError(f"No other run in {str(session.workspace)!r}. Those of other folders: /runs")
        chosen = await session.terminal.pick("Go on with which run?", rows)
        if chosen is None:
            return
        name = chosen.value
    row = find_run(session.home, name, session.workspace)
    if row.workspace != str(session.workspace):
        raise UserError(
            f"Run {row.run!r} works in {row.workspace!r}. Go on with it there: interlock -r {row.run}"
        )
    if row.status == "running":
        raise UserError(f"Run {row.run!r} is driven by {row.owner}, another terminal. Stop it there first.")
    session.switch(row.run)


def _row(row: RunRow) -> Row:
    status = f"waiting ({row.waiting})" if row.waiting and row.status == "waiting" else row.status
    return Row(one_line(row.title) or row.workflow, f"{status} · {ago(row.updated)} · {row.run}", row.run)


async def fork(session: "Session", rest: str) -> None:
    """Without a step, fork in place and switch; files here don't match an earlier step, so `interlock fork` does it."""
    from interlock.engine import fork_sync

    run = this_run(session)
    if rest.strip():
        await show_printed(session, "fork", [run, "--at", rest.strip()])
        return
    newest = root_checkpoints(session.home, run)[-1].step
    made = await to_thread(lambda: fork_sync(run, newest, home=session.home, in_place=True))
    session.switch(made.run)
    session.screen.note(f"This is run {made.run}, forked from {run}. Back to that one: /resume {run}")


class Point(NamedTuple):
    prompt: str
    before: int | None
    """The last step before the prompt; None: the run began with it."""


def points(session: "Session", run: str) -> list[Point]:
    """The run's prompts, newest first."""
    from interlock.engine.store.runs import messages_at

    found: list[Point] = []
    taken = root_checkpoints(session.home, run)
    for place, (checkpoint, opened) in enumerate(pairwise(taken)):
        if checkpoint.source == "input":
            record = str(opened.values.get("prompt") or "")
            if messages := messages_at(session.home, run, record):
                found.append(Point(messages[-1].text, taken[place - 1].step if place else None))
    return found[::-1]


async def rewind(session: "Session", rest: str) -> None:
    run = this_run(session)
    if rest.strip():
        if not rest.strip().lstrip("-").isdecimal():
            raise UserError(f"/rewind takes a step, got {rest.strip()!r}. See the steps: /history")
        point = Point("", int(rest))
    else:
        found = await to_thread(lambda: points(session, run))
        if not found:
            raise UserError(f"Run {run!r} has no prompt to go back to. See its steps: /history")
        rows = [
            Row(one_line(p.prompt), f"step {p.before}" if p.before is not None else "the beginning", p)
            for p in found
        ]
        chosen = await session.terminal.pick("Back to before which prompt?", rows)
        if chosen is None:
            return
        point = chosen.value
    await _back(session, run, point)


async def _back(session: "Session", run: str, point: Point) -> None:
    from interlock.engine import fork_sync
    from interlock.engine.travel.files import RunFiles, marks

    files = RunFiles(session.home, find_run(session.home, run))
    files.refuse_driven()
    step = -1 if point.before is None else point.before
    work, now = await to_thread(lambda: files.to_step(step))
    changes = list(marks(work, now))
    _show_changes(session, changes)
    question = "Change these files, and go back?" if changes else "Go back? No file will change."
    if not await session.terminal.confirm(question):
        session.screen.note("Nothing was changed.")
        return
    if point.before is None:
        await to_thread(lambda: files.put(work))
        session.switch(None)
    else:
        made = await to_thread(lambda: fork_sync(run, step, home=session.home, in_place=True))
        session.switch(made.run)
    session.screen.note(f"Back before that prompt. As it was: /resume {run}")
    session.terminal.suggest(point.prompt)


def _show_changes(session: "Session", changes: Sequence[tuple[str, str]]) -> None:
    lines = Text("\n").join(Text(f"  {mark} {path}", CHANGED[mark]) for mark, path in changes[:_SHOWN])
    if len(changes) > _SHOWN:
        lines.append(f"\n  … and {len(changes) - _SHOWN} more", "dim")
    if changes:
        session.screen.show(lines)


async def undo(session: "Session", rest: str) -> None:
    run, which = this_run(session), rest.strip()
    if which == "all":
        undone = await show_printed(session, "undo", [run])
    else:
        call, shown = (which, which) if which else await to_thread(lambda: _last_change(session, run))
        session.screen.note(f"Taking back {shown}:")
        undone = await show_printed(session, "undo", [run, "--call", call])
    if undone:
        session.note_for_model(
            "changes that the user took back: A added again, M as before, D gone again", undone
        )


def _last_change(session: "Session", run: str) -> tuple[str, str]:
    """The newest call whose change is still in place, and what it was."""
    from interlock.engine.read.calls import calls
    from interlock.engine.travel.files import RunFiles, chosen_of

    row = find_run(session.home, run)
    files = RunFiles(session.home, row)
    by_key = {call.key: (str(number), call) for number, call in enumerate(calls(session.home, run), 1)}
    for snapshot in reversed(chosen_of(session.home, row, None)):
        changed = snapshot.before != snapshot.after and snapshot.key in by_key
        if changed and files.undo([snapshot]):
            number, call = by_key[snapshot.key]
            return number, one_line(f"{call.tool}: {call.summary}", 70)
    raise UserError("Nothing to take back: what this run changed is as it was before.")
