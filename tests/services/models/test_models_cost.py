"""A request costs what its provider bills, within 1 %: tiers, and tokens read from and written to caches, included."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from local_server import Local, delta
from pydantic import ValidationError
from serving import Quiet, serving

from interlock.services.files.filesystem import lock_folder
from interlock.services.models import facts
from interlock.services.models.facts import ModelFacts
from interlock.services.models.model_table import TableEntry
from interlock.services.models.request import to_usage
from interlock.state.settings import Settings

OPENROUTER = {"OPENAI_BASE_URL": "https://openrouter.ai/api/v1", "OPENAI_API_KEY": "k"}
LOCAL = {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}
WRITTEN = {"cache_creation": 0, "ephemeral_5m_input_tokens": 2_051}
CLAUDES = 12 * 3 + 2_051 * 3.75 + 18_300 * 0.3 + 503 * 15


def tokens(spent: int, out: int, *, cached: int = 0, **written: int) -> dict[str, Any]:
    """As LangChain's clients convert what the providers report."""
    return {
        "input_tokens": spent,
        "output_tokens": out,
        "total_tokens": spent + out,
        "input_token_details": {"cache_read": cached, **written},
    }


PRO, CLAUDE = "gemini-2.5-pro", "anthropic:claude-sonnet-4-5"
ROUTED, OWN = "openai:anthropic/claude-sonnet-4.5", "openai:qwen3-coder"


@pytest.mark.parametrize(
    ("model", "used", "billed"),
    [
        # Gemini: promptTokenCount holds the cached, thoughts are billed as output; $1.25, $0.125 and $10 a million.
        (PRO, tokens(120_000, 4_600, cached=100_000), 20_000 * 1.25 + 100_000 * 0.125 + 4_600 * 10),
        # Over 200,000 tokens all of them cost $2.50, $0.25 and $15.
        (PRO, tokens(250_000, 4_600, cached=180_000), 70_000 * 2.5 + 180_000 * 0.25 + 4_600 * 15),
        (PRO, tokens(200_000, 1_000), 200_000 * 1.25 + 1_000 * 10),
        # OpenAI: prompt_tokens hold the cached, completion_tokens the reasoning; $1.25, $0.125 and $10.
        ("openai:gpt-5", tokens(21_000, 3_100, cached=18_432), 2_568 * 1.25 + 18_432 * 0.125 + 3_100 * 10),
        # Anthropic: input_tokens 12, cache_creation 2,051 (5 minutes), cache_read 18,300; $3, $3.75, $0.30 and $15.
        (CLAUDE, tokens(20_363, 503, cached=18_300, **WRITTEN), CLAUDES),
        # OpenRouter, by its address: its own prices, here those of the model behind it.
        (ROUTED, tokens(10_000, 400, cached=8_000), 2_000 * 3 + 8_000 * 0.3 + 400 * 15),
        (OWN, tokens(10_000, 400), 0),
    ],
)
def test_a_request_costs_what_the_provider_bills(model: str, used: dict[str, Any], billed: float) -> None:
    env, usage = {ROUTED: OPENROUTER, OWN: LOCAL}.get(model, {}), to_usage(used)
    assert usage
    assert ModelFacts(Settings(), env).cost_usd(model, usage) == pytest.approx(billed / 1e6, rel=0.01)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "more", "billed"),
    [
        # Reasoning is part of the completion, and cached tokens of the prompt.
        (
            "openai:gpt-5",
            {
                "prompt_tokens_details": {"cached_tokens": 8_432},
                "completion_tokens_details": {"reasoning_tokens": 256},
            },
            1_568 * 1.25 + 8_432 * 0.125 + 400 * 10,
        ),
        # OpenRouter says what it bills, whatever the tokens are.
        (ROUTED, {"cost": 0.01456}, 14_560),
        (OWN, {}, 0),
    ],
)
async def test_openais_protocol_is_billed_as_it_counts(
    bench: Any, local: Local, model: str, more: dict[str, Any], billed: float
) -> None:
    sent = {"prompt_tokens": 10_000, "completion_tokens": 400, "total_tokens": 10_400, **more}
    local.turns.append([delta(content="done"), delta("stop"), {"choices": [], "usage": sent}])
    usage = (await bench(local.env, {"model": {"name": model}}).ask("go")).reply.usage
    if model == "openai:gpt-5":  # asked at its own address it isn't free
        assert usage.thoughts == 256
        unbilled = usage.model_copy(update={"usd": None})
        usage = usage.model_copy(update={"usd": ModelFacts(Settings(), {}).cost_usd(model, unbilled)})
    assert usage.usd == pytest.approx(billed / 1e6, rel=0.01)


class _Claude(Quiet):
    """Streams one answer as Anthropic does: what was read is told at the start, what was written at the end."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        read = {"input_tokens": 12, "cache_creation_input_tokens": 2_051, "cache_read_input_tokens": 18_300}
        kept = {"cache_creation": {"ephemeral_5m_input_tokens": 2_051, "ephemeral_1h_input_tokens": 0}}
        about = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
        ends: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}
        start = {**about, **ends, "usage": {**read, **kept, "output_tokens": 2}}
        end = {"delta": {**ends, "stop_reason": "end_turn"}, "usage": {**read, "output_tokens": 503}}
        for event in (
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", **end},
            {"type": "message_stop"},
        ):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
async def test_anthropics_format_is_billed_as_it_counts(bench: Any) -> None:
    pytest.importorskip("langchain_anthropic")
    with serving(HTTPServer(("127.0.0.1", 0), _Claude)) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
        asked = await bench(env, {"model": {"name": CLAUDE}}).ask("go")
    usage = asked.reply.usage
    assert (usage.input, usage.cached, usage.written, usage.output) == (20_363, 18_300, 2_051, 503)
    assert usage.usd == pytest.approx(CLAUDES / 1e6, rel=0.01)


def test_the_providers_own_figure_wins_then_that_of_the_settings() -> None:
    price = {"input": 1, "output": 2, "cached": 0.5, "cacheWrite": 4}
    facts = ModelFacts(Settings.model_validate({"models": {"gemini": {"price": price}}}), {})
    usage = to_usage(tokens(1_000_000, 1_000_000, cached=200_000, cache_creation=100_000))
    assert usage
    assert facts.cost_usd("gemini-2.5-pro", usage) == pytest.approx(0.7 + 0.1 + 0.4 + 2)
    assert facts.cost_usd("gemini-2.5-pro", usage.model_copy(update={"usd": 0.25})) == 0.25
    assert facts.cost_usd("openai:never-heard-of", usage) is None


@pytest.mark.parametrize(
    ("model", "window"),
    [("openai:gpt-5", 400_000), ("anthropic:claude-sonnet-4-5", 200_000), ("gemini-2.5-pro", 1_048_576)],
)
def test_a_window_is_known_by_the_models_name(model: str, window: int) -> None:
    assert ModelFacts(Settings(), {}).resolve_context_window(model) == (window, True)
    own = Settings.model_validate({"models": {model: {"contextWindow": 5_000}}})
    assert ModelFacts(own, {}).context_window_tokens(model) == 5_000


def test_a_state_directory_loads_the_table_of_models_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> tuple[object, ...]:
        of = ModelFacts(Settings(), {}, tmp_path)
        return (
            of.resolve_context_window("openai:gpt-5"),
            [*(of.prices("openai:gpt-5") or ())],
            of.prices("openai:nobody"),
        )

    first = told()
    with monkeypatch.context() as patched:
        patched.setattr(facts, "look_up_table_entry", pytest.fail)
        assert told() == first and first[1]
    monkeypatch.setattr(facts, "price_table_cache_stamp", lambda: "tomorrow")
    monkeypatch.setattr(facts, "look_up_table_entry", Mock(return_value=TableEntry(7, None)))
    assert told() == ((7, True), [], None)


def test_what_is_learned_of_a_model_at_once_is_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread or process that waits for the file has read it before the other one wrote."""
    of, other = (ModelFacts(Settings(), {}, tmp_path) for _ in range(2))

    @contextmanager
    def waited(*given: Any) -> Generator[None]:
        monkeypatch.setattr(facts, "lock_folder", lock_folder)
        other.record_observations("openai:mine", per_estimate=1.5)
        with lock_folder(*given):
            yield

    monkeypatch.setattr(facts, "lock_folder", waited)
    of.record_observations("openai:mine", answered=True)
    assert of.observations("openai:mine") == facts.Observations(answered=True, per_estimate=1.5)


def test_of_an_unknown_model_one_line_says_what_is_assumed_and_how_to_set_it(tmp_path: Path) -> None:
    facts = ModelFacts(Settings(), {}, tmp_path)
    line = facts.take_unknown_model_notice("openai:never-heard-of")
    assert "1,048,576 tokens is assumed (models.NAME.contextWindow)" in line and "models.NAME.price" in line
    assert (
        facts.take_unknown_model_notice("openai:never-heard-of")
        == ""
        == facts.take_unknown_model_notice("gemini-2.5-pro")
    )
    entry = {"contextWindow": 9_000, "price": {"input": 1, "output": 2}}
    own = Settings.model_validate({"models": {"openai:mine": entry}})
    assert ModelFacts(own, {}, tmp_path).take_unknown_model_notice("openai:mine") == ""


def test_settings_say_what_a_model_can_take_and_write() -> None:
    own = {"outputLimit": 4_000, "takes": ["tools", "images"]}
    settings = Settings.model_validate({"models": {"openai:own": own}})
    assert ModelFacts(settings, {}).abilities("openai:own")[:2] == (4_000, ("tools", "images"))
    with pytest.raises(ValidationError, match="takes"):
        Settings.model_validate({"models": {"openai:own": {"takes": ["smells"]}}})


def test_an_estimate_learns_from_what_a_provider_counted_and_keeps_it(tmp_path: Path) -> None:
    model = "openai:qwen"
    facts = ModelFacts(Settings(), LOCAL, tmp_path, ask=False)
    facts.calibrate_token_estimate(model, 130, 100)
    assert facts.scale_estimate(model, 1_000) == 1_000, "a short request says little"
    facts.calibrate_token_estimate(model, 1_300, 1_000)
    assert facts.scale_estimate(model, 1_000) == 1_300
    assert ModelFacts(Settings(), LOCAL, tmp_path, ask=False).scale_estimate(model, 1_000) == 1_300
    facts.calibrate_token_estimate(model, 90_000, 1_000)
    assert facts.scale_estimate(model, 1_000) == 3_000, "what can't be is no measure"
    assert facts.scale_estimate("openai:other", 1_000) == 1_000
