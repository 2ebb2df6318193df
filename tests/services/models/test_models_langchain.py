"""`provider:model`: any LangChain chat model that is installed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import table

from interlock.services.models.langchain import to_provider_call_id
from interlock.services.models.names import PROVIDERS
from interlock.state.errors import ModelAuthError, ModelError, UserError
from interlock.state.messages import DataPart, Message, TextPart, ToolCall, ToolDeclaration, Usage

TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")

pytestmark = pytest.mark.anyio


class RefusedError(Exception):
    """What clients raise: a status, and a response with headers."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status_code = status
        self.response = type(
            "Response", (), {"headers": {k.replace("_", "-"): v for k, v in headers.items()}}
        )()


@pytest.fixture
async def sample(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run on the sample model, and the model itself."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    run = bench(settings={"model": {"name": "sample_chat.SampleChat:x1"}})
    provider = await run.models._providers.provider_for("sample_chat.SampleChat:x1")
    yield run, provider._model
    sys.modules.pop("sample_chat")


async def test_text_and_thoughts_stream_and_calls_come_whole(sample: Any) -> None:
    run, model = sample
    usage = {
        "input_tokens": 9,
        "output_tokens": 5,
        "total_tokens": 14,
        "input_token_details": {"cache_read": 4},
        "output_token_details": {"reasoning": 2},
    }
    pieces = (("read", '{"p', "c9", 2), (None, 'ath": 1}', None, 2), ("ls", "", None, 3))
    calls = [dict(zip(("name", "args", "id", "index"), piece, strict=True)) for piece in pieces]
    said = [
        *({"content": "", "tool_call_chunks": [call]} for call in calls),
        {"content": "", "response_metadata": {"finish_reason": "tool_calls"}, "usage_metadata": usage},
    ]
    shown = [("reasoning", "hm", 0), ("text", "I re", 1), ("text", "ad.", 1)]
    texts = [{"content": [{"type": type, type: text, "index": at}]} for type, text, at in shown]
    model.turns.append([*texts, *said])
    asked = await run.ask("hi")
    assert (asked.thought, asked.text, len(asked.items)) == ("hm", "I read.", 4)
    assert asked.reply.message.tool_calls == (
        ToolCall(id="c9", name="read", args={"path": 1}),
        ToolCall(id="0.1", name="ls"),
    )
    assert asked.reply.finish_reason == "stop"
    assert asked.reply.usage == Usage(input=9, output=5, cached=4, thoughts=2)


async def test_the_history_arrives_as_langchains_messages(sample: Any) -> None:
    run, model = sample
    model.turns.append([{"content": "ok", "response_metadata": {"stop_reason": "end_turn"}}])
    image = DataPart(type="image", mime_type="image/png", data="aGk=")
    await run.ask(
        Message(role="system", content="sys"),
        Message(role="user", content=(TextPart(text="see"), image)),
        Message(role="assistant", content="t", tool_calls=(ToolCall(id="0.0", name="a", args={"n": 1}),)),
        Message(role="tool", tool_call_id="0.0", name="a", content="[1]", status="error"),
        tools=[ToolDeclaration(name="a", description="d", parameters={"type": "object"})],
        temperature=0.5,
    )
    system, user, assistant, tool = model.asked[0]
    assert (system.type, system.content) == ("system", "sys")
    assert user.content == [
        {"type": "text", "text": "see"},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
    ]
    assert [(c["id"], c["name"], c["args"]) for c in assistant.tool_calls] == [
        (to_provider_call_id("0.0", ""), "a", {"n": 1})
    ]
    assert (tool.tool_call_id, tool.content, tool.status) == (to_provider_call_id("0.0", ""), "[1]", "error")
    assert to_provider_call_id(
        "toolu_01-a", "openai:gpt-5"
    ) == "toolu_01-a" and "." not in to_provider_call_id("0.0", "")
    long, dotted = f"tool_{'x' * 50}", "functions.read:0"
    assert [to_provider_call_id(one, "bedrock:moonshot.kimi-k2") for one in (long, dotted)] == [long, dotted]
    for strict in ("openai:gpt-5", "bedrock:us.anthropic.claude-opus-5-5-v1:0"):
        assert all(len(to_provider_call_id(one, strict)) == 29 for one in (long, dotted))
    assert model.options[0]["temperature"] == 0.5
    assert model.options[0]["tools"][0]["function"]["name"] == "a"


@pytest.mark.parametrize(("said", "finish", "problem"), TABLE["finishes elsewhere"])
async def test_finish_reasons_are_told(
    sample: Any, said: dict[str, str] | None, finish: str | None, problem: bool
) -> None:
    run, model = sample
    model.turns.append([] if said is None else [{"content": "x", "response_metadata": said}])
    reply = (await run.ask("hi")).reply
    assert (reply.finish_reason, reply.problem is not None) == (finish, problem)


@pytest.mark.parametrize("text", ['{"x": ', '{"x": ' + "9" * 5000 + "}", '{"x": ' + "[" * 5000])
async def test_arguments_that_are_no_object_are_a_malformed_call(sample: Any, text: str) -> None:
    run, model = sample
    broken = {"name": "a", "args": text, "id": "1", "index": 0}
    model.turns.append(
        [{"content": "", "tool_call_chunks": [broken], "response_metadata": {"finish_reason": "stop"}}]
    )
    reply = (await run.ask("hi")).reply
    assert reply.finish_reason == "malformed_function_call" and '{"x": ' in str(reply.problem)
    assert reply.message.tool_calls == ()


async def test_failures_are_understood_by_what_all_clients_have(sample: Any) -> None:
    run, model = sample
    model.turns += [
        RefusedError(429, "slow down", retry_after="3"),
        ConnectionResetError("gone"),
        [{"content": "ok"}],
    ]
    asked = await run.ask("hi")
    assert asked.text == "ok"
    assert asked.retries[0].delay_s == 0.003 and "429: slow down" in asked.retries[0].reason
    for error, kind, is_ in (
        (RefusedError(401, "no"), ModelAuthError, "retryable"),
        (ValueError("bug"), ModelError, "retryable"),
        (RefusedError(429, "insufficient_quota: pay"), ModelError, "terminal"),
        (RefusedError(400, "This model's maximum context length is 8192 tokens"), ModelError, "overflow"),
    ):
        model.turns.append(error)
        with pytest.raises(kind) as caught:
            await run.ask("hi")
        assert getattr(caught.value, is_) == (is_ != "retryable")


class StreamedError(Exception):
    """What clients raise for an error inside a stream that began with 200: OpenAI's, then Anthropic's."""

    status_code = 200

    def __init__(self, body: Any) -> None:
        super().__init__("overloaded")
        self.body = body


@pytest.mark.parametrize(
    "body",
    [
        {"code": 503, "message": "overloaded"},
        {"code": "rate_limit_exceeded", "type": "requests"},
        {"code": None, "type": "server_error"},
        {"type": "error", "error": {"type": "overloaded_error"}},
    ],
)
async def test_an_error_inside_a_stream_is_asked_again(sample: Any, body: dict[str, Any]) -> None:
    run, model = sample
    model.turns += [StreamedError(body), [{"content": "ok"}]]
    asked = await run.ask("hi")
    assert (asked.text, len(asked.retries)) == ("ok", 1)
    model.turns.append(StreamedError({"code": "invalid_prompt", "type": "invalid_request_error"}))
    with pytest.raises(ModelError, match="answered 400: overloaded"):
        await run.ask("hi")


async def test_what_is_told_of_a_lost_connection_is_its_innermost_cause(sample: Any) -> None:
    run, model = sample
    wrapped = type("APIConnectionError", (Exception,), {})("Connection error.")
    wrapped.__cause__ = ConnectionResetError("reset by peer")
    model.turns += [wrapped, [{"content": "ok"}]]
    assert (
        "could not be reached: ConnectionResetError: reset by peer."
        in (await run.ask("hi")).retries[0].reason
    )


async def test_a_call_in_thousands_of_pieces_is_added_up_in_few_sums(
    sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, model = sample
    parsed: list[int] = []
    monkeypatch.setattr(
        "langchain_core.messages.ai.parse_partial_json",
        lambda text: (parsed.append(len(text)), json.loads("{}"))[1],
    )
    args = ['{"x": "', *["abcd"] * 2500, '"}']
    pieces = [{"name": None, "args": part, "id": None, "index": 0} for part in args]
    pieces[0] |= {"name": "write", "id": "1"}
    model.turns.append(
        [{"content": "", "tool_call_chunks": [piece]} for piece in pieces]
        + [{"content": "", "response_metadata": {"finish_reason": "stop"}}]
    )
    reply = (await run.ask("hi")).reply
    assert reply.message.tool_calls[0].args == {"x": "abcd" * 2500}
    assert sum(parsed) < 20 * 10_000, "each sum parses all arguments so far"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("collections.OrderedDict:x", "isn't a LangChain chat model"),
        ("groq:llama", "pip install langchain-groq"),
    ],
)
async def test_a_class_that_is_no_chat_model_or_not_installed_is_refused(
    bench: Any, name: str, told: str
) -> None:
    with pytest.raises(UserError, match=told):
        await bench(settings={"model": {"name": name}}).ask("hi")


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_provider_that_is_installed_has_its_class(name: str) -> None:
    module = pytest.importorskip(PROVIDERS[name].module)
    assert hasattr(module, PROVIDERS[name].cls)
