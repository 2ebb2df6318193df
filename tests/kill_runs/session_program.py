"""session_program: kills a long session that covers everything a turn does by itself."""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.compare import Ending, ending
from kill_runs.harness import Play, show
from kill_runs.scene import Scene

from interlock.engine import Options

TURNS, LOOP_AT, GONE_AT, CONTINUE_AT = 165, 60, 100, 130
LIMIT = 180_000
SNAPSHOT = (
    "<state_snapshot>"
    + "".join(
        f"<{part}>{text}</{part}>"
        for part, text in (
            ("overall_goal", "Read the whole of big.txt."),
            ("active_constraints", "none"),
            ("key_knowledge", "It has many lines."),
            ("file_system_state", "READ: big.txt"),
            ("artifact_trail", "none"),
            ("recent_actions", "read"),
            ("current_plan", "1. [IN PROGRESS] read on"),
        )
    )
    + "</state_snapshot>"
)


def read(start: int) -> dict[str, Any]:
    args = {"file_path": "big.txt", "start_line": start, "end_line": start + 120}
    return {"tool_calls": [{"name": "read_file", "args": args}]}


def replies(turns: int) -> list[dict[str, Any]]:
    """One conversation; both scripts share it, because the position is counted over both models."""
    said = [read(1 + 20 * turn) for turn in range(TURNS)]
    said[LOOP_AT : LOOP_AT + 5] = [read(7)] * 5
    said[CONTINUE_AT] = {"text": "I have read most of it. Now I will read the rest."}
    helpers = [
        {"role": "next_speaker", "text": json.dumps({"reasoning": "r", "next_speaker": who})}
        for who in ("model", "user")
    ]
    compressor = [{"role": "compressor", "text": SNAPSHOT}] * 40
    return [*said[:turns], {"text": "It is all read."}, *helpers, *compressor]


@dataclass(frozen=True)
class Session(Scene):
    def prepare(self) -> None:
        work = self.folder / "work"
        work.mkdir(parents=True)
        lines = (
            f"line {i} of a long file, with enough text on it to count for something\n" for i in range(5000)
        )
        (work / "big.txt").write_text("".join(lines))
        (self.folder / "second.json").write_text(json.dumps(self.replies))
        main = [r for r in self.replies if "role" not in r]
        gone = {"error": {"status": 404, "message": "the model was switched off"}}
        (self.folder / "script.json").write_text(
            json.dumps([*main[:GONE_AT], gone, *main[GONE_AT:], *(r for r in self.replies if "role" in r)])
        )

    @property
    def options(self) -> Options:
        names = [f"script:{self.folder / name}.json" for name in ("script", "second")]
        return Options(
            home=self.home,
            user_home=self.folder / "user",
            workspace=self.folder / "work",
            model="auto",  # only `auto` falls back to another model
            limits={"max_turns": TURNS + 20},
            overrides={
                "model": {
                    "aliases": {"auto": names[0]},
                    "fallback": names,
                    "tokenLimits": dict.fromkeys(names, LIMIT),
                    "retryDelayScale": 0,
                    "streamRetryDelay": 0,
                }
            },
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder / "user")},
        )


def crossed(scene: Scene) -> dict[str, int]:
    """What the session went through, counted in its steps."""
    with scene.reading() as conn:
        count = "select count(*) from steps where node = ? and coalesce(reason, '') like ?"
        asked = {
            "turns": ("call_model", "%"),
            "nudges": ("nudge", "%"),
            "fallbacks": ("use_model", "%by fallback%"),
            "continuations": ("continue", "%"),
            "compressions": ("accept", "%"),
        }
        found = {name: conn.execute(count, wanted).fetchone()[0] for name, wanted in asked.items()}
        masked = conn.execute(
            "select count(*) from steps where node = 'mask_tool_outputs' and keys like '%head%'"
        ).fetchone()[0]
    return {**found, "maskings": masked}


def session_ending(scene: Scene) -> Ending:
    """The ending, with its whole output and what it went through."""
    output = {k: v for k, v in scene.outcome()["output"].items() if k != "stats"}
    return replace(ending(scene), more={"output": output, "crossed": crossed(scene)})


if __name__ == "__main__":
    told = {"ending": session_ending, "crossed": crossed}
    # The short one only has everything imported.
    show(Play(replies(TURNS), replies(8), scene=Session, **told, times=(15, 15), within=(0.01, 0.06)))
