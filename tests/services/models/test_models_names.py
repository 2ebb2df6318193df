"""What a model's name means, and whether the model can be used at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import put

from interlock.services.models.names import (
    DEFAULT_LIMIT,
    ROLES,
    check_credentials,
    limit,
    resolve,
    role_model,
)
from interlock.state.errors import ConfigError, CredentialsError, UserError
from interlock.state.settings import Settings


def settings(**model: Any) -> Settings:
    return Settings.model_validate({"model": model})


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("auto", "gemini-2.5-pro"),
        ("pro", "gemini-2.5-pro"),
        ("flash", "gemini-3.8-flash"),
        ("flash-lite", "gemini-3.5-flash-lite"),
        ("gemini-9-ultra-preview-01", "gemini-9-ultra-preview-01"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini:gemini-2.5-pro", "gemini-2.5-pro"),
        ("google_genai:models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("openai:gpt-5", "openai:gpt-5"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("my_package.chat.MyChat:x", "my_package.chat.MyChat:x"),
    ],
)
def test_names_resolve(name: str, model: str) -> None:
    assert resolve(settings(), name) == model


def test_aliases_are_settings() -> None:
    ours = settings(
        aliases={"pro": "big", "big": "openai:gpt-5", "auto": "flash", "flash": "gemini-2.5-flash"}
    )
    assert resolve(ours, "pro") == "openai:gpt-5"
    assert resolve(ours, "auto") == "gemini-2.5-flash"


def test_aliases_in_a_circle_are_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="a → b → a"):
        resolve(settings(aliases={"a": "b", "b": "a"}), "a")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("flahs", "Did you mean 'flash"),
        ("gemni-2.5-pro", "Did you mean 'gemini-2.5-pro"),
        ("opnai:gpt-5", "Did you mean 'openai"),
        ("openai:", "provider:model"),
        ("script:", "script:FILE"),
        ("", "Expected an alias"),
        ("gpt-5", "openai:gpt-5"),
    ],
)
def test_what_cannot_be_a_model_is_told_with_the_nearest_names(name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(settings(), name)
    assert told in str(caught.value) and caught.value.exit_code == 2


def test_a_script_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert resolve(settings(), "script:s.yaml") == f"script:{tmp_path / 's.yaml'}"


def test_roles_have_aliases_and_settings_decide() -> None:
    assert {role: role_model(settings(), role) for role in ROLES} == ROLES
    assert role_model(settings(roles={"compressor": "pro"}), "compressor") == "pro"
    assert role_model(settings(name="gemini-2.5-flash"), "main") == "gemini-2.5-flash"


def test_helpers_use_the_main_model_where_it_is_not_geminis() -> None:
    elsewhere = settings(name="openai:gpt-5", roles={"loop_check": "flash"})
    assert role_model(elsewhere, "classifier") == "openai:gpt-5"
    assert role_model(elsewhere, "loop_check") == "flash"


def test_a_models_window_is_known_or_a_million() -> None:
    windows = {"pro": {"contextWindow": 5000}, "openai:gpt-5": {"contextWindow": 400_000}}
    ours = Settings.model_validate({"models": windows})
    assert [limit(ours, m) for m in ("gemini-2.5-pro", "openai:gpt-5", "gemini-x", "gemma-4-27b")] == [
        5000,
        400_000,
        DEFAULT_LIMIT,
        256_000,
    ]


def test_no_key_and_no_model_names_the_three_ways_to_go_on() -> None:
    with pytest.raises(CredentialsError) as caught:
        check_credentials(settings(), {})
    assert caught.value.exit_code == 41
    assert all(
        way in str(caught.value)
        for way in ("GEMINI_API_KEY", "-m provider:model", "interlock auth set gemini")
    )


@pytest.mark.parametrize("key", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_either_key_will_do(key: str) -> None:
    check_credentials(settings(), {key: "x"})
    with pytest.raises(CredentialsError):
        check_credentials(settings(), {key: ""}, "pro")


def test_a_script_needs_no_key(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("[]")
    check_credentials(settings(), {}, f"script:{tmp_path / 's.yaml'}")


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(UserError, match="pip install langchain-anthropic"):
        check_credentials(settings(), {"ANTHROPIC_API_KEY": "x"}, "anthropic:claude")


def test_a_provider_wants_its_key_or_its_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(tmp_path / "langchain_openai/__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CredentialsError, match="OPENAI_API_KEY or OPENAI_BASE_URL"):
        check_credentials(settings(), {}, "openai:gpt-5")
    check_credentials(settings(), {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}, "openai:qwen")


def test_importing_the_service_and_checking_credentials_loads_no_langchain() -> None:
    code = (
        "import sys; from interlock.services.models.chat import ChatModels\n"
        "from interlock.services.models.names import check_credentials\n"
        "from interlock.state.settings import Settings\n"
        "check_credentials(Settings.model_validate({}), {'GEMINI_API_KEY': 'x'})\n"
        "heavy = {'langchain_core', 'langchain_google_genai', 'google', 'langsmith', 'langgraph', 'httpx', 'yaml'}\n"
        "print(sorted(heavy & {m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
