"""What a tool's environment contains and what it doesn't."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.services.secrets.environment import (
    is_secret_name,
    secret_variables,
    tool_environment,
    withheld_variable_names,
)
from interlock.state.settings import EnvironmentSettings


@pytest.mark.parametrize(
    "name",
    [
        *("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "NPM_TOKEN", "TOKEN"),
        *("AWS_SECRET_ACCESS_KEY", "CLIENT_SECRET", "PGPASSWORD", "DB_PASSWORD", "MYSQL_PASSWORD_FILE"),
        *("SSH_KEY", "github_token", "APIKEY", "SMTP_PASS", "SSHPASS", "MYSQL_PWD", "DOCKER_AUTH"),
        *("npm_config__auth", "npm_config_//registry.example/:_authToken", "AZURE_DEVOPS_EXT_PAT", "JWT"),
        *("SESSION_JWT", "CREDS", "SERVICE_CREDS_2", "SENTRY_DSN", "REVIEW_TOKENS", "API_KEYS"),
        *("OPENAI_API_KEY_BACKUP", "SESSION_COOKIE", "COOKIES", "SLACK_WEBHOOK_URL", "DOCKER_AUTH_CONFIG"),
        *("CI_JOB_JWT_V2", "AZURE_STORAGE_CONNECTION_STRING", "DEPLOY_KEY_B64", "NPM_TOKEN_RO", "STRIPE_SK"),
        *("SALT", "WALLET_MNEMONIC", "ADMIN_PW"),
    ],
)
def test_secrets_are_left_out(name: str) -> None:
    assert is_secret_name(name)
    assert name not in tool_environment({name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LANG", "PWD", "OLDPWD", "VIRTUAL_ENV", "KEYBOARD", "TOKENIZERS_PARALLELISM"),
        *("MONKEY", "COMPASS", "XAUTHORITY", "GIT_AUTHOR_NAME", "DISPATCH", "XPATH", "PASSENGER_HOME"),
        *("DESK", "SALTS_HOME", "PWD_V2_PATH", "CONNECTION_STATE"),
    ],
)
def test_what_is_no_secret_stays(name: str) -> None:
    assert tool_environment({name: "x"})[name] == "x"


def test_nothing_waits_for_a_terminal() -> None:
    env = tool_environment(
        {"TERM": "xterm-256color", "PAGER": "less", "GIT_PAGER": "delta", "FORCE_COLOR": "3"}
    )
    assert env["TERM"] == "dumb" and env["PAGER"] == env["GIT_PAGER"] == "cat" and env["NO_COLOR"] == "1"
    assert env.keys().isdisjoint({"FORCE_COLOR"})


def rules(**given: object) -> EnvironmentSettings:
    return EnvironmentSettings.model_validate(given)


@pytest.mark.parametrize(
    "value",
    [
        "ghp_" + "aB3d" * 9,
        "AKIAIOSFODNN7EXAMPLE",
        "postgres://me:s3cret@host/db",
        "http://me:s3cret@proxy:8080",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "-----BEGIN PRIVATE KEY-----\n" + "Ab3/" * 16 + "\n-----END PRIVATE KEY-----",
    ],
)
def test_a_value_that_is_a_secret_is_left_out_whatever_it_is_called(value: str) -> None:
    assert "HARMLESS" not in tool_environment({"HARMLESS": value})
    assert tool_environment({"HARMLESS": value}, rules=rules(allowed=["HARMLESS"]))["HARMLESS"] == value


def test_what_makes_a_program_read_a_line_otherwise_is_left_out(tmp_path: Path) -> None:
    """Policy has decided about `sub` and about what a plain `rg` shows."""
    (tmp_path / "other" / "sub").mkdir(parents=True)
    (tmp_path / "sub" / "file").mkdir(parents=True)
    (tmp_path / "sub" / ".dot").touch()
    (tmp_path / "rc").write_text("--hidden\n")
    given = {
        "CDPATH": str(tmp_path / "other"),
        "SHELLOPTS": "noglob",
        "GLOBIGNORE": "nothing",
        "RIPGREP_CONFIG_PATH": str(tmp_path / "rc"),
    }
    env = tool_environment({"PATH": os.environ["PATH"], **given})
    ran = subprocess.run(
        ["bash", "-c", "cd sub; pwd -P; echo *"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert ran.stdout == f"{(tmp_path / 'sub').resolve()}\nfile\n"
    assert env.keys().isdisjoint(given)


@pytest.mark.parametrize(
    ("environ", "chosen", "back"),
    [
        # Sockets that lend out keys are left out unless named.
        ({"SSH_AUTH_SOCK": "/run/agent", "HTTP_PROXY": "http://proxy:8080"}, {}, ["SSH_AUTH_SOCK"]),
        ({"SSH_AUTH_SOCK": "/run/agent"}, {"allowed": ["SSH_AUTH_SOCK"]}, []),
        # Settings say what is kept back, and blocked wins.
        ({"A_TOKEN": "x", "PLAIN": "y"}, {"allowed": ["A_TOKEN"], "blocked": ["PLAIN"]}, ["PLAIN"]),
        ({"A_TOKEN": "x"}, {"allowed": ["A_TOKEN"], "blocked": ["A_TOKEN"]}, ["A_TOKEN"]),
        ({"A_TOKEN": "x", "LANG": "C"}, {"enabled": False, "blocked": ["LANG"]}, ["LANG"]),
    ],
)
def test_settings_say_what_is_kept_back(
    environ: dict[str, str], chosen: dict[str, object], back: list[str]
) -> None:
    assert withheld_variable_names(environ, rules(**chosen)) == back


def test_what_is_looked_for_in_texts_are_secrets_not_words_and_not_names_of_files(tmp_path: Path) -> None:
    environ = {
        "A_TOKEN": "some-value-1",
        "DB_PASSWORD": "changeme",
        "SSH_KEY": str(tmp_path),
        "DATABASE": "postgres://me:s3cret-word@host/db",
        "BLOCKED": "kept by name",
        "PLAIN": "nothing at all",
    }
    found = secret_variables(environ, rules(blocked=["BLOCKED"]))
    assert found == {"A_TOKEN": "some-value-1", "DATABASE": "s3cret-word", "BLOCKED": "kept by name"}


CLEARED = """
import ctypes, json, os, subprocess
from pathlib import Path
from interlock.services.secrets.environment import hide_process_environment
before = dict(os.environ)
hide_process_environment()
try:
    block = Path("/proc/self/environ").read_bytes().strip(b"\\0").decode()
except PermissionError:  # for all but root
    block = ""
child = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.decode()
print(json.dumps({
    "same": dict(os.environ) == before and os.environ["A_TOKEN"] == "planted-0123",
    "block": block,
    "child": dict(line.split("=", 1) for line in child.split("\\0") if line),
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what other systems show isn't ours to change")
def test_a_cleared_process_shows_no_environment_and_still_has_it() -> None:
    given = {"PATH": os.environ["PATH"], "A_TOKEN": "planted-0123", "PLAIN": "ä", "EMPTY": ""}
    done = subprocess.run([sys.executable, "-c", CLEARED], env=given, capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert (told["same"], told["block"], told["dumpable"]) == (True, "", 0)
    assert {n: told["child"].get(n) for n in given} == given | {"A_TOKEN": None}
