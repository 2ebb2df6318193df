"""A replay of a workflow of one's own doesn't run its nodes: what each wrote is taken from the record."""

import re
from pathlib import Path

import pytest
from folders import put
from travel.conftest import Desk

from interlock.engine import Decision, Outcome, resume_sync, run_sync
from interlock.services.trust.decisions import record_trust_decision

LETTERS = '''"""letters: writes letters side by side, asks whether they may go, and sends them."""

import operator
from pathlib import Path
from typing import Annotated, Literal

from interlock.workflow import (
    END, START, Graph, Input, Output, State, Workflow, approve, ask_model, node,
)


class LettersInput(Input):
    to: list[str] = []


class LettersOutput(Output):
    sent: list[str]


class LettersState(State, total=False):
    to: list[str]
    name: str
    letters: Annotated[list[str], operator.add]
    sent: list[str]
    text: str
    answer: str
    feedback: str
    title: str
    tries: int


def note(line):
    with Path("outside.txt").open("a") as file:
        file.write(line + "\\n")


@node(reads=("to",), writes=("to",))
async def sort(state):
    note("sort")
    return {"to": sorted(state["to"])}


@node(reads=("name",), writes=("letters",))
async def draft(state, runtime):
    note(f"draft {state['name']}")
    return {"letters": [await ask_model(runtime, f"to {state['name']}")]}


@node(reads=("letters",), writes=("title",))
async def name_them(state, runtime):
    note("name them")
    return {"title": await ask_model(runtime, "a title for " + " and ".join(sorted({*state["letters"]})))}


@node(writes=("tries",), retries=1, retry_wait_s=0, labels=("failed", "done"))
async def stamp(state):
    note("stamp")
    raise ValueError("no stamps")


@node(reads=("letters",), writes=("sent",))
async def send(state):
    sent = sorted({*state["letters"]})
    for letter in sent:
        note(f"send {letter}")
    return {"sent": sent}


def to_each(state: LettersState) -> list[LettersState]:
    note("to each")
    return [{"name": name} for name in state["to"]]


def after_send(state: LettersState) -> Literal["over"]:
    note("after send")
    return "over"


def part() -> Graph:
    g = Graph("part", LettersState, input=LettersState)
    g.nodes(name_them, stamp)
    g.edge(START, "name_them", "stamp")
    g.by_label("stamp", {"failed": END, "done": END})
    return g


def build() -> Graph:
    g = Graph("letters", LettersState)
    g.nodes(sort, draft, send)
    g.subgraph("part", part)
    g.subgraph("agree", approve("Send them?"))
    g.edge(START, "sort")
    g.fan_out("sort", to_each, "draft", "part")
    g.edge("draft", "part", "agree")
    g.by_label("agree", {"approved": "send", "rejected": END})
    g.route("send", after_send, {"over": END})
    return g


WORKFLOW = Workflow("letters", build, LettersInput, LettersOutput)
'''
REPLIES = [{"text": "Dear Ann"}, {"text": "Dear Bob"}, {"text": "Two letters"}]


@pytest.fixture
def file(desk: Desk) -> Path:
    put(found := desk.work / ".interlock" / "workflows" / "letters.py", LETTERS)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    return found


def written(desk: Desk) -> Outcome:
    """A run to its end; its nodes have left a line each."""
    options = desk.options(REPLIES)
    parked = run_sync("letters", {"to": ["Ann", "Bob"]}, options=options)
    (request,) = parked.pending
    done = resume_sync(parked.run, decisions=[Decision(request["id"], "proceed_once")], options=options)
    assert done.output["sent"] == ["Dear Ann", "Dear Bob"], done.error
    return done


def test_a_replay_runs_no_node_of_a_users_workflow(desk: Desk, file: Path) -> None:
    """Nor a router or a sender. What a node raised, and its model calls, are as they were, too."""
    run, outside = written(desk).run, desk.work / "outside.txt"
    before = outside.read_text()
    assert (before.count("draft"), before.count("stamp"), before.count("send ")) == (2, 2, 2)
    assert "to each" in before and "after send" in before
    replayed = desk("replay", run)
    assert (replayed.code, outside.read_text()) == (0, before), replayed
    assert "No difference" in replayed.out


@pytest.mark.parametrize("node", ["name_them", "send"])
def test_a_replay_stops_at_a_node_that_changed_since(desk: Desk, file: Path, node: str) -> None:
    run, outside = written(desk).run, desk.work / "outside.txt"
    before = outside.read_text()
    changed = re.sub(rf"(def {node}\(.*\n)", r"\1    note('changed')\n", LETTERS)
    assert changed != LETTERS
    file.write_text(changed)
    found = desk("replay", run, "--json")
    assert (found.code, outside.read_text()) == (1, before)
    assert f"Node '{node}' has changed since it ran" in found.json["divergence"]["error"]["message"]


def test_a_swapped_node_runs_and_others_that_see_another_state_dont(desk: Desk, file: Path) -> None:
    run, outside = written(desk).run, desk.work / "outside.txt"
    before = outside.read_text()
    (desk.folder / "other.py").write_text(
        "from interlock.workflow import node\n"
        "@node(reads=('name',), writes=('letters',))\n"
        "async def shout(state, runtime):\n    return {'letters': [state['name'].upper()]}\n"
    )
    found = desk("replay", run, "--swap", f"draft={desk.folder / 'other.py'}:shout", "--json")
    assert (found.code, outside.read_text()) == (1, before)
    assert "letters" in found.json["divergence"]["keys"]
    assert "of such a state" in found.json["divergence"]["error"]["message"]


SIDES = '''"""sides: asks two people's questions at once, the same question of two texts, and notes each answer."""

import operator
from typing import Annotated

from typing_extensions import TypedDict

from interlock.workflow import END, START, Graph, Input, Output, State, Workflow, approve, node


class SidesInput(Input): ...


class SidesOutput(Output):
    said: list[str]


class Said(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


class SidesState(State, total=False):
    feedback: str
    said: Annotated[list[str], operator.add]


def side(name):
    def build() -> Graph:
        g = Graph(name, SidesState, output=Said)

        @node(writes=("said",))
        async def agreed(state):
            return {"said": [f"{name} yes"]}

        @node(writes=("said",))
        async def refused(state):
            return {"said": [f"{name} no"]}

        g.nodes(agreed, refused)
        g.subgraph("ask", approve("Go?" if name == "left" else "Stay?"))
        g.edge(START, "ask")
        g.by_label("ask", {"approved": "agreed", "rejected": "refused"})
        g.edge("agreed", END)
        g.edge("refused", END)
        return g

    return build


def build() -> Graph:
    g = Graph("sides", SidesState)
    for name in ("left", "right"):
        g.subgraph(name, side(name))
        g.edge(START, name)
        g.edge(name, END)
    return g


WORKFLOW = Workflow("sides", build, SidesInput, SidesOutput)
'''


@pytest.mark.parametrize("refused", ["Go?", "Stay?"])
def test_answers_to_questions_asked_at_once_reach_the_same_questions_in_a_replay(
    desk: Desk, refused: str
) -> None:
    """Whichever a person answered first."""
    put(desk.work / ".interlock" / "workflows" / "sides.py", SIDES)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    options = desk.options([])
    parked = run_sync("sides", {}, options=options)
    asked = {request["reason"]: request["id"] for request in parked.pending}
    assert set(asked) == {"Go?", "Stay?"}, parked.error
    other = next(reason for reason in asked if reason != refused)
    parked = resume_sync(parked.run, decisions=[Decision(asked[refused], "reject")], options=options)
    done = resume_sync(parked.run, decisions=[Decision(asked[other], "proceed_once")], options=options)
    sides = {"Go?": "left", "Stay?": "right"}
    assert done.status == "done", done
    assert {f"{sides[refused]} no", f"{sides[other]} yes"} <= {*done.output["said"]}, done.error
    replayed = desk("replay", done.run)
    assert (replayed.code, replayed.err) == (0, ""), replayed
