"""What a model's name means, and whether the model can be used at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import table, tree

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

TABLE: dict[str, list[Any]] = table(__file__, "models.yaml")


def settings(**model: Any) -> Settings:
    return Settings.model_validate({"model": model})


@pytest.mark.parametrize(("name", "model", "given"), TABLE["names"])
def test_names_resolve(name: str, model: str, given: dict[str, Any]) -> None:
    assert resolve(settings(**given), name) == model


@pytest.mark.parametrize(("name", "told"), TABLE["no models"])
def test_what_cannot_be_a_model_is_told_with_the_nearest_names(name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(settings(), name)
    assert told in str(caught.value) and caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="a → b → a"):
        resolve(settings(aliases={"a": "b", "b": "a"}), "a")


def test_a_script_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert resolve(settings(), "script:s.yaml") == f"script:{tmp_path / 's.yaml'}"


def test_roles_have_aliases_and_settings_decide() -> None:
    """Helpers use the main model where it isn't Gemini's."""
    assert {role: role_model(settings(), role) for role in ROLES} == ROLES
    assert role_model(settings(roles={"compressor": "pro"}), "compressor") == "pro"
    assert role_model(settings(name="gemini-2.5-flash"), "main") == "gemini-2.5-flash"
    elsewhere = settings(name="openai:gpt-5", roles={"loop_check": "flash"})
    assert [role_model(elsewhere, r) for r in ("classifier", "loop_check")] == ["openai:gpt-5", "flash"]


def test_a_models_window_is_known_or_a_million() -> None:
    ours = settings(tokenLimits={"pro": 5000, "openai:gpt-5": 400_000})
    found = {m: limit(ours, m) for m in ("gemini-2.5-pro", "openai:gpt-5", "gemini-x", "gemma-4-27b")}
    assert [*found.values()] == [5000, 400_000, DEFAULT_LIMIT, 256_000]


@pytest.mark.parametrize(("model", "env", "refused"), TABLE["credentials"])
def test_a_model_wants_its_package_and_its_key_or_its_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str | None, env: dict[str, str], refused: str
) -> None:
    tree(tmp_path, {"langchain_openai/__init__.py": "", "s.yaml": "[]"})
    monkeypatch.syspath_prepend(tmp_path)
    named = [model.replace("{here}", str(tmp_path))] if model else []
    if not refused:
        return check_credentials(settings(), env, *named)
    with pytest.raises(UserError if "pip" in refused else CredentialsError, match=refused) as caught:
        check_credentials(settings(), env, *named)
    assert caught.value.exit_code == (2 if "pip" in refused else 41)


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
