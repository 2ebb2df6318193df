"""Servers of models: where they are, what they say of themselves, how long they may read, what is remembered."""

import socket
from asyncio.trsock import TransportSocket
from pathlib import Path
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini
from folders import table
from local_server import Local, delta

from interlock.services.models.facts import ModelFacts, ModelServer, is_private_address
from interlock.services.models.langchain import LangChainProvider
from interlock.state.events import Progress
from interlock.state.settings import Settings

TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")


def facts(env: dict[str, str], models: dict[str, Any] | None = None, home: Path | None = None) -> ModelFacts:
    return ModelFacts(Settings.model_validate({"models": models or {}}), env, home)


@pytest.mark.parametrize(("url", "near"), TABLE["near"])
def test_a_server_is_near_by_its_address(url: str, near: bool) -> None:
    assert is_private_address(url) is near


@pytest.mark.parametrize(("models", "more", "kind", "window"), TABLE["servers"])
def test_a_server_tells_its_kind_and_the_window_it_was_started_with(
    models: Any, more: dict[str, Any], kind: str, window: int, local: Local
) -> None:
    local.pages = {"/v1/models": models, **more}
    known = facts(local.env)
    assert (known.model_server("openai:qwen").kind, known.context_window_tokens("openai:qwen")) == (
        kind,
        window,
    )
    assert known.supports_json_schema("openai:qwen") is bool(kind)
    assert known.first_token_timeout_s("openai:qwen", 120) == 900, "a laptop may read for minutes"
    assert known.uses_small_prompt("openai:qwen") is (window < 32_000)
    chosen = {"firstTokenTimeout": 7, "protocol": "xml", "promptProfile": "full"}
    own = facts(local.env, {"openai": {"responseFormat": not kind, **chosen}})
    assert own.supports_json_schema("openai:qwen") is not bool(kind)
    assert own.first_token_timeout_s("openai:qwen", 120) == 7
    assert (own.resolve_call_protocol("openai:qwen", "auto"), own.uses_small_prompt("openai:qwen")) == (
        "xml",
        False,
    )


def test_only_our_limits_count_for_a_server_nearby(local: Local) -> None:
    pytest.importorskip("langchain_openai")
    client = LangChainProvider("openai:qwen", local.env, facts(local.env))._model
    assert (client.request_timeout, client.stream_chunk_timeout) == (None, None)


def test_a_server_elsewhere_is_asked_nothing() -> None:
    known = facts({"OPENAI_BASE_URL": "https://models.invalid/v1"})
    assert known.model_server("openai:x") == ModelServer("https://models.invalid/v1", False)
    assert (
        known.first_token_timeout_s("openai:x", 120),
        known.resolve_call_protocol("openai:x", "auto"),
    ) == (
        120,
        "native",
    )
    assert not known.uses_small_prompt("openai:x")


def test_a_slow_model_is_remembered_as_such(tmp_path: Path, local: Local) -> None:
    local.is_llama(64_000)
    known = facts(local.env, home=tmp_path)
    assert not known.uses_small_prompt("openai:qwen")
    known.record_answer_and_speed("openai:qwen", prompt_tokens=100, first_token_s=50)
    assert not known.uses_small_prompt("openai:qwen"), "a short request says little"
    known.record_answer_and_speed("openai:qwen", prompt_tokens=5_000, first_token_s=50)
    assert facts(local.env, home=tmp_path).uses_small_prompt("openai:qwen")
    (tmp_path / "models.json").write_text("{")
    assert not facts(local.env, home=tmp_path).uses_small_prompt("openai:qwen"), (
        "a broken file is learned again"
    )


@pytest.mark.anyio
async def test_a_server_that_tells_how_far_it_has_read_is_shown(bench: Any, local: Local) -> None:
    local.is_llama()
    local.turns += [
        [
            {**delta(role="assistant"), "prompt_progress": {"total": 900, "cache": 0, "processed": 512}},
            delta(content="hi"),
            delta("stop"),
        ]
    ]
    asked = await bench(local.env, {"model": {"name": "openai:qwen"}}).ask("go")
    assert asked.text == "hi" and local.asked[0]["return_progress"] is True
    assert [(e.done, e.total) for e in asked.events if isinstance(e, Progress)] == [(512, 900)]


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["openai:qwen", "gemini-3-pro-preview"])
@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has it")
async def test_a_servers_body_doesnt_wait_for_a_late_acknowledgement_of_its_head(
    bench: Any, local: Local, fake_gemini: FakeGemini, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model.startswith("openai"):
        pytest.importorskip("langchain_openai")
    local.turns += [[delta(content="done"), delta("stop")]] * 2
    fake_gemini.play(["done", "done"])
    done: list[tuple[int, ...]] = []

    def noted(own: TransportSocket, *option: int) -> None:
        done.append(option)
        own._sock.setsockopt(*option)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]

    monkeypatch.setattr(TransportSocket, "setsockopt", noted)
    run = bench({**local.env, **fake_gemini.env}, {"model": {"name": model}})
    for text in ("one", "two"):
        assert (await run.ask(text)).text == "done"
    assert done.count((socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)) == 2
