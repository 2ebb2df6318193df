"""Any valid history, as the server sees it."""

from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from fake_gemini.history import refused
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.models.gemini import NO_SIGNATURE, GeminiBodyBuilder
from interlock.services.models.request import MessageCache, ModelRequest, RequestHash
from interlock.state.messages import Message, ToolCall

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
args = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, max_size=3)
signatures = st.none() | st.just("c2ln")
users = st.builds(Message, role=st.just("user"), content=texts)


@st.composite
def rounds(draw: st.DrawFn) -> list[Message]:
    """An answer with calls and their answers, or a plain answer and the next prompt."""
    names = draw(st.lists(texts, max_size=3))
    own = draw(st.booleans())
    number = draw(st.integers(0, 10**6))
    calls = [
        ToolCall(
            id=f"{number}.{i}" if own else f"call-{number}-{i}",
            name=n,
            args=draw(args),
            signature=draw(signatures),
        )
        for i, n in enumerate(names)
    ]
    text = draw(texts) if not calls else draw(st.just("") | texts)
    answer = Message(role="assistant", content=text, tool_calls=tuple(calls), thought=draw(st.none() | texts))
    if not calls:
        return [answer.model_copy(update={"signature": draw(signatures)}), draw(users)]
    statuses = st.sampled_from(["success", "error", "cancelled"])
    results = [
        Message(role="tool", tool_call_id=c.id, name=c.name, content=draw(texts), status=draw(statuses))
        for c in calls
    ]
    return [answer, *results, *draw(st.lists(users, max_size=1))]


histories = st.builds(
    lambda first, rest: [first, *(m for r in rest for m in r)], users, st.lists(rounds(), max_size=5)
)


def seen(contents: list[dict[str, Any]]) -> list[Any]:
    """What the server saw, flattened, in order."""
    flat: list[Any] = []
    for content in contents:
        for part in content["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                flat.append(("call", call["name"], list(call["args"].items()), part.get("thoughtSignature")))
            elif "functionResponse" in part:
                flat.append(
                    ("answer", part["functionResponse"]["name"], part["functionResponse"]["response"])
                )
            else:
                flat.append((content["role"], part["text"], part.get("thoughtSignature")))
    return flat


def meant(history: list[Message]) -> list[Any]:
    flat: list[Any] = []
    for m in history:
        if m.role == "tool":
            flat.append(("answer", m.name, {"output" if m.status == "success" else "error": m.text}))
            continue
        if m.text:
            flat.append(("model" if m.role == "assistant" else "user", m.text, m.signature))
        flat += [("call", c.name, list(c.args.items()), c.signature) for c in m.tool_calls]
    return flat


def body(model: str, history: list[Message]) -> dict[str, Any]:
    return GeminiBodyBuilder(model)(ModelRequest(model, history, (), None, 1.0, "", "main", 0))


@given(history=histories)
def test_every_valid_history_is_taken_and_says_the_same(history: list[Message]) -> None:
    contents = body("gemini-2.5-pro", history)["contents"]
    assert refused(contents, signatures=False) is None or history[-1].role == "assistant"
    assert seen(contents) == meant(history)


@given(history=histories)
def test_gemini_3_gets_a_signature_where_it_wants_one_and_real_ones_are_kept(history: list[Message]) -> None:
    contents = body("gemini-3-pro", history)["contents"]
    assert refused(contents, signatures=True) is None or history[-1].role == "assistant"
    marked = [
        ("call", *s[1:3], None) if s[0] == "call" and s[3] == NO_SIGNATURE else s for s in seen(contents)
    ]
    assert marked == meant(history)


@pytest.mark.anyio
async def test_the_server_sees_what_the_body_says(gemini: Any, fake_gemini: FakeGemini) -> None:
    """Through the client, the SDK and HTTP."""
    run = gemini({"default": "ok"})
    history: list[Message] = [Message(role="user", content="ä\n\t\u2028 🎉")]
    for n in range(5):
        call = ToolCall(id=f"{n}.0", name="a", args={"z": [1, 2.5, {"y": None}], "a": "\\u00e9"})
        history.append(Message(role="assistant", content=f"step {n}", tool_calls=(call,)))
        history.append(
            Message(role="tool", tool_call_id=call.id, name="a", content="{}" * n, status="success")
        )
        await run.ask(*history)
        assert fake_gemini.requests[-1].contents == body("gemini-2.5-pro", history)["contents"]
        assert seen(fake_gemini.requests[-1].contents) == meant(history)


def test_a_record_is_converted_once_and_forgotten_when_it_is_no_longer_asked_with() -> None:
    made: list[str] = []
    memo = MessageCache(lambda m: made.append(m.text) or m.text)
    history = [Message(role="user", content=str(n)) for n in range(2000)]
    for end in (10, 20, 2000):
        assert memo(history[:end]) == [m.text for m in history[:end]]
    assert made == [str(n) for n in range(2000)]
    memo(history[:5])
    assert len(memo._known) == 5


def test_the_request_hash_tells_requests_apart() -> None:
    def request(**changes: Any) -> ModelRequest:
        fields = {"model": "m", "messages": [Message(role="user", content="x")], "tools": (), "schema": None}
        rest = {"temperature": 1.0, "agent": "", "role": "main", "ordinal": 0}
        return ModelRequest(**{**fields, **rest, **changes})

    hashes = [
        RequestHash()(r)
        for r in (
            request(),
            request(model="n"),
            request(temperature=0.0),
            request(schema={"type": "object"}),
            request(messages=[Message(role="user", content="y")]),
            request(messages=[Message(role="user", content="x"), Message(role="user", content="")]),
        )
    ]
    assert len(set(hashes)) == len(hashes)
    assert RequestHash()(request(ordinal=7, attempt=3)) == hashes[0]
