"""_steps: the steps of a plan, out of its Markdown, and which of them are done."""

import re
from collections.abc import Iterable, Sequence

from interlock.state.plan import PlanStep

_BOX = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s+(.+)$")
_NUMBER = re.compile(r"^\d+[.)]\s+(.+)$")
_BULLET = re.compile(r"^[-*+]\s+(.+)$")
_HEADING = re.compile(
    r"^#{1,6}\s+(.*\b(?:steps?|plan|tasks?|todos?|implementation|changes)\b.*)$", re.IGNORECASE
)
_ANY_HEADING = re.compile(r"^#{1,6}\s")
_FENCE = re.compile(r"^\s*(```|~~~)")
_WORD = re.compile(r"\w+")


def parse_steps(plan: str) -> list[PlanStep]:
    """Check boxes; else numbered lines; else the bullets below a heading that says steps or plan."""
    lines = _outside_code(plan.splitlines())
    boxes = [m for line in lines if (m := _BOX.match(line))]
    if boxes:
        return [PlanStep(text=_plain(m[2]), done=m[1] != " ") for m in boxes]
    numbered = [m[1] for line in lines if (m := _NUMBER.match(line))]
    return [PlanStep(text=_plain(text), done=False) for text in numbered or _bullets(lines)]


def _bullets(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    inside = False
    for line in lines:
        if _ANY_HEADING.match(line):
            inside = _HEADING.match(line) is not None
        elif inside and (bullet := _BULLET.match(line)):
            found.append(bullet[1])
    return found


def _outside_code(lines: Iterable[str]) -> list[str]:
    kept: list[str] = []
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return kept


def _plain(text: str) -> str:
    return text.replace("**", "").replace("`", "").strip()


def tick(steps: Sequence[PlanStep], todos: Iterable[tuple[str, str]]) -> list[PlanStep]:
    """The steps, with those done that a todo of the same words calls completed; a step is never undone."""
    finished = {_words(text) for text, status in todos if status == "completed"}
    return [PlanStep(text=s["text"], done=s["done"] or _words(s["text"]) in finished) for s in steps]


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
