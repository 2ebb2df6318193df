"""hooks: fires the hooks of a run's events through a log that survives a kill."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from interlock.engine.store.journal import WHOLE, Firing, HookLog, HookRow
from interlock.services.config.settings import FLAGS
from interlock.services.hooks.hook_replies import (
    HookEnvironment,
    HookReply,
    SourcedReply,
    merge_replies,
    next_hook_input,
    run_hook,
)
from interlock.services.hooks.hook_settings import Hook, HookRegistry, event_subject_names
from interlock.state.events import Emit, ErrorEvent, HookRan
from interlock.state.hooks import HookOutcome, HookVerdict, InterruptedFiring
from interlock.state.journal import Approvals
from interlock.state.run import HookEvent
from interlock.state.tooling import Processes

REQUEST = "hook"
"""Key prefix of requests about hooks: `hook:EVENT:ATTEMPT:KEY`."""


@dataclass(frozen=True)
class RunHooks:
    """Implements `Hooks`."""

    book: HookRegistry
    log: HookLog
    approvals: Approvals
    processes: Processes
    around: HookEnvironment
    inside: Processes | None = None
    """Those of the run's sandbox, for hooks that came with the run (`--check` of 0.1)."""
    checked: bool = False
    """The run has a check, which comes after the hooks on an answer."""

    @property
    def hooked_events(self) -> str:
        events = {
            *filter(None, self.book.joined_event_names.split(",")),
            *(["AfterAgent"] if self.checked else []),
        }
        return ",".join(sorted(events))

    def for_agent(self, path: str) -> "RunHooks":
        """The same hooks with the sub-agent's path in their environment."""
        return replace(self, around=replace(self.around, agent=path))

    async def fire(
        self,
        event: HookEvent,
        key: str,
        payload: Mapping[str, JsonValue],
        *,
        subject: str = "",
        emit: Emit,
    ) -> HookOutcome:
        firing = Firing(event, key, subject)
        rows = self._read_rows_or_delete_refused_start(firing)
        if not _is_firing_finished(rows):
            if unknown := self._settle_unknown_or_get_request(firing, rows):
                return HookOutcome(unknown=unknown)
            hooks = self.book.select_hooks(event, *event_subject_names(event, subject, payload))
            if not hooks and not rows:
                return HookOutcome()
            await self._run_hooks(firing, hooks, self.around.build_input(event, payload))
            rows = self.log.list_firing_rows(event, key)
            if unknown := self._settle_unknown_or_get_request(firing, rows):
                return HookOutcome(unknown=unknown)
        outcome = merge_replies(
            event, [SourcedReply(row.name, row.source, row.reply) for row in rows if row.reply]
        )
        self._emit_outcome(event, outcome, emit)
        return outcome

    def load_interrupted_firing(self, request_key: str) -> InterruptedFiring:
        _, event, _, key = request_key.split(":", 3)
        rows = _rows_with_unknown_outcome(event, self.log.list_firing_rows(event, key))
        subject = rows[0].subject if rows else ""
        return InterruptedFiring(event=event, subject=subject, commands=tuple(row.command for row in rows))

    def _read_rows_or_delete_refused_start(self, firing: Firing) -> list[HookRow]:
        """The firing's recorded rows. Resuming a session that hooks refused to start fires them again."""
        rows = self.log.list_firing_rows(firing.event, firing.key)
        refused = any(row.reply and (row.reply.decision == "block" or row.reply.stop) for row in rows)
        earlier = all(row.epoch < self.log.epoch for row in rows)
        if firing.event == "SessionStart" and refused and earlier and _is_firing_finished(rows):
            self.log.delete_firing_rows(firing)
            return []
        return rows

    def _settle_unknown_or_get_request(self, firing: Firing, rows: Sequence[HookRow]) -> str:
        """The request a person must answer first; empty: nothing is in doubt, or it was answered."""
        doubtful = _rows_with_unknown_outcome(firing.event, rows)
        if not doubtful:
            return ""
        attempt = max(row.attempt for row in doubtful)
        request = f"{REQUEST}:{firing.event}:{attempt}:{firing.key}"
        answer = self.approvals.find_answer(request)
        if answer is None:
            return request
        state = "redo" if answer.choice == "proceed_once" else "skipped"
        self.log.record_decision(firing, [row.hook for row in doubtful], state)
        return ""

    async def _run_hooks(self, firing: Firing, hooks: Sequence[Hook], payload: dict[str, JsonValue]) -> None:
        """Run the hooks that haven't answered, in parallel unless one of them is sequential."""
        known = {row.hook: row for row in self.log.list_firing_rows(firing.event, firing.key)}
        left = [
            hook.id for hook in hooks if hook.id not in known or known[hook.id].state in ("intent", "redo")
        ]
        if not left:
            self.log.mark_firing_done(firing)
            return
        drive = _HookRunner(self, firing, known, left)
        if any(hook.sequential for hook in hooks):
            await drive.run_in_order(hooks, payload)
        else:
            await drive.run_in_parallel(hooks, payload)

    def _emit_outcome(self, event: HookEvent, outcome: HookOutcome, emit: Emit) -> None:
        for verdict in outcome.verdicts:
            if self.book.notifications or verdict.warning or verdict.decision in ("ask", "block"):
                emit(HookRan(event=event, **verdict.model_dump(include={*HookRan.model_fields})))
            if verdict.warning:
                emit(ErrorEvent(severity="warning", message=_warning_line(event, verdict)))
        for message in outcome.messages:
            emit(ErrorEvent(severity="warning", message=f"{event} hook: {message}"))


@dataclass
class _HookRunner:
    """Runs the hooks of one event."""

    hooks: RunHooks
    firing: Firing
    rows_by_hook: Mapping[str, HookRow]
    unanswered: list[str]
    """Ids of the hooks that haven't answered yet."""

    async def run_in_order(self, hooks: Sequence[Hook], payload: dict[str, JsonValue]) -> None:
        """Run the hooks in order; each one's changes are part of the next one's input."""
        for place, hook in enumerate(hooks):
            row = self.rows_by_hook.get(hook.id)
            if hook.id in self.unanswered:
                self._log_intents([(place, hook)])
                reply = await self._run_hook(hook, payload)
                if reply is None:
                    return  # later hooks depend on its changes
            else:
                reply = row.reply if row else None
            if reply and not reply.warning and reply.decision != "block":
                payload = next_hook_input(payload, self.firing.event, reply)

    async def run_in_parallel(self, hooks: Sequence[Hook], payload: dict[str, JsonValue]) -> None:
        chosen = [(place, hook) for place, hook in enumerate(hooks) if hook.id in self.unanswered]
        self._log_intents(chosen)
        # Wait for all of them: none may keep running after another fails.
        answers = await asyncio.gather(
            *(self._run_hook(hook, payload) for _, hook in chosen), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _log_intents(self, chosen: Sequence[tuple[int, Hook]]) -> None:
        attempts = {row.hook: row.attempt for row in self.rows_by_hook.values()}
        self.hooks.log.record_intent(
            self.firing, [(place, hook, attempts.get(hook.id, 1)) for place, hook in chosen]
        )

    async def _run_hook(self, hook: Hook, payload: Mapping[str, JsonValue]) -> HookReply | None:
        """None: the hook's effect is unknown, and its intent stays open, as after a kill of the run."""
        inside = self.hooks.inside if hook.source == FLAGS else None
        processes = inside or self.hooks.processes
        reply = await run_hook(hook, payload, processes, self.hooks.around)
        if reply.lost and not _is_safe_to_repeat(self.firing.event, hook.idempotent):
            return None
        self.unanswered.remove(hook.id)
        self.hooks.log.record_reply(self.firing, hook.id, reply, last=not self.unanswered)
        return reply


def _is_firing_finished(rows: Sequence[HookRow]) -> bool:
    return any(row.hook == WHOLE for row in rows)


def _rows_with_unknown_outcome(event: str, rows: Sequence[HookRow]) -> list[HookRow]:
    """Hooks that started and aren't known to have ended."""
    return [row for row in rows if row.state == "intent" and not _is_safe_to_repeat(event, row.idempotent)]


def _is_safe_to_repeat(event: str, idempotent: bool) -> bool:
    """Whether the hook may run twice; notifications always may."""
    return idempotent or event == "Notification"


def _warning_line(event: HookEvent, verdict: HookVerdict) -> str:
    what = "it blocks" if verdict.decision == "block" else "it doesn't count"
    return f"Hook {verdict.name!r} of {event} ({verdict.source}): {verdict.warning}; {what}."
