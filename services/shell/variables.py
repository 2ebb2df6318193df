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
    r"|GREP_OPTIONS|GLOBIGNORE|EXECIGNORE|HISTFILE|INPUTRC|TERMINFO.*|TERMCAP|DOCKER_.*|KUBECONFIG|AWS_.*)"
)


def sensitive(name: str) -> bool:
    """Setting it can make a harmless command do something else."""
    return name not in HARMLESS_VARIABLES and _SENSITIVE.fullmatch(name) is not None
