"""git_alias: names that git is given on the line: `git -c alias.x='!CMD' x` runs CMD."""

import shlex
from collections.abc import Sequence

from interlock.services.shell.model import Word
from interlock.services.shell.unwrapped import NOTHING, Unwrapped

_VALUES = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"))


def git(words: Sequence[Word]) -> Unwrapped:
    bodies: list[str] = []
    place = 1
    while place < len(words) and words[place].lead.startswith("-"):
        text = words[place].text
        value = words[place + 1].text if text in _VALUES and place + 1 < len(words) else text
        if text.startswith("--config-env") and "alias." in value.lower():
            return Unwrapped(opaque="git is given an alias")
        if "alias." in value.lower() and text.startswith("-c"):
            bodies.append(value.partition("=")[2])
        place += 2 if text in _VALUES else 1
    rest = words[place : place + 1], words[place + 1 :]
    names_alias = [w.text for w in rest[0]] == ["config"] and any("alias." in w.lead.lower() for w in rest[1])
    if names_alias or (bodies and not all(w.literal for w in words)):
        return Unwrapped(opaque="git is given an alias")
    scripts = [_line(body, [w.text for w in rest[1]]) for body in bodies]
    return Unwrapped(script="\n".join(scripts)) if scripts else NOTHING


def _line(body: str, given: Sequence[str]) -> str:
    own = body[1:] if body.startswith("!") else f"git {body}"
    return f"{own} {shlex.join(given)}"
