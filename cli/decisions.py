"""decisions: turns what a person types, after `resume` or when asked, into decisions on pending requests."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interlock.cli.inputs import parse_json_object, read_argument_text
from interlock.cli.parsing import Parser, add_flag
from interlock.cli.render.output import Paint, to_one_line
from interlock.cli.render.pending_requests import ALWAYS, PREVIEW_LINES, hidden_lines_hint, request_lines
from interlock.cli.suggestions import nearest_names_hint
from interlock.cli.terminal import discard_typed_input
from interlock.engine.client import Decision
from interlock.engine.client.answer_choices import (
    AnswerChoice,
    Request,
    choices_by_key,
    plan_under_review,
)
from interlock.engine.client.requests import (
    answer_field_labels,
    decide_with_answers,
    decide_with_arguments,
    decide_with_changed_arguments,
    decisions_on_other_requests,
    editable_text_argument,
    find_similar_unknown_outcomes,
    make_decision,
    request_number_or_id,
)
from interlock.state.errors import UserError
from interlock.state.text import to_visible_json

if TYPE_CHECKING:
    from interlock.state.calls import Choice


class _AppendDecision(argparse.Action):
    """Keeps decisions in typing order, so that --reason and --always apply to the one before them."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        namespace.decisions = [*(namespace.decisions or []), (self.dest, values, option)]


def add_decision_flags(parser: Parser) -> None:
    title = "decide (ID: a number or id from `interlock approvals RUN`, or all)"
    group = parser.add_argument_group(title)
    parser.set_defaults(decisions=[])
    add_flag(group, "--approve --allow ID", "run the call as shown", action=_AppendDecision)
    for choice, (always, _) in ALWAYS.items():
        add_flag(group, always, _ALWAYS_HELP[choice], action=_AppendDecision, nargs=0, dest="always")
    add_flag(group, "--reject --deny ID", "refuse the call; the model continues", action=_AppendDecision)
    add_flag(group, "--reason TEXT", "after --reject: the reason, sent to the model", action=_AppendDecision)
    add_flag(group, "--edit ID[=JSON|@FILE]", "run the call with these arguments", action=_AppendDecision)
    add_flag(
        group,
        "--answer ID=TEXT",
        "answer a question; for an unknown outcome: redo or skip",
        action=_AppendDecision,
    )
    help_ = "cancel this call and the rest of its batch; at a graph's question: the run"
    add_flag(group, "--cancel [ID]", help_, action=_AppendDecision, nargs="?", const="all")


_ALWAYS_HELP = {
    "proceed_always_edits": "after --approve: allow all edits from now on in this run",
    "proceed_always": "after --approve: don't ask for the same again in this run",
    "proceed_always_tool": "after --approve: don't ask for this tool in this run",
    "proceed_always_server": "after --approve: don't ask for this MCP server in this run",
    "proceed_always_and_save": "after --approve: don't ask in later runs; saves a rule",
}
_FLAG_CHOICES = {flag: choice for choice, (flag, _) in ALWAYS.items()}


def build_decisions(
    flags: Sequence[tuple[str, Any, str | None]],
    waiting: Sequence[Request],
    past_requests: Mapping[str, str] | None = None,
    why_nothing_waits: str = "Nothing waits in this run.",
) -> list[Decision]:
    """One decision per id. Raises `UserError` for an id that isn't pending, an invalid choice, or two for one id.

    `past_requests`: what became of a request that no longer waits, by id and by number.
    """
    past_requests = past_requests or {}
    if flags and not waiting:
        names = (str(value).partition("=")[0] for _, value, _ in flags)
        known = (f"{past_requests[name]}." for name in names if name in past_requests)
        raise UserError(" ".join([*known, why_nothing_waits]))
    found: dict[str, Decision] = {}
    last: list[str] = []
    for kind, value, option in flags:
        if kind in ("always", "reason"):
            _amend_decisions(found, last, waiting, kind, value, str(option))
            continue
        name, equals, rest = str(value).partition("=")
        last = []
        to_all = (kind, name) == ("answer", "all")
        for request in (
            _require_requests_sharing_answer(rest, waiting)
            if to_all
            else _require_named_requests(name, waiting, kind, past_requests)
        ):
            if request["id"] in found:
                raise UserError(f"{request['id']!r} is decided twice. Give one decision for each.")
            made = _build_decision(kind, request, rest if equals else None)
            found[request["id"]] = replace(made, door=f"--{kind}")
            last.append(request["id"])
    return list(found.values())


def _amend_decisions(
    decisions: dict[str, Decision],
    last_ids: list[str],
    waiting: Sequence[Request],
    kind: str,
    value: Any,
    flag: str,
) -> None:
    """Apply `--reason` or an always-flag to the decisions right before it."""
    wanted = "reject" if kind == "reason" else "proceed_once"
    before = "--reject ID" if kind == "reason" else "--approve ID"
    if not last_ids or any(decisions[name].choice != wanted for name in last_ids):
        raise UserError(f"{flag} belongs after {before}: {before} {flag}")
    for name in last_ids:
        old = decisions[name]
        if kind == "reason":
            decisions[name] = replace(old, feedback=str(value))
            continue
        request = next(r for r in waiting if r["id"] == name)
        decisions[name] = replace(old, choice=_require_allowed_choice(request, _FLAG_CHOICES[flag], flag))


def _require_named_requests(
    name: str, waiting: Sequence[Request], kind: str, past: Mapping[str, str]
) -> list[Request]:
    if name == "all":
        if kind == "edit":
            raise UserError(
                f"--edit all: each needs its own. Name one: {', '.join(r['id'] for r in waiting)}."
            )
        # Questions and unknown outcomes aren't permissions: `all` never decides those.
        found = [r for r in waiting if r["kind"] == "approval"] or [r for r in waiting if kind == "cancel"]
        if not found:
            raise UserError(f"--{kind} all: no approval waits. See: interlock approvals")
        return found
    found = [r for r in waiting if name in (r["id"], request_number_or_id(r))]
    if len(found) == 1:
        return found
    shown = ", ".join(f"{r['number']} ({r['id']})" if r["number"] else r["id"] for r in waiting)
    why = past.get(name) or f"No request {name!r} waits"
    near = "" if name in past else nearest_names_hint(name, [str(r["id"]) for r in waiting])
    raise UserError(f"{why}.{near} What waits: {shown}. See: interlock approvals")


def _require_requests_sharing_answer(text: str, waiting: Sequence[Request]) -> list[Request]:
    """The requests that one answer to all answers: unknown outcomes, or several questions that ask the same."""
    if text in ("redo", "skip") and (found := [r for r in waiting if r["kind"] == "outcome"]):
        return found
    found = [r for r in waiting if r["kind"] == "question"]
    asked = {json.dumps(r.get("questions") or r["preview"], sort_keys=True) for r in found}
    if len(found) > len(asked) == 1:
        return found
    raise UserError(
        "--answer all: redo or skip settles every unknown outcome, any text the questions that ask the same; here each "
        f"needs its own. Name one: {', '.join(r['id'] for r in waiting)}."
    )


def _build_decision(kind: str, request: Request, argument: str | None) -> Decision:
    name = request["id"]
    if argument is not None and kind not in ("edit", "answer"):
        raise UserError(f"--{kind} takes an id alone, got {name}={argument!r}.")
    if kind == "edit":
        _require_allowed_choice(request, "modify", "--edit")
        return decide_with_edited_arguments(request, argument)
    if kind == "answer":
        return _build_answer_decision(request, argument)
    if kind == "approve":
        if request["kind"] != "approval":
            raise UserError(f"{name!r} asks for an answer, not for a permission: --answer {name}=…")
        return Decision(name, _require_allowed_choice(request, "proceed_once", "--approve"))
    return Decision(name, _require_allowed_choice(request, kind, f"--{kind}"))


def _require_allowed_choice(request: Request, choice: str, flag: str) -> "Choice":
    if choice not in (*request["choices"], "cancel"):
        raise UserError(f"{flag}: request {request['id']!r} takes {', '.join(request['choices'])}.")
    return cast("Choice", choice)


def _build_answer_decision(request: Request, text: str | None) -> Decision:
    name = request["id"]
    if not text:
        raise UserError(f"--answer needs a text: --answer {name}='your answer'")
    if request["kind"] == "approval":
        raise UserError(
            f"{name!r} asks for a permission: --approve {name}, --reject {name} or --edit {name}=JSON"
        )
    if request["kind"] == "outcome":
        way = next((way for way in choices_by_key(request).values() if way.text == text), None)
        if way is None:
            raise UserError(f"--answer {name}={text!r}: expected redo (run it again) or skip (leave it).")
        return make_decision(request, way)
    return decide_with_answers(request, [text])


def decide_with_edited_arguments(request: Request, spec: str | None = None) -> Decision:
    """Run it with these arguments, or with what the person writes in an editor: the argument that matters, such as
    a command or a file's new text; without such an argument, all of them as JSON."""
    what = f"--edit {request_number_or_id(request)}"
    if spec is not None:
        return decide_with_changed_arguments(request, parse_json_object(read_argument_text(spec, what), what))
    if plan := plan_under_review(request):
        return decide_with_arguments(request, {"plan": edit_in_editor(plan, ".md", what)})
    if name := editable_text_argument(request):
        old = str(request["args"][name])
        ending = "\n" * (not old.endswith("\n"))
        new = edit_in_editor(old + ending, _suffix_for_argument(request, name), what)
        return decide_with_changed_arguments(request, {name: new.removesuffix("\n") if ending else new})
    text = to_visible_json(request["args"], 2) + "\n"
    return decide_with_arguments(request, parse_json_object(edit_in_editor(text, ".json", what), what))


def _suffix_for_argument(request: Request, name: str) -> str:
    """The file ending by which an editor knows the language of an argument."""
    if name == "command":
        return ".sh"
    return Path(str(request["args"].get("file_path") or request["args"].get("path") or "")).suffix or ".txt"


def edit_in_editor(text: str, suffix: str, label: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if not sys.stdin.isatty():
        raise UserError(
            f"{label}: no terminal to edit in. Give the arguments that change: {label}=JSON or {label}=@FILE"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"change{suffix}"
        file.write_text(text, encoding="utf-8")
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False)
        except OSError as error:
            raise UserError(
                f"{label}: can't start the editor {editor!r}: {error.strerror}. Set EDITOR."
            ) from error
        if ended.returncode != 0:
            raise UserError(
                f"{label}: the editor {editor!r} ended with {ended.returncode}; nothing was decided."
            )
        return file.read_text(encoding="utf-8")


def can_ask_person() -> bool:
    """Whether a person can see what is written, and type."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def ask_for_decisions(run: str, requests: Sequence[Request], paint: Paint) -> list[Decision]:
    """Ask one request after the other, until the person says later (or presses Ctrl-C or Ctrl-D)."""
    decisions: list[Decision] = []
    settled: set[str] = set()
    try:
        for number, request in enumerate(requests, 1):
            if request["id"] in settled:
                continue
            others = find_similar_unknown_outcomes(
                request, [r for r in requests[number:] if r["id"] not in settled]
            )
            count = f"{number} of {len(requests)}: " if len(requests) > 1 else ""
            discard_typed_input()  # typed before the question was shown, it is no answer
            _write_lines(
                "",
                *request_lines(
                    request, count, paint, PREVIEW_LINES, hidden_lines_hint(run), answered_by_key=True
                ),
            )
            decision, more = _ask_for_decision_until_valid(request, others)
            further, ids = decisions_on_other_requests(decision, request, requests[number:])
            decisions += [decision, *more, *further]
            settled |= ids | {one.approval for one in more}
    except (KeyboardInterrupt, EOFError):
        _write_lines("")
    return decisions


def _ask_for_decision_until_valid(
    request: Request, similar_outcomes: Sequence[Request]
) -> tuple[Decision, list[Decision]]:
    """The decision on a request, and on others like it where the person says so."""
    while True:
        try:
            if request["kind"] == "question":
                return decide_with_answers(
                    request, [_read_nonempty_answer(wanted) for wanted in answer_field_labels(request)]
                ), []
            return _ask_for_choice(request, choices_by_key(request), similar_outcomes)
        except UserError as error:
            _write_lines(f"  {error}")


_WORDS = {"y": "yes", "a": "always", "s": "save", "e": "edit", "n": "no", "c": "stop"}
"""Key → a word that stands for it."""


def _ask_for_choice(
    request: Request, choices: Mapping[str, AnswerChoice], similar_outcomes: Sequence[Request]
) -> tuple[Decision, list[Decision]]:
    """Take a key or a word for it, `n` with a reason behind it, `all` behind an unknown outcome."""
    _write_lines("", *(f"  [{key}] {way.label_with_scope}" for key, way in choices.items()))
    if similar_outcomes:
        _write_lines(f"  Add “all” to decide {len(similar_outcomes)} more like it the same way.")
    typed = _read_nonempty_answer("/".join(choices))
    word, _, rest = typed.partition(" ")
    found = (w for key, w in choices.items() if word.lower() in (key, w.text, _WORDS.get(key)))
    if (way := next(found, None)) is None:
        raise UserError(f"{word!r} isn't one of {', '.join(choices)}, l.")
    if way.takes == "arguments":
        return decide_with_edited_arguments(request), []
    why = way.takes == "reason" and (rest.strip() or _read_line("  Reason (optional): "))
    same = similar_outcomes if rest.strip() == "all" else ()
    return make_decision(request, way, why or None), [make_decision(other, way) for other in same]


def _read_nonempty_answer(choices: str) -> str:
    """Read an answer, asking again while it is empty. Raises `EOFError` for later."""
    while not (typed := _read_line(f"  {choices} (l: later): ")):
        pass
    if typed.lower() in ("l", "later"):
        raise EOFError
    return typed


def _read_line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return to_one_line(line)


def _write_lines(*lines: str) -> None:
    Paint(sys.stderr).print_lines(lines)
    sys.stderr.flush()
