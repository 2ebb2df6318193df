"""The page by keyboard alone: each journey is a row of what a person presses and then sees."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from patience import until
from web.lab import Lab, Person


class Journey(NamedTuple):
    run: str
    """The script of the run that it is about."""
    steps: tuple[tuple[str, str], ...]
    status: str
    """How the run stands afterwards."""
    calc: str = "a - b"
    """What calc.py holds then."""
    flags: tuple[str, ...] = ()


CARD = ".request[data-run='{run}']"
DECIDED = (("gone", CARD), ("go", "/run/{run}"))
JOURNEYS = {
    "yes to an edit in the inbox": Journey(
        "edit",
        (("go", "/"), ("see", CARD), ("press", "j y"), *DECIDED, ("see", "strong:text('Fixed')")),
        "done",
        "a + b",
    ),
    "no, with a reason": Journey(
        "edit",
        (
            *(
                ("go", "/request/{request}"),
                ("see", "text=You asked"),
                ("press", "n"),
                ("type", "wrong file"),
                ("tab", "Say no"),
            ),
            *(
                ("press", "Enter"),
                ("see", "h1:text('This is decided')"),
                ("see", "p:has-text('Run: ') .badge.failed"),
            ),
        ),
        "failed",
    ),
    "an edit with other arguments": Journey(
        "edit",
        (
            *(
                ("go", "/"),
                ("see", CARD),
                ("press", "j e"),
                ("see", "textarea.code:focus"),
                ("press", "Control+A"),
            ),
            ("type", '{"file_path": "calc.py", "old_string": "a - b", "new_string": "b + a"}'),
            *(("tab", "Run it so"), ("press", "Enter"), *DECIDED, ("see", ".badge.done")),
        ),
        "done",
        "b + a",
    ),
    "always, on the page of the run": Journey(
        "edit",
        (("go", "/run/{run}"), ("see", CARD), ("press", "j a"), ("gone", ".request"), ("see", ".badge.done")),
        "done",
        "a + b",
    ),
    "an answer to a question": Journey(
        "question",
        (
            ("go", "/request/{request}"),
            ("tab", "PostgreSQL"),
            ("press", "Enter"),
            ("see", "text=This is decided"),
            ("go", "/run/{run}"),
            ("see", "text=As you say."),
        ),
        "done",
    ),
    "a node of the map filters, the slider goes back": Journey(
        "edit",
        (
            *(
                ("go", "/run/{run}"),
                ("see", ".map .waits"),
                ("tab", "context"),
                ("press", "Enter"),
                ("see", ".chip:has-text('Only context')"),
            ),
            *(
                ("gone", ".steps td:text-is('turn')"),
                ("tab", "Show all"),
                ("press", "Enter"),
                ("see", ".steps td:text-is('turn')"),
            ),
            *(
                ("press", "Home"),
                ("see", ".where:has-text('Step 1')"),
            ),
            *(
                ("see", ".then:visible"),
                ("gone", ".talk .said.assistant"),
                ("tab", "Back to now"),
                ("press", "Enter"),
                ("see", ".talk .said.assistant >> nth=1"),
            ),
        ),
        "waiting",
    ),
    "a run is found, its state and files looked at": Journey(
        "edit",
        (
            *(
                ("go", "/all"),
                ("tab", "Search runs"),
                ("type", "look {run}"),
                ("see", "text=1 to 1 of 1 runs"),
                ("tab", "look"),
                ("press", "Enter"),
                ("at", "/run/{run}"),
            ),
            *(
                ("see", ".steps"),
                ("tab", "timeline"),
                ("press", "ArrowRight"),
                ("see", "#panel :text('read_file')"),
                ("press", "ArrowRight"),
                ("see", "#panel .changed"),
            ),
            *(("press", "ArrowRight"), ("see", "#panel :text('changed nothing')")),
        ),
        "waiting",
    ),
    "the slider moves conversation, files and state": Journey(
        "edit",
        (
            *(("go", "/run/{run}"), ("see", ".said.assistant:has-text('Fixed')"), ("tab", "Step shown")),
            *(("press", "ArrowLeft ArrowLeft"), ("see", ".said.assistant:has-text('subtracts')")),
            *(
                ("tab", "timeline"),
                ("press", "ArrowRight ArrowRight ArrowRight"),
                ("see", "#panel .diff .add"),
            ),
            *(
                ("tab", "Step shown"),
                ("press", "Home ArrowRight"),
                ("see", ".where:has-text('Step 2')"),
            ),
            *(("gone", "#panel .diff"), ("gone", ".said.assistant:has-text('subtracts')")),
            *(
                ("see", ".said.tool:has-text('Read calc.py') .open"),
                ("tab", "files"),
                ("press", "ArrowLeft"),
            ),
            *(("see", "#panel :text('State after step 2')"), ("see", "#panel .changed")),
        ),
        "done",
        "a + b",
        ("-y",),
    ),
    "a fork from a step of the timeline, and a rewind that says what it changes": Journey(
        "edit",
        (
            *(("go", "/run/{run}"), ("tab", "Fork from here, step 3"), ("press", "Enter")),
            *(
                ("at", "/run/(?!{run})"),
                ("see", ".about a:text('forked from')"),
                ("see", ".where:has-text('step 3')"),
            ),
            *(
                ("go", "/run/{run}"),
                ("see", ".steps"),
                ("tab", "Step shown"),
                ("press", "Home"),
                ("see", ".travel :text('Rewind to here')"),
                ("tab", "Rewind to here"),
            ),
            *(("press", "Enter"), ("see", ".travel li:has-text('calc.py: as before')"), ("tab", "Rewind")),
            *(("press", "Enter"), ("at", "/run/(?!{run})"), ("see", ".about a:text('forked from')")),
        ),
        "done",
        flags=("-y",),
    ),
    "a replay beside the original, with the first difference marked": Journey(
        "edit",
        (
            *(("go", "/run/{run}"), ("see", ".map .taken"), ("tab", "timeline"), ("press", "ArrowLeft")),
            *(("tab", "Swap a node"), ("type", "open_prompt={home}/other.py:other"), ("tab", "Replay")),
            *(("press", "Enter"), ("see", ".beside .differs:has-text('context')")),
            *(("see", "#panel .warn:has-text('Step 1 is the first that differs')"), ("see", ".map .differs")),
        ),
        "waiting",
    ),
    "a workflow's graph is opened part by part, and a run started, told more and undone": Journey(
        "edit",
        (
            *(
                ("go", "/flows"),
                ("see", "main a:text('main')"),
                ("tab", "main"),
                ("press", "Enter"),
                ("at", "/flows/main"),
                ("see", ".map .node"),
            ),
            *(
                ("tab", "turn"),
                ("press", "Enter"),
                ("at", "/flows/turn"),
                ("see", ".map :text('call_model')"),
            ),
            *(
                ("go", "/start?workflow=main"),
                (
                    "see",
                    "form input[name=folder], form label:has-text('folder'), form label:has-text('Folder')",
                ),
                ("tab", "prompt"),
                ("type", "start"),
                ("tab", "folder"),
            ),
            *(
                ("type", "{home}/started"),
                ("tab", "more inputs"),
                ("press", "Enter"),
                ("tab", "approval mode"),
            ),
            *(
                ("type", "yolo"),
                ("tab", "model"),
                ("type", "script:{home}/edit.json"),
                ("tab", "Start the run"),
            ),
            *(("press", "Enter"), ("at", "/run/(?!{run})"), ("see", ".badge.done"), ("tab", "Prompt")),
            *(
                ("type", "again"),
                ("press", "Control+Enter"),
                ("see", ".said.assistant:has-text('Said again.')"),
            ),
            *(("see", ".badge.done"), ("tab", "More"), ("press", "Enter"), ("tab", "Undo changes")),
            *(("press", "Enter"), ("see", "#said:has-text('Undone: calc.py')")),
        ),
        "waiting",
    ),
}
SWAP = """from interlock.nodes.main import open_prompt
from interlock.state.node import node, spec_of

told = spec_of(open_prompt)


@node(reads=told.reads, writes=told.writes, labels=told.labels)
async def other(state, runtime):
    failed = {"turn_status": "error", "error": {"type": "UserError", "message": "no"}}
    return {**await open_prompt(state, runtime), **failed, "label": "unusable"}
"""


OFTEN = ("yes to an edit in the inbox", "a node of the map filters, the slider goes back")
"""Tried with every change; the others in the sweeps."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.sweep) for name in JOURNEYS]
)
def test_every_journey_by_keyboard_alone(name: str, lab: Lab, person: Callable[..., Person]) -> None:
    journey = JOURNEYS[name]
    work = name.replace(" ", "-").replace(",", "")
    run = lab.park(work, f"look {name}", *journey.flags, script=journey.run)
    (lab.home / "other.py").write_text(SWAP)
    lab.work("started")
    somebody = person()
    requests = somebody.fetched(f"/api/requests?run={run}")
    names = {"run": run, "request": requests[0]["id"] if requests else "", "home": str(lab.home)}
    for word, about in journey.steps:
        for slot, value in names.items():
            about = about.replace(f"{{{slot}}}", value)
        somebody.journey((word, about))
    until(lambda: lab.runs()[run] == journey.status, f"{journey.status} of {name}")
    assert journey.calc in (lab.home / work / "calc.py").read_text()
    if journey.status == "waiting":  # the next one's inbox shall hold its own
        lab.interlock("resume", run, "--reject", "all")
