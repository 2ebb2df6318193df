"""hooks_view: hooks for a person: which run, in which order, with what, and what they say."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlock.cli.render.figures import place
from interlock.cli.render.paint import Paint, one_line
from interlock.state.text import visible_json

_STYLES = {"none": "dim", "allow": "green", "ask": "yellow", "block": "red"}
_LABEL = 10
"""Columns of what stands before each line."""

Shown = Mapping[str, Any]


def test_lines(shown: Shown, paint: Paint) -> Iterator[str]:
    """`shown`: what `--json` prints of `hooks test`."""
    hooks, subject = shown["hooks"], shown["subject"]
    about = f" for {one_line(subject)}" if subject else ""
    many = "no hook" if not hooks else "1 hook" if len(hooks) == 1 else f"{len(hooks)} hooks"
    order = ", one after the other" if shown["order"] == "sequential" else ", side by side"
    yield paint(f"{shown['event']}{about}: {many}{order if len(hooks) > 1 else ''}", "bold")
    for number, hook in enumerate(hooks, 1):
        yield f"{number}. {one_line(_title(hook))}"
        yield from _details(hook, paint)
    if "outcome" in shown:
        yield from _outcome(shown["outcome"], paint)


def list_rows(hooks: Sequence[Shown]) -> list[tuple[str, ...]]:
    return [
        (h["event"], h["matcher"] or "*", one_line(_title(h), 60), _manner(h), place(h["source"]))
        for h in hooks
    ]


def _details(hook: Shown, paint: Paint) -> Iterator[str]:
    if hook["broken"]:
        yield _line("broken", hook["broken"])
        return
    if hook["name"]:
        yield _line("command", hook["command"])
    yield _line("from", f"{place(hook['source'])}, {hook['place']}")
    yield _line("matcher", hook["matcher"] or "* (everything)")
    yield _line("manner", _manner(hook))
    yield _line("input", visible_json(hook["input"]))
    if verdict := hook.get("verdict"):
        ended = "ended" if verdict["exit_code"] is None else f"exit {verdict['exit_code']}"
        said = paint(verdict["decision"], _STYLES[verdict["decision"]])
        yield f"{'   says':<{_LABEL + 3}}{said}  ({ended}, {verdict['duration_ms']} ms)"
        for what in ("reason", "warning"):
            if verdict[what]:
                yield _line(what, verdict[what])


def _outcome(outcome: Shown, paint: Paint) -> Iterator[str]:
    yield f"{paint('together', 'bold')}: {paint(outcome['decision'], _STYLES[outcome['decision']])}"
    for what in ("reason", "stop", "context"):
        if outcome[what]:
            yield _line(what, outcome[what])
    for message in outcome["messages"]:
        yield _line("message", message)
    if outcome["output"]:
        yield _line("output", visible_json(outcome["output"]))


def _title(hook: Shown) -> str:
    return hook["name"] or hook["command"] or hook["place"]


def _manner(hook: Shown) -> str:
    words = [f"{hook['timeout_s']:g} s"]
    words += [word for word in ("sequential", "required", "idempotent") if hook[word]]
    return ", ".join([*words, *(["broken"] if hook["broken"] else [])])


def _line(label: str, text: str) -> str:
    return f"   {label:<{_LABEL}}{one_line(text)}"
