"""_people: parts that stop for a person: `approve` and `ask_person`. The run parks there; an answer leads on."""

from collections.abc import Sequence

from langgraph.graph import END, START

from interlock.graphs._checks import hints_of, state_of
from interlock.graphs._pipeline import Graph
from interlock.nodes.hooks import await_person, notify
from interlock.nodes.people import Node, put_before_person, take_answer, take_approval
from interlock.state.errors import SetupError
from interlock.state.hooks import HookWait


def approve(question: str, *, show: str = "", feedback: str = "feedback") -> Graph:
    """A part that asks a person for a yes; map its labels `approved` and `rejected`.

    `show`: key of the state with the text that is decided on; the person may change it, and what they made of it stands
    there afterwards. `feedback`: key for why they said no; the state needs neither key `feedback` nor any other.
    """
    g = _asking("approve", ("approved", "rejected"), show, feedback)
    _wire(g, put_before_person("approval", question, show, ()), take_approval(show, feedback))
    g.by_label("take", {"approved": END, "rejected": END})
    return g


def ask_person(
    question: str, *, answer: str = "answer", show: str = "", options: Sequence[str] = ()
) -> Graph:
    """A part that asks a person for a text; map its labels `answered` and `declined`, or with `options` those and
    `declined`.

    `answer`: key of the state that takes the text. `show`: key with a text that stands below the question.
    Raises `SetupError` for options that repeat or are named as our own labels.
    """
    if len({*options, "again", "declined"}) != len(options) + 2:
        raise SetupError(f"ask_person: options {[*options]} must differ, and be none of 'again', 'declined'.")
    labels = (*(options or ("answered",)), "declined")
    g = _asking("ask_person", labels, show, answer)
    _wire(g, put_before_person("question", question, show, options), take_answer(answer, options))
    g.by_label("take", {**dict.fromkeys(labels, END), **({"again": "ask"} if options else {})})
    return g


def _asking(name: str, labels: tuple[str, ...], *texts: str) -> Graph:
    state = state_of(name, {**hints_of(HookWait), **{key: str for key in texts if key}})
    return Graph(name, state, labels=labels, asks=True)


def _wire(g: Graph, ask: Node, take: Node) -> None:
    g.nodes(ask, notify)
    g.node("await_answer", await_person)
    g.node("take", take)
    g.edge(START, "ask")
    g.by_label("ask", {"asked": "await_answer", "notify": "notify"})
    g.by_label("notify", dict.fromkeys(("approval", "question", "outcome"), "await_answer"))
    g.edge("await_answer", "take")
