"""hooks: which hooks an event would run here and now, with the settings and trust of a run, and what they say."""

import json
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from interlock.engine.driver.hooks import HookLog, RunHooks
from interlock.engine.driver.prepare import check_hooks, prepare
from interlock.engine.options import Options
from interlock.engine.store.approvals import SqlApprovals
from interlock.services.files.outputs import OutputFiles
from interlock.services.hooks.command import HookEnvironment
from interlock.services.hooks.configured import Hook, subjects_of
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.state.events import Event
from interlock.state.hooks import HookEvent, HookOutcome
from interlock.state.tooling import Ended

_SESSION = "hooks-test"
SUBJECTS: dict[HookEvent, str] = {
    "BeforeTool": "tool_name",
    "AfterTool": "tool_name",
    "SessionStart": "source",
    "SessionEnd": "reason",
    "PreCompress": "trigger",
    "Notification": "notification_type",
}
"""Event → field of its input that matchers look at; other events have none."""


class _Heard(SupervisedProcesses):
    """Notes what each hook is given: of hooks one after the other it depends on those before."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.inputs: dict[str, Any] = {}

    async def run(self, argv: Sequence[str], **given: Any) -> Ended:
        self.inputs[argv[-1]] = json.loads(given["stdin"])
        return await super().run(argv, **given)


class HookCheck:
    """One preparation, any number of events."""

    def __init__(self, options: Options) -> None:
        self._prepared = prepare(options, needs_model=False)
        self._around = HookEnvironment(_SESSION, self._prepared.workspace.root, None)
        self.warnings: Sequence[str] = self._prepared.warnings

    def listed(self) -> list[dict[str, Any]]:
        """Every hook that counts, in the order in which hooks are asked."""
        return [_shown(hook) for hook in self._prepared.hooks.hooks]

    def planned(self, event: HookEvent, given: Mapping[str, JsonValue]) -> dict[str, Any]:
        """What the event would run, and the input of each hook, unless one before it changes it.

        Raises `UntrustedError` where only ignored files have hooks for it.
        """
        hooks = self._prepared.hooks.selected(event, *subjects_of(event, self._subject(event, given), given))
        if not hooks and not self._prepared.trusted:
            check_hooks(event, self._around.workspace, self._prepared.options)
        told = self._around.input(event, given)
        return {
            "event": event,
            "subject": self._subject(event, given),
            "order": "sequential" if any(hook.sequential for hook in hooks) else "parallel",
            "hooks": [{**_shown(hook), "input": told} for hook in hooks],
        }

    async def run(self, event: HookEvent, given: Mapping[str, JsonValue]) -> dict[str, Any]:
        """As `planned`, with what each hook got and said, and what it comes to."""
        plan = self.planned(event, given)
        with tempfile.TemporaryDirectory(prefix="interlock-hooks-") as folder:
            outcome, inputs = await self._fired(event, given, Path(folder))
        for hook, verdict in zip(plan["hooks"], outcome.verdicts, strict=True):
            hook["input"] = inputs.get(hook["command"], hook["input"])
            hook["verdict"] = verdict.model_dump()
        return {**plan, "outcome": outcome.model_dump(exclude={"verdicts", "unknown"})}

    async def _fired(
        self, event: HookEvent, given: Mapping[str, JsonValue], folder: Path
    ) -> tuple[HookOutcome, dict[str, Any]]:
        """Through a log of its own that is thrown away: no run is touched."""
        prepared, conn = self._prepared, sqlite3.connect(":memory:", isolation_level=None)
        env = tool_environment(prepared.env, rules=prepared.settings.security.environment)
        processes = _Heard(outputs=OutputFiles(folder), env=env, redact=prepared.redact)
        try:
            conn.executescript(
                files("interlock.engine.store").joinpath("schema.sql").read_text(encoding="utf-8")
            )
            log = HookLog(conn, folder, _SESSION, 1)
            hooks = RunHooks(prepared.hooks, log, SqlApprovals(conn, _SESSION), processes, self._around)
            subject = self._subject(event, given)
            outcome = await hooks.fire(event, _SESSION, given, subject=subject, emit=_untold)
        finally:
            conn.close()
        return outcome, processes.inputs

    def _subject(self, event: HookEvent, given: Mapping[str, JsonValue]) -> str:
        found = given.get(SUBJECTS.get(event, ""))
        return found if isinstance(found, str) else ""


def _untold(event: Event) -> None:
    """The outcome says all of it."""


def _shown(hook: Hook) -> dict[str, Any]:
    return {
        "event": hook.event,
        "name": hook.name,
        "command": hook.command,
        "matcher": hook.matcher.text,
        "timeout_s": hook.timeout_s,
        "sequential": hook.sequential,
        "required": hook.required,
        "idempotent": hook.idempotent,
        "env": sorted(hook.env),
        "source": hook.source,
        "place": hook.place,
        "broken": hook.broken,
    }
