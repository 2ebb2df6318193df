"""shells: shells, `eval`, `trap` and interpreters: the line that they run, where it is among their arguments."""

import re
from collections.abc import Sequence
from dataclasses import replace

from interlock.services.shell.evaluates import SET_NAMES
from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.unwrapped import HIDDEN, NOTHING, Unwrapped

_Words = Sequence[Word]
_ONLY_BASH = re.compile(r"&>|\|&|\$['\"\[]|[<>]\(|<<<|\[\[|(?<!\$)\(\(|;&|\bfunction\b|\bselect\b")
"""Where `sh` isn't bash it reads these otherwise: in dash `ls &>f rm x` runs `rm x`, and so does `[[ a && rm x ]]`."""
LANGUAGES = names("python python3 python2 pypy pypy3 perl ruby node nodejs deno bun php lua rscript tclsh")
"""Interpreters of other languages than the shell's."""
_SHELL_FLAGS = frozenset("acefhilmnptuvxBCEHPTD")


def posix_shell(words: _Words) -> Unwrapped:
    """`sh`, of whatever make it is."""
    inner = shell(words)
    if inner.script is not None and _ONLY_BASH.search(inner.script):
        return replace(inner, opaque="sh may read it otherwise than bash", transparent=False)
    return inner


def shell(words: _Words) -> Unwrapped:
    """`bash -c LINE`: the line. A script file is an argument like any other."""
    line = False
    at = 1
    while at < len(words):
        word = words[at]
        if not word.literal:
            break
        if word.text in ("--", "-"):
            at += 1
            break
        if not word.text.startswith(("-", "+")):
            break
        if word.text in ("--norc", "--noprofile", "--posix", "--login", "--verbose"):
            at += 1
            continue
        letters = word.text[1:]
        if letters.endswith("o"):
            at += 1
            letters = letters[:-1]
            if at < len(words) and words[at].text not in SET_NAMES:
                return HIDDEN
        if not set(letters) <= _SHELL_FLAGS:
            return HIDDEN
        line = line or ("c" in letters and word.text.startswith("-"))
        at += 1
    return _shell_runs(words[at:], line)


def _shell_runs(operands: _Words, line: bool) -> Unwrapped:
    if not operands or not operands[0].literal:
        return HIDDEN
    if line:
        return Unwrapped(script=operands[0].text, transparent=True)
    script = operands[0].text
    if script.startswith("/dev/"):
        return HIDDEN
    # A plain name that isn't in the folder is looked for among the programs: `bash npm publish`.
    return NOTHING if set(script) & set("/.") else Unwrapped(runs=(operands,))


def other_shell(words: _Words) -> Unwrapped:
    """Their language isn't bash's: what can be seen is noted, and it stays opaque."""
    inner = shell(words)
    return inner if inner == NOTHING else Unwrapped(script=inner.script, opaque="it isn't bash")


def evaluate(words: _Words) -> Unwrapped:
    if not all(w.literal for w in words):
        return Unwrapped(opaque="eval of what is only known when it runs")
    rest = words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]
    return Unwrapped(script=" ".join(w.text for w in rest), transparent=True) if rest else NOTHING


def trap(words: _Words) -> Unwrapped:
    rest = [w for w in words[1:] if w.text != "--"]
    if not rest or rest[0].text in ("-", "-l", "-p", "-lp", "-P"):
        return NOTHING
    if not rest[0].literal:
        return HIDDEN
    return Unwrapped(script=rest[0].text, transparent=True) if rest[0].text.strip() else NOTHING


def interpreter(words: _Words) -> Unwrapped:
    """Without an argument, or with `-`, it runs what it reads."""
    read = len(words) == 1 or any(w.text in ("-", "/dev/stdin") or "<(" in w.text for w in words[1:])
    return Unwrapped(opaque="it runs what it reads") if read else NOTHING
