"""What providers' packages lose, and we keep: usage, thoughts, and models that are named by an ARN."""

import json
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from caching_server import event_frame
from given_answers import SSE, Refusing
from serving import Quiet, serving

from interlock.services.models.client_classes import extra_constructor_options

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
Json = dict[str, Any]


def address(refusing: Refusing) -> str:
    return refusing.env["OPENAI_BASE_URL"].removesuffix("/v1")


def claude(at_end: Json) -> str:
    used = {"input_tokens": 9, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    found: list[Json] = [
        {"type": "message_start", "message": {**message, "usage": {**used, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": at_end},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in found)


@pytest.mark.parametrize(
    ("at_end", "counts"),
    [
        ({"output_tokens": 7}, (30, 20, 1, 7)),
        ({"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 7}, (11, 3, 0, 7)),
    ],
    ids=["only at the beginning", "again at the end"],
)
async def test_claudes_input_is_counted_wherever_a_stream_tells_it(
    bench: Callable[..., Any], refusing: Refusing, at_end: Json, counts: tuple[int, ...]
) -> None:
    pytest.importorskip("langchain_anthropic")
    refusing.give(claude(at_end), kind=SSE)
    env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": address(refusing)}
    asked = await bench(env, {"model": {"name": "anthropic:claude-sonnet-4-5"}}).ask("go")
    usage = asked.reply.usage
    assert (asked.text, usage.input, usage.cached, usage.written, usage.output) == ("Yes.", *counts)


def ollamas(message: Json, **counts: int) -> str:
    about = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
    return f"{json.dumps({**about, **counts, 'message': {'role': 'assistant', 'content': '', **message}})}\n"


@pytest.mark.parametrize(("thinking", "sent"), [("auto", None), ("low", False), ("high", True)])
async def test_ollamas_thoughts_are_kept_where_none_were_asked_for(
    bench: Callable[..., Any], refusing: Refusing, thinking: str, sent: bool | None
) -> None:
    pytest.importorskip("langchain_ollama")
    refusing.give(
        ollamas({"thinking": "I look.", "content": "Yes."}, eval_count=7), kind="application/x-ndjson"
    )
    run = bench({"OLLAMA_HOST": address(refusing)}, {"model": {"name": "ollama:qwen3", "thinking": thinking}})
    asked = await run.ask("go")
    assert json.loads(refusing.asked[-1]).get("think") is sent
    assert (asked.text, asked.thought) == ("Yes.", "" if sent is False else "I look.")
    assert (asked.reply.usage.input, asked.reply.usage.output) == (0, 7), "the prompt was in its cache"


ARN = "arn:aws:bedrock:us-east-1:012345678901"
STREAMED = b"".join(
    (
        event_frame("messageStart", {"role": "assistant"}),
        event_frame("contentBlockDelta", {"delta": {"text": "Yes."}, "contentBlockIndex": 0}),
        event_frame("messageStop", {"stopReason": "end_turn"}),
    )
)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        (f"{ARN}:inference-profile/us.anthropic.claude-sonnet-4-5-v1:0", "anthropic"),
        ("arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0", "amazon"),
        (f"{ARN}:inference-profile/us-gov.meta.llama4-maverick-v1:0", "meta"),
        (f"{ARN}:inference-profile/global.anthropic.claude-opus-5-5-v1:0", "anthropic"),
    ],
)
async def test_a_model_of_bedrock_may_be_named_by_its_arn(
    bench: Callable[..., Any], refusing: Refusing, monkeypatch: pytest.MonkeyPatch, model: str, provider: str
) -> None:
    aws = pytest.importorskip("langchain_aws")
    assert extra_constructor_options(aws.ChatBedrockConverse, {"model": model}) == {"provider": provider}
    refusing.kind, refusing.body = "application/vnd.amazon.eventstream", STREAMED
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "x")
    env = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": address(refusing)}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    asked = await bench(env, {"model": {"name": f"bedrock:{model}"}}).ask("go")
    assert (asked.text, asked.reply.problem) == ("Yes.", None)


class _Profiles(Quiet):
    """Says which model an application's profile stands for, and its answer to those who ask for a stream."""

    def do_GET(self) -> None:
        arn = "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0"
        self.answer(200, json.dumps({"models": [{"modelArn": arn}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        streams = self.path.endswith("/converse-stream")
        self.answer(200 if streams else 400, STREAMED, "application/vnd.amazon.eventstream")


async def test_whose_model_an_applications_profile_stands_for_is_found(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it streams, as Nova does."""
    pytest.importorskip("langchain_aws")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Profiles)) as made:
        keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "x")
        url = f"http://127.0.0.1:{made.server_port}"
        env = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        model = f"bedrock:{ARN}:application-inference-profile/mine"
        asked = await bench(env, {"model": {"name": model}}).ask("go")
    assert (asked.text, asked.reply.problem) == ("Yes.", None)
