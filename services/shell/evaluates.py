"""evaluates: builtins that evaluate what they are given: `declare -i 'x=a[$(…)]'` runs a command."""

from collections.abc import Callable, Sequence

from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import seen
from interlock.services.shell.variables import evaluated

_Words = Sequence[Word]
_GIVEN = "evaluates what it is given"
_INDEX = "evaluates an index"
_NAME = "evaluates a name"
_DECLARES = names("declare typeset local readonly")
_ARRAYS = _DECLARES | {"read", "export"}
_OPERATORS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o ) ]")
_COUNTS = names('$? $# $! $$ "$?" "$#" "$!" "$$"')
"""Numbers, or nothing."""
_SET_LETTERS = frozenset("abefhmntuvxBCEPT")
"""Not `k`: bash then takes `x=1` out of the arguments of any command. Not `p`, and not history (`H`)."""
SET_NAMES = names("allexport errexit noclobber noexec noglob nounset pipefail verbose xtrace")


def evaluates(program: str, words: _Words) -> str | None:
    """Why a builtin may run more than its words show; None: it doesn't."""
    check = _CHECKS.get(program)
    return check(words) if check else None


def makes_array(words: _Words) -> bool:
    """A later `declare x=VALUE` evaluates the value if `x` is an array."""
    if words[0].text in ("mapfile", "readarray"):
        return True
    declares = words[0].text in _DECLARES and any(compound(w) for w in words[1:])
    return declares or (words[0].text in _ARRAYS and seen(words[1:]).has("aA"))


def compound(word: Word) -> bool:
    """`x=(…)` as bash's own syntax, whose parts were visited; not a string that looks like it."""
    return not word.literal and word.lead.endswith("=") and word.text.startswith(word.lead + "(")


def sets_unknown(words: _Words) -> bool:
    """It gives a variable a value that isn't known."""
    return words[0].text in _DECLARES and any(not w.literal and not compound(w) for w in words[1:])


def _declare(words: _Words) -> str | None:
    options = seen(words[1:])
    own = words[0].text
    if options.unknown or (own != "export" and options.has("niI")):
        return _GIVEN
    for word in words[1:]:
        name, sign, value = word.lead.partition("=")
        if "[" in name or (not word.literal and not sign):
            return _INDEX
        if "=(" in word.text and not compound(word):
            return _GIVEN
        if not word.literal and not compound(word) and options.has("aA"):
            return _GIVEN
        why = evaluated(name.removesuffix("+"), value if word.literal else word.text) if sign else None
        if why:
            return why
    return None


def _variables(words: _Words) -> str | None:
    """Names of variables among the arguments: `read 'a[$(…)]'`."""
    for word in words[1:]:
        if "[" in word.text:
            return _INDEX
        if not word.literal and (word.lead == "" or word.splits):
            return _NAME
        if word.literal and words[0].text != "unset" and evaluated(word.text, None):
            return evaluated(word.text, None)
    return None


def _mapfile(words: _Words) -> str | None:
    return "runs a command for each line" if seen(words[1:]).has("Cc") else _variables(words)


def _wait(words: _Words) -> str | None:
    given = [w for w in words[1:] if w.text not in _COUNTS]
    return _NAME if seen(given).has("p") or any(w.may_be_option for w in given) else None


def _printf(words: _Words) -> str | None:
    first = words[1] if len(words) > 1 else None
    if first is None or not (first.lead.startswith("-v") or first.may_be_option):
        return None
    name = words[2].text if first.text == "-v" and len(words) > 2 and words[2].literal else ""
    if first.literal and name.isidentifier():
        return evaluated(name, None)
    return _INDEX


def _test(words: _Words) -> str | None:
    """`-v a[$(…)]` runs it; a word that isn't known may be `-v`, unless an operator behind it says otherwise."""
    given = [w for w in words[1:] if w.text not in _COUNTS]
    for place, word in enumerate(given):
        if word.literal and word.text in ("-v", "-R"):
            return _NAME
        last = given[place + 1].text if place + 1 < len(given) else "]"
        if word.splits or (not word.literal and word.may_be_option and last not in _OPERATORS):
            return _NAME
    return None


def _set(words: _Words) -> str | None:
    why = "changes how bash reads what follows"
    place = 1
    while place < len(words):
        word = words[place]
        if word.may_be_option:
            return why
        if word.text in ("--", "-") or not word.lead.startswith(("-", "+")):
            return None
        letters = word.text[1:]
        if letters.endswith("o"):
            letters, place = letters[:-1], place + 1
            if place < len(words) and words[place].text not in SET_NAMES:
                return why
        if not word.literal or not set(letters) <= _SET_LETTERS:
            return why
        place += 1
    return None


def _jobs(words: _Words) -> str | None:
    options = seen(words[1:])
    return "runs another command" if options.has("x") or options.unknown else None


_CHECKS: dict[str, Callable[[_Words], str | None]] = {
    **dict.fromkeys(names("export declare typeset local readonly"), _declare),
    **dict.fromkeys(names("read unset getopts"), _variables),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("test", "["), _test),
    "wait": _wait,
    "printf": _printf,
    "set": _set,
    "jobs": _jobs,
}
