"""place: a workspace with MCP servers, and runs in it with a scripted model."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from interlock.engine import Options, resume_sync, run_sync
from interlock.engine.read import list_step_rows
from interlock.engine.read.run_path import build_run_path

SERVER = Path(__file__).with_name("odd.py")


class Place:
    """A workspace, its user's home and settings, and the odd server's log."""

    def __init__(self, folder: Path) -> None:
        self.work, self.user, self.home = folder / "work", folder / "user", folder / "home"
        self.log = folder / "odd.log"
        self.events: list[Any] = []
        for made in (self.work, self.user / ".interlock"):
            made.mkdir(parents=True)

    def settings(self, **settings: Any) -> None:
        (self.user / ".interlock" / "settings.json").write_text(json.dumps(settings))

    def odd(self, **changes: Any) -> dict[str, Any]:
        """The odd server's entry in settings."""
        env = {"ODD_LOG": str(self.log), **changes.pop("env", {})}
        return {"command": sys.executable, "args": ["-I", "-S", str(SERVER)], "env": env, **changes}

    def servers(self, **servers: Any) -> None:
        self.settings(mcpServers=servers)

    def takes(self, **properties: Any) -> None:
        """What the odd server's `note` takes from now on."""
        schema = {"type": "object", "properties": properties, "required": [*properties]}
        self.log.with_name(f"{self.log.name}.schema").write_text(json.dumps(schema))

    def rules(self, *tables: dict[str, Any]) -> None:
        """The user's policy; JSON is valid TOML for a rule's values, except tables."""
        folder = self.user / ".interlock" / "policies"
        folder.mkdir(exist_ok=True)
        texts = ("".join(f"{key} = {_toml(value)}\n" for key, value in table.items()) for table in tables)
        (folder / "rules.toml").write_text("".join(f"[[rule]]\n{text}\n" for text in texts))

    def options(self, **changes: Any) -> Options:
        base = {
            "home": self.home,
            "user_home": self.user,
            "workspace": self.work,
            "env": {"PATH": os.environ["PATH"]},
        }
        return Options(**{**base, **changes})

    def script(self, *replies: dict[str, Any]) -> str:
        file = self.work.parent / "replies.yaml"
        file.write_text(yaml.safe_dump(list(replies)))
        return f"script:{file}"

    def main(self, *replies: dict[str, Any], **changes: Any) -> Any:
        """Send one prompt to `main`; returns the outcome."""
        options = self.options(model=self.script(*replies), **changes)
        return run_sync("main", {"prompt": "go"}, options=options, renderers=[self.events.append])

    @property
    def told(self) -> list[str]:
        """Warnings and errors shown to people."""
        return [event.message for event in self.events if event.type == "error"]

    def resume(self, run: str, **changes: Any) -> Any:
        return resume_sync(run, options=self.options(), **changes)

    def path(self, run: str) -> Any:
        """The run's path through the graph."""
        return build_run_path(list_step_rows(self.home, run), "done")

    def noted(self) -> list[str]:
        """The server's logged side effects, without its own starts and ends."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if not line.startswith(("start", "end"))]

    def starts(self) -> list[int]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith("start")]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply of the model that calls tools."""
    return {"tool_calls": [{"name": name, "args": args} for name, args in named]}
