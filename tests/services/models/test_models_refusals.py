"""What providers refuse, and what is made of it: asked again, ended, compressed, or told with what to correct."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from folders import table
from serving import Quiet, serving

from interlock.services.models.failure import explain
from interlock.services.models.names import check_credentials
from interlock.state.errors import CredentialsError, ModelAuthError, ModelError, UserError
from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.settings import Settings

pytestmark = pytest.mark.anyio
TABLE: dict[str, list[Any]] = table(__file__, "refusals.yaml")
SSE, JSON = "text/event-stream", "application/json"
WHOLE = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}


class Refusing(ThreadingHTTPServer):
    """Gives each request the same answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.kind, self.body, self.headers = 200, JSON, b"", dict[str, str]()
        self.asked: list[bytes] = []

    def give(self, body: Any, status: int = 200, kind: str = JSON, **headers: str) -> None:
        self.status, self.kind, self.headers = status, kind, headers
        self.body = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    @property
    def env(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{self.server_address[1]}/v1"}


class _Handler(Quiet):
    server: Refusing

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_POST(self) -> None:
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        for name, value in {"Content-Type": self.server.kind, **self.server.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    pytest.importorskip("langchain_openai")
    with serving(Refusing()) as server:
        yield server


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


@pytest.mark.parametrize(("code", "status", "message", "means"), TABLE["bedrock"])
def test_bedrocks_errors_are_read_by_their_status_or_their_code(
    code: str, status: int | None, message: str, means: str
) -> None:
    found = explain(ClientError(code, status, message), "bedrock:m", 0)
    assert (named(found), message in str(found)) == (means, True)


def test_an_error_inside_of_bedrocks_stream_is_asked_again() -> None:
    assert explain(ValueError("Received AWS exception throttlingException:\n\n{}"), "bedrock:m", 0).retryable


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
        check_credentials(Settings.model_validate({}), env, model)
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


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("<html>Please log in</html>", "text/html", "no stream.*Please log in"),
        ({"detail": "not here"}, JSON, "no stream.*not here"),
        (
            {"error": {"message": "No more", "code": "insufficient_quota"}},
            JSON,
            "No more The quota is used up",
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
