"""What providers refuse, and what is made of it: asked again, ended, compressed, or told with what to correct."""

import json
from pathlib import Path
from typing import Any

import pytest
from folders import table
from given_answers import JSON, SSE, Refusing
from serving import over_tls, serving

from interlock.services.models.failure import to_model_error_or_reraise
from interlock.services.models.names import require_usable_model
from interlock.state.errors import CredentialsError, ModelAuthError, ModelError, UserError
from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.settings import Settings

pytestmark = pytest.mark.anyio
TABLE: dict[str, list[Any]] = table(__file__, "refusals.yaml")
WHOLE = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}


async def meaning(run: Any, refusing: Refusing) -> str:
    """What one attempt ends with; it makes one request."""
    with pytest.raises(ModelError) as caught:
        await run.ask("hi", attempts=1)
    assert len(refusing.asked) == 1
    return named(caught.value)


def named(error: ModelError) -> str:
    if isinstance(error, ModelAuthError):
        return "key"
    if error.retryable:
        return "retry" if error.retry_after_s is None else f"retry:{error.retry_after_s:g}"
    return "overflow" if error.overflow else "terminal" if error.terminal else "fails"


@pytest.mark.parametrize(("status", "body", "headers", "means"), TABLE["refusals"])
async def test_a_refusal_is_read_by_status_codes_and_words(
    bench: Any, refusing: Refusing, status: int, body: Any, headers: dict[str, str], means: str
) -> None:
    refusing.give(body, status, **headers)
    run = bench(refusing.env, {"model": {"name": "openai:m"}})
    assert await meaning(run, refusing) == means


@pytest.mark.parametrize(("error", "means"), TABLE["streamed"])
async def test_an_error_inside_of_a_stream_is_read_as_well(
    bench: Any, refusing: Refusing, error: Any, means: str
) -> None:
    refusing.give(f"data: {json.dumps({'error': error, 'choices': []})}\n\n", kind=SSE)
    assert await meaning(bench(refusing.env, {"model": {"name": "openai:m"}}), refusing) == means


@pytest.mark.parametrize(("event", "means"), TABLE["responses"])
async def test_an_error_inside_of_a_stream_of_responses_is_read_as_well(
    bench: Any, refusing: Refusing, event: dict[str, Any], means: str
) -> None:
    if response := event.get("response"):
        rest: dict[str, Any] = {"output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        about = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "failed"}
        event = {**event, "response": {**about, **rest, **response}}
    refusing.give(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n", kind=SSE)
    assert await meaning(bench(refusing.env, {"model": {"name": "openai:m-codex"}}), refusing) == means


class ClientError(Exception):
    """As botocore's."""

    def __init__(self, code: str, status: int | None, message: str) -> None:
        super().__init__(f"An error occurred ({code}) when calling the ConverseStream operation: {message}")
        self.response: dict[str, Any] = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
        }


async def test_what_tls_refuses_is_told_at_once_with_what_to_do(bench: Any, tmp_path: Path) -> None:
    """A certificate of an unknown authority; and https:// where the server speaks http."""
    server = Refusing()
    over_tls(server, tmp_path)
    with serving(server), serving(Refusing()) as plain:
        for port, says in (
            (
                server.server_port,
                "certificate isn't trusted: name the file of its authority in SSL_CERT_FILE",
            ),
            (plain.server_port, "address may have to begin with http://"),
        ):
            env = {"OPENAI_BASE_URL": f"https://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "k"}
            run = bench(env, {"model": {"name": "openai:m"}})
            with pytest.raises(ModelError, match=says) as caught:
                await run.ask("go")
            assert not caught.value.retryable


async def test_http_where_the_server_expects_tls_is_told(bench: Any, tmp_path: Path) -> None:
    server = Refusing()
    over_tls(server, tmp_path)
    with serving(server):
        env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "k"}
        with pytest.raises(ModelError, match="If it expects TLS, its address has to begin with https://"):
            await bench(env, {"model": {"name": "openai:m"}}).ask("go", attempts=1)


class HTTPStatusError(Exception):
    """As Mistral's client raises it: the body stands in its text only."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"Error response {status} while fetching http://m.example/v1/chat: {body}")
        self.response = type("Response", (), {"status_code": status, "headers": {}})


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, '{"detail": "Unauthorized"}', "answered 401: Unauthorized. Check the API key"),
        (422, '{"message": "Too many tools", "type": "invalid"}', "answered 422: Too many tools"),
        (502, "<html>gone", "answered 502: Error response 502 while fetching"),
    ],
)
def test_a_body_that_a_client_quotes_is_told_by_its_sentence(status: int, body: str, says: str) -> None:
    assert says in str(to_model_error_or_reraise(HTTPStatusError(status, body), "mistralai:m", 0))


def test_an_error_that_a_client_shows_as_an_object_is_told_by_its_sentence() -> None:
    told = ValueError("ResponseError(code='rate_limit_exceeded', message='Slow down', param=None)")
    told.body = {"code": "rate_limit_exceeded"}  # pyright: ignore[reportAttributeAccessIssue]
    assert str(to_model_error_or_reraise(told, "openai:m", 0)) == "Model 'openai:m' answered 429: Slow down"


@pytest.mark.parametrize(("code", "status", "message", "means"), TABLE["bedrock"])
def test_bedrocks_errors_are_read_by_their_status_or_their_code(
    code: str, status: int | None, message: str, means: str
) -> None:
    found = to_model_error_or_reraise(ClientError(code, status, message), "bedrock:m", 0)
    assert (named(found), message in str(found)) == (means, True)


def test_an_error_inside_of_bedrocks_stream_is_asked_again() -> None:
    assert to_model_error_or_reraise(
        ValueError("Received AWS exception throttlingException:\n\n{}"), "bedrock:m", 0
    ).retryable


async def test_bedrocks_client_repeats_nothing_by_itself(
    bench: Any, refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langchain_aws")
    address = refusing.env["OPENAI_BASE_URL"].removesuffix("/v1")
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "x")
    env = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": address}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    refusing.give({"message": "Not now"}, 503, **{"x-amzn-errortype": "ServiceUnavailableException"})
    run = bench(env, {"model": {"name": "bedrock:anthropic.claude-sonnet-4-5-v1:0"}})
    assert await meaning(run, refusing) == "retry"


@pytest.mark.parametrize(
    ("model", "env", "kind", "says"),
    [
        (
            *("openai:m", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://api.openai.com/v1"}, UserError),
            "would send the key unencrypted. Set it to https://api.openai.com/v1",
        ),
        (
            "gemini-2.5-pro",
            {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "http://generativelanguage.googleapis.com"},
            UserError,
            "unencrypted",
        ),
        ("openai:m", {"OPENAI_API_KEY": "sk-1\n"}, CredentialsError, "OPENAI_API_KEY ends in a line break"),
        ("openai:m", {"OPENAI_API_KEY": "sk-\u20281"}, CredentialsError, "OPENAI_API_KEY contains"),
        ("gemini-2.5-pro", {"GEMINI_API_KEY": "k\r\n"}, CredentialsError, "GEMINI_API_KEY ends in"),
        ("openai:m", {"OPENAI_BASE_URL": "127.0.0.1:9/v1"}, UserError, "Set it to http://127.0.0.1:9/v1"),
        ("openai:m", {"OPENAI_BASE_URL": "gateway.invalid"}, UserError, "Set it to https://gateway.invalid"),
        ("openai:m", {"OPENAI_BASE_URL": "htp://gateway.invalid"}, UserError, "begin with http://"),
        ("openai:m", {"OPENAI_BASE_URL": "http://"}, UserError, "names no server"),
        (
            *("gemini-2.5-pro", {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": "g.invalid"}),
            *(UserError, "https://g.invalid"),
        ),
    ],
)
async def test_a_key_or_an_address_that_cannot_be_sent_ends_at_once(
    bench: Any, model: str, env: dict[str, str], kind: type[Exception], says: str
) -> None:
    if model.startswith("openai"):
        pytest.importorskip("langchain_openai")
    with pytest.raises(kind, match=says):
        require_usable_model(Settings.model_validate({}), env, model)
    with pytest.raises(kind, match=says):  # also for a model that is named later
        await bench(env, {"model": {"name": model}}).ask("hi")


async def test_control_characters_reach_no_server_raw(bench: Any, refusing: Refusing) -> None:
    refusing.give(
        'data: {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}\n\n', kind=SSE
    )
    run = bench(refusing.env, {"model": {"name": "openai:m"}})
    called = ToolCall(id="c", name="sh", args={"a\x01": ["\x00", "tab\t"]})
    tool = ToolDeclaration(
        name="sh", description="of \x02 others", parameters={"type": "object", "title": "\x03"}
    )
    history = [
        Message(role="system", content="\x04"),
        Message(role="user", content="go\x7f\n"),
        Message(role="assistant", content="", tool_calls=(called,)),
        Message(
            role="tool", tool_call_id="c", name="sh", content="a\x00b\x1b[1m\x9b é\u200b", status="success"
        ),
    ]
    await run.ask(*history, tools=[tool])
    sent = json.loads(refusing.asked[0])
    system, user, assistant, result = sent["messages"]
    assert (system["content"], user["content"]) == (r"\x04", "go\\x7f\n")
    assert result["content"] == "a\\x00b\\x1b[1m\\x9b é\u200b"
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {r"a\x01": [r"\x00", "tab\t"]}
    assert sent["tools"][0]["function"]["description"] == r"of \x02 others"
    assert sent["tools"][0]["function"]["parameters"]["title"] == r"\x03"


async def test_a_plain_answer_to_a_streamed_request_is_taken(bench: Any, refusing: Refusing) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    message = {"role": "assistant", "content": "whole", "tool_calls": [call]}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    refusing.give({**WHOLE, "choices": choices, "usage": usage})
    tool = ToolDeclaration(name="read", description="d", parameters={"type": "object", "properties": {}})
    asked = await bench(refusing.env, {"model": {"name": "openai:m"}}).ask("go", tools=[tool])
    assert (asked.text, asked.reply.finish_reason, len(refusing.asked)) == ("whole", "stop", 1)
    assert asked.reply.message.tool_calls == (ToolCall(id="c1", name="read", args={"path": "a"}),)
    assert (asked.reply.usage.input, asked.reply.usage.output) == (11, 3)


PLAIN_RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "whole", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "c1",
            "status": "completed",
            "name": "read",
            "arguments": '{"path": "a"}',
        },
    ],
    "usage": {
        "input_tokens": 11,
        "output_tokens": 3,
        "total_tokens": 14,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 1},
    },
}
PLAIN_MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 11, "output_tokens": 3},
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "whole"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
    ],
}


@pytest.mark.parametrize(
    ("model", "package", "answer"),
    [
        ("openai:m-codex", "langchain_openai", PLAIN_RESPONSE),
        ("anthropic:claude-opus-5-5", "langchain_anthropic", PLAIN_MESSAGE),
    ],
)
async def test_a_plain_answer_of_other_protocols_is_taken_with_its_thinking(
    bench: Any, refusing: Refusing, model: str, package: str, answer: dict[str, Any]
) -> None:
    pytest.importorskip(package)
    refusing.give(answer)
    url = refusing.env["OPENAI_BASE_URL"]
    env = {"OPENAI_BASE_URL": url, "ANTHROPIC_BASE_URL": url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "k"}
    tool = ToolDeclaration(name="read", description="d", parameters={"type": "object", "properties": {}})
    asked = await bench(env, {"model": {"name": model}}).ask("go", tools=[tool])
    assert (asked.text, asked.thought, asked.reply.finish_reason) == ("whole", "Hm.", "stop")
    assert asked.reply.message.tool_calls == (ToolCall(id="c1", name="read", args={"path": "a"}),)
    assert (asked.reply.usage.input, asked.reply.usage.output) == (11, 3)
    assert asked.reply.message.opaque and asked.reply.message.opaque.blocks


async def test_a_plain_answer_over_tls_is_taken(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langchain_openai")
    server = Refusing()
    monkeypatch.setenv("SSL_CERT_FILE", str(over_tls(server, tmp_path)))
    server.give(PLAIN_RESPONSE)
    with serving(server):
        env = {"OPENAI_BASE_URL": f"https://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": "k"}
        asked = await bench(env, {"model": {"name": "openai:m-codex"}}).ask("go")
    assert (asked.text, len(server.asked)) == ("whole", 1)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("<html>Please log in</html>", "text/html", "no stream.*Please log in"),
        ({"detail": "not here"}, JSON, "no stream.*not here"),
        (
            {"error": {"message": "No more", "code": "insufficient_quota"}},
            JSON,
            "No more. The quota is used up",
        ),
    ],
)
async def test_what_is_no_answer_is_told_in_one_line(
    bench: Any, refusing: Refusing, body: Any, kind: str, says: str
) -> None:
    refusing.give(body, kind=kind)
    with pytest.raises(ModelError, match=says) as caught:
        await bench(refusing.env, {"model": {"name": "openai:m"}}).ask("hi")
    assert len(refusing.asked) == 1 and "\n" not in str(caught.value)
