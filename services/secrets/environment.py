"""environment: the environment of tools, hooks and MCP servers, and protection of the rest from being read.

It contains no secrets and nothing that makes programs wait for a terminal.

Withheld, unless `security.environmentVariableRedaction.allowed` lists them: variables named like a secret (`*_KEY`,
`*_TOKEN`, `*PASSWORD`, …), values shaped like one (an access key, a JSON Web Token, a private key, a URL with a
password), and sockets that lend keys (`SSH_AUTH_SOCK`). Everything else is passed on: `PATH`, `HOME`, `LANG`, a
virtual environment, proxies without a password. Variables from a `.env` file are treated alike.

A command can also read the driver's original environment (`/proc/PID/environ`): `hide_process_environment` empties
that.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.services.secrets.redaction import find_secret_shapes

if TYPE_CHECKING:
    from interlock.state.settings import EnvironmentSettings

_SECRET = re.compile(
    r"(?<![^_.:-])(KEYS?|TOKENS?|PASS|PAT|AUTH|DSN|JWTS?|CREDS?|BEARER|SSHPASS|DBPASS|PW|SK|SALT|MNEMONIC|HMAC|OTP)"
    r"([_-]?(V?[0-9]+|B(ASE)?64|R[OW]))*$|_PWD$|COOKIES?$|AUTH_?CONFIG|CONN(ECTION)?_?STR|SEED_?PHRASE"
    r"|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|(AUTH|ACCESS|BEARER|REFRESH)_?TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET"
    r"|CREDENTIAL|WEBHOOK_?URL",
    re.IGNORECASE,
)
"""Whole words at the end of a name (except `PWD` and `OLDPWD`, which are folders), and telling words anywhere."""
_LENT = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO"})
"""Not secret themselves, but they give access to the user's keys."""
_NAMES_A_FILE = "INTERLOCK_AUDIT_KEY"
"""Also when the file is gone: an error that hides its name helps nobody."""
_NO_TERMINAL = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
}
_OUR_GIT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Keeps a folder that only looks like a repository from supplying git settings, which may name programs to run."""
_FOR_TERMINALS = frozenset({"COLUMNS", "LINES", "FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM"})
_KNOWN = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
"""What a command gets of the environment of a worker that runs it for somebody else."""
_READ_OTHERWISE = frozenset({"CDPATH", "SHELLOPTS", "BASHOPTS", "GLOBIGNORE", "RIPGREP_CONFIG_PATH"})
"""With these a line would do something else than policy read in it: `cd sub` leads elsewhere, `rg` shows `.env`."""
_WORDS = frozenset(
    {"password", "passwords", "changeme", "changeit", "localhost", "development", "production"}
)
"""Placeholders and ordinary words: redacting them would garble texts."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable's name is a secret's: *_KEY, *_TOKEN, *_SECRET, *PASSWORD, *_AUTH, *_DSN and
    the like."""
    return _SECRET.search(name) is not None


def withheld_variable_names(
    environ: Mapping[str, str], rules: "EnvironmentSettings | None" = None
) -> list[str]:
    """Return the names of the variables withheld from tools, hooks and MCP servers, in order."""
    return [name for name, value in environ.items() if _is_withheld(name, value, rules)]


def tool_environment(
    environ: Mapping[str, str], rules: "EnvironmentSettings | None" = None
) -> dict[str, str]:
    """Return `environ` without secrets, adapted to processes without a terminal."""
    left_out = {*withheld_variable_names(environ, rules), *_FOR_TERMINALS, *_READ_OTHERWISE}
    return {name: value for name, value in environ.items() if name not in left_out} | _NO_TERMINAL | _OUR_GIT


def foreign_run_environment(
    environ: Mapping[str, str], rules: "EnvironmentSettings | None" = None
) -> dict[str, str]:
    """Return the environment for commands of somebody else's run: only what every program needs, and what `rules`
    allow."""
    allowed = rules.allowed if rules else ()
    known = {
        name: value
        for name, value in environ.items()
        if name.upper() in _KNOWN or name.startswith("LC_") or name in allowed
    }
    return tool_environment(known, rules)


def without_store_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without what leads a program to the store's server."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("PG") and name != "INTERLOCK_STORE"
    }


def secret_variables(
    environ: Mapping[str, str], rules: "EnvironmentSettings | None" = None
) -> dict[str, str]:
    """Return the secrets in the environment, name → value: they must not be disclosed, even if passed to tools."""
    blocked = rules.blocked if rules else []
    found: dict[str, str] = {}
    for name, value in environ.items():
        parts = [value[span.start : span.end] for span in find_secret_shapes(value)]
        if (
            (is_secret_name(name) or name in blocked)
            and name != _NAMES_A_FILE
            and not _is_common_word_or_existing_path(value)
        ):
            parts.append(value)
        found |= {name if not i else f"{name}.{i}": part for i, part in enumerate(parts)}
    return found


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets among request headers, name → value; for `Bearer X`, X."""
    names = [n for n in headers if n.lower() in ("authorization", "proxy-authorization") or is_secret_name(n)]
    return {name: headers[name].split()[-1] for name in names if headers[name].strip()}


def hide_process_environment() -> None:
    """Empty `/proc/PID/environ` on Linux, and restrict this process's memory and core dumps to root. `os.environ`
    is unchanged; the C library keeps non-secret variables for programs started without an explicit environment.
    Call at start-up, before there are threads.

    `os.environ` is unchanged; the C library keeps non-secret variables for programs started without an explicit
    environment. Call at start-up, before there are threads.
    """
    if not sys.platform.startswith("linux"):
        return
    from interlock.services.secrets.hidden import clear_environ_and_hide_memory

    secret = {*withheld_variable_names(os.environ)}
    clear_environ_and_hide_memory()
    for name, value in os.environ.items():
        if name and name not in secret:
            os.putenv(name, value)  # now on the heap, no longer in the block that the kernel exposes


def _is_withheld(name: str, value: str, rules: "EnvironmentSettings | None") -> bool:
    if rules and name in rules.blocked:
        return True
    if rules and (not rules.enabled or name in rules.allowed):
        return False
    return name in _LENT or is_secret_name(name) or next(find_secret_shapes(value), None) is not None


def _is_common_word_or_existing_path(value: str) -> bool:
    """Return whether a value is an ordinary word, or a file name: then the file is the secret."""
    if value.lower() in _WORDS:
        return True
    try:
        return value.startswith(("/", "~/")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a path, no home, a NUL character
        return False
