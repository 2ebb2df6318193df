"""travel: the commands that go to another run or an earlier step of this one, and take back changes to files."""

from asyncio import to_thread
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from rich.text import Text

from interlock.cli.render.output import CHANGED, ago, one_line, place
from interlock.cli.session.asking import Row
from interlock.engine.client import RunRow
from interlock.engine.client import travel as client
from interlock.engine.client.changes import Change
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

_SHOWN = 20


async def clear(session: "Session", _: str) -> None:
    client.clear(session)


def runs(session: "Session", _: str) -> Iterable[str]:
    return [row.run for row in client.runs_here(session)]


async def resume(session: "Session", rest: str) -> None:
    name = rest.strip()
    if not name:
        found = await to_thread(lambda: client.runs_here(session))
        rows = [_row(row) for row in found if row.run != session.run]
        reading = Thread(target=_read_texts, args=(session, rows), daemon=True)
        reading.start()
        if not rows:
            raise UserError(f"No other run in {str(session.workspace)!r}. Those of other folders: /runs")
        chosen = await session.terminal.pick("Go on with which run?", rows)
        if chosen is None:
            return
        name = chosen.value
    client.resume(session, name)


_SEARCHED = 200
"""Runs whose conversations the picker searches: the newest."""


def _read_texts(session: "Session", rows: Sequence[Row]) -> None:
    """Read what was said in each run, while the picker is open."""
    for row in rows[:_SEARCHED]:
        with suppress(InterlockError, OSError):
            row.text.extend(client.said(session, row.value))


def _row(row: RunRow) -> Row:
    status = f"waiting ({row.waiting})" if row.waiting and row.status == "waiting" else row.status
    return Row(one_line(row.title) or row.workflow, f"{status} · {ago(row.updated)} · {row.run}", row.run)


async def fork(session: "Session", rest: str) -> None:
    """Without a step, fork in place and switch; files here don't match an earlier step, so that fork has a folder."""
    if not rest.strip():
        await client.fork(session)
        return
    run, step = session.this_run, _step(rest, "/fork")
    made = await to_thread(lambda: session.client.fork(run, step))
    session.screen.note(
        f"Run {made.run} is forked from {run} at step {step}, in {place(made.workspace)}.\n"
        f"Go on: interlock resume {made.run}"
    )


def _step(text: str, command: str) -> int:
    if not text.strip().removeprefix("-").isdecimal():
        raise UserError(f"{command} takes a step, got {text.strip()!r}. See the steps: /history")
    return int(text)


async def rewind(session: "Session", rest: str) -> None:
    if rest.strip():
        point = client.Prompt("", _step(rest, "/rewind"))
    else:
        found = await to_thread(lambda: client.prompts(session))
        rows = [
            Row(one_line(p.text), f"step {p.before}" if p.before is not None else "the beginning", p)
            for p in found
        ]
        chosen = await session.terminal.pick("Back to before which prompt?", rows)
        if chosen is None:
            return
        point = chosen.value

    async def agrees(changes: Sequence[Change]) -> bool:
        _show_changes(session, changes)
        question = "Change these files, and go back?" if changes else "Go back? No file will change."
        return await session.terminal.confirm(question)

    if await client.rewind(session, point.before, agrees):
        session.terminal.suggest(point.text)


def _show_changes(session: "Session", changes: Sequence[Change]) -> None:
    lines = Text("\n").join(Text(f"  {mark} {path}", CHANGED[mark]) for mark, path in changes[:_SHOWN])
    if len(changes) > _SHOWN:
        lines.append(f"\n  … and {len(changes) - _SHOWN} more", "dim")
    if changes:
        session.screen.show(lines)


async def undo(session: "Session", rest: str) -> None:
    run, call = session.this_run, None if rest.strip() == "all" else rest.strip()
    if call is not None:
        about = call
        if not call:
            call, last = await to_thread(lambda: session.client.last_change(run))
            about = f"the last change ({one_line(f'{last.tool}, {last.summary}', 60)})"
        session.screen.note(f"Undoing {about}:")
    if unkept := await to_thread(lambda: session.client.unkept(run)):
        session.screen.note(unkept)
    changed = await client.undo(session, call)
    _show_changes(session, changed)
    if not changed:
        session.screen.note("Nothing to undo: the files are as they were.")
