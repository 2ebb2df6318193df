"""Gemini: finish reasons, usage, request parameters, and what the environment mustn't change."""

import ssl
from contextvars import Context
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from folders import table
from langsmith.utils import get_env_var, tracing_is_enabled

from interlock.services.models.facts import ModelFacts
from interlock.services.models.gemini import FIXED_SAMPLING, GeminiProvider
from interlock.services.models.providers import Providers
from interlock.state.messages import TextDelta, Usage
from interlock.state.settings import Settings

TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("reply", "finish", "problem"), TABLE["finishes"])
async def test_finish_reasons_and_blocks_are_told(
    gemini: Any, reply: dict[str, Any], finish: str | None, problem: str | None
) -> None:
    got = (await gemini([reply]).ask("hi")).reply
    assert got.finish_reason == finish
    assert (got.problem is None) if problem is None else (problem in str(got.problem))


async def test_usage_is_the_providers(gemini: Any) -> None:
    counts = {
        "promptTokenCount": 1000,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 600,
        "totalTokenCount": 1027,
    }
    reply = (
        await gemini([{"text": "abcdef", "chunks": 3, "thought": "hm", "usage": counts}]).ask("hi")
    ).reply
    assert reply.usage == Usage(input=1000, output=27, cached=600, thoughts=7, usd=reply.usage.usd)
    assert reply.usage.usd == pytest.approx((400 * 1.25 + 600 * 0.125 + 27 * 10) / 1e6)


async def test_half_a_character_at_the_end_of_a_chunk_waits_for_the_other_half(gemini: Any) -> None:
    asked = await gemini([{"text": ["a\ud83d", "\ude00b", "\udc00c"]}]).ask("hi")
    assert [i.text for i in asked.items if isinstance(i, TextDelta)] == ["a", "😀b", "\ufffdc"]
    assert asked.reply.message.text == "a😀b\ufffdc"


@pytest.mark.parametrize(("model", "fields", "expected"), TABLE["requests"])
async def test_a_request_asks_as_its_model_takes_it(
    gemini: Any,
    fake_gemini: FakeGemini,
    model: dict[str, Any],
    fields: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    await gemini(["ok"], {"model": model}).ask("hi", **fields)
    config = fake_gemini.requests[0].body["generationConfig"]
    assert {key: config.get(key) for key in expected} == expected


async def test_the_list_of_models_that_refuse_a_temperature_is_the_clients() -> None:
    from langchain_google_genai import chat_models

    assert chat_models._FIXED_SAMPLING_AND_NO_PREFILL_MODELS == FIXED_SAMPLING


async def test_no_environment_variable_sends_a_run_elsewhere(
    gemini: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`network_off` fails the test if anything but loopback is reached."""
    monkeypatch.setenv("LANGSMITH_GATEWAY", "https://gateway.invalid")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert (await gemini(["ok"]).ask("hi")).text == "ok"


@pytest.mark.parametrize(("url", "read"), [("https://gemini.invalid", 1), ("http://127.0.0.1:9", 0)])
async def test_certificates_are_read_once_and_only_for_tls_and_are_always_asked_for(
    url: str, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ssl.SSLContext] = []
    make = ssl.create_default_context

    def counted(*args: Any, **options: Any) -> ssl.SSLContext:
        made.append(make(*args, **options))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.upper(), raising=False)
    env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": url}
    providers = Providers(env, None, ModelFacts(Settings.model_validate({}), env))
    provider: Any = await providers.provider_for("gemini-2.5-pro")
    client = provider._model.client._api_client
    used = [client._httpx_client, client._async_httpx_client]
    contexts = [c._transport._pool._ssl_context for c in used]
    await providers.aclose()
    assert len(made) == read and len({id(c) for c in [*made, *contexts]}) == 1
    assert contexts[0].verify_mode == ssl.CERT_REQUIRED and contexts[0].check_hostname
    assert bool(contexts[0].get_ca_certs()) == bool(read)


def test_tracing_is_off_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing of ours has run in this process, nor in this context.
    monkeypatch.setattr("langsmith._internal._context._GLOBAL_TRACING_ENABLED", None)
    fresh = Context()
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    get_env_var.cache_clear()
    asked = [fresh.run(tracing_is_enabled)]
    fresh.run(GeminiProvider, "gemini-2.5-pro", "k", "http://127.0.0.1:9")
    asked.append(fresh.run(tracing_is_enabled))
    get_env_var.cache_clear()
    assert asked == [True, False]
