"""Ends of answers, and thoughts: how each provider says them, what goes back, and to whom."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk
from local_server import Local, delta

from interlock.services.models.langchain import (
    extract_finish_reason,
    interpret_finish_reason,
    to_langchain_message,
)
from interlock.services.models.thinking import ThinkTagParser, ThoughtCollector
from interlock.state.errors import ModelError
from interlock.state.messages import Message, Opaque, ToolCall, ToolDeclaration

TOOL = ToolDeclaration(name="read", description="d", parameters={"type": "object", "properties": {}})
CALL = {"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("metadata", "end"),
    [
        ({"finish_reason": "tool_calls"}, "tool_calls"),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"stopReason": "tool_use"}, "tool_use"),
        ({"messageStop": {"stopReason": "max_tokens"}}, "max_tokens"),
        ({"done_reason": "stop"}, "stop"),
        ({"status": "completed"}, "completed"),
        ({"status": "in_progress"}, ""),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_output_tokens",
        ),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({}, ""),
    ],
)
def test_each_providers_end_is_found(metadata: dict[str, Any], end: str) -> None:
    assert extract_finish_reason(metadata) == end


@pytest.mark.parametrize(
    ("end", "reason", "is_problem", "is_warned"),
    [
        ("end_turn", "stop", False, False),
        ("completed", "stop", False, False),
        ("MAX_TOKENS", "length", False, False),
        ("pause_turn", "pause_turn", False, False),
        ("refusal", "refusal", True, False),
        ("guardrail_intervened", "guardrail_intervened", True, False),
        ("malformed_tool_use", "malformed_tool_use", True, False),
        ("a_new_way_to_end", "a_new_way_to_end", False, True),
        ("", None, False, False),
    ],
)
def test_an_end_says_what_becomes_of_the_answer(
    end: str, reason: str | None, is_problem: bool, is_warned: bool
) -> None:
    found, problem, warning = interpret_finish_reason("some:model", end)
    assert (found, bool(problem), bool(warning)) == (reason, is_problem, is_warned)


def test_a_full_window_is_an_overflow() -> None:
    with pytest.raises(ModelError, match="fills the model's window") as raised:
        interpret_finish_reason("some:model", "model_context_window_exceeded")
    assert raised.value.overflow


async def _asked(bench: Any, local: Local, *turns: Any, **more: Any) -> Any:
    local.turns += turns
    return await bench(local.env, {"model": {"name": "openai:qwen"}}).ask("go", tools=[TOOL], **more)


@pytest.mark.anyio
async def test_a_repeated_end_and_an_unknown_one_are_ends(bench: Any, local: Local) -> None:
    twice = await _asked(bench, local, [delta(content="yes"), delta("stop"), delta("stop")])
    assert (twice.text, twice.reply.finish_reason, twice.reply.problem) == ("yes", "stop", None)
    odd = await _asked(bench, local, [delta(content="yes"), delta("whatever")])
    assert (odd.text, odd.reply.finish_reason, odd.reply.problem, len(local.asked)) == (
        "yes",
        "whatever",
        None,
        2,
    )
    assert any("'whatever', which isn't known" in getattr(e, "message", "") for e in odd.events)
    none = await _asked(bench, local, [delta(content="yes")])
    assert none.reply.finish_reason is None


@pytest.mark.anyio
async def test_a_refusal_is_told_in_the_models_words(bench: Any, local: Local) -> None:
    asked = await _asked(bench, local, [delta(refusal="I can't "), delta(refusal="do that."), delta("stop")])
    assert (asked.text, asked.reply.finish_reason) == ("", "refusal")
    assert asked.reply.problem == "openai:qwen refused: I can't do that."


@pytest.mark.anyio
async def test_the_last_total_of_usage_counts(bench: Any, local: Local) -> None:
    def total(output: int) -> dict[str, Any]:
        usage = {"prompt_tokens": 1000, "completion_tokens": output, "total_tokens": 1000 + output}
        return {**delta(content="x"), "usage": usage}

    asked = await _asked(bench, local, [total(1), total(2), total(3), delta("stop")])
    assert (asked.reply.usage.input, asked.reply.usage.output) == (1000, 3)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"cached_tokens": 30}, 30),
        ({"prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 20}, 30),
        ({"prompt_tokens_details": {"cached_tokens": 30}, "cached_tokens": 30}, 30),
        ({"prompt_tokens_details": None}, 0),
    ],
)
async def test_what_came_from_a_cache_counts_wherever_a_server_tells_it(
    bench: Any, local: Local, told: dict[str, Any], cached: int
) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 4, "total_tokens": 54, **told}
    asked = await _asked(bench, local, [{**delta("stop", content="x"), "usage": usage}])
    assert (asked.reply.usage.input, asked.reply.usage.cached) == (50, cached)


@pytest.mark.anyio
async def test_arguments_as_an_object_or_with_a_line_break_are_taken(bench: Any, local: Local) -> None:
    as_object = {**CALL, "function": {"name": "read", "arguments": {"path": "a"}}}
    broken = {**CALL, "function": {"name": "read", "arguments": '{"path": "a\nb"}'}}
    for call, path in ((as_object, "a"), (broken, "a\nb")):
        asked = await _asked(bench, local, [delta(tool_calls=[call]), delta("tool_calls")])
        assert [c.args for c in asked.reply.message.tool_calls] == [{"path": path}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "thought", "fields"),
    [
        (
            [{"reasoning_content": "I "}, {"reasoning_content": "look."}],
            "I look.",
            {"reasoning_content": "I look."},
        ),
        ([{"reasoning": "I look."}], "I look.", {}),
        (
            [
                {
                    "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "I "}],
                    "reasoning": "I ",
                },
                {
                    "reasoning_details": [
                        {"type": "reasoning.text", "index": 0, "text": "look.", "signature": "s1"}
                    ],
                    "reasoning": "look.",
                },
            ],
            "I look.",
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "I look.", "signature": "s1"}
                ]
            },
        ),
    ],
)
async def test_thoughts_of_compatible_servers_are_shown_and_go_back(
    bench: Any, local: Local, said: list[dict[str, Any]], thought: str, fields: dict[str, Any]
) -> None:
    answer = [*(delta(**one) for one in said), delta(tool_calls=[CALL]), delta("tool_calls")]
    first = await _asked(bench, local, answer)
    assert (first.thought, first.text) == (thought, "")
    result = Message(role="tool", tool_call_id="c1", name="read", content="42", status="success")
    local.turns.append([delta(content="done"), delta("stop")])
    run = bench(local.env, {"model": {"name": "openai:qwen"}})
    await run.ask("go", first.reply.message, result, tools=[TOOL])
    sent = next(m for m in local.asked[-1]["messages"] if m["role"] == "assistant")
    assert {name: sent[name] for name in fields} == fields
    assert fields or not {"reasoning", "reasoning_content", "reasoning_details"} & sent.keys()
    local.turns.append([delta(content="done"), delta("stop")])
    other = bench(local.env, {"model": {"name": "openai:llama"}})
    await other.ask("go", first.reply.message, result, tools=[TOOL])
    sent = next(m for m in local.asked[-1]["messages"] if m["role"] == "assistant")
    assert not {"reasoning", "reasoning_content", "reasoning_details"} & sent.keys()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai:deepseek-v4-flash", [("", True), ("", False)]),
        ("openrouter:deepseek/deepseek-v4-pro", [("", True), ("", False)]),
        ("openai:deepseek-reasoner", [(None, True), (None, False)]),
        ("openai:deepseek-ai/DeepSeek-R1", [(None, True), (None, False)]),
    ],
)
async def test_answers_of_another_model_go_to_deepseek_with_empty_thoughts(
    bench: Any, local: Local, model: str, sent: list[tuple[str | None, bool]]
) -> None:
    """It refuses a conversation that others began if they stand without: told by many who use it."""
    local.turns.append([delta(content="done"), delta("stop")])
    env = {**local.env, "OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": local.env["OPENAI_BASE_URL"]}
    opaque = Opaque(model="anthropic:claude-sonnet-4-5", blocks=({"type": "thinking", "signature": "s"},))
    called = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="read"),), opaque=opaque)
    result = Message(role="tool", tool_call_id="c1", name="read", content="42", status="success")
    answered = Message(role="assistant", content="It is 42.")
    await bench(env, {"model": {"name": model}}).ask("go", called, result, answered, "and?", tools=[TOOL])
    answers = [m for m in local.asked[-1]["messages"] if m["role"] == "assistant"]
    assert [(m.get("reasoning_content"), "tool_calls" in m) for m in answers] == sent


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "I look.", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d1"},
        {"type": "reasoning_content", "reasoning_content": {"text": "I look.", "signature": "s1"}},
        {"type": "reasoning_content", "reasoning_content": {"redacted_content": b"\x00\xff"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e1"},
    ],
)
def test_signed_thinking_survives_the_record_and_goes_only_to_its_model(block: dict[str, Any]) -> None:
    whole = AIMessageChunk(content=[{**block, "index": 0}, {"type": "text", "text": "Yes.", "index": 1}])
    opaque = ThoughtCollector("some:model").build_opaque(whole)
    message = Message(
        role="assistant", content="Yes.", tool_calls=(ToolCall(id="c1", name="read"),), opaque=opaque
    )
    again = Message.model_validate_json(message.model_dump_json(exclude_defaults=True))
    sent = to_langchain_message(again, "some:model")
    assert isinstance(sent, AIMessage) and sent.content == [block, {"type": "text", "text": "Yes."}]
    assert [call["id"] for call in sent.tool_calls] == ["c1"]
    assert to_langchain_message(again, "other:model").content == "Yes."


def test_unsigned_thinking_stays_here_and_old_records_are_unchanged() -> None:
    whole = AIMessageChunk(content=[{"type": "thinking", "thinking": "I look.", "index": 0}])
    assert ThoughtCollector("some:model").build_opaque(whole) is None
    old = Message(role="assistant", content="Yes.")
    assert "opaque" not in old.model_dump_json(exclude_defaults=True)
    assert Opaque(model="m").blocks == ()


@pytest.mark.parametrize(
    ("said", "text", "thought"),
    [
        ("<think>I look.</think>\n\nYes.", "Yes.", "I look."),
        ("\n <think></think>Yes.", "Yes.", ""),
        ("No <think>tag</think> at its beginning.", "No <think>tag</think> at its beginning.", ""),
        ("<thinking>is another</thinking>", "<thinking>is another</thinking>", ""),
        ("<think>never ended", "never ended", "never ended"),
        ("<thi", "<thi", ""),
        ("", "", ""),
    ],
)
@given(data=st.data())
def test_tags_at_the_beginning_are_thoughts_however_the_text_is_cut(
    said: str, text: str, thought: str, data: st.DataObject
) -> None:
    tags, found, thoughts, at = ThinkTagParser(), "", "", 0
    while at < len(said):
        size = data.draw(st.integers(1, 9))
        more, thinks = tags.split_thoughts(said[at : at + size])
        found, thoughts, at = found + more, thoughts + thinks, at + size
    more, thinks = tags.flush()
    assert (found + more, thoughts + thinks) == (text, thought)
