"""asking: at a terminal what waits is asked right away; "later" leaves it parked, for whoever decides then."""

import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.cli.decisions import answer, new_arguments
from interlock.cli.render.paint import Paint, one_line
from interlock.cli.render.pending import ALWAYS, PREVIEW_LINES, question
from interlock.engine.options import Decision
from interlock.state.errors import UserError

Request = Mapping[str, Any]

_KEYS = {
    "y": "yes",
    "a": "always",
    "s": "always and save it",
    "e": "edit",
    "n": "no, and why",
    "c": "stop the run",
}
_OUTCOMES = {"r": "redo", "redo": "redo", "s": "skip", "skip": "skip"}


def can_ask() -> bool:
    """A person sees what is written, and can type."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def ask(run: str, requests: Sequence[Request], paint: Paint) -> list[Decision]:
    """One after the other, until the person says later (or Ctrl-C, or Ctrl-D)."""
    decisions: list[Decision] = []
    try:
        for number, request in enumerate(requests, 1):
            count = f"{number} of {len(requests)}: " if len(requests) > 1 else ""
            _forget_typed_ahead()
            _write("", *question(run, request, count, paint, PREVIEW_LINES))
            decisions.append(_decided(request))
    except (KeyboardInterrupt, EOFError):
        _write("")
    return decisions


def _forget_typed_ahead() -> None:
    """What was typed before the question stood there is no answer to it."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _decided(request: Request) -> Decision:
    """Asked again until it can be used."""
    by = {"question": _answered, "outcome": _outcome}.get(request["kind"], _permitted)
    while True:
        try:
            return by(request)
        except UserError as error:
            _write(f"  {error}")


def _permitted(request: Request) -> Decision:
    name, choices = request["id"], request["choices"]
    lasting = next((c for c in ALWAYS if c in choices and c != "proceed_always_and_save"), None)
    offered = {
        "y": "proceed_once",
        "a": lasting,
        "s": "proceed_always_and_save",
        "e": "modify",
        "n": "reject",
        "c": "cancel",
    }
    keys = {key: choice for key, choice in offered.items() if choice in choices}
    word, _, rest = _typed(", ".join(f"{key} {_KEYS[key]}" for key in keys)).partition(" ")
    key = next((key for key in keys if word.lower() in (key, *_KEYS[key].replace(",", "").split()[:1])), None)
    if key is None:
        raise UserError(f"{word!r} isn't one of {', '.join(keys)}, l.")
    choice = str(keys[key])
    if choice == "modify":
        return Decision(name, choice, args=new_arguments(request))
    if choice == "reject":
        return Decision(name, choice, feedback=rest.strip() or _line("  Why? (Enter: no reason) ") or None)
    return Decision(name, choice)


def _outcome(request: Request) -> Decision:
    typed = _typed("r redo: run it again, s skip: leave it")
    return answer(request, _OUTCOMES.get(typed.lower(), typed))


def _answered(request: Request) -> Decision:
    """Of several questions every answer stands below its question."""
    questions: Sequence[Request] = request.get("questions") or ({},)
    if len(questions) == 1:
        return answer(request, _typed("your answer, or an option's number"))
    given = [
        (str(q.get("question", "")), _typed(f"answer {n} of {len(questions)}"))
        for n, q in enumerate(questions, 1)
    ]
    return answer(request, "\n".join(f"{asked}\n{said}" for asked, said in given))


def _typed(what: str) -> str:
    """Raises `EOFError` for later; asks again where nothing was typed."""
    while not (typed := _line(f"  [{what}, l later] ")):
        pass
    if typed.lower() in ("l", "later"):
        raise EOFError
    return typed


def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return one_line(line)


def _write(*lines: str) -> None:
    paint = Paint(sys.stderr)
    for line in lines:
        paint.print(line)
    sys.stderr.flush()
