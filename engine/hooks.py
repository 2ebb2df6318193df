"""hooks: fires the hooks of a run's events, through the log that survives a kill."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from interlock.engine.hook_log import WHOLE, Firing, HookLog, HookRow
from interlock.services.hooks.command import Surroundings, run_hook
from interlock.services.hooks.definition import Hook, HookBook
from interlock.services.hooks.matcher import subjects_of
from interlock.services.hooks.merge import Said, changed, merged
from interlock.services.hooks.reply import Reply
from interlock.state.events import Emit, ErrorEvent
from interlock.state.hooks import HookEvent, HookOutcome, HookVerdict, Unsettled
from interlock.state.journal import Approvals
from interlock.state.tooling import Processes
from interlock.state.turn_events import HookRan

REQUEST = "hook"
"""What the keys of requests about hooks begin with: `hook:EVENT:ATTEMPT:KEY`."""


@dataclass(frozen=True)
class RunHooks:
    """Implements `Hooks`."""

    book: HookBook
    log: HookLog
    approvals: Approvals
    processes: Processes
    around: Surroundings

    @property
    def configured(self) -> str:
        return self.book.configured

    def for_agent(self, path: str) -> "RunHooks":
        """The same hooks, told which sub-agent it is about."""
        return replace(self, around=replace(self.around, agent=path))

    async def fire(
        self,
        event: HookEvent,
        key: str,
        given: Mapping[str, JsonValue],
        *,
        subject: str = "",
        emit: Emit,
    ) -> HookOutcome:
        firing = Firing(event, key, subject)
        rows = self._rows(firing)
        if not _is_over(rows):
            if unknown := self._unknown(firing, rows):
                return HookOutcome(unknown=unknown)
            hooks = self.book.selected(event, *subjects_of(event, subject, given))
            if not hooks and not rows:
                return HookOutcome()
            await self._run(firing, hooks, self.around.input(event, given))
            rows = self.log.rows(event, key)
        outcome = merged(event, [Said(row.name, row.source, row.reply) for row in rows if row.reply])
        self._tell(event, outcome, emit)
        return outcome

    def unsettled(self, unknown: str) -> Unsettled:
        _, event, _, key = unknown.split(":", 3)
        rows = _doubtful(event, self.log.rows(event, key))
        subject = rows[0].subject if rows else ""
        return Unsettled(event=event, subject=subject, commands=tuple(row.command for row in rows))

    def _rows(self, firing: Firing) -> list[HookRow]:
        """What is known of it. A session that hooks refused to start is started anew by who resumes it."""
        rows = self.log.rows(firing.event, firing.key)
        refused = any(row.reply and (row.reply.decision == "block" or row.reply.stop) for row in rows)
        earlier = all(row.epoch < self.log.epoch for row in rows)
        if firing.event == "SessionStart" and refused and earlier and _is_over(rows):
            self.log.forget(firing)
            return []
        return rows

    def _unknown(self, firing: Firing, rows: Sequence[HookRow]) -> str:
        """The request that a person must answer first; empty: nothing is in doubt, or it was answered."""
        doubtful = _doubtful(firing.event, rows)
        if not doubtful:
            return ""
        attempt = max(row.attempt for row in doubtful)
        request = f"{REQUEST}:{firing.event}:{attempt}:{firing.key}"
        answer = self.approvals.answer(request)
        if answer is None:
            return request
        state = "redo" if answer.choice == "proceed_once" else "skipped"
        self.log.settle(firing, [row.hook for row in doubtful], state)
        return ""

    async def _run(self, firing: Firing, hooks: Sequence[Hook], given: dict[str, JsonValue]) -> None:
        """Run those that haven't answered, side by side unless one of them says otherwise."""
        known = {row.hook: row for row in self.log.rows(firing.event, firing.key)}
        left = [
            hook.id for hook in hooks if hook.id not in known or known[hook.id].state in ("intent", "redo")
        ]
        if not left:
            self.log.close(firing)
            return
        drive = _Firing(self, firing, known, left)
        if any(hook.sequential for hook in hooks):
            await drive.one_by_one(hooks, given)
        else:
            await drive.side_by_side(hooks, given)

    def _tell(self, event: HookEvent, outcome: HookOutcome, emit: Emit) -> None:
        for verdict in outcome.verdicts:
            if self.book.notifications or verdict.warning or verdict.decision in ("ask", "block"):
                emit(_ran(event, verdict))
            if verdict.warning:
                emit(ErrorEvent(severity="warning", message=_warning(event, verdict)))
        for message in outcome.messages:
            emit(ErrorEvent(severity="warning", message=f"{event} hook: {message}"))


@dataclass
class _Firing:
    """A firing under way."""

    hooks: RunHooks
    firing: Firing
    known: Mapping[str, HookRow]
    left: list[str]
    """Ids of the hooks that haven't answered yet."""

    async def one_by_one(self, hooks: Sequence[Hook], given: dict[str, JsonValue]) -> None:
        """What one changes is the next one's input."""
        for place, hook in enumerate(hooks):
            row = self.known.get(hook.id)
            if hook.id in self.left:
                self._intend([(place, hook)])
                reply = await self._answer(hook, given)
            else:
                reply = row.reply if row else None
            if reply and not reply.warning and reply.decision != "block":
                given = changed(given, self.firing.event, reply)

    async def side_by_side(self, hooks: Sequence[Hook], given: dict[str, JsonValue]) -> None:
        chosen = [(place, hook) for place, hook in enumerate(hooks) if hook.id in self.left]
        self._intend(chosen)
        # All of them are waited for: none may go on behind an error of another.
        answers = await asyncio.gather(
            *(self._answer(hook, given) for _, hook in chosen), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _intend(self, chosen: Sequence[tuple[int, Hook]]) -> None:
        attempts = {row.hook: row.attempt for row in self.known.values()}
        self.hooks.log.intend(
            self.firing, [(place, hook, attempts.get(hook.id, 1)) for place, hook in chosen]
        )

    async def _answer(self, hook: Hook, given: Mapping[str, JsonValue]) -> Reply:
        reply = await run_hook(hook, given, self.hooks.processes, self.hooks.around)
        self.left.remove(hook.id)
        self.hooks.log.finish(self.firing, hook.id, reply, last=not self.left)
        return reply


def _is_over(rows: Sequence[HookRow]) -> bool:
    return any(row.hook == WHOLE for row in rows)


def _doubtful(event: str, rows: Sequence[HookRow]) -> list[HookRow]:
    """Started, and not known to have ended; a notification may come twice."""
    repeatable = event == "Notification"
    return [row for row in rows if row.state == "intent" and not (row.idempotent or repeatable)]


def _ran(event: HookEvent, verdict: HookVerdict) -> HookRan:
    return HookRan(
        event=event,
        name=verdict.name,
        decision=verdict.decision,
        reason=verdict.reason,
        warning=verdict.warning,
        duration_ms=verdict.duration_ms,
    )


def _warning(event: HookEvent, verdict: HookVerdict) -> str:
    what = "it blocks" if verdict.decision == "block" else "it doesn't count"
    return f"Hook {verdict.name!r} of {event} ({verdict.source}): {verdict.warning}; {what}."
