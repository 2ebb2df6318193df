"""wrappers: commands that run other commands: which, as far as it can be known."""

import re
from collections.abc import Callable, Sequence

from interlock.services.shell.elsewhere import ssh, su, sudo, watch
from interlock.services.shell.git_alias import git
from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import Options
from interlock.services.shell.shells import (
    LANGUAGES,
    evaluate,
    interpreter,
    other_shell,
    posix_shell,
    shell,
    trap,
)
from interlock.services.shell.unwrapped import HIDDEN, NOTHING, Unwrapped, sets

_Words = Sequence[Word]
_UNKNOWN = Word("…", False, "", True, True)
"""Arguments that only running would show."""


def unwrap(program: str, words: _Words) -> Unwrapped:
    """What `words` run besides `program` itself."""
    if program in _PREFIXES:
        return _prefix(words, *_PREFIXES[program])
    special = _SPECIAL.get(program)
    return special(words) if special else NOTHING


def _prefix(words: _Words, options: Options, operands: int) -> Unwrapped:
    """A wrapper that has options, `operands` words of its own, and then a command."""
    at = options.skip(words, 1)
    if at is None:
        return HIDDEN
    own = words[at : at + operands]
    rest = words[at + operands :]
    if any(w.splits for w in own):
        return HIDDEN
    return Unwrapped(runs=(rest,), transparent=True) if rest else NOTHING


_PREFIXES = {
    "nohup": (Options(), 0),
    "builtin": (Options(), 0),
    "exec": (Options("cl", "a"), 0),
    "setsid": (Options("cfw", "", names("ctty fork wait")), 0),
    "nice": (Options("", "n", long_values=names("adjustment"), numbers=True), 0),
    "ionice": (Options("t", "cn", names("ignore"), names("class classdata")), 0),
    "stdbuf": (Options("", "ioe", long_values=names("input output error")), 0),
    "timeout": (
        Options("v", "ks", names("foreground preserve-status verbose"), names("kill-after signal")),
        1,
    ),
}


def _command(words: _Words) -> Unwrapped:
    if len(words) > 1 and words[1].literal and words[1].text in ("-v", "-V", "-pv", "-pV"):
        return NOTHING
    return _prefix(words, Options("p"), 0)


def _time(words: _Words) -> Unwrapped:
    """Bash's own word: variables may be set behind it."""
    at = Options("p").skip(words, 1)
    if at is None:
        return HIDDEN
    start = at
    while at < len(words) and _SETS.match(words[at].lead):
        at += 1
    return Unwrapped(runs=(words[at:],) if words[at:] else (), transparent=True, **sets(words[start:at]))


_SETS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ENV = Options("i0v", "uC", names("ignore-environment null debug"), names("unset chdir"))


def _env(words: _Words) -> Unwrapped:
    at = _ENV.skip(words, 1)
    if at is None:
        return HIDDEN
    if at < len(words) and words[at].text == "-":
        at += 1
    start = at
    while at < len(words) and "=" in words[at].lead and not words[at].splits:
        at += 1
    rest = words[at:]
    return Unwrapped(runs=(rest,), transparent=True, **sets(words[start:at])) if rest else NOTHING


_XARGS = Options(
    "0rtpxo",
    "nILPsdEa",
    names("null no-run-if-empty verbose interactive exit open-tty"),
    names("max-args replace max-lines max-procs max-chars delimiter eof arg-file process-slot-var"),
)


def _xargs(words: _Words) -> Unwrapped:
    at = _XARGS.skip(words, 1)
    if at is None:
        return HIDDEN
    inner = words[at:]
    mark = _replaced(words[1:at])
    if mark is not None:
        inner = [Word(w.text, False, "", True, True) if mark in w.text else w for w in inner]
    return Unwrapped(runs=((*inner, _UNKNOWN),), transparent=True) if inner else NOTHING


def _replaced(options: _Words) -> str | None:
    """What `xargs -I` puts each line in place of."""
    for place, word in enumerate(options):
        if word.text.startswith(("-I", "--replace")):
            given = (
                word.text.removeprefix("-I") if word.text.startswith("-I") else word.text.partition("=")[2]
            )
            following = options[place + 1].text if place + 1 < len(options) else ""
            return given or following or "{}"
    return None


_EXECUTES = names("-exec -execdir -ok -okdir")


def _spills(words: _Words) -> bool:
    """Words that aren't known may hold `-exec …`; a single one needs its end to be another word."""
    unknown = [w for w in words if not w.literal]
    ended = any(w.text in (";", "+") for w in words)
    return any(w.wild for w in unknown) or (
        any(w.may_be_option for w in unknown) and (ended or len(unknown) > 1)
    )


def _find(words: _Words) -> Unwrapped:
    runs: list[_Words] = []
    inner: list[Word] | None = None
    for word in words[1:]:
        if inner is None:
            inner = [] if word.literal and word.text in _EXECUTES else None
        elif word.text in (";", "+"):
            runs.append(inner)
            inner = None
        else:
            inner.append(Word(word.text, False, "", True, True) if "{}" in word.text else word)
    if _spills(words[1:]):
        return Unwrapped(
            runs=tuple(r for r in runs if r), opaque="find with actions that are only known when it runs"
        )
    if inner is not None:
        return Unwrapped(runs=tuple(runs), opaque="find -exec without its end")
    return Unwrapped(runs=tuple(r for r in runs if r))


_SPECIAL: dict[str, Callable[[_Words], Unwrapped]] = {
    "command": _command,
    "env": _env,
    "time": _time,
    "xargs": _xargs,
    "find": _find,
    "eval": evaluate,
    "trap": trap,
    "git": git,
    "ssh": ssh,
    "watch": watch,
    **dict.fromkeys(("su", "runuser"), su),
    **dict.fromkeys(("sudo", "doas"), sudo),
    **dict.fromkeys(("bash", "rbash"), shell),
    **dict.fromkeys(("sh", "dash", "ash"), posix_shell),
    **dict.fromkeys(("zsh", "ksh", "mksh", "fish", "csh", "tcsh", "pwsh"), other_shell),
    **dict.fromkeys(LANGUAGES, interpreter),
}
