"""The map of a run of an own graph shows what `interlock diagram --run` draws, and a crash says where it happened."""

from collections.abc import Callable

import pytest
from web.lab import Lab, Person

AGENT = """
import operator, os, signal
from typing import Annotated, TypedDict
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

class State(TypedDict, total=False):
    topic: str
    weights: Annotated[list, operator.add]

class One(TypedDict):
    n: int

def gather(state):
    return {}

def each(state):
    return [Send("weigh", {"n": n}) for n in range(3)]

def weigh(state: One):
    return {"weights": [state["n"]]}

def ask_person(state):
    if state["topic"] == "bad":
        raise RuntimeError("the scales are broken")
    if state["topic"] == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    interrupt("go on?")
    return {}

def rare(state):
    return {}

builder = StateGraph(State).add_node(gather).add_node(weigh).add_node(ask_person).add_node(rare)
builder.add_edge(START, "gather").add_conditional_edges("gather", each, ["weigh"]).add_edge("weigh", "ask_person")
builder.add_conditional_edges("ask_person", lambda state: END, ["rare", END]).add_edge("rare", END)
graph = builder.compile()
"""
WAY = {"__start__>gather", "gather>weigh", "weigh>ask_person"}


def start(lab: Lab, topic: str) -> str:
    """A run of the graph, until it parks or ends; its id."""
    before = set(lab.runs())
    file = lab.work("scales") / "agent_whose_name_is_much_too_long_to_stand_on_one_line_of_a_phone.py"
    file.write_text(AGENT)
    lab.interlock("run", f"{file}:graph", "--input", f'{{"topic": "{topic}"}}', "--skip-trust", work="scales")
    (made,) = set(lab.runs()) - before
    return made


def taken(somebody: Person) -> set[str]:
    """The edges that are drawn as taken."""
    return {edge.replace("->", ">") for edge in somebody.page.evaluate(_TAKEN)}


_TAKEN = """[...document.querySelectorAll('.map .edge.taken')].map((edge) => edge.dataset.edge)"""


def open_map(somebody: Person, run: str) -> None:
    somebody.do_go(f"/run/{run}")
    somebody.do_see(".map .edge.taken")


def lit(somebody: Person) -> list[str]:
    return somebody.page.evaluate(
        "[...document.querySelectorAll('.map .lit')].map((n) => n.textContent.trim())"
    )


@pytest.mark.sweep
def test_the_map_of_an_own_graph_marks_the_node_that_waits_and_every_edge_that_was_taken(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = start(lab, "tea")
    somebody = person()
    open_map(somebody, run)
    somebody.do_see(".map .waits")
    assert lit(somebody) == ["ask_person"]
    assert taken(somebody) == WAY
    drawn = lab.interlock("diagram", "--run", run, "--skip-trust", work="scales").stdout
    assert 'ask_person["ask_person ×1: waits here"]' in drawn and '"weigh ×3"' in drawn
    somebody.do_see(".map .node.untaken:has-text('rare')")
    somebody.page.set_viewport_size({"width": 390, "height": 844})
    somebody.do_go(f"/run/{run}")
    somebody.do_see(".badge:has-text('waiting')")
    width = "document.documentElement.scrollWidth"
    assert somebody.page.evaluate(width) <= 390, "the path of its file breaks"


def test_a_node_that_raised_is_marked_and_the_page_says_what_where_and_what_to_do(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = start(lab, "bad")
    somebody = person()
    open_map(somebody, run)
    somebody.do_see(".map .node.raised.taken:has-text('ask_person')")
    assert lit(somebody) == ["ask_person"]
    assert taken(somebody) == WAY
    somebody.do_see(".badge.failed:has-text('interrupted: node')")
    said = somebody.page.inner_text(".trouble")
    assert "A node of the run failed" in said and "the scales are broken" in said
    assert "Where: ask_person" in said and f"interlock resume {run}" in said


def test_a_run_whose_process_was_killed_says_that_it_crashed(lab: Lab, person: Callable[..., Person]) -> None:
    run = start(lab, "crash")
    somebody = person()
    open_map(somebody, run)
    assert lit(somebody) == ["ask_person"]
    said = somebody.page.inner_text(".trouble")
    assert "The run crashed" in said and "was killed" in said and "Where: ask_person" in said
    somebody.do_see("button:text-is('Resume')")
    somebody.do_go("/all")
    somebody.do_see(f"tr:has(a[href='/run/{run}']) .badge.failed:has-text('interrupted: died')")


def test_a_run_that_takes_no_prompt_has_no_form_and_refuses_one_with_a_word(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = start(lab, "tea")
    somebody = person()
    with somebody.page.expect_response(f"**/api/runs/{run}/prompt"):
        somebody.do_go(f"/run/{run}")
    assert not somebody.page.is_visible("textarea[aria-label='Prompt']")
    assert not somebody.page.is_visible("button:text-is('Send')")
    detail = lab.post(f"/api/runs/{run}/prompt", prompt="go on")["detail"]
    assert "takes no prompt" in detail and f"interlock approvals {run}" in detail
    assert lab.runs()[run] == "waiting"
    talks = lab.park("talks", "fix the sum", script="edit")
    somebody.do_go(f"/run/{talks}")
    somebody.do_see("textarea[aria-label='Prompt']")
    shown = lab.interlock("-r", run, "-p", "go on", "--skip-trust", work="scales")
    assert shown.returncode and "takes no prompt" in shown.stderr
