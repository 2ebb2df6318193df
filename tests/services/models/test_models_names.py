"""What a model's name means, and whether the model can be used at all."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from folders import table, tree

from interlock.services.config.settings import load_settings
from interlock.services.models.names import (
    DEFAULT_LIMIT,
    ROLE_ALIASES,
    configured_context_window,
    require_usable_model,
    resolve_model,
    unresolved_model_for_role,
)
from interlock.services.models.options import BEDROCK_FIELDS, thinking_effort_options
from interlock.services.packages import EXTRAS, extra_packages, install_command, missing_packages
from interlock.state.errors import ConfigError, CredentialsError, UserError
from interlock.state.settings import Settings

ROOT = Path(__file__).parents[3]
TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")


def settings(**model: Any) -> Settings:
    return Settings.model_validate({"model": model})


@pytest.mark.parametrize(("name", "model", "given"), TABLE["names"])
def test_names_resolve(name: str, model: str, given: dict[str, Any]) -> None:
    assert resolve_model(settings(**given), name) == model


@pytest.mark.parametrize(("name", "told"), TABLE["no models"])
def test_what_cannot_be_a_model_is_told_with_the_nearest_names(name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_model(settings(), name)
    assert told in str(caught.value) and caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="a → b → a"):
        resolve_model(settings(aliases={"a": "b", "b": "a"}), "a")


def test_a_script_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert resolve_model(settings(), "script:s.yaml") == f"script:{tmp_path / 's.yaml'}"


def test_roles_have_aliases_and_settings_decide() -> None:
    """Helpers use the main model where it isn't Gemini's."""
    assert {role: unresolved_model_for_role(settings(), role) for role in ROLE_ALIASES} == ROLE_ALIASES
    assert unresolved_model_for_role(settings(roles={"compressor": "pro"}), "compressor") == "pro"
    assert unresolved_model_for_role(settings(name="gemini-2.5-flash"), "main") == "gemini-2.5-flash"
    elsewhere = settings(name="openai:gpt-5", roles={"loop_check": "flash"})
    assert [unresolved_model_for_role(elsewhere, r) for r in ("classifier", "loop_check")] == [
        "openai:gpt-5",
        "flash",
    ]


def test_a_models_window_is_known_or_a_million() -> None:
    windows = {"pro": {"contextWindow": 5000}, "openai:gpt-5": {"contextWindow": 400_000}}
    ours = Settings.model_validate({"models": windows})
    found = {
        m: configured_context_window(ours, m)
        for m in ("gemini-2.5-pro", "openai:gpt-5", "gemini-x", "gemma-4-27b")
    }
    assert [*found.values()] == [5000, 400_000, DEFAULT_LIMIT, 256_000]


@pytest.mark.parametrize(("model", "env", "refused"), TABLE["credentials"])
def test_a_model_wants_its_package_and_its_key_or_its_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str | None, env: dict[str, str], refused: str
) -> None:
    tree(tmp_path, {"langchain_openai/__init__.py": "", "s.yaml": "[]"})
    monkeypatch.syspath_prepend(tmp_path)
    named = [model.replace("{here}", str(tmp_path))] if model else []
    if not refused:
        return require_usable_model(settings(), env, *named)
    with pytest.raises(UserError if "pip" in refused else CredentialsError, match=refused) as caught:
        require_usable_model(settings(), env, *named)
    assert caught.value.exit_code == (2 if "pip" in refused else 41)


def test_importing_the_service_and_checking_credentials_loads_no_langchain() -> None:
    code = (
        "import sys; from interlock.services.models.chat import ChatModels\n"
        "from interlock.services.models.names import require_usable_model\n"
        "from interlock.state.settings import Settings\n"
        "require_usable_model(Settings.model_validate({}), {'GEMINI_API_KEY': 'x'})\n"
        "heavy = {'langchain_core', 'langchain_google_genai', 'google', 'langsmith', 'langgraph', 'httpx', 'yaml'}\n"
        "print(sorted(heavy & {m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


VENDORS: list[Any] = [
    (
        {},
        {"ANTHROPIC_API_KEY": "x"},
        None,
        ["anthropic:claude-opus-5-5", "anthropic:claude-haiku-5-5"],
        "Claude",
    ),
    ({}, {"OPENAI_API_KEY": "x"}, None, ["openai:gpt-6.1-sol", "openai:gpt-6-luna"], "GPT"),
    ({}, {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}, None, ["anthropic:claude-opus-5-5"], "Claude"),
    ({}, {"GEMINI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}, None, ["gemini-2.5-pro", "gemini-3.8-flash"], ""),
    ({}, {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": "http://box:8080/v1"}, None, ["gemini-2.5-pro"], ""),
    ({}, {}, None, ["gemini-2.5-pro"], ""),
    ({}, {"GEMINI_API_KEY": "x"}, "sonnet", ["anthropic:claude-sonnet-5-5"], ""),
    ({"name": "gpt-5"}, {"GEMINI_API_KEY": "x"}, "flash", ["openai:gpt-6-luna"], ""),
    ({"name": "gpt-5"}, {"GEMINI_API_KEY": "x"}, "auto", ["openai:gpt-6.1-sol"], ""),
    ({"aliases": {"flash": "ollama:q"}}, {"OPENAI_API_KEY": "x"}, "flash", ["ollama:q"], ""),
]


@pytest.mark.parametrize(("model", "env", "flag", "means", "said"), VENDORS)
def test_large_and_small_are_those_of_the_default_models_vendor(
    tmp_path: Path, model: dict[str, Any], env: dict[str, str], flag: str | None, means: list[str], said: str
) -> None:
    """The default is the model that is set, whatever `-m` says of its size, else the first vendor with a key."""
    tree(tmp_path, {".interlock/settings.json": json.dumps({"model": model}), "w/x": ""})
    over = {"model": {"name": flag}} if flag else {}
    given: dict[str, Any] = {"workspace": tmp_path / "w", "home": tmp_path, "trusted": True}
    loaded = load_settings(**given, env=env, overrides=over)
    names = [flag or "auto", "flash"]
    assert [resolve_model(loaded.settings, name) for name in names][: len(means)] == means
    assert [said in line for line in loaded.warnings] == [True] * bool(said)


WAYS: list[Any] = [
    ({"pipx_metadata.json": "{}"}, False, "pipx inject interlock-agent langchain-groq"),
    ({"pipx_metadata.json": "{}"}, True, "pipx inject --force interlock-agent langchain-groq"),
    (
        {"uv-receipt.toml": '[tool]\nrequirements = [{name = "interlock-agent"}]\n'},
        False,
        "uv tool install --with langchain-groq interlock-agent",
    ),
    (
        {
            "uv-receipt.toml": '[tool]\nrequirements = [{name = "interlock-agent", extras = ["code"]}, {name = "a"}]\n'
        },
        True,
        "uv tool install --with a --with langchain-groq --upgrade-package langchain-groq 'interlock-agent[code]'",
    ),
    ({"pyvenv.cfg": "home = /usr/bin\n"}, False, "/v/bin/python -m pip install langchain-groq"),
    ({}, True, "/v/bin/python -m pip install -U langchain-groq"),
]


@pytest.mark.parametrize(("files", "upgrade", "command"), WAYS)
def test_a_missing_package_is_installed_the_way_interlock_was(
    tmp_path: Path, files: dict[str, str], upgrade: bool, command: str
) -> None:
    tree(tmp_path, files)
    told = install_command("langchain-groq", upgrade=upgrade, prefix=tmp_path, python="/v/bin/python")
    assert told == command


def test_each_extra_can_be_installed_by_its_name() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"dev", "vertex"}, "EXTRAS in services/packages.py"
    assert extra_packages("memory") == declared["memory"]
    assert {*declared["openai"], *declared["bedrock"]} <= set(extra_packages("all-models"))
    assert missing_packages(["pytest>=9", "pytest>=9000", "no-such-package"]) == [
        "pytest>=9000",
        "no-such-package",
    ]


EFFORTS: list[Any] = [
    ("ChatAnthropic", "claude-opus-5-5", "medium", None, {"reasoning_effort": "medium"}),
    ("ChatAnthropic", "claude-opus-4-5-20251101", "low", None, {"reasoning_effort": "low"}),
    (
        "ChatAnthropic",
        "claude-sonnet-4-5",
        "high",
        None,
        {"thinking": {"type": "enabled", "budget_tokens": 24_576}},
    ),
    (
        "ChatAnthropic",
        "claude-sonnet-4-5",
        "high",
        4000,
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    ),
    ("ChatAnthropic", "claude-sonnet-4-5", "high", 1500, {}),
    ("ChatAnthropic", "claude-3-5-haiku-latest", "high", None, None),
    ("ChatOpenAI", "gpt-5", "medium", None, {"reasoning_effort": "medium"}),
    ("ChatOpenAI", "anthropic/claude-sonnet-4.5", "low", None, {"reasoning_effort": "low"}),
    ("ChatOpenAI", "gpt-4o", "high", None, None),
    ("ChatOpenAI", "gpt-4o", "auto", None, {}),
    ("ChatGoogleGenerativeAI", "gemini-3-pro", "high", None, {"reasoning_effort": "high"}),
    ("ChatOllama", "gpt-oss:20b", "low", None, {"reasoning": "low"}),
    ("ChatOllama", "qwen3:8b", "high", None, {"reasoning": True}),
    ("ChatMistralAI", "mistral-small-latest", "high", None, {"reasoning_effort": "high"}),
    ("ChatMistralAI", "mistral-small-latest", "low", None, {"reasoning_effort": "none"}),
    ("ChatMistralAI", "magistral-medium-latest", "high", None, None),
    ("ChatDeepSeek", "deepseek-v4-flash", "medium", None, {"reasoning_effort": "medium"}),
    ("ChatDeepSeek", "deepseek-chat", "high", None, None),
    ("ChatDeepSeek", "deepseek-flash", "low", None, {"reasoning_effort": "low"}),
    ("ChatXAI", "grok-3-mini", "medium", None, {"reasoning_effort": "high"}),
    *(
        ("ChatXAI", name, "high", None, None)
        for name in (
            *("grok-2-vision", "grok-3-fast", "grok-4", "grok-4-0709", "grok-4-fast-reasoning"),
            *("grok-4-1-fast", "grok-4.20-0309-reasoning", "grok-code-fast-1", "grok-build-0.1"),
        )
    ),
    ("ChatXAI", "grok-4.3", "medium", None, {"reasoning_effort": "medium"}),
    ("ChatXAI", "grok-4.7", "low", None, {"reasoning_effort": "low"}),
    ("ChatGroq", "openai/gpt-oss-120b", "medium", None, {"reasoning_effort": "medium"}),
    ("ChatGroq", "qwen/qwen3-32b", "low", None, {"reasoning_effort": "none"}),
    ("ChatGroq", "llama-3.3-70b-versatile", "high", None, None),
    ("ChatTogether", "openai/gpt-oss-20b", "low", None, {"reasoning_effort": "low"}),
    ("ChatTogether", "deepseek-ai/DeepSeek-V4-Pro", "high", None, {"reasoning_effort": "high"}),
    ("ChatTogether", "zai-org/GLM-5.1", "medium", None, {"extra_body": {"reasoning": {"enabled": True}}}),
    ("ChatTogether", "moonshotai/Kimi-K2.6", "low", None, {"extra_body": {"reasoning": {"enabled": False}}}),
    *(
        ("ChatTogether", name, "low", None, None)
        for name in (
            *("meta-llama/Llama-4-Scout", "MiniMaxAI/MiniMax-M2.7", "deepseek-ai/DeepSeek-R1"),
            *("Qwen/Qwen3-Coder-Next-FP8", "moonshotai/Kimi-K2.7-Code"),
        )
    ),
    ("ChatFireworks", "accounts/fireworks/models/glm-5p2", "medium", None, {"reasoning_effort": "high"}),
    ("ChatFireworks", "accounts/fireworks/models/glm-5p3", "low", None, {"reasoning_effort": "low"}),
    ("ChatFireworks", "accounts/fireworks/models/kimi-k2p6", "medium", None, {"reasoning_effort": "medium"}),
    *(
        ("ChatFireworks", f"accounts/fireworks/models/{name}", "high", None, None)
        for name in ("kimi-k2-instruct", "qwen3-coder-480b-a35b-instruct", "deepseek-v3", "deepseek-r1")
    ),
    ("ChatFireworks", "accounts/fireworks/models/llama-v4", "high", None, None),
    (
        *("ChatBedrockConverse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "low", None),
        {BEDROCK_FIELDS: {"thinking": {"type": "enabled", "budget_tokens": 4096}}},
    ),
    (
        *("ChatBedrockConverse", "us.anthropic.claude-opus-5-5-v1:0", "high", None),
        {BEDROCK_FIELDS: {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}},
    ),
    (
        *("ChatBedrockConverse", "us.amazon.nova-2-lite-v1:0", "medium", None),
        {BEDROCK_FIELDS: {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}}},
    ),
    (
        *("ChatBedrockConverse", "openai.gpt-oss-120b-1:0", "high", None),
        {BEDROCK_FIELDS: {"reasoning_effort": "high"}},
    ),
    ("ChatBedrockConverse", "us.amazon.nova-pro-v1:0", "high", None, None),
    ("SomebodysChat", "m", "high", None, None),
]


@pytest.mark.parametrize(("client", "model", "level", "most", "options"), EFFORTS)
def test_each_provider_gets_the_thought_level_in_its_own_way(
    client: str, model: str, level: Any, most: int | None, options: dict[str, Any] | None
) -> None:
    assert thinking_effort_options(client, model, level, most) == options
