"""hook_calls: the log of hooks that fired: an intent before each, its reply after, so that a kill loses neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from interlock.engine.store.blobs import blobs_of
from interlock.engine.store.connection import Connection
from interlock.engine.store.named_files import note_files
from interlock.engine.store.rows import Plus
from interlock.services.hooks.hook_replies import Reply
from interlock.services.hooks.hook_settings import Hook
from interlock.state.clock import unix_time
from interlock.state.run import HookEvent

WHOLE = ""
"""Stands for the whole firing in place of a hook's id; this row exists once every hook has answered."""


class Firing(NamedTuple):
    """One run of an event's hooks; keeps its identity after a kill."""

    event: HookEvent
    key: str
    subject: str


class HookRow(NamedTuple):
    """One hook of a firing."""

    hook: str
    attempt: int
    name: str
    source: str
    command: str
    idempotent: bool
    state: str
    """intent | redo | done | skipped"""
    subject: str
    epoch: int
    """Number of the drive that last wrote it."""
    reply: Reply | None


_COLUMNS = "hook, attempt, name, source, command, idempotent, state, subject, epoch"


@dataclass
class HookLog:
    """The table `hook_calls`, for a run's driver. Intents are synced to disk."""

    conn: Connection
    outputs: Path
    run: str
    epoch: int

    def rows(self, event: str, key: str) -> list[HookRow]:
        """The hooks of a firing in execution order; the firing's own row comes first if present."""
        found = self.conn.execute(
            f"select reply, reply_file, {_COLUMNS} from hook_calls "
            "where run = $1 and event = $2 and key = $3 order by place",
            (self.run, event, key),
            tables=("hook_calls",),
        )
        return [HookRow._make((*row[2:], self._reply(*row[:2]))) for row in found]

    def intend(self, firing: Firing, hooks: Sequence[tuple[int, Hook, int]]) -> None:
        """Commit (power-safe) that hooks, each with its place and attempt, are about to run."""
        with self.conn.transaction(synced=True) as conn:
            for place, hook, attempt in hooks:
                about = {"name": hook.title, "source": hook.source, "command": hook.command}
                state = {"place": place, "attempt": attempt, "idempotent": hook.idempotent, "state": "intent"}
                self._put(conn, "replace", firing, hook=hook.id, **about, **state)

    def finish(self, firing: Firing, hook: str, reply: Reply, *, last: bool) -> None:
        """Commit a hook's reply; `last` also closes the firing."""
        text = reply.model_dump_json()
        file = blobs_of(self.conn, self.outputs).store_if_long(text.encode())
        row = {"state": "done", "reply": None if file else text, "reply_file": file}
        row |= {"done_at": unix_time(), "epoch": self.epoch}
        with self.conn.transaction() as conn:
            note_files(conn, self.run, b"", file)
            conn.update("hook_calls", row, {**self._of(firing), "hook": hook})
            if last:
                self._close(conn, firing)

    def settle(self, firing: Firing, hooks: Sequence[str], state: str) -> None:
        """Record a person's decision about hooks cut off by a kill: `redo` or `skipped`."""
        with self.conn.transaction() as conn:
            for hook in hooks:
                row = {"state": state, "attempt": Plus(1), "epoch": self.epoch}
                conn.update("hook_calls", row, {**self._of(firing), "hook": hook})

    def forget(self, firing: Firing) -> None:
        """Delete the firing's rows, so that it starts over."""
        with self.conn.transaction() as conn:
            conn.delete("hook_calls", self._of(firing))

    def close(self, firing: Firing) -> None:
        """Mark the firing as over."""
        with self.conn.transaction() as conn:
            self._close(conn, firing)

    def _of(self, firing: Firing) -> dict[str, object]:
        return {"run": self.run, "event": firing.event, "key": firing.key}

    def _close(self, conn: Connection, firing: Firing) -> None:
        about = {"name": "", "source": "", "command": "", "idempotent": True}
        state = {"place": -1, "attempt": 1, "state": "done", "done_at": unix_time()}
        self._put(conn, "keep", firing, hook=WHOLE, **about, **state)

    def _put(
        self, conn: Connection, again: Literal["replace", "keep"], firing: Firing, **columns: object
    ) -> None:
        row = {"run": self.run, **firing._asdict(), "epoch": self.epoch, "intent_at": unix_time(), **columns}
        conn.insert("hook_calls", row, again)

    def _reply(self, text: str | None, file: str | None) -> Reply | None:
        text = blobs_of(self.conn, self.outputs).read_text(text, file, "A hook's reply")
        return Reply.model_validate_json(text) if text else None
