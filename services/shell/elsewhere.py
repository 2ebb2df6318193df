"""elsewhere: commands that run others as another user, on another machine, or by another shell."""

from collections.abc import Sequence

from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import Options
from interlock.services.shell.unwrapped import HIDDEN, Unwrapped, sets

_Words = Sequence[Word]
_SSH = Options("46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWw")
_WATCH = Options(
    "bcdegptwx",
    "nqs",
    names("beep color no-color differences errexit chgexit precise no-title no-wrap exec"),
    names("interval equexit"),
)
_SU = Options("flmpP", "gGsw", names("login fast preserve-environment pty"), names("group supp-group shell"))
_OTHER_USER = "runs with another user's rights"


def ssh(words: _Words) -> Unwrapped:
    """A denied command stays denied on another machine; the rest asks."""
    at = _SSH.skip(words, 1)
    why = "runs on another machine"
    if at is None or not words[at + 1 :]:
        return Unwrapped(danger=why, opaque="it runs what it reads")
    return _line(words[at + 1 :], why)


def watch(words: _Words) -> Unwrapped:
    at = _WATCH.skip(words, 1)
    return HIDDEN if at is None or not words[at:] else _line(words[at:], None)


def su(words: _Words) -> Unwrapped:
    """Only `-c LINE` as the last two words is looked into."""
    if len(words) < 3 or words[-2].text != "-c" or not words[-1].literal:
        return Unwrapped(danger=_OTHER_USER, opaque=HIDDEN.opaque)
    rest = words[:-2]
    at = _SU.skip(rest, 1)
    seen = at is not None and len(rest) - at <= 2
    return Unwrapped(script=words[-1].text, danger=_OTHER_USER, opaque=None if seen else HIDDEN.opaque)


_SUDO = Options(
    "AbEeHiKklnPSsVv",
    "CcDghpRrTtUu",
    names("askpass background preserve-env login non-interactive reset-timestamp stdin"),
    names("chdir group host prompt chroot role type user other-user close-from"),
)


def sudo(words: _Words) -> Unwrapped:
    at = _SUDO.skip(words, 1)
    if at is None:
        return Unwrapped(danger=_OTHER_USER, opaque=HIDDEN.opaque)
    start = at
    while at < len(words) and "=" in words[at].lead:
        at += 1
    opaque = sets(words[start:at])["opaque"]
    return Unwrapped(runs=(words[at:],) if words[at:] else (), danger=_OTHER_USER, opaque=opaque)


def _line(words: _Words, danger: str | None) -> Unwrapped:
    if not all(w.literal for w in words):
        return Unwrapped(danger=danger, opaque=HIDDEN.opaque)
    return Unwrapped(script=" ".join(w.text for w in words), danger=danger, transparent=danger is None)
