"""status: the line below the input: what runs, model, modes, context left, tokens, cost, branch, open requests."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prompt_toolkit.formatted_text import StyleAndTextTuples
from rich.cells import cell_len, set_cell_size

from interlock.cli.render.output import format_compact_number, to_one_line
from interlock.cli.session.picker import truncate_to_width
from interlock.cli.session.session import Session
from interlock.engine.client.context_window import known_context_window
from interlock.engine.client.following import changes
from interlock.state.errors import InterlockError

_BETWEEN = " · "
_LOW = 20
"""Percent of the context left below which it is shown as a warning."""
_MODES = {
    "default": ("asks first", "class:dim"),
    "plan": ("plan mode", "class:plan"),
    "auto_edit": ("accepts edits", "class:auto_edit"),
    "yolo": ("YOLO", "class:yolo"),
}
_LONGEST_NAME = 28
"""Columns of a model's or branch's name."""


@dataclass(frozen=True)
class StatusValues:
    """What the line shows; 0, "" and None: unknown, or nothing to show."""

    model: str = ""
    approval_mode: str = "default"
    mode: str = ""
    context_left: int | None = None
    """Percent of the model's window."""
    tokens: int = 0
    usd: float | None = None
    branch: str = ""
    elsewhere: int = 0
    """Pending requests of other runs."""
    running: str = ""
    """A call, and for how long."""


def status_line(values: StatusValues, width: int) -> StyleAndTextTuples:
    """The line, cut to `width` columns; the least important parts are dropped first."""
    parts = _status_parts(values)
    while len(parts) > 1 and _parts_width(parts) > width:
        parts.remove(min(parts, key=lambda part: part[0]))
    line: StyleAndTextTuples = []
    left = width
    for _, style, text in parts:
        between = _BETWEEN if line else ""
        shown = set_cell_size(text, min(cell_len(text), max(left - len(between), 0)))
        line += [("class:dim", between), (style, shown)] if between else [(style, shown)]
        left -= len(between) + cell_len(shown)
    return line


def _parts_width(parts: list[tuple[int, str, str]]) -> int:
    return sum(cell_len(text) for _, _, text in parts) + len(_BETWEEN) * (len(parts) - 1)


def _status_parts(values: StatusValues) -> list[tuple[int, str, str]]:
    mode, style = _MODES.get(values.approval_mode, ("", ""))
    left = values.context_left
    waits = values.elsewhere
    parts = [
        (8, "class:running", values.running),
        (9 if values.approval_mode != "default" else 1, style, mode),
        (
            6,
            "class:model",
            truncate_to_width(to_one_line(values.model.rpartition("/")[2] or values.model), _LONGEST_NAME),
        ),
        (4, "class:dim", values.mode and f"{values.mode} mode"),
        (
            7,
            "class:warning" if left is not None and left < _LOW else "class:dim",
            f"{left}% left" if left is not None else "",
        ),
        (3, "class:dim", f"{format_compact_number(values.tokens)} tokens" if values.tokens else ""),
        (5, "class:dim", f"${values.usd:.2f}" if values.usd is not None else ""),
        (
            2,
            "class:dim",
            f"⎇ {truncate_to_width(to_one_line(values.branch), _LONGEST_NAME)}" if values.branch else "",
        ),
        (8, "class:warning", f"{waits} wait{'s' if waits == 1 else ''} elsewhere" if waits else ""),
    ]
    return [part for part in parts if part[2]]


class StatusReader:
    """What a run's events don't tell; read in a thread."""

    def __init__(self, home: Path) -> None:
        self._known, self._window = StatusValues(), 0
        self._stamp: tuple[object, ...] = ()
        self._changed = changes(home)

    def refresh(self, session: Session) -> bool:
        """Read the figures; whether any has changed. While no run moves, it only asks the store whether one did."""
        from interlock.engine.client.git_branch import read_git_branch_or_commit

        before = self._known, self._window
        self._known = replace(self._known, branch=read_git_branch_or_commit(session.workspace))
        stamp = (session.run, session.answering or session.model)
        if self._changed() or stamp != self._stamp:
            with suppress(InterlockError):
                self._read_run_values(session, session.run)
            self._stamp = stamp
        return before != (self._known, self._window)

    def _read_run_values(self, session: Session, run: str | None) -> None:
        client = session.client
        own = (run, client.innermost_waiting_subtask(run)) if run else ()
        elsewhere = sum(request.run not in own for request in client.waiting_requests())
        self._known, self._window = replace(self._known, elsewhere=elsewhere, usd=None), 0
        if model := session.answering or session.model:
            self._window = known_context_window(client.settings(session.workspace), model)
        if run:
            spent = [one["usd"] for one in client.model_costs(run).values()]
            self._known = replace(self._known, usd=None if None in spent else sum(spent) or None)

    def close(self) -> None:
        self._changed.close()

    def current_values(self, session: Session) -> StatusValues:
        used = session.used
        window = used.window or self._window
        left = round(100 * max(1 - used.context / window, 0)) if window and used.context else None
        return replace(
            self._known,
            model=session.answering or session.model,
            running=session.screen.running_call_text if session.busy else "",
            approval_mode=session.approval_mode,
            mode=session.mode,
            context_left=left,
            tokens=used.tokens,
        )
