"""calls_program: kills a run with hooks around its calls.

Each event has a hook that appends a word to a file, which mustn't run twice unnoticed, and one that only answers,
which may. The records of who decided what are compared, too.
"""

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from folders import put
from kill_runs.compare import Ending, ending
from kill_runs.harness import Play, show
from kill_runs.scene import Scene, call
from scripted import tools

COMMAND = "echo command >> ../effects.log; cat a.txt"
REPLIES: list[dict[str, Any]] = [
    tools(
        call("run_shell_command", command="/bin/echo not this"),
        call("write_file", file_path="new.txt", content="fresh\n"),
    ),
    {"text": "Done."},
]
WORDS = ("command", *(f"{e}-{t}" for e in ("BeforeTool", "AfterTool") for t in ("shell", "write")))


def _when_shell(**output: Any) -> str:
    told = shlex.quote(json.dumps({"hookSpecificOutput": output}))
    return f"if grep -q run_shell; then echo {told}; fi"


ANSWERS = {
    "BeforeTool": _when_shell(tool_input={"command": COMMAND}),
    "AfterTool": _when_shell(additionalContext="it was changed"),
    "Notification": "true",
}


@dataclass(frozen=True)
class HookedScene(Scene):
    def prepare(self) -> None:
        super().prepare()
        log = self.folder / "effects.log"
        hooks: dict[str, Any] = {}
        for event, answer in ANSWERS.items():
            word = f"if grep -q run_shell; then echo {event}-shell; else echo {event}-write; fi >> {log}"
            leaves = {"type": "command", "name": "leaves a word", "command": word}
            answers = {"type": "command", "command": answer, "idempotent": True}
            hooks[event] = [{"hooks": [answers] if event == "Notification" else [leaves, answers]}]
        put(
            self.folder / "user" / ".gemini" / "settings.json",
            {"hooks": hooks, "model": {"skipNextSpeakerCheck": True}},
        )

    def expected_effects(self) -> tuple[str, ...]:
        return tuple(sorted(WORDS))


def happened(scene: Scene, request: dict[str, Any]) -> bool:
    """Check the file, as a person would."""
    return _word(scene, request) in scene.effects()


def _word(scene: Scene, request: dict[str, Any]) -> str:
    if not request["key"].startswith("hook:"):
        return "command"
    _, event, _, key = request["key"].split(":", 3)
    with scene.reading() as conn:
        (subject,) = conn.execute(
            "select subject from hook_calls where event = ? and key = ?", (event, key)
        ).fetchone()
    return f"{event}-{'shell' if subject == 'run_shell_command' else 'write'}"


def hooked_ending(scene: Scene) -> Ending:
    """The ending with the records of who decided what. Hooks get no result of a call that a person confirmed."""
    with scene.reading() as conn:
        rows = conn.execute("select idx, attempt, body from decisions").fetchall()
        asked = conn.execute(
            "select request, answer from approvals where answer is not null and key not like 'hook:%'"
        ).fetchall()
    told = [(index, attempt, json.loads(body)) for index, attempt, body in rows]
    short = [(i, a, d["by"], d["decision"], d.get("event", ""), d.get("becomes", 0)) for i, a, d in told]
    end = ending(scene)
    skipped = (
        request["call"]["name"]
        for request, answer in ((json.loads(a), json.loads(b)) for a, b in asked)
        if request["kind"] == "outcome" and answer.get("text") == "skip"
    )
    passed_by = ("AfterTool-shell" if name == "run_shell_command" else "AfterTool-write" for name in skipped)
    effects = tuple(sorted((*end.effects, *passed_by)))
    return replace(end, effects=effects, more={"decisions": sorted(short)})


if __name__ == "__main__":
    show(Play(REPLIES, scene=HookedScene, happened=happened, ending=hooked_ending, exact=False))
