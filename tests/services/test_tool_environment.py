"""What the environment of a tool holds and what it doesn't."""

import pytest

from interlock.services.tool_environment import is_secret, tool_environment


@pytest.mark.parametrize(
    "name",
    [
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "NPM_TOKEN",
        "TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "CLIENT_SECRET",
        "PGPASSWORD",
        "DB_PASSWORD",
        "MYSQL_PASSWORD_FILE",
        "SSH_KEY",
        "github_token",
        "APIKEY",
    ],
)
def test_secrets_are_left_out(name: str) -> None:
    assert is_secret(name)
    assert name not in tool_environment({name: "x"})
    assert tool_environment({name: "x"}, keep=[name])[name] == "x"


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "VIRTUAL_ENV", "KEYBOARD", "TOKENIZERS_PARALLELISM", "MONKEY"]
)
def test_what_is_no_secret_stays(name: str) -> None:
    assert tool_environment({name: "x"})[name] == "x"


def test_nothing_waits_for_a_terminal() -> None:
    env = tool_environment(
        {"TERM": "xterm-256color", "PAGER": "less", "GIT_PAGER": "delta", "FORCE_COLOR": "3"}
    )
    assert env["TERM"] == "dumb" and env["PAGER"] == env["GIT_PAGER"] == "cat" and env["NO_COLOR"] == "1"
    assert "FORCE_COLOR" not in env
