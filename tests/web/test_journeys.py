"""The page by keyboard alone: what a person presses and then sees."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import until
from web.lab import Lab, Person

JOURNEYS: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("journeys.yaml").read_text(), yaml.CSafeLoader
)
SWAP = """from interlock.nodes.main import open_prompt
from interlock.state.node import node, find_node_spec

told = find_node_spec(open_prompt)


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
    run = lab.park(work, f"look {name}", *journey.get("flags", ()), script=journey.get("script", "edit"))
    (lab.home / "other.py").write_text(SWAP)
    lab.work("started")
    somebody = person()
    requests = somebody.fetched(f"/api/requests?run={run}")
    names = {"run": run, "request": requests[0]["id"] if requests else "", "home": str(lab.home)}
    for step in journey["steps"].splitlines():
        word, _, about = step.partition(" ")
        for slot, value in names.items():
            about = about.replace(f"{{{slot}}}", value)
        somebody.do(word, about)
    until(lambda: lab.runs()[run] == journey["ends"], f"{journey['ends']} of {name}")
    assert journey.get("calc", "a - b") in (lab.home / work / "calc.py").read_text()
    if journey["ends"] == "waiting":  # the next one's inbox shall hold its own
        lab.interlock("resume", run, "--reject", "all")


IN_A_WORKTREE = """go /start?workflow=main
see form input[name=folder], form label:has-text('folder'), form label:has-text('Folder')
tab prompt
type start
tab folder
type {folder}
tab in a git worktree of its own
press Space
tab more inputs
press Enter
tab approval mode
type yolo
tab model
type script:{home}/edit.json
tab Start the run
press Enter
at /run/
see .badge.done"""


@pytest.mark.sweep
def test_a_run_started_in_a_git_worktree_leaves_the_folder_as_it_is(
    lab: Lab, person: Callable[..., Person]
) -> None:
    folder, before = lab.work("repository"), {*lab.runs()}
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=folder, check=True)
    lab.script("edit")
    somebody = person()
    for step in IN_A_WORKTREE.splitlines():
        word, _, about = step.partition(" ")
        somebody.do(word, about.replace("{folder}", str(folder)).replace("{home}", str(lab.home)))
    (run,) = lab.runs().keys() - before
    worktree = folder.with_name("repository.worktrees") / run
    assert "a - b" in (folder / "calc.py").read_text() and "a + b" in (worktree / "calc.py").read_text()
    somebody.do("see", ":text('repository.worktrees')")
    assert f"worktree-{run}" in lab.interlock("worktrees", work="repository").stdout
