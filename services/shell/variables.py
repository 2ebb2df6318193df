"""variables: names of shell variables that change, or don't change, what a command does."""

import re

from interlock.services.shell.names import names

HARMLESS_VARIABLES = names(
    "CI NO_COLOR FORCE_COLOR CLICOLOR TERM COLUMNS LINES LANG LC_ALL LC_CTYPE TZ NODE_ENV RAILS_ENV DEBUG VERBOSE"
    " PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG SOURCE_DATE_EPOCH"
)
"""Set before a command they leave what it does as it is, so that a rule for the command still holds."""

_SENSITIVE = re.compile(
    r"(PATH|CDPATH|IFS|ENV|BASH_ENV|BASH_.*|SHELLOPTS|BASHOPTS|PS[0-4]|PROMPT_COMMAND|SHELL|HOME|TMPDIR|EDITOR|VISUAL"
    r"|.*PAGER|.*BROWSER|.*EDITOR|.*ASKPASS|LD_.*|DYLD_.*|GIT_.*|SSH_.*|PYTHON.*|PERL.*|RUBY.*|NODE_.*|NPM_.*"
    r"|npm_.*|PIP_.*|UV_.*|CARGO_.*|RUSTC.*|RUSTFLAGS|GO.*|JAVA_.*|MAVEN_.*|GRADLE_.*|MAKE.*|CC|CXX|AR|LD|CFLAGS"
    r"|LESS.*|MAN.*|.*_proxy|.*_PROXY|XDG_.*|GCONV_PATH|LOCPATH|NLSPATH|RIPGREP_CONFIG_PATH|FZF_.*|AWK.*|TAR_OPTIONS"
    r"|GREP_OPTIONS|GLOBIGNORE|EXECIGNORE|HISTFILE|INPUTRC|TERMINFO.*|TERMCAP|DOCKER_.*|KUBECONFIG|AWS_.*"
    r"|POSIXLY_CORRECT|RSYNC_.*)"
)
_READS_ANEW = re.compile(r"BASH_.*|SHELLOPTS|BASHOPTS|POSIXLY_CORRECT|GIT_CONFIG.*")
"""Bash or git reads the rest in another way, or more files, whatever the value."""
_NUMBERS = names("RANDOM SRANDOM OPTIND OPTERR SECONDS LINENO HISTCMD EPOCHSECONDS EPOCHREALTIME")
"""Their value is evaluated as arithmetic."""
_COMMANDS = re.compile(
    r"PS[0-4]|PROMPT_COMMAND|ENV|EDITOR|VISUAL|.*PAGER|.*BROWSER|.*EDITOR|.*ASKPASS|GIT_SSH.*|GIT_EXTERNAL_DIFF"
    r"|GIT_PROXY_COMMAND|LESSOPEN|LESSCLOSE|RSYNC_RSH|MAKEFLAGS|GNUMAKEFLAGS|TAR_OPTIONS"
)
"""Their value is a command line, or is expanded like one."""
_ONE_WORD = re.compile(r"[\"']?[A-Za-z0-9_./:@%,+=-]*[\"']?")


def sensitive(name: str) -> bool:
    """Setting it can make a harmless command do something else."""
    return name not in HARMLESS_VARIABLES and _SENSITIVE.fullmatch(name) is not None


def evaluated(name: str, value: str | None) -> str | None:
    """Why setting it runs more than can be seen, as a clause. `value`: as written; None: not known."""
    if name in _NUMBERS:
        known = value is not None and value.isdecimal()
    elif _COMMANDS.fullmatch(name):
        known = value is not None and _ONE_WORD.fullmatch(value) is not None
    else:
        known = _READS_ANEW.fullmatch(name) is None
    return None if known else f"sets {name[:60]}, whose value bash or another program evaluates"
