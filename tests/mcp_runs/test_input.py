"""Servers that ask a person for input during a call: the run parks, and the call is repeated with the answer."""

from typing import Any

import pytest
from mcp_servers.place import Place, calls

from interlock.engine import Decision
from interlock.engine.diagrams import declared_edges, taken_edges

QUIZ = calls(("mcp_odd_quiz", {"text": "you"}))
THANKS = {"expect": "quiz.*thanks", "text": "over"}
ALL = {"toolName": "*", "mcpName": "odd", "decision": "allow", "priority": 100}


@pytest.fixture(autouse=True)
def allowed(place: Place) -> None:
    place.rules(ALL)


def servers(place: Place, asks: str = "name") -> None:
    place.servers(odd=place.odd(env={"ODD_ASKS": asks}))


def test_a_run_parks_for_a_servers_question_and_the_answer_is_the_servers(place: Place) -> None:
    servers(place)
    parked = place.main(QUIZ, {"expect": "thanks", "text": "over"})
    assert parked.status == "waiting", parked.error
    (request,) = parked.pending
    assert (request["kind"], request["tool_name"]) == ("question", "mcp_odd_quiz")
    assert request["questions"] == [{"question": "About you\\x1b[2J\nYour name (string, needed)"}]
    assert "asks for this, and gets your answer" in request["reason"]
    assert "what it did before it asked, it does twice" in request["reason"]
    assert place.noted() == []
    done = place.resume(parked.run, decisions=[Decision(request["id"], "proceed_once", text="Ann")])
    assert (done.status, done.output["response"]) == ("done", "over")
    assert place.noted() == ['quiz you {"action": "accept", "content": {"name": "Ann"}}']


@pytest.mark.parametrize(
    ("asks", "text", "content"),
    [
        ("age", "31", '{"age": 31}'),
        ("name", "Ann\u2028Lee", '{"name": "Ann\\u2028Lee"}'),
        ("colour", "Green", '{"colour": "g"}'),
        ("sure", "no", '{"sure": false}'),
        ("colour", "-", "{}"),
        ("", "yes", "{}"),
        ("name,age", '{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}'),
        (
            "name,colour",
            "About you\\x1b[2J\nYour name (string, needed)\nAnn\ncolour (- leaves it out)\nred",
            '{"name": "Ann", "colour": "r"}',
        ),
    ],
)
def test_what_is_typed_becomes_what_the_form_asks_for(
    place: Place, asks: str, text: str, content: str
) -> None:
    servers(place, asks)
    parked = place.main(QUIZ, THANKS)
    (request,) = parked.pending
    done = place.resume(parked.run, decisions=[Decision(request["id"], "proceed_once", text=text)])
    assert done.status == "done", (done.error, done.pending)
    assert place.noted() == [f'quiz you {{"action": "accept", "content": {content}}}']


@pytest.mark.parametrize(
    ("asks", "text", "wrong"),
    [
        ("age", "old", "'age' is 'old', expected integer"),
        ("colour", "blue", "'colour' is 'blue', expected one of r, g"),
        ("name,age", '{"name": "Ann"}', "'age' is missing"),
        ("name,age", "Ann, 3", "expected a JSON object with name, age"),
        ("name", '{"nam": "Ann"}', "there is no 'nam', but name"),
    ],
)
def test_an_answer_that_doesnt_fit_is_asked_for_again(place: Place, asks: str, text: str, wrong: str) -> None:
    servers(place, asks)
    parked = place.main(QUIZ, THANKS)
    again = place.resume(parked.run, decisions=[Decision(parked.pending[0]["id"], "proceed_once", text=text)])
    (request,) = again.pending
    assert request["note"] == f"The last answer doesn't fit: {wrong}."
    assert place.noted() == []


def test_a_person_who_doesnt_want_to_say_it_is_the_models_answer(place: Place) -> None:
    servers(place)
    parked = place.main(QUIZ, {"expect": "Rejected by the user.*none of your business", "text": "over"})
    no = Decision(parked.pending[0]["id"], "reject", feedback="none of your business")
    ended = place.resume(parked.run, decisions=[no])
    assert ended.output["response"] == "over"
    assert place.noted() == []


def test_a_server_that_does_without_is_done_and_nobody_is_asked(place: Place) -> None:
    servers(place)
    outcome = place.main(calls(("mcp_odd_ask", {})), {"expect": "asked, and got .*error", "text": "over"})
    assert outcome.status == "done", outcome.error


def test_a_page_that_must_be_visited_first_is_named_to_the_person(place: Place) -> None:
    servers(place)
    parked = place.main(calls(("mcp_odd_page", {})), {"expect": "page done", "text": "over"})
    (request,) = parked.pending
    assert request["questions"] == [{"question": "Sign\nhttps://sign.example", "options": ["yes"]}]
    done = place.resume(parked.run, decisions=[Decision(request["id"], "proceed_once", text="yes")])
    assert done.status == "done", done.error


def test_a_server_that_asks_for_a_models_answer_is_refused_and_the_model_sees_it(place: Place) -> None:
    servers(place)
    sampled = {"expect": "the model said .*not supported", "text": "over"}
    assert place.main(calls(("mcp_odd_sample", {})), sampled).status == "done"


def test_every_edge_is_taken(place: Place) -> None:
    servers(place, "age")
    taken: set[Any] = set()
    hook = {"hooks": [{"type": "command", "command": "true"}]}
    for text in ("3", "x", None, "3 and a hook that hears of it"):
        if text and "hook" in text:
            odd = place.odd(env={"ODD_ASKS": "age"})
            place.settings(mcpServers={"odd": odd}, hooks={"Notification": [hook]})
        parked = place.main(QUIZ, {"text": "over"})
        choice = Decision(parked.pending[0]["id"], "proceed_once" if text else "reject", text=text)
        outcome = place.resume(parked.run, decisions=[choice])
        taken |= taken_edges("main", place.path(outcome.run))
    asked = {e for e in declared_edges("main") if {"ask_input", "take_input"} & {*e[1:]}}
    assert asked - taken == set()
