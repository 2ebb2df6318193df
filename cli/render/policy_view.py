"""policy_view: a decision of policy for a person: which rule, which part, why, and what could be answered."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlock.cli.render.figures import place
from interlock.cli.render.paint import Paint, one_line, visible

_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}
_LABEL = 12
"""Columns of what stands before each line."""
_ANSWERS = {
    "proceed_once": "approve",
    "proceed_always": "approve always in this run",
    "proceed_always_tool": "approve the tool in this run",
    "proceed_always_server": "approve the server in this run",
    "proceed_always_and_save": "approve always, and save it",
    "modify": "change it",
    "reject": "reject",
    "cancel": "stop the run",
}

Shown = Mapping[str, Any]


def decision_lines(shown: Shown, paint: Paint) -> Iterator[str]:
    """`shown`: what `--json` prints."""
    decision = shown["decision"]
    scope = f"mode {shown['mode']}" + (f", sub-agent {shown['agent']}" if shown.get("agent") else "")
    yield f"{paint(f'{decision:<{_LABEL}}', 'bold', _STYLES[decision])}{visible(shown['tool'])}  ({scope})"
    yield _line("rule", _at_home(shown["rule"]))
    yield _line("why", _at_home(shown["reason"]))
    if shown.get("deny_message") and shown["deny_message"] != shown["reason"]:
        yield _line("model", f"is told: {shown['deny_message']}")
    yield from _parts(shown.get("parts") or (), paint)
    if shown.get("unseen"):
        yield _line("not seen", shown["unseen"])
    if shown.get("redirects"):
        yield _line("redirects", ", ".join(shown["redirects"]))
    for checker in shown.get("checkers") or ():
        yield _line("checker", f"{checker['decision']}: {checker['reason']}")
    yield from _answers(shown)
    if shown.get("considered") is not None:
        yield from _considered(shown["considered"], paint)


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{one_line(text)}"


def _parts(parts: Sequence[Shown], paint: Paint) -> Iterator[str]:
    for number, part in enumerate(parts):
        label = f"{'parts' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{part['decision']:<5}", _STYLES[part["decision"]])
        yield f"{label}{verdict} {one_line(part['text'], 60)}   {paint(one_line(_at_home(part['rule'])), 'dim')}"
        for what in ("danger", "opaque"):
            if part.get(what):
                yield f"{'':<{_LABEL + 6}}{what}: {one_line(part[what])}"


def _answers(shown: Shown) -> Iterator[str]:
    choices: Sequence[str] = shown.get("choices") or ()
    if choices:
        yield _line("answers", ", ".join(_ANSWERS.get(c, c) for c in choices))
    if always := shown.get("always"):
        about = " | ".join(always["command_prefixes"]) or always.get("server") or always.get("path") or ""
        yield _line("always", f"would stand for: {always['tool']} {about}".rstrip())
    if shown.get("not_always"):
        yield _line("no always", shown["not_always"])


def _considered(rules: Sequence[Shown], paint: Paint) -> Iterator[str]:
    for number, rule in enumerate(rules):
        label = f"{'considered' if number == 0 else '':<{_LABEL}}"
        verdict = paint(f"{rule['decision']:<5}", _STYLES[rule["decision"]])
        text = f"{rule['rank']:<7.6g} {verdict} met: {rule['met']:<5} {_at_home(rule['rule'])}"
        yield label + visible(text)


def _at_home(rule: str) -> str:
    """Files below the home directory as `~/…`."""
    words: list[str] = rule.split(" ")
    return " ".join([place(word) for word in words])
