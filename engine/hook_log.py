"""hook_log: which hooks were about to run, and what they said (`engine.md` 13)."""

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from interlock.services.hooks.definition import Hook
from interlock.services.hooks.reply import Reply
from interlock.services.outputs import store_file
from interlock.services.sqlite import transaction
from interlock.services.transcript import INLINE_BYTES
from interlock.state.hooks import HookEvent

WHOLE = ""
"""In place of a hook's id: the firing as a whole; its row is there once every hook has answered."""


class Firing(NamedTuple):
    """One time that an event's hooks run; the same after a kill."""

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
    reply: Reply | None
    subject: str
    epoch: int
    """Number of the drive that wrote it last."""


class HookLog:
    """The table `hook_calls`, for the driver of a run. Intents are synced to the disk."""

    def __init__(self, conn: sqlite3.Connection, outputs: Path, run: str, epoch: int) -> None:
        self._conn = conn
        self._outputs = outputs
        self._run = run
        self.epoch = epoch

    def rows(self, event: str, key: str) -> list[HookRow]:
        """The hooks of a firing, in its order; the row of the whole is first, where it is there."""
        found = self._conn.execute(
            "select hook, attempt, name, source, command, idempotent, state, reply, reply_file, subject, epoch "
            "from hook_calls where run = ? and event = ? and key = ? order by place",
            (self._run, event, key),
        )
        return [_row(row, self._reply(*row[7:9])) for row in found]

    def intend(self, firing: Firing, hooks: Sequence[tuple[int, Hook, int]]) -> None:
        """Commit (power-safe) that hooks, each with its place and attempt, are about to run."""
        with transaction(self._conn, synced=True) as conn:
            for place, hook, attempt in hooks:
                self._put(conn, firing, hook, place, attempt)

    def finish(self, firing: Firing, hook: str, reply: Reply, *, last: bool) -> None:
        """Commit what a hook said; with the last one the firing is over."""
        body = reply.model_dump_json().encode()
        file = None
        if len(body) > INLINE_BYTES:
            file = hashlib.sha256(body).hexdigest() + ".json"
            store_file(self._outputs, file, body)
        with transaction(self._conn) as conn:
            conn.execute(
                "update hook_calls set state = 'done', reply = ?, reply_file = ?, done_at = ?, epoch = ? "
                "where run = ? and event = ? and key = ? and hook = ?",
                (
                    *(None if file else body.decode(), file, time.time(), self.epoch),
                    *(self._run, firing.event, firing.key, hook),
                ),
            )
            if last:
                self._close(conn, firing)

    def settle(self, firing: Firing, hooks: Sequence[str], state: str) -> None:
        """A person said what becomes of hooks that a kill cut: `redo`, or `skipped`."""
        with transaction(self._conn) as conn:
            for hook in hooks:
                conn.execute(
                    "update hook_calls set state = ?, attempt = attempt + 1, epoch = ? "
                    "where run = ? and event = ? and key = ? and hook = ?",
                    (state, self.epoch, self._run, firing.event, firing.key, hook),
                )

    def forget(self, firing: Firing) -> None:
        """The firing begins anew."""
        with transaction(self._conn) as conn:
            conn.execute(
                "delete from hook_calls where run = ? and event = ? and key = ?",
                (self._run, firing.event, firing.key),
            )

    def close(self, firing: Firing) -> None:
        """The firing is over."""
        with transaction(self._conn) as conn:
            self._close(conn, firing)

    def _put(self, conn: sqlite3.Connection, firing: Firing, hook: Hook, place: int, attempt: int) -> None:
        event, key, subject = firing
        conn.execute(
            "insert or replace into hook_calls (run, event, key, hook, place, attempt, subject, name, source, "
            "command, idempotent, state, epoch, intent_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'intent', ?, ?)",
            (
                *(self._run, event, key, hook.id, place, attempt, subject, hook.title, hook.source),
                *(hook.command, hook.idempotent, self.epoch, time.time()),
            ),
        )

    def _close(self, conn: sqlite3.Connection, firing: Firing) -> None:
        now = time.time()
        conn.execute(
            "insert or ignore into hook_calls (run, event, key, hook, place, attempt, subject, name, source, "
            "command, idempotent, state, epoch, intent_at, done_at) "
            "values (?, ?, ?, ?, -1, 1, ?, '', '', '', 1, 'done', ?, ?, ?)",
            (self._run, firing.event, firing.key, WHOLE, firing.subject, self.epoch, now, now),
        )

    def _reply(self, text: str | None, file: str | None) -> Reply | None:
        if file:
            text = (self._outputs / file).read_text(encoding="utf-8")
        return Reply.model_validate_json(text) if text else None


def _row(row: Sequence[Any], reply: Reply | None) -> HookRow:
    hook, attempt, name, source, command, idempotent, state, _, _, subject, epoch = row
    return HookRow(hook, attempt, name, source, command, bool(idempotent), state, reply, subject, epoch)
