"""hooks_program: kills a run with hooks around its prompt, its requests and its answers.

Each event has a hook that appends a line to a file, which mustn't run twice unnoticed; two have another that only
answers, and may.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from folders import put
from kill_runs.harness import Play, show
from kill_runs.scene import Scene
from scripted import says

LOOK = says("list_directory", dir_path=".")
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
        put(
            self.folder / "user" / ".gemini" / "settings.json",
            {"hooks": hooks, "model": {"skipNextSpeakerCheck": True}},
        )

    def expected_effects(self) -> tuple[str, ...]:
        return tuple(sorted(event for event, times in FIRED.items() for _ in range(times)))


def happened(scene: Scene, request: dict[str, Any]) -> bool:
    """Check the file, as a person would: it happened if it has more lines than hooks with a known end."""
    event = request["call"]["name"]
    known = "select count(*) from hook_calls where event = ? and name = ? and state in ('done', 'skipped')"
    with scene.reading() as conn:
        (ended,) = conn.execute(known, (event, f"log-{event}")).fetchone()
    return scene.effects().count(event) > ended


if __name__ == "__main__":
    show(Play(REPLIES, scene=HookedScene, happened=happened, exact=False))
