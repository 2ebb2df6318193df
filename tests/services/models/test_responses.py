"""OpenAI's Responses: thoughts in plain text are shown and go back; texts of answers are messages of their own."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from given_answers import SSE, Refusing

from interlock.state.messages import DataPart, Message, ToolDeclaration

pytestmark = pytest.mark.anyio
TOOL = ToolDeclaration(name="read", description="d", parameters={"type": "object", "properties": {}})
Json = dict[str, Any]
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "read", "arguments": "{}"}
TEXT = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}


def thought(*parts: str) -> Json:
    content = [{"type": "reasoning_text", "text": part} for part in parts]
    return {"type": "reasoning", "id": "rs", "summary": [], "content": content}


def events(*thinking: Json, **more: Any) -> str:
    """An answer with these events of its thinking, a text and a call; `more` stands in its end."""
    about: Json = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
    about |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    found = [
        {"type": "response.created", "response": {**about, "status": "in_progress"}},
        *thinking,
        {"type": "response.output_item.added", "output_index": 1, "item": {**TEXT, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "item_id": "msg"},
        {"type": "response.output_item.added", "output_index": 2, "item": CALL},
        {"type": "response.completed", "response": {**about, "status": "completed", **more}},
    ]
    found[-3]["delta"] = "I look."
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in found)


def item(kind: str, whole: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": 0, "item": whole}


def delta(text: str) -> Json:
    place = {"output_index": 0, "content_index": 0, "item_id": "rs"}
    return {"type": "response.reasoning_text.delta", "delta": text, **place}


@pytest.mark.parametrize(
    "thinking",
    [
        [item("added", thought()), delta("So "), delta("it is."), item("done", thought("So it is."))],
        [item("added", thought()), item("done", thought("So it is."))],
        [item("added", thought("So it is.")), item("done", thought("So it is."))],
        [item("added", thought("So it is.")), delta("So it is."), item("done", thought("So it is."))],
    ],
    ids=["in pieces", "at the end", "at the beginning", "twice"],
)
async def test_thoughts_in_plain_text_are_shown_once_and_go_back(
    bench: Callable[..., Any], refusing: Refusing, thinking: list[Json]
) -> None:
    refusing.give(events(*thinking), kind=SSE)
    run = bench(refusing.env, {"model": {"name": "openai:m-codex"}})
    first = await run.ask("go", tools=[TOOL])
    assert (first.thought, first.text) == ("So it is.", "I look.")
    result = Message(role="tool", tool_call_id="c1", name="read", content="42", status="success")
    await run.ask("go", first.reply.message, result, tools=[TOOL])
    _, reasoning, text, call, output = json.loads(refusing.asked[-1])["input"]
    assert reasoning == thought("So it is.")
    assert text == {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"}
    assert (call["call_id"], output["call_id"]) == ("c1", "c1")


async def test_another_model_gets_the_text_without_its_thinking(
    bench: Callable[..., Any], refusing: Refusing
) -> None:
    refusing.give(events(item("added", thought()), delta("So."), item("done", thought("So."))), kind=SSE)
    first = await bench(refusing.env, {"model": {"name": "openai:m-codex"}}).ask("go", tools=[TOOL])
    other = bench(refusing.env, {"model": {"name": "openai:n-codex"}})
    result = Message(role="tool", tool_call_id="c1", name="read", content="42", status="success")
    await other.ask("go", first.reply.message, result, tools=[TOOL])
    kinds = [one["type"] for one in json.loads(refusing.asked[-1])["input"]]
    assert kinds == ["message", "message", "function_call", "function_call_output"]


async def test_a_picture_is_sent_with_its_detail_which_the_protocol_wants(
    bench: Callable[..., Any], refusing: Refusing
) -> None:
    refusing.give(events(), kind=SSE)
    picture = Message(role="user", content=(DataPart(type="image", mime_type="image/png", data="aGk="),))
    await bench(refusing.env, {"model": {"name": "openai:m-codex"}}).ask(picture, tools=[TOOL])
    (part,) = json.loads(refusing.asked[-1])["input"][0]["content"]
    assert part == {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}


@pytest.mark.parametrize("tier", ["default", "flex", "priority"])
async def test_what_was_cached_and_thought_counts_at_every_service_tier(
    bench: Callable[..., Any], refusing: Refusing, tier: str
) -> None:
    used = {"input_tokens": 50, "output_tokens": 40, "total_tokens": 90}
    used_of = {
        "input_tokens_details": {"cached_tokens": 30},
        "output_tokens_details": {"reasoning_tokens": 20},
    }
    refusing.give(events(usage={**used, **used_of}, service_tier=tier), kind=SSE)
    asked = await bench(refusing.env, {"model": {"name": "openai:m-codex"}}).ask("go", tools=[TOOL])
    usage = asked.reply.usage
    assert (usage.input, usage.cached, usage.output, usage.thoughts) == (50, 30, 40, 20)


async def test_a_refusal_is_told_in_the_models_words(bench: Callable[..., Any], refusing: Refusing) -> None:
    place = {"item_id": "msg", "output_index": 1, "content_index": 0}
    said = {"type": "response.refusal.done", **place, "refusal": "I can't do that."}
    refusing.give(events(said), kind=SSE)
    asked = await bench(refusing.env, {"model": {"name": "openai:m-codex"}}).ask("go", tools=[TOOL])
    assert asked.reply.problem == "openai:m-codex refused: I can't do that."
