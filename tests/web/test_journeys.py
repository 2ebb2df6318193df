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
                ("go", "/run/{run}"),
                ("see", ".badge.failed"),
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
}


OFTEN = ("yes to an edit in the inbox", "a node of the map filters, the slider goes back")
"""Tried with every change; the others in the sweeps."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.sweep) for name in JOURNEYS]
)
def test_every_journey_by_keyboard_alone(name: str, lab: Lab, person: Callable[..., Person]) -> None:
    journey = JOURNEYS[name]
    work = name.replace(" ", "-").replace(",", "")
    run = lab.park(work, f"look {name}", script=journey.run)
    somebody = person()
    request = somebody.fetched(f"/api/requests?run={run}")[0]["id"]
    somebody.journey(
        *((word, about.replace("{run}", run).replace("{request}", request)) for word, about in journey.steps)
    )
    until(lambda: lab.runs()[run]["status"] == journey.status, f"{journey.status} of {name}")
    assert journey.calc in (lab.home / work / "calc.py").read_text()
    if journey.status == "waiting":  # the next one's inbox shall hold its own
        lab.interlock("resume", run, "--reject", "all")
