"""decisions: turns what a person types, after `resume` or when asked, into decisions on pending requests."""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interlock.cli.catalog import nearest
from interlock.cli.inputs import json_object, read_spec
from interlock.cli.parsing import Parser, flag
from interlock.cli.render.output import Paint, one_line
from interlock.cli.render.pending import ALWAYS, PLAN_REVIEW, PREVIEW_LINES, named, option_label, question
from interlock.engine.options import Decision
from interlock.engine.read import check_edit
from interlock.state.errors import UserError
from interlock.state.text import visible_json

if TYPE_CHECKING:
    from interlock.state.calls import Choice

Fields = Mapping[str, Any]


class _Add(argparse.Action):
    """Keeps decisions in typing order, so that --reason and --always apply to the one before them."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        namespace.decisions = [*(namespace.decisions or []), (self.dest, values, option)]


def add_decision_flags(parser: Parser) -> None:
    title = "decide (ID: the number or id that `interlock approvals RUN` shows; or all)"
    group = parser.add_argument_group(title)
    parser.set_defaults(decisions=[])
    flag(group, "--approve --allow ID", "let it run, as it was shown", action=_Add)
    for choice, (always, _) in ALWAYS.items():
        flag(group, always, _ALWAYS_HELP[choice], action=_Add, nargs=0, dest="always")
    flag(group, "--reject --deny ID", "the model is told no", action=_Add)
    flag(group, "--reason TEXT", "after --reject: why; the model is told", action=_Add)
    flag(group, "--edit ID[=JSON|@FILE]", "run it with these arguments instead", action=_Add)
    flag(group, "--answer ID=TEXT", "answer a question; an unknown outcome: redo or skip", action=_Add)
    flag(group, "--cancel ID", "run neither it nor the rest of its batch", action=_Add)


_ALWAYS_HELP = {
    "proceed_always": "after --approve: don't ask for the same again in this run",
    "proceed_always_tool": "… nor for anything of that tool",
    "proceed_always_server": "… nor for anything of that MCP server",
    "proceed_always_and_save": "… nor in later runs: saved to your policies",
}
KEYS = {
    "y": "yes",
    "a": "always",
    "s": "always and save it",
    "e": "edit",
    "n": "no, and why",
    "c": "stop the run",
}
OUTCOMES = {"r": "redo", "redo": "redo", "s": "skip", "skip": "skip"}
_FLAG_CHOICES = {flag: choice for choice, (flag, _) in ALWAYS.items()}


def decisions_from(
    typed: Sequence[tuple[str, Any, str | None]],
    waiting: Sequence[Fields],
    past: Mapping[str, str] | None = None,
    idle: str = "Nothing waits in this run.",
) -> list[Decision]:
    """One decision per id. Raises `UserError` for an id that isn't pending, an invalid choice, or two for one id.

    `past`: what became of a request that no longer waits, by id and by number. `idle`: why none waits.
    """
    past = past or {}
    if typed and not waiting:
        names = (str(value).partition("=")[0] for _, value, _ in typed)
        raise UserError(" ".join([*(f"{past[name]}." for name in names if name in past), idle]))
    found: dict[str, Decision] = {}
    last: list[str] = []
    for kind, value, option in typed:
        if kind in ("always", "reason"):
            _amend(found, last, waiting, kind, value, str(option))
            continue
        name, equals, rest = str(value).partition("=")
        last = []
        for request in _named(name, waiting, kind, past):
            if request["id"] in found:
                raise UserError(f"{request['id']!r} is decided twice. Give one decision for each.")
            found[request["id"]] = _decision(kind, request, rest if equals else None)
            last.append(request["id"])
    return list(found.values())


def _amend(
    found: dict[str, Decision], last: list[str], waiting: Sequence[Fields], kind: str, value: Any, flag: str
) -> None:
    """Apply `--reason` or an always-flag to the decisions right before it."""
    wanted = "reject" if kind == "reason" else "proceed_once"
    before = "--reject ID" if kind == "reason" else "--approve ID"
    if not last or any(found[name].choice != wanted for name in last):
        raise UserError(f"{flag} belongs after {before}: {before} {flag}")
    for name in last:
        old = found[name]
        if kind == "reason":
            found[name] = Decision(name, old.choice, feedback=str(value))
            continue
        request = next(r for r in waiting if r["id"] == name)
        found[name] = Decision(name, _allowed(request, _FLAG_CHOICES[flag], flag))


def _named(name: str, waiting: Sequence[Fields], kind: str, past: Mapping[str, str]) -> list[Fields]:
    if name == "all":
        if kind in ("edit", "answer"):
            raise UserError(
                f"--{kind} all: each needs its own. Name one: {', '.join(r['id'] for r in waiting)}."
            )
        # Questions and unknown outcomes aren't permissions: `all` never decides those.
        found = [r for r in waiting if r["kind"] == "approval"]
        if not found:
            raise UserError(f"--{kind} all: no approval waits. See: interlock approvals")
        return found
    found = [r for r in waiting if name in (r["id"], named(r))]
    if len(found) == 1:
        return found
    shown = ", ".join(f"{r['number']} ({r['id']})" if r["number"] else r["id"] for r in waiting)
    why = past.get(name) or f"No request {name!r} waits"
    near = "" if name in past else nearest(name, [str(r["id"]) for r in waiting])
    raise UserError(f"{why}.{near} What waits: {shown}. See: interlock approvals")


def _decision(kind: str, request: Fields, rest: str | None) -> Decision:
    name = request["id"]
    if rest is not None and kind not in ("edit", "answer"):
        raise UserError(f"--{kind} takes an id alone, got {name}={rest!r}.")
    if kind == "edit":
        return Decision(name, _allowed(request, "modify", "--edit"), args=new_arguments(request, rest))
    if kind == "answer":
        return answer(request, rest)
    if kind == "approve":
        if request["kind"] != "approval":
            raise UserError(f"{name!r} asks for an answer, not for a permission: --answer {name}=…")
        return Decision(name, _allowed(request, "proceed_once", "--approve"))
    return Decision(name, _allowed(request, kind, f"--{kind}"))


def _allowed(request: Fields, choice: str, flag: str) -> "Choice":
    if choice not in request["choices"]:
        raise UserError(f"{flag}: request {request['id']!r} takes {', '.join(request['choices'])}.")
    return cast("Choice", choice)


def answer(request: Fields, text: str | None) -> Decision:
    name = request["id"]
    if not text:
        raise UserError(f"--answer needs a text: --answer {name}='your answer'")
    if request["kind"] == "approval":
        raise UserError(
            f"{name!r} asks for a permission: --approve {name}, --reject {name} or --edit {name}=JSON"
        )
    if request["kind"] == "outcome":
        if text not in ("redo", "skip"):
            raise UserError(f"--answer {name}={text!r}: expected redo (run it again) or skip (leave it).")
        return Decision(name, "proceed_once" if text == "redo" else "reject", text=text)
    return Decision(name, "proceed_once", text=_option(request, text))


def _option(request: Fields, text: str) -> str:
    """Replace an option's number with its label."""
    questions: Sequence[Fields] = request.get("questions") or ()
    options: Sequence[Any] = (questions[0].get("options") or ()) if len(questions) == 1 else ()
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return option_label(options[int(text) - 1])
    return text


def new_arguments(request: Fields, spec: str | None = None) -> dict[str, Any]:
    """Merge edited arguments over the original ones: those not named stay, null removes one."""
    old: dict[str, Any] = request["args"]
    what = f"--edit {named(request)}"
    if spec is not None:
        args = {**old, **json_object(read_spec(spec, what), what)}
    elif request["tool_name"] == PLAN_REVIEW:
        args = {"plan": in_editor(request["preview"], ".md", what)}
    else:
        args = _edited(old, what)
    check_edit(request, args)
    return {k: v for k, v in args.items() if v is not None}


def _edited(args: Mapping[str, Any], what: str) -> dict[str, Any]:
    text = visible_json(args, 2) + "\n"
    return json_object(in_editor(text, ".json", what), what)


def in_editor(text: str, ending: str, what: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if not sys.stdin.isatty():
        raise UserError(
            f"{what}: no terminal to edit in. Give the arguments that change: {what}=JSON or {what}=@FILE"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"arguments{ending}"
        file.write_text(text, encoding="utf-8")
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise UserError(
                f"{what}: can't start the editor {editor!r}: {error.strerror}. Set EDITOR."
            ) from error
        if ended.returncode != 0:
            raise UserError(
                f"{what}: the editor {editor!r} ended with {ended.returncode}; nothing was decided."
            )
        return file.read_text(encoding="utf-8")


def can_ask() -> bool:
    """Whether a person can see what is written, and type."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def ask(run: str, requests: Sequence[Fields], paint: Paint) -> list[Decision]:
    """Ask one request after the other, until the person says later (or presses Ctrl-C or Ctrl-D)."""
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
    """Discard what was typed before the question was shown: it is no answer to it."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _decided(request: Fields) -> Decision:
    by = {"question": _answered, "outcome": _outcome}.get(request["kind"], _permitted)
    while True:
        try:
            return by(request)
        except UserError as error:
            _write(f"  {error}")


def offered(request: Fields) -> "dict[str, Choice]":
    """Key → choice, for an approval."""
    choices = request["choices"]
    lasting = next((c for c in ALWAYS if c in choices and c != "proceed_always_and_save"), None)
    found = {
        "y": "proceed_once",
        "a": lasting,
        "s": "proceed_always_and_save",
        "e": "modify",
        "n": "reject",
        "c": "cancel",
    }
    return {key: cast("Choice", choice) for key, choice in found.items() if choice in choices}


def _permitted(request: Fields) -> Decision:
    name, keys = request["id"], offered(request)
    word, _, rest = _typed(", ".join(f"{key} {KEYS[key]}" for key in keys)).partition(" ")
    key = next((key for key in keys if word.lower() in (key, *KEYS[key].replace(",", "").split()[:1])), None)
    if key is None:
        raise UserError(f"{word!r} isn't one of {', '.join(keys)}, l.")
    choice = keys[key]
    if choice == "modify":
        return Decision(name, choice, args=new_arguments(request))
    if choice == "reject":
        return Decision(name, choice, feedback=rest.strip() or _line("  Why? (Enter: no reason) ") or None)
    return Decision(name, choice)


def _outcome(request: Fields) -> Decision:
    typed = _typed("r redo: run it again, s skip: leave it")
    return answer(request, OUTCOMES.get(typed.lower(), typed))


def _answered(request: Fields) -> Decision:
    """Ask for each answer; several are combined, each below its question."""
    return answered(request, [_typed(wanted) for wanted in answers_wanted(request)])


def answers_wanted(request: Fields) -> list[str]:
    """What to call each of a question's answers."""
    questions: Sequence[Fields] = request.get("questions") or ({},)
    count = len(questions)
    return (
        ["your answer, or an option's number"]
        if count == 1
        else [f"answer {n} of {count}" for n in range(1, count + 1)]
    )


def answered(request: Fields, texts: Sequence[str]) -> Decision:
    """The decision made by these answers, one per question."""
    questions: Sequence[Fields] = request.get("questions") or ({},)
    if len(questions) == 1:
        return answer(request, texts[0])
    asked = (str(q.get("question", "")) for q in questions)
    return answer(
        request, "\n".join(f"{question}\n{text}" for question, text in zip(asked, texts, strict=True))
    )


def _typed(what: str) -> str:
    """Read an answer, asking again while it is empty. Raises `EOFError` for later."""
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
    Paint(sys.stderr).print_all(lines)
    sys.stderr.flush()
