"""stage: runs whose settings have hooks that are real bash scripts; each invocation writes a line to a log."""

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

import pytest
from agent_runs.stage import Stage

from interlock.engine.driver import hooks as driven
from interlock.engine.driver.drive import Drive
from interlock.services.hooks.hook_settings import Hook


def answer(**fields: Any) -> str:
    """Bash that prints an answer."""
    return f"echo {shlex.quote(json.dumps(fields))}"


def specific(**fields: Any) -> str:
    return answer(hookSpecificOutput=fields)


def when(pattern: str, then: str) -> str:
    """Bash that acts only on an input containing `pattern`."""
    return f'case "$input" in *{shlex.quote(pattern)}*) {then};; esac'


@dataclass
class Hooked(Stage):
    """A stage with hooks: event → bash that may read `$input`."""

    hooks: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fired = self.folder / "fired"
        self.fired.mkdir()
        self.configure(self.hooks)

    def configure(self, hooks: dict[str, str], **fields: Any) -> "Hooked":
        """Have these hooks from now on, with more fields in settings."""
        events: dict[str, Any] = {}
        for event, line in hooks.items():
            script = self.folder / f"{event}.sh"
            log = shlex.quote(str(self.fired / event))
            script.write_text(f'input=$(cat)\nprintf "%s\\n" "$input" >> {log}\n{line}\n')
            command = {"name": f"my-{event}", "command": f"bash {shlex.quote(str(script))}", **fields}
            events[event] = [{"hooks": [{"type": "command", **command}]}]
        settings = self.folder / "user" / ".interlock" / "settings.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"hooks": events}))
        return self

    def seen(self, event: str) -> list[dict[str, Any]]:
        """The inputs of an event's hook, one per invocation."""
        log = self.fired / event
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def press_ctrl_c(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C while a hook of the event runs."""
    drives: list[Drive] = []
    advance, run_hook = Drive.advance, driven.run_hook

    async def watched(self: Drive, *args: Any) -> Any:
        drives.append(self)
        return await advance(self, *args)

    async def stopped(hook: Hook, *args: Any, **more: Any) -> Any:
        if hook.event == event:
            drives[-1].stop()
        return await run_hook(hook, *args, **more)

    monkeypatch.setattr(Drive, "advance", watched)
    monkeypatch.setattr(driven, "run_hook", stopped)
