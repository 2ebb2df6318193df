"""helpers_program: kills runs that use helper models: at random in a long session with everything that a turn does by
itself, and at every moment in one that is summarised and compressed."""

import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from folders import put
from kill_runs.compare import Ending, ending
from kill_runs.harness import Play, show
from kill_runs.scene import RUN, Scene, call, shell
from scripted import tools

from interlock.engine import Options
from interlock.engine.store.chain import list_dropped_messages
from interlock.engine.store.checkpoints import read_state_at_step

_TURNS = 156
_BIG = range(20, 26)
"""Turns that read 20,000 tokens each, which masking moves to files."""
_COMPRESSED = (45, 90, 130)
"""Turns after which the conversation counts as half the window."""
_LOOPS = range(60, 65)
"""Five equal calls in a row."""
_LOST_MODEL = 75
"""Turn at which the first model is gone for good."""
_SILENT = 100
"""Turn that announces a step without a call: the next speaker is the model."""
_SHELL = {5: "", 15: "; seq 1 3000", 55: "", 110: "; seq 1 3000"}
"""Turns with a shell command, two of them with a long output."""
_TODOS = (3, 95)


def snapshot(goal: str) -> dict[str, Any]:
    text = f"<scratchpad>…</scratchpad><state_snapshot><overall_goal>{goal}</overall_goal></state_snapshot>"
    return {"role": "compressor", "text": text}


def speaker(who: str) -> dict[str, Any]:
    return {"role": "next_speaker", "text": json.dumps({"reasoning": "so", "next_speaker": who})}


BUSY = {"error": {"status": 503}}
COMPRESSED: list[dict[str, Any]] = [
    tools(call("read_file", file_path="a.txt"), call("list_directory", dir_path=".")),
    tools(shell("first", "; seq 1 3000")),
    tools(call("read_file", file_path="b.txt"), usage={"input": 600_000, "output": 9}),
    BUSY,
    BUSY,
    {"text": "All done."},
    {"role": "summarizer", "text": "numbers"},
    snapshot("draft"),
    snapshot("checked"),
    speaker("user"),
]


def _turn(n: int) -> dict[str, Any]:
    if n == _SILENT:
        return {"text": "Next I read on."}
    if n in _LOOPS:
        calls = [call("list_directory", dir_path=".")]
    elif n in _BIG:
        calls = [call("read_file", file_path=f"big{n}.txt")]
    elif n in _SHELL:
        calls = [shell(f"w{n}", _SHELL[n])]
    elif n in _TODOS:
        calls = [call("write_todos", todos=[{"description": f"since {n}", "status": "in_progress"}])]
    else:
        calls = [
            call("read_file", file_path="a.txt", end_line=n + 1),
            call("read_file", file_path="b.txt", end_line=n + 1),
        ]
    usage = {"usage": {"input": 600_000, "output": 9}} if n in _COMPRESSED else {}
    return {"text": f"Turn {n}.", "tool_calls": calls, **usage}


def _loop_check() -> dict[str, Any]:
    verdict = {"unproductive_state_analysis": "it moves", "unproductive_state_confidence": 0.1}
    return {"role": "loop_check", "text": json.dumps(verdict)}


TURNS = [*(_turn(n) for n in range(_TURNS)), {"text": "All done."}]
HELPERS = [
    *(snapshot(f"goal {i}") for i in range(40)),
    *({"role": "summarizer", "text": f"numbers, time {i}"} for i in range(9)),
    *(_loop_check() for _ in range(40)),
    speaker("model"),
    *(speaker("user") for _ in range(3)),
]
GONE = {"error": {"status": 404, "message": "no such model"}}
SESSION = [*TURNS[:2], BUSY, BUSY, *TURNS[2:_LOST_MODEL], GONE, *TURNS[_LOST_MODEL:], *HELPERS]


@dataclass(frozen=True)
class HelperScene(Scene):
    """A scene with its own settings, and a second model to fall back to."""

    def prepare(self) -> None:
        super().prepare()
        put(self.folder / "second.json", [*TURNS, *HELPERS])
        for n in _BIG:
            (self.folder / "work" / f"big{n}.txt").write_text(f"{n} {'x' * 40}\n" * 1850)

    @property
    def options(self) -> Options:
        first, second = (f"script:{self.folder / name}" for name in ("script.json", "second.json"))
        model = {"retryDelayScale": 0, "streamRetryDelay": 0, "fallback": [first, second]}
        model |= {"aliases": {"auto": first}}  # only `auto` falls back to another model
        options = replace(super().options, model="auto", limits={"max_turns": 400})
        return replace(options, overrides={"model": model})


def crossed(scene: Scene) -> dict[str, int]:
    """What the run went through: old chains, steps by node, models that answered."""
    with scene.reading() as conn:
        nodes = Counter(node for (node,) in conn.execute("select node from steps"))
        models = [m for (m,) in conn.execute("select distinct model from model_calls")]
        turns = conn.execute("select count(*) from model_calls where role = 'main'").fetchone()[0]
    chains = list_dropped_messages(scene.options.home, RUN)
    return {
        "turns": turns,
        "models": len(models),
        "chains": len(chains),
        "masked": sum(m.text.startswith("<tool_output_masked>") for part in chains for m in part),
        **{
            name: nodes[name]
            for name in ("wait_retry", "accept", "nudge", "continue", "summarize", "mask_tool_outputs")
        },
    }


def whole_ending(scene: Scene) -> Ending:
    """The ending with its output and the head, which identifies the whole conversation, including what was dropped."""
    output = {k: v for k, v in scene.outcome()["output"].items() if k != "stats"}
    return replace(
        ending(scene), more={"output": output, "head": read_state_at_step(scene.options.home, RUN)["head"]}
    )


if __name__ == "__main__":
    scenes = {"scene": HelperScene, "ending": whole_ending, "crossed": crossed}
    show(Play(SESSION, COMPRESSED, **scenes, times=(20, 20), within=(0.0, 0.1)))
