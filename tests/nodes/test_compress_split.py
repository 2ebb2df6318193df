"""Where a conversation is cut: no call loses its answer, nothing is lost or moved."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.nodes.compress_snapshot import (
    Cut,
    count_opening_messages,
    find_compression_cut,
    messages_kept_by_cut,
)
from interlock.state.messages import Message, ToolCall, unanswered_calls

OPENING = [
    Message(role="system", content="rules"),
    Message(role="user", origin="context", content="environment"),
]


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str, *calls: str) -> Message:
    return Message(
        role="assistant", content=text, tool_calls=tuple(ToolCall(id=c, name="t", args={}) for c in calls)
    )


def answer(call: str, text: str = "x") -> Message:
    return Message(role="tool", tool_call_id=call, name="t", content=text, status="success")


def _dropped(messages: list[Message], cut: Cut) -> list[Message]:
    first = count_opening_messages(messages)
    return [m for i, m in enumerate(messages[: cut.start]) if i >= first and i != cut.kept_request]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Valid conversations: prompts, rounds of parallel calls, nudges in between, perhaps an earlier snapshot."""
    messages = list(OPENING) if draw(st.booleans()) else []
    if draw(st.booleans()):
        messages.append(Message(role="user", origin="snapshot", content="<state_snapshot/>"))
        messages.append(said("I have the summary."))
    number = 0
    for kind in draw(st.lists(st.sampled_from(["prompt", "round", "text", "nudge"]), max_size=25)):
        text = "y" * draw(st.integers(0, 400))
        if kind == "prompt":
            messages.append(user(f"p{len(messages)} {text}"))
        elif kind == "nudge":
            messages.append(Message(role="user", origin="nudge", content=f"n{len(messages)} {text}"))
        elif kind == "text":
            messages.append(said(f"a{len(messages)} {text}"))
        else:
            calls = [f"c{number}.{i}" for i in range(draw(st.integers(1, 4)))]
            number += 1
            messages.append(said(f"r{len(messages)}", *calls))
            messages += [answer(c, text) for c in calls]
    return messages


@given(conversations(), st.floats(0, 0.95))
def test_a_cut_splits_no_round_and_loses_nothing(messages: list[Message], preserve: float) -> None:
    cut = find_compression_cut(messages, preserve)
    if cut is None:
        return
    first = count_opening_messages(messages)
    gone, left = _dropped(messages, cut), messages_kept_by_cut(messages, cut)
    assert gone, "a cut that drops nothing is none"
    for part in (gone, left):
        assert unanswered_calls(part) == []
        calls = [c.id for m in part for c in m.tool_calls]
        assert [m.tool_call_id for m in part if m.role == "tool"] == calls, "every answer after its own call"
    together = {id(m) for m in gone} | {id(m) for m in left}
    assert together == {id(m) for m in messages[first:]}
    assert len(gone) + len(left) == len(messages) - first
    order = {id(m): i for i, m in enumerate(messages)}
    for part in (gone, left):
        places = [order[id(m)] for m in part]
        assert places == sorted(places)


@given(conversations(), st.floats(0, 0.95))
def test_no_more_is_kept_than_the_share_a_round_and_the_request(
    messages: list[Message], preserve: float
) -> None:
    """Unless nothing after the share can be cut: then the last prompt before it is the first message kept."""
    cut = find_compression_cut(messages, preserve)
    if cut is None or cut.kept_request >= 0:
        return
    body = messages[count_opening_messages(messages) :]
    sizes = {id(m): len(m.model_dump_json(exclude_defaults=True)) for m in body}
    before = sum(sizes[id(m)] for m in _dropped(messages, cut))
    if before < sum(sizes.values()) * (1 - preserve):
        later = messages[cut.start + 1 :]
        assert all(m.role != "user" for m in later)


ROUNDS = [m for i in range(10) for m in (said("", f"c{i}"), answer(f"c{i}", "x" * 100))]


def test_the_cut_is_the_first_user_message_after_the_share() -> None:
    """Everything goes when the last answer is whole and nobody spoke after the share."""
    spoken = [user("a" * 100), said("b" * 600), user("c"), said("d" * 50), user("e"), said("f" * 200)]
    messages = [*OPENING, *spoken]
    assert find_compression_cut(messages, 0.3) == Cut(6)
    assert messages_kept_by_cut(messages, Cut(6)) == messages[6:]
    assert find_compression_cut(messages, 0.45) == Cut(4)
    assert find_compression_cut([*OPENING, user("a"), said("b" * 500)], 0.3) == Cut(4)


@pytest.mark.parametrize("origin", ["nudge", "hook", "continue"])
def test_in_a_long_task_the_request_is_carried_over_messages_that_begin_none(origin: Any) -> None:
    told = Message(role="user", origin=origin, content="go on")
    for place in (None, 2, 15, 20):
        rounds = ROUNDS if place is None else [*ROUNDS[:place], told, *ROUNDS[place:]]
        messages = [*OPENING, user("do it"), *rounds]
        cut = find_compression_cut(messages, 0.3)
        assert cut is not None and cut.kept_request == 2, place
        left = messages_kept_by_cut(messages, cut)
        assert left[0] == messages[2]
        assert place is not None or (left[1].role == "assistant" and 4 <= len(left) - 1 <= 8)


def test_a_snapshot_is_never_carried() -> None:
    cut = find_compression_cut([*OPENING, Message(role="user", origin="snapshot", content="s"), *ROUNDS], 0.3)
    assert cut is not None and cut.kept_request == -1


def test_a_snapshot_alone_is_not_summarised_again() -> None:
    snapshot = (Message(role="user", origin="snapshot", content="s" * 900), said("I have the summary."))
    round_ = (said("", "c"), answer("c", "x" * 100))
    for before in (snapshot, snapshot[:1]):
        messages = [*OPENING, *before, user("do it"), *round_]
        assert find_compression_cut(messages, 0.3) is None
        assert find_compression_cut([*messages, said("done"), user("more"), said("y")], 0.1) is not None


def test_a_single_exchange_under_way_has_no_cut() -> None:
    assert find_compression_cut([*OPENING, user("do it")], 0.3) is None
    assert find_compression_cut([*OPENING, user("do it"), said("", "c"), answer("c")], 0.3) is None
    assert find_compression_cut([], 0.3) is None
