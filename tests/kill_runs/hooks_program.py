"""hooks_program: kills a run with hooks around its prompt, its requests and its answers, at each commit and command.

`FIRST STRIDE`. Prints one JSON object. Each event has a hook that leaves a line in a file, which may not run twice
behind anybody's back, and two have another that only answers, and may.
"""

import json
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs import program
from kill_runs.scene import Scene

from interlock.engine import Decision

LOOK = {"tool_calls": [{"name": "list_directory", "args": {"dir_path": "."}}]}
REPLIES: list[dict[str, Any]] = [
    LOOK,
    {"text": "Done.", "expect": ""},
    {"text": "Tested.", "expect": "test it"},
]
FIRED = {"BeforeAgent": 1, "BeforeModel": 3, "AfterModel": 3, "AfterAgent": 2}
CONTEXT = '{"hookSpecificOutput": {"additionalContext": "it is Monday"}}'
ANSWERS = {
    "BeforeAgent": f"echo '{CONTEXT}'",
    "AfterAgent": "grep -q '\"stop_hook_active\": true' || { echo 'test it' >&2; exit 2; }",
}


@dataclass(frozen=True)
class HookedScene(Scene):
    def prepare(self) -> None:
        super().prepare()
        log = self.folder / "effects.log"
        hooks: dict[str, Any] = {}
        for event in FIRED:
            chosen: list[dict[str, Any]] = [
                {"type": "command", "name": f"log-{event}", "command": f"echo {event} >> {log}"}
            ]
            if event in ANSWERS:
                chosen.append({"type": "command", "command": ANSWERS[event], "idempotent": True})
            hooks[event] = [{"hooks": chosen}]
        settings = self.folder / "user" / ".gemini" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps({"hooks": hooks, "model": {"skipNextSpeakerCheck": True}}))

    def expected_effects(self) -> tuple[str, ...]:
        return tuple(sorted(event for event, times in FIRED.items() for _ in range(times)))


def decision(scene: Scene, name: str, request: dict[str, Any]) -> Decision:
    """As a person who looks into the file: more lines than hooks whose end is known, so it happened."""
    event = request["call"]["name"]
    with sqlite3.connect(scene.store) as conn:
        known = (
            "select count(*) from hook_calls where event = ? and name = ? and state in ('done', 'skipped')"
        )
        (ended,) = conn.execute(known, (event, f"log-{event}")).fetchone()
    conn.close()
    happened = scene.effects().count(event) > ended
    return Decision(name, "reject" if happened else "proceed_once", text="skip" if happened else "redo")


program.Scene = HookedScene  # type: ignore[misc] - what is killed
program.SHORT = REPLIES
program.decision = decision


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        told = program.every_moment(Path(name) / "scene", int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
