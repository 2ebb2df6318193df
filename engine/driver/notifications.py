"""notifications: tells an absent user that a run is waiting, by their own command or a webhook (`general.notify`).

It fires once each time a run parks, and omits what was pending before the drive. Failures don't affect the run; they
become warnings.
"""

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.outcome import result_event
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.options import Outcome, Pending
from interlock.engine.read import find_run
from interlock.engine.store.runs import find_outermost_waiting_task
from interlock.services.files.filesystem import OutputFiles
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.events import Cancelled, NotificationEvent
from interlock.state.text import make_visible, to_visible_json

_PREVIEW = 2000
"""Characters of a preview that are sent."""
_LINE = 200
_OUTPUT = 400
"""Characters kept of a failed command's output."""


@dataclass(frozen=True)
class WaitingNotification:
    """What a person is told about a run, and where."""

    prepared: RunConfig
    home: Path
    """The state directory."""
    payload: Mapping[str, Any]
    """A command's stdin, and a webhook's body."""

    @classmethod
    def for_new_requests(
        cls, outcome: Outcome, prepared: RunConfig, home: Path, known_requests: Collection[str]
    ) -> "WaitingNotification | None":
        """None: nothing waits that isn't among `known_requests`, the ids of what waited before the drive."""
        new = [request for request in outcome.pending if request["id"] not in known_requests]
        if outcome.status != "waiting" or not new:
            return None
        run = find_run(home, find_outermost_waiting_task(home, outcome.run))
        summary = make_visible(_summarize_requests(new))
        payload = {
            "event": "waiting",
            "text": f"Interlock: run {run.run} waits for you: {summary} ({make_visible(run.title)})",
            "run": run.run,
            "workflow": run.workflow,
            "title": run.title,
            "workspace": run.workspace,
            "waiting": [_request_payload(request) for request in outcome.pending],
            "resume_command": f"interlock resume {run.run}",
        }
        return cls(prepared, home, prepared.redact.redact_json(payload))

    @property
    def terminal_event(self) -> NotificationEvent | None:
        """The terminal's event, if it is configured to ring."""
        ways = self.prepared.settings.general.notify.terminal
        what = make_visible(_summarize_requests(self.payload["waiting"]))
        title = f"Interlock waits: {make_visible(self.payload['title'])}"[:_LINE]
        return NotificationEvent(title=title, message=what, ways=ways) if ways else None

    def send_in_background(self) -> "Future[list[str]] | None":
        """Send on a separate thread, which a normal exit waits for; the result is what went wrong."""
        notify = self.prepared.settings.general.notify
        if not notify.command and not notify.webhook:
            return None
        executor = ThreadPoolExecutor(1, "interlock-notify")
        try:
            return executor.submit(lambda: asyncio.run(self._send_all_and_list_problems()))
        finally:
            executor.shutdown(wait=False)

    async def _send_all_and_list_problems(self) -> list[str]:
        problems = await asyncio.gather(
            self._run_command_and_get_problem(), self._post_webhook_and_get_problem(), return_exceptions=True
        )
        return [
            self.prepared.redact(problem if isinstance(problem, str) else f"notify: {problem!r}")
            for problem in problems
            if problem
        ]

    async def _run_command_and_get_problem(self) -> str:
        notify = self.prepared.settings.general.notify
        if not (command := notify.command):
            return ""
        payload, outputs = self.payload, OutputFiles(self.home, self.prepared.redact)
        processes = SupervisedProcesses(outputs=outputs, env=self.prepared.tool_env)
        ended = await processes.run(
            ["bash", "-c", command] if isinstance(command, str) else command,
            cwd=Path(payload["workspace"]),
            timeout_s=notify.timeout_s,
            limit_chars=_OUTPUT,
            env={
                "INTERLOCK_RUN": payload["run"],
                "INTERLOCK_TITLE": make_visible(payload["title"]),
                "INTERLOCK_WAITING": make_visible(_summarize_requests(payload["waiting"])),
                "INTERLOCK_RESUME": payload["resume_command"],
            },
            stdin=to_visible_json(payload).encode(),
            trusted_helper=True,
        )
        if ended.how == "exited" and ended.exit_code == 0:
            return ""
        why = ended.signal or f"exit {ended.exit_code}"
        if ended.how != "exited":
            why = f"no end within {notify.timeout_s:g} s" if ended.how == "timeout" else ended.how
        return f"general.notify.command: {why.replace('_', ' ')}. {' '.join(ended.output.split())}".strip()

    async def _post_webhook_and_get_problem(self) -> str:
        notify = self.prepared.settings.general.notify
        if not notify.webhook:
            return ""
        import httpx

        where = f"general.notify.webhook ({urlsplit(notify.webhook).netloc.rpartition('@')[2]})"
        try:
            async with (
                httpx.AsyncClient(timeout=notify.timeout_s) as client,
                asyncio.timeout(notify.timeout_s),
            ):
                answer = await client.post(
                    notify.webhook,
                    content=to_visible_json(self.payload).encode(),
                    headers={"Content-Type": "application/json", **notify.headers},
                )
        except TimeoutError:
            return f"{where}: no answer within {notify.timeout_s:g} s."
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return f"{where}: {type(error).__name__}."
        return "" if answer.is_success else f"{where}: HTTP {answer.status_code}."


def _summarize_requests(waiting: list[Any]) -> str:
    """One line: what the first request would do, and how many more there are."""
    first, more = waiting[0], len(waiting) - 1
    line = next((line for line in str(first["preview"]).splitlines() if line.strip()), "")
    path = first["args"].get("file_path") or first["args"].get("path") or line
    text = f"{first['tool_name']} {path}".strip()
    return (text if len(text) <= _LINE else text[: _LINE - 1] + "…") + (f" and {more} more" if more else "")


def _request_payload(request: Pending) -> dict[str, Any]:
    kept = ("id", "number", "kind", "agent", "tool_name", "args", "reason", "preview")
    return {**{key: request[key] for key in kept}, "preview": request["preview"][:_PREVIEW]}


async def announce_outcome_and_close_bus(
    outcome: Outcome, bus: EventBus, notification: WaitingNotification | None
) -> Outcome:
    """Tell renderers and whoever wants a notification how the drive ended."""
    if notification and notification.terminal_event:
        bus(notification.terminal_event)
    if outcome.status in ("cancelled", "timeout"):
        bus.report_running_calls_cancelled()
    if outcome.status == "cancelled":
        bus(Cancelled())
    bus(result_event(outcome))
    drained = await bus.close()
    warnings = [*outcome.warnings, *bus.failures]
    if not drained:
        warnings.append("A renderer still blocks on its reader.")
    sent = notification.send_in_background() if notification else None
    return replace(outcome, warnings=warnings, drained=drained, notifying=sent)
