"""stage: runs whose settings have hooks that are real bash scripts; each invocation writes a line to a log."""

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_runs.stage import Stage


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
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Added to every hook in settings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fired = self.folder / "fired"
        self.fired.mkdir()
        events: dict[str, Any] = {}
        for event, line in self.hooks.items():
            script = self.folder / f"{event}.sh"
            log = shlex.quote(str(self.fired / event))
            script.write_text(f'input=$(cat)\nprintf "%s\\n" "$input" >> {log}\n{line}\n')
            command = {
                "type": "command",
                "name": f"my{event}",
                "command": f"bash {shlex.quote(str(script))}",
            }
            events[event] = [{"hooks": [{**command, **self.fields}]}]
        settings = self.folder / "user" / ".interlock" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"hooks": events}))

    def seen(self, event: str) -> list[dict[str, Any]]:
        """The inputs of an event's hook, one per invocation."""
        log = self.fired / event
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def hooked(folder: Path, replies: list[dict[str, Any]], hooks: dict[str, str], **more: Any) -> Hooked:
    return Hooked(folder, replies, hooks=hooks, **more)
