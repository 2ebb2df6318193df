"""claude_settings: what Interlock takes from Claude Code's settings in a repository besides permissions: hooks,
variables, and which servers of `.mcp.json` somebody chose."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.files.disk import read_file
from interlock.services.files.json_with_comments import parse_json_with_comments
from interlock.state.names import ADDRESSES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NEVER_SET = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|ENV|IFS|PS[0-4]|PROMPT_COMMAND|CDPATH|SHELLOPTS|BASHOPTS|GLOBIGNORE|POSIXLY_CORRECT"
    r"|EDITOR|VISUAL|.*PAGER|LESS\w*|BROWSER|TE?MP|TMPDIR|TERM\w*|INPUTRC|ZDOTDIR|FPATH|HISTFILE|NETRC|WGETRC|PSQLRC"
    r"|MAKE\w*|MFLAGS|CC|CXX|LD|AR|RUSTC\w*|JAVA_HOME|KUBECONFIG|VIRTUAL_ENV|PHPRC|EXINIT|VIMINIT|MANPATH|LOCPATH|LANG|LANGUAGE|LC_\w+"
    r"|(LD|DYLD|GIT|BASH|SSH|GPG|GNUPG|SUDO|XDG|INTERLOCK|GEMINI|GOOGLE|ANTHROPIC|OPENAI|AWS|AZURE|OTEL|NPM|PIP|UV|CARGO"
    r"|RUSTUP|CONDA|DOCKER|COMPOSE|KUBE|GEM|BUNDLE|CURL|SSL|PG|MYSQL|PHP|R|JULIA|ERL|LUA|GO|DOTNET|VIM|TAR|RSYNC)_\w*"
    r"|(PYTHON|PERL|RUBY|NODE_OPTIONS|NODE_PATH|NODE_EXTRA|GO(PATH|ROOT|FLAGS|PROXY|BIN|ENV))\w*"
    r"|\w*(PROXY|BASE_URL|API_BASE|API_URL|ENDPOINT|CA_BUNDLE|OPTIONS|OPTS|FLAGS|WRAPPER|PRELOAD|STARTUP|PLUGINS"
    r"|COMMAND|EDITOR|CONFIG(_PATH|_FILE|_DIR)?|ASKPASS|LOADER)",
    re.IGNORECASE,
)
"""Variables by which programs find, load or run other programs, or reach other addresses."""
_OF_CLAUDE_CODE = re.compile(
    r"CLAUDE\w*|(BASH|MCP)_\w*(TIMEOUT|LENGTH)\w*|MAX_(MCP|THINKING)\w*|(DIS|EN)ABLE_\w+|USE_BUILTIN_RIPGREP"
)
_OWN_STAGE = re.compile(r"test(ing)?|ci|dev(elopment)?|local")
_READ = frozenset({"permissions", "hooks", "env", "disableAllHooks", "$schema"})
_SERVERS = ("enabledMcpjsonServers", "disabledMcpjsonServers", "enableAllProjectMcpServers")


class ClaudeSettings(NamedTuple):
    """One settings file."""

    path: Path
    hooks: Any = None
    env: Mapping[str, str] = {}
    """Variables for commands, hooks and servers."""
    unused_env: Mapping[str, str] = {}
    """Variables that don't count → why."""
    enabled_servers: tuple[str, ...] | None = None
    """The only servers of `.mcp.json` that somebody chose; None: all."""
    disabled_servers: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Keys that Interlock doesn't read."""
    problem: str = ""


def read_claude_settings(file: Path) -> ClaudeSettings | None:
    """Read a settings file; None if there is none. Never raises: `problem` says why it can't be read."""
    try:
        text = read_file(file).decode("utf-8-sig")
        data: object = parse_json_with_comments(text) if text.strip() else {}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return ClaudeSettings(file, problem=f"can't be read ({error})")
    if not isinstance(data, dict):
        return ClaudeSettings(file, problem="holds no object")
    found = cast("dict[str, Any]", data)
    given = cast("dict[str, Any]", found.get("env")) if isinstance(found.get("env"), dict) else {}
    unused = {name: why for name, value in given.items() if (why := describe_unused_variable(name, value))}
    chosen = _list_strings(found.get(_SERVERS[0])) if _SERVERS[0] in found else None
    return ClaudeSettings(
        file,
        None if found.get("disableAllHooks") is True else found.get("hooks"),
        {name: value for name, value in given.items() if name not in unused},
        unused,
        None if found.get(_SERVERS[2]) is True else chosen,
        _list_strings(found.get(_SERVERS[1])),
        tuple(key for key in found if key not in _READ and key not in _SERVERS),
    )


def describe_unused_variable(name: str, value: object) -> str:
    """Return why a repository may not set a variable; empty if it may."""
    if not isinstance(value, str) or "\0" in value or not _NAME.fullmatch(name):
        return "expected a name and a text"
    if _OF_CLAUDE_CODE.fullmatch(name):
        return "it is a setting of Claude Code"
    if name in ADDRESSES or _NEVER_SET.fullmatch(name):
        return "a repository doesn't set what programs load, run or reach"
    if name.endswith("_ENV") and not _OWN_STAGE.fullmatch(value):
        return "a repository doesn't choose another stage than tests and development"
    return ""


def _list_strings(value: object) -> tuple[str, ...]:
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(entry for entry in entries if isinstance(entry, str))
