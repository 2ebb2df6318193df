"""`openai:` with OPENAI_BASE_URL: how llama.cpp, Ollama and vLLM servers are reached. Needs the extra `[openai]`."""

from typing import Any

import pytest
from local_server import Local, delta

from interlock.state.messages import Message, ToolCall, ToolDeclaration, Usage

pytestmark = pytest.mark.anyio


async def test_a_server_on_this_machine_answers_without_a_key(bench: Any, local: Local) -> None:
    call = {"index": 0, "id": "call_0", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    local.turns += [
        429,
        [
            delta(role="assistant", content="I "),
            delta(content="read."),
            delta(tool_calls=[call]),
            delta("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}},
        ],
        [delta(content="done"), delta("stop")],
    ]
    run = bench(local.env, {"model": {"name": "openai:qwen"}})
    tool = ToolDeclaration(name="read", description="d", parameters={"type": "object", "properties": {}})
    system = Message(role="system", content="sys")
    first = await run.ask(system, "go", tools=[tool])
    assert (first.text, [r.delay_s for r in first.retries]) == ("I read.", [0.002])
    assert first.reply.message.tool_calls == (ToolCall(id="call_0", name="read", args={"path": "a.py"}),)
    assert (first.reply.finish_reason, first.reply.usage) == ("stop", Usage(input=11, output=3, usd=0.0))
    answer = Message(role="tool", tool_call_id="call_0", name="read", content='{"x": 1}', status="success")
    second = await run.ask(system, "go", first.reply.message, answer, tools=[tool])
    assert (second.text, second.reply.finish_reason) == ("done", "stop")
    sent = local.asked[-1]
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][3]["content"] == '{"x": 1}' and sent["messages"][3]["tool_call_id"] == "call_0"
    assert sent["stream_options"] == {"include_usage": True}
    assert (sent["temperature"], sent["tools"][0]["function"]["name"]) == (0.2, "read")


async def test_a_helpers_schema_is_sent(bench: Any, local: Local) -> None:
    local.turns.append([delta(role="assistant", content="{"), delta(content="}"), delta("stop")])
    run = bench(local.env, {"model": {"name": "openai:qwen", "thinking": "high"}})
    asked = await run.ask("who?", role="next_speaker", schema={"type": "object", "properties": {}})
    assert (asked.text, asked.reply.finish_reason) == ("{}", "stop")
    assert local.asked[0]["response_format"]["json_schema"]["schema"]["type"] == "object"
    assert "reasoning_effort" not in local.asked[0], "helpers don't think longer"


async def test_a_thought_level_is_sent(bench: Any, local: Local) -> None:
    local.turns.append([delta(role="assistant", content="Yes."), delta("stop")])
    await bench(local.env, {"model": {"name": "openai:qwen", "thinking": "low"}}).ask("why?")
    assert local.asked[0]["reasoning_effort"] == "low"


async def test_a_model_that_takes_no_thought_level_is_named_once(bench: Any, local: Local) -> None:
    run = bench(local.env, {"model": {"name": "openai:gpt-4o", "thinking": "medium"}})
    local.turns += [[delta(role="assistant", content="Yes."), delta("stop")] for _ in range(2)]
    asked = [await run.ask("why?"), await run.ask("why?")]
    said = [e for one in asked for e in one.events if "takes no thought level" in getattr(e, "message", "")]
    assert len(said) == 1 and "reasoning_effort" not in local.asked[0]


async def test_settings_choose_chat_completions_where_the_client_would_not(bench: Any, local: Local) -> None:
    """A model of OpenAI's that is asked by Responses otherwise."""
    local.turns.append([delta(role="assistant", content="Yes."), delta("stop")])
    models = {"openai:gpt-5-pro": {"api": "chat"}}
    asked = await bench(local.env, {"model": {"name": "openai:gpt-5-pro"}, "models": models}).ask("why?")
    assert asked.text == "Yes." and local.asked[0]["messages"]
