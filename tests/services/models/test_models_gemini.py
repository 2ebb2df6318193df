"""Gemini, against a server that speaks its REST protocol."""

import asyncio
import threading
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from google.genai import _api_client

from interlock.services.models.gemini import NO_SIGNATURE, GeminiBodyBuilder, GeminiProvider
from interlock.services.models.request import ModelRequest
from interlock.state.messages import (
    DataPart,
    Message,
    TextDelta,
    TextPart,
    ThoughtDelta,
    ToolCall,
    ToolDeclaration,
)

pytestmark = pytest.mark.anyio

READ = ToolDeclaration(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def answered(reply: Message, *texts: str) -> list[Message]:
    return [
        Message(role="tool", tool_call_id=call.id, name=call.name, content=text, status="success")
        for call, text in zip(reply.tool_calls, texts, strict=True)
    ]


async def test_a_reply_streams_is_recorded_after_its_head_and_is_not_asked_for_again(
    gemini: Any, fake_gemini: FakeGemini
) -> None:
    run = gemini([{"thought": "Let me see.", "text": "Grüße 🎉 from here", "chunks": 4}])
    call = run.call("hi")
    asked = await run.make(call)
    assert [type(i) for i in asked.items[:-1]] == [ThoughtDelta, TextDelta, TextDelta, TextDelta, TextDelta]
    assert (asked.thought, asked.text) == ("Let me see.", "Grüße 🎉 from here")
    reply = asked.reply
    assert reply.message == Message(role="assistant", content=asked.text, thought="Let me see.")
    assert reply.finish_reason == "stop" and reply.problem is None
    assert run.transcript.record_ids(reply.record)[-2:] == [call.head, reply.record]
    assert run.transcript.read_message(reply.record) == reply.message
    again = await run.restarted().make(call)
    assert again.reply == reply.model_copy(update={"replayed": True})
    assert len(again.items) == 1 and len(fake_gemini.requests) == 1


async def test_calls_without_an_id_are_named_by_ordinal_and_index_and_no_id_is_given_twice(
    gemini: Any,
) -> None:
    """A history passed in may come from another run; local servers number each answer's calls from 0."""
    two = {"calls": [{"name": "a", "args": {"z": 1, "b": [2]}}, {"name": "b", "id": "given"}, {"name": "c"}]}
    run = gemini({"replies": [two, two, {"calls": [{"name": "a"}, {"name": "a", "id": "call_0"}]}]})
    first = (await run.ask("hi")).reply.message
    assert [c.id for c in first.tool_calls] == ["0.0", "given", "0.2"]
    assert list(first.tool_calls[0].args) == ["z", "b"]
    second = (await run.ask("hi")).reply.message
    assert [c.id for c in second.tool_calls] == ["1.0", "given", "1.2"]
    calls = tuple(ToolCall(id=id, name="a") for id in ("2.0", "call_0", "2.1"))
    old = Message(role="assistant", tool_calls=calls)
    fresh = (await run.ask("hi", old, *answered(old, "1", "2", "3"))).reply.message
    assert [c.id for c in fresh.tool_calls] == ["2.0.2", "2.1.2"]


async def test_signatures_go_back_unchanged_and_thoughts_do_not(bench: Any, fake_gemini: FakeGemini) -> None:
    calls = {"thought": "secret", "text": "I read.", "calls": [{"name": "read_file"}, {"name": "read_file"}]}
    fake_gemini.play(
        {"require_signatures": True, "replies": [calls, {"text": "done", "signature": "c2lnLTI="}, "ok"]}
    )
    run = bench(fake_gemini.env, {"model": {"name": "gemini-3-pro"}})
    history = [Message(role="system", content="Be brief."), Message(role="user", content="go")]
    first = (await run.ask(*history, tools=[READ])).reply.message
    history += [first, *answered(first, "one", "two")]
    second = (await run.ask(*history, tools=[READ])).reply.message
    assert second.signature == "c2lnLTI="
    await run.ask(*history, second, Message(role="user", content="more"), tools=[READ])
    sent = fake_gemini.requests[-1]
    assert sent.contents[1]["parts"] == [
        {"text": "I read."},
        {
            "functionCall": {"name": "read_file", "args": {}},
            "thoughtSignature": first.tool_calls[0].signature,
        },
        {"functionCall": {"name": "read_file", "args": {}}},
    ]
    assert sent.contents[3]["parts"] == [{"text": "done", "thoughtSignature": "c2lnLTI="}]
    assert sent.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert sent.body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == READ.parameters


async def test_a_call_that_nobody_signed_is_marked_for_gemini_3_only(
    bench: Any, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play({"require_signatures": True, "default": "ok"})
    call = Message(role="assistant", tool_calls=(ToolCall(id="0.0", name="a"),))
    history = [
        Message(role="user", content="go"),
        call,
        *answered(call, "x"),
        Message(role="user", content="hint"),
    ]
    await bench(fake_gemini.env, {"model": {"name": "gemini-3-pro"}}).ask(*history)
    assert fake_gemini.requests[-1].contents[1]["parts"][0]["thoughtSignature"] == NO_SIGNATURE
    fake_gemini.play({"default": "ok"})
    await bench(fake_gemini.env).ask(*history)
    assert "thoughtSignature" not in fake_gemini.requests[-1].contents[1]["parts"][0]


async def test_a_tools_answer_is_sent_as_the_text_it_is(gemini: Any, fake_gemini: FakeGemini) -> None:
    """The client would parse text that looks like JSON, and the model would see it changed."""
    text = '{ "version": 1.0,\n  "n": 1e3 }'
    call = Message(role="assistant", tool_calls=(ToolCall(id="0.0", name="a"), ToolCall(id="xyz", name="b")))
    answers = answered(call, text, "boom")
    failed = answers[1].model_copy(update={"status": "error"})
    image = DataPart(type="image", mime_type="image/png", data="aGk=")
    with_image = answers[0].model_copy(update={"content": (TextPart(text=text), image)})
    await gemini(["ok"]).ask("go", call, with_image, failed, Message(role="user", content="and?"))
    assert fake_gemini.requests[0].contents[2]["parts"] == [
        {"functionResponse": {"name": "a", "response": {"output": text}}},
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        {"functionResponse": {"name": "b", "response": {"error": "boom"}, "id": "xyz"}},
        {"text": "and?"},
    ]


async def test_the_body_says_what_the_clients_own_would_say() -> None:
    """Compared with langchain-google-genai's conversion, for a history that means the same in both."""
    from google.genai.types import Content
    from langchain_google_genai.chat_models import _parse_chat_history

    from interlock.services.models.langchain import to_langchain_message

    call = Message(
        role="assistant",
        content="I look.",
        tool_calls=(
            ToolCall(id="0.0", name="a", args={"n": 1, "deep": {"x": [True, None]}}),
            ToolCall(id="0.1", name="b"),
        ),
    )
    image = DataPart(type="image", mime_type="image/png", data="aGk=")
    history = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=(TextPart(text="see"), image)),
        call,
        *answered(call, "plain text", "more text"),
        Message(role="assistant", content="done"),
        Message(role="user", content="thanks"),
    ]
    request = ModelRequest("gemini-2.5-pro", history, (), None, 1.0, "", "main", 0)
    system, contents = _parse_chat_history([to_langchain_message(m) for m in history], model="gemini-2.5-pro")
    ours = GeminiBodyBuilder("gemini-2.5-pro")(request)
    assert [Content.model_validate(c) for c in ours["contents"]] == contents
    assert system is not None and Content.model_validate(ours["systemInstruction"]).parts == system.parts


async def test_the_sdk_asks_by_httpx_where_aiohttp_is_installed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_api_client, "has_aiohttp", True)
    made = GeminiProvider("gemini-2.5-pro", "k", "http://127.0.0.1:1")
    asking = made._model.client._api_client  # pyright: ignore
    assert not asking._use_aiohttp()
    asking._http_options.httpx_async_client = None  # as without a client of ours
    assert asking._use_aiohttp()


@pytest.mark.parametrize(("offered", "told"), [("run_shell_command", 1), ("execute_command", 1), ("read", 0)])
async def test_commands_are_made_ready_while_a_model_thinks_that_may_call_one(
    gemini: Any, offered: str, told: int
) -> None:
    ready: list[int] = []
    run = gemini(["Well.", "Well."], on_commands=lambda: ready.append(threading.get_ident()))
    tool = ToolDeclaration(name=offered, description="d", parameters={"type": "object", "properties": {}})
    await run.ask("one", tools=[tool])
    await run.ask("two", tools=[tool])
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(ready) == told and threading.get_ident() not in ready


async def test_a_request_has_its_own_instructions_tools_options_and_model(
    gemini: Any, fake_gemini: FakeGemini
) -> None:
    run = gemini(["Well."] * 4)
    other = READ.model_copy(update={"name": "write_file"})
    asked: list[tuple[str, list[ToolDeclaration], str, float]] = [
        ("plan", [READ], "gemini-2.5-pro", 0.1),
        ("act", [other], "gemini-2.5-pro", 0.9),
        ("", [], "gemini-2.5-flash", 0.9),
        ("plan", [READ], "gemini-2.5-pro", 0.1),
    ]
    for text, tools, model, temperature in asked:
        system = [Message(role="system", content=text)] if text else []
        await run.ask(*system, "go", tools=tools, model=model, temperature=temperature)
    for (text, tools, model, temperature), sent in zip(asked, fake_gemini.requests, strict=True):
        body = sent.body
        assert body.get("systemInstruction", {"parts": [{"text": ""}]})["parts"][0]["text"] == text
        declared = [d["name"] for t in body.get("tools", ()) for d in t["functionDeclarations"]]
        assert declared == [t.name for t in tools]
        assert (sent.model, body["generationConfig"]["temperature"]) == (model, temperature)
