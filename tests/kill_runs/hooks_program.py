"""hooks_program: kills a run with hooks around its prompt, its requests, its calls and its answers.

Each event has a hook that appends a word to a file, which mustn't run twice unnoticed; four have another that only
answers, and may. The records of who decided what are compared, too.
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
    {"text": "Done.", "expect": ""},
    {"text": "Tested.", "expect": "test it"},
]
FIRED = {"command": 1, "BeforeAgent": 1, "BeforeModel": 3, "AfterModel": 3, "AfterAgent": 2}
"""Each word that is left, and how often."""
FIRED |= {f"{event}-{tool}": 1 for event in ("BeforeTool", "AfterTool") for tool in ("shell", "write")}


def _says(**output: Any) -> str:
    return f"echo {shlex.quote(json.dumps({'hookSpecificOutput': output}))}"


def _when_shell(does: str) -> str:
    return f"if grep -q run_shell; then {does}; fi"


ANSWERS = {
    "BeforeAgent": _says(additionalContext="it is Monday"),
    "BeforeTool": _when_shell(_says(tool_input={"command": COMMAND})),
    "AfterTool": _when_shell(_says(additionalContext="it was changed")),
    "AfterAgent": "grep -q '\"stop_hook_active\": true' || { echo 'test it' >&2; exit 2; }",
    "Notification": "true",
}


@dataclass(frozen=True)
class HookedScene(Scene):
    def prepare(self) -> None:
        super().prepare()
        log = self.folder / "effects.log"
        hooks: dict[str, Any] = {}
        for event in {word.partition("-")[0] for word in FIRED} - {"command"}:
            word = f"echo {event}"
            if event.endswith("Tool"):
                word = f"if grep -q run_shell; then {word}-shell; else {word}-write; fi"
            hooks[event] = [{"type": "command", "name": "leaves a word", "command": f"{word} >> {log}"}]
        for event, answer in ANSWERS.items():
            hooks.setdefault(event, []).append({"type": "command", "command": answer, "idempotent": True})
        settings = {"hooks": {event: [{"hooks": own}] for event, own in hooks.items()}}
        own = self.folder / "user" / ".gemini" / "settings.json"
        put(own, {**settings, "model": {"skipNextSpeakerCheck": True}})

    def expected_effects(self) -> tuple[str, ...]:
        return tuple(sorted(word for word, times in FIRED.items() for _ in range(times)))


def happened(scene: Scene, request: dict[str, Any]) -> bool:
    """Check the file, as a person would: it happened if it has more of the word than hooks with a known end."""
    if not request["key"].startswith("hook:"):
        return "command" in scene.effects()
    _, event, _, key = request["key"].split(":", 3)
    about = "select subject from hook_calls where event = $1 and key = $2"
    known = (
        "select count(*) from hook_calls where name = 'leaves a word' and state in ('done', 'skipped') "
        "and event = $1 and subject = $2"
    )
    with scene.reading() as conn:
        (subject,) = conn.execute(about, (event, key)).fetchone()
        (ended,) = conn.execute(known, (event, subject)).fetchone()
    kind = "shell" if subject == "run_shell_command" else "write"
    return scene.effects().count(f"{event}-{kind}" if event.endswith("Tool") else event) > ended


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
