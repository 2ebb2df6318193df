"""Helpers ask a vendor's small model; options that a model refuses are left out and remembered."""

import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.services.models.facts import ModelFacts
from interlock.services.models.model_table import read_abilities
from interlock.services.models.names import (
    choose_helper_model_and_fallback,
    has_reliable_completion_signal,
    small_model_of_same_vendor,
)
from interlock.state.settings import Settings

pytestmark = pytest.mark.anyio
US, EU = "bedrock:us.anthropic.claude-", "bedrock:eu.anthropic.claude-"


@pytest.mark.parametrize(
    ("main", "role", "small"),
    [
        ("anthropic:claude-sonnet-4-5", "next_speaker", "anthropic:claude-haiku-4-5"),
        ("anthropic:claude-sonnet-4-5", "compressor", "anthropic:claude-haiku-4-5"),
        ("anthropic:claude-sonnet-4-5", "investigator", ""),
        ("openai:gpt-5", "classifier", "openai:gpt-5-nano"),
        ("openai:gpt-5", "compressor", "openai:gpt-5-mini"),
        ("openai:qwen3-coder", "classifier", ""),
        (f"{US}sonnet-4-5-20250929-v1:0", "summarizer", f"{US}haiku-4-5-20251001-v1:0"),
        (f"{EU}sonnet-4-5-20250929-v1:0", "summarizer", f"{EU}haiku-4-5-20251001-v1:0"),
        ("groq:llama-3.3-70b-versatile", "summarizer", ""),
    ],
)
def test_a_role_of_a_small_model_asks_the_vendors_own(main: str, role: str, small: str) -> None:
    assert small_model_of_same_vendor(main, role) == small
    settings = Settings.model_validate({"model": {"name": main}})
    assert choose_helper_model_and_fallback(settings, role, is_self_hosted=False) == (
        (small, main) if small else (main, "")
    )
    assert choose_helper_model_and_fallback(settings, role, is_self_hosted=True) == (main, ""), (
        "a server nearby has its own models only"
    )
    chosen = Settings.model_validate({"model": {"name": main, "roles": {role: "openai:mine"}}})
    assert choose_helper_model_and_fallback(chosen, role, is_self_hosted=False) == ("openai:mine", "")


@pytest.mark.parametrize(
    ("model", "warm"),
    [
        ("openai:gpt-5", False),
        ("openai:gpt-5-2025-08-07", False),
        ("openai:o3", False),
        ("openai:gpt-5.1-codex", False),
        ("openai:gpt-5-chat-latest", True),
        ("openai:gpt-4.1", True),
        ("openai:qwen3-coder", True),
    ],
)
def test_a_model_that_reasons_is_sent_no_temperature(model: str, warm: bool) -> None:
    pytest.importorskip("langchain_openai")
    assert read_abilities(model).temperature is warm


def test_the_ends_of_some_vendors_are_reliable() -> None:
    reliable = ("anthropic:claude-x", "openai:gpt-5", "openai:o3", f"{EU}x", "openrouter:anthropic/claude-x")
    assert all(map(has_reliable_completion_signal, reliable))
    assert not any(
        map(
            has_reliable_completion_signal,
            ("openai:gpt-oss-20b", "openai:qwen3", "gemini-2.5-pro", "script:x"),
        )
    )


async def test_an_option_that_is_refused_is_left_out_from_then_on(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    name = "sample_chat.SampleChat:x1"
    settings = {"model": {"name": name}}
    facts = ModelFacts(Settings.model_validate(settings), {}, tmp_path)
    run = bench(settings=settings, facts=facts)
    model = (await run.models._providers.provider_for(name))._model
    fine = [{"content": "ok", "response_metadata": {"stop_reason": "end_turn"}}]
    model.turns += [ValueError("Unsupported value: 'temperature' does not support 0.0"), fine, fine]
    for _ in range(2):
        assert (await run.ask("hi")).text == "ok"
    assert ["temperature" in options for options in model.options] == [True, False, False]
    assert ModelFacts(Settings(), {}, tmp_path).observations(name).refuses == ["temperature"], (
        "for other runs, too"
    )
    sys.modules.pop("sample_chat")


async def test_a_small_model_that_cannot_be_had_is_replaced_by_the_main_one(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.services.models import names

    monkeypatch.syspath_prepend(Path(__file__).parent)
    small, main = "sample_chat.SampleChat:small", "sample_chat.SampleChat:main"
    monkeypatch.setattr(names, "small_model_of_same_vendor", lambda _main, _role: small)
    run = bench(settings={"model": {"name": main}})
    fine = [{"content": "{}", "response_metadata": {"stop_reason": "end_turn"}}]
    (await run.models._providers.provider_for(small))._model.turns.append(
        ValueError("no access to this model")
    )
    (await run.models._providers.provider_for(main))._model.turns += [fine, fine]
    replies = [(await run.ask("hi", role="summarizer", schema={"type": "object"})).reply for _ in range(2)]
    assert [reply.model for reply in replies] == [main, main], "and isn't asked again"
    sys.modules.pop("sample_chat")
