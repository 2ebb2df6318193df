"""requests: what a pending request asks, in parts that any medium can draw, and the decisions that answer it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from interlock.engine.client.answer_choices import (
    EDITS,
    AnswerChoice,
    Request,
    answer_choices,
    is_about_changed_tests,
    plan_under_review,
)
from interlock.engine.options import Decision
from interlock.engine.read import check_edited_arguments
from interlock.engine.store.queries import parse_request_id
from interlock.state.errors import UserError
from interlock.state.text import format_diff_stat, is_diff, make_visible, shorten, to_one_line

if TYPE_CHECKING:
    pass

HEADLINE = 80
"""Characters of a headline; the preview shows in full what is cut of it."""
_NAME = 60
_SAID = 200
"""Characters of what a person or the model said about a request, where one line is for it."""
_TARGETS = ("command", "file_path", "path", "dir_path", "pattern", "url", "prompt", "plan_filename")
"""Arguments that say what a call is about."""
_TEXTS = ("command", "content", "new_string", "diff", "line")
"""Arguments that a person may want to rewrite."""
_SHELLS = ("run_shell_command", "execute_command")
_PURPOSES = {
    "run_shell_command": "description",
    "replace": "instruction",
    "enter_plan_mode": "reason",
    "switch_mode": "reason",
}
"""Tool → the argument in which the model says why."""
ASKED_BY_WORKFLOW = "approve"
"""In place of a tool's name: a workflow's own question, which is the request's reason."""
_QUESTIONS = ("The model asks you.",)
"""Reasons that say only that there is a question."""
_ASKS = "Question: "
_YES_NO = ("Yes", "No")
_NEW_FILE = "--- /dev/null"


class Option(NamedTuple):
    label: str
    about: str


class Question(NamedTuple):
    text: str
    options: tuple[Option, ...]
    takes_several: bool = False
    """Whether several options may be chosen."""


class Part(NamedTuple):
    """One command of a shell line, and what the policy says of it."""

    text: str
    decision: str
    reason: str
    """Without the command itself."""


@dataclass(frozen=True)
class RequestView:
    """A request in words. Texts of models and files are on one line, with harmful characters escaped."""

    headline: str
    """`Edit calc.py (+1 −1)`, `Run git push`, `Question: Which one?`."""
    is_unknown: bool
    """It asks what became of a call that was cut off."""
    note: str
    purpose: str
    """Why the model makes the call, in its own words; empty: it doesn't say."""
    why: str
    """Why the call needs a decision; empty: the headline says it."""
    agent: str
    """The sub-agent that asks; empty: the run itself."""
    preview: str
    """What would happen, as it came; empty where the headline says all of it."""
    shows: Literal["diff", "plan", "text"]
    parts: tuple[Part, ...]
    questions: tuple[Question, ...]
    ways: tuple[AnswerChoice, ...]


def describe_request(request: Request, edits_last_for: str = "this run") -> RequestView:
    """`edits_last_for`: as for `answer_choices`."""
    headline, why = request_headline(request), to_one_line(request["reason"])
    parts: Sequence[Mapping[str, str]] = request.get("parts") or ()
    return RequestView(
        headline=headline,
        is_unknown=request["kind"] == "outcome",
        note=to_one_line(str(request.get("note") or "")),
        purpose=_model_purpose(request),
        why="" if why in (headline, *_QUESTIONS) else why,
        agent=str(request.get("agent") or ""),
        preview=_preview_unless_in_headline(request),
        shows="plan" if plan_under_review(request) else "diff" if is_diff(request["preview"]) else "text",
        parts=tuple(_parse_command_part(part) for part in parts) if len(parts) > 1 else (),
        questions=tuple(_parse_questions(request)),
        ways=answer_choices(request, edits_last_for),
    )


def request_headline(request: Request) -> str:
    """What is asked, in one line: `Edit calc.py (+1 −1)`, `Run git push`, `Question: Which one?`."""
    stat = format_diff_stat(request["preview"])
    return request_title(request) + (f" ({stat})" if stat else "")


def request_title(request: Request) -> str:
    """What is asked, in one line, without the size of a change."""
    tool, about = str(request["tool_name"]), summarize_arguments(request["args"])
    if request["kind"] == "question":
        questions: Sequence[Request] = request.get("questions") or [{}]
        first = questions[0].get("question") or request["preview"] or request["reason"]
        more = f" (and {len(questions) - 1} more)" if len(questions) > 1 else ""
        return f"{_ASKS}{to_one_line(f'{first}{more}')}"
    if is_about_changed_tests(request):
        return f"Changed tests: {about}"
    if plan_under_review(request):
        return f"Plan: {to_one_line(str(request['args'].get('plan_filename') or ''))}".rstrip(": ")
    if tool in _SHELLS:
        return f"Run {about}"
    if is_diff(request["preview"]):
        return f"{'Create' if str(request['preview']).startswith(_NEW_FILE) else 'Edit'} {about}"
    if tool == ASKED_BY_WORKFLOW and request["reason"]:
        return to_one_line(request["reason"])
    return f"{to_one_line(tool, _NAME)} {about if request['args'] else ''}".rstrip()


def summarize_arguments(args: Mapping[str, Any]) -> str:
    """What a call is about: its file, command or address, else all of its arguments."""
    target = next((args[key] for key in _TARGETS if args.get(key)), None)
    return to_one_line(str(target) if target is not None else json.dumps(args, ensure_ascii=False))


def _model_purpose(request: Request) -> str:
    name = _PURPOSES.get(str(request["tool_name"]))
    return to_one_line(str(request["args"].get(name) or ""), _SAID) if name else ""


def request_number_or_id(request: Request) -> str:
    """What to type for a request: its number, or its id while the run hasn't parked."""
    return str(request["number"] or request["id"])


def _preview_unless_in_headline(request: Request) -> str:
    if request["kind"] == "question":
        return ""
    lines = make_visible(request["preview"]).splitlines()
    says_all = lines == [summarize_arguments(request["args"])] and lines[0] in shorten(
        request_headline(request), HEADLINE
    )
    return "" if says_all else request["preview"]


def _parse_command_part(part: Mapping[str, str]) -> Part:
    text = to_one_line(part["text"], _NAME)
    return Part(text, part["decision"], to_one_line(part["reason"].removeprefix(f"`{part['text']}` ")))


def _parse_questions(request: Request) -> Iterator[Question]:
    found: Sequence[Request] = request.get("questions") or () if request["kind"] == "question" else ()
    for question in found:
        options: Sequence[Any] = question.get("options") or (
            _YES_NO if question.get("type") == "yesno" else ()
        )
        several = bool(question.get("multi_select") or question.get("multiSelect"))
        text = make_visible(str(question.get("question", "")))
        yield Question(text, tuple(map(_parse_option, options)), several and bool(options))


def _parse_option(option: Any) -> Option:
    fields: Request = cast("Request", option) if isinstance(option, Mapping) else {"label": option}
    return Option(to_one_line(str(fields.get("label", ""))), to_one_line(str(fields.get("description", ""))))


def decided_request_line(request: Request, decision: Decision, group_title: str = "") -> str:
    """What was asked and how it was answered: `✓ Edit calc.py · accepted (+1 −1)`.

    `group_title`: what to call several requests with the same decision.
    """
    title = group_title or to_one_line(request_title(request).removeprefix(_ASKS), HEADLINE)
    stat = format_diff_stat(request["preview"])
    size = f" ({stat})" if stat and not group_title else ""
    way = next((w for w in answer_choices(request) if w.choice == decision.choice), None)
    said = to_one_line(decision.text or decision.feedback or "", _SAID)
    if request["kind"] == "question":
        if decision.choice == "reject":
            return f"– {title} · not answered"
        lines = str(decision.text).split("\n")
        pairs = [" ".join(pair) for pair in zip(lines[::2], lines[1::2], strict=False)]
        several = len(lines) == 2 * len(request.get("questions") or ()) > 2
        return to_one_line(f"✓ {' · '.join(pairs)}", _SAID) if several else f"✓ {title} · {said}"
    if request["kind"] == "outcome":
        return f"✓ {title} · run again" if decision.text == "redo" else f"– {title} · outcome left unknown"
    if decision.choice == "cancel":
        return f"– {title} · refused, and the run stopped"
    if decision.choice == "reject":
        return f"– {title} · refused" + (f": {said}" if said else "")
    if decision.choice == "modify":
        return f"✓ {title} · accepted with your changes"
    lasts = f", and not asked again for {way.covers}" if way and way.covers else ""
    lasts = ", with all edits" if decision.choice == EDITS else lasts
    return f"✓ {title} · accepted{size}{lasts}"


def make_decision(request: Request, answer_choice: AnswerChoice, feedback: str | None = None) -> Decision:
    """The decision that a way makes; for those that take arguments or an answer: `edited`, `answered`."""
    return Decision(
        request["id"], answer_choice.choice, feedback=feedback or None, text=answer_choice.text or None
    )


def decide_with_changed_arguments(request: Request, changes: Mapping[str, Any]) -> Decision:
    """Let it run with other arguments: those not named stay, null removes one. Raises as `rewritten`."""
    return decide_with_arguments(request, {**request["args"], **changes})


def decide_with_arguments(request: Request, args: Mapping[str, Any]) -> Decision:
    """Let it run with exactly these arguments; a plan, with its text as `plan`.

    Raises `UserError` that lists the names it takes.
    """
    check_edited_arguments(request, args)
    kept = {name: value for name, value in args.items() if value is not None}
    return Decision(request["id"], "modify", args=kept)


def editable_text_argument(request: Request) -> str:
    """The argument that a person would change: a command, or a file's new text; empty: more than one matters."""
    found = [name for name in _TEXTS if isinstance(request["args"].get(name), str)]
    return found[0] if len(found) == 1 else ""


def find_similar_unknown_outcomes(request: Request, others: Sequence[Request]) -> list[Request]:
    """The unknown outcomes among the others that differ from this one in their arguments only, as in a map."""
    if request["kind"] != "outcome":
        return []
    same = ("kind", "tool_name", "reason", "agent")
    return [o for o in others if o is not request and all(o.get(n) == request.get(n) for n in same)]


def edits_to_decide_together(requests: Sequence[Request]) -> list[Request]:
    """The edits among these requests that a person may decide as one; empty for fewer than two."""
    edits = [r for r in requests if r["kind"] == "approval" and is_diff(r["preview"])]
    edits = [r for r in edits if not plan_under_review(r) and not is_about_changed_tests(r)]
    return edits if len(edits) > 1 else []


def decisions_on_other_requests(
    decision: Decision, request: Request, others: Sequence[Request]
) -> tuple[list[Decision], set[str]]:
    """What a decision on a request settles of others: decisions on them, and the ids that nobody is asked about.

    Allowing all edits allows those that wait; stopping the run stops the rest of the batch.
    """
    if decision.choice == EDITS:
        made = [Decision(other["id"], EDITS) for other in others if EDITS in other["choices"]]
        return made, {one.approval for one in made}
    if decision.choice == "cancel":
        stopped = parse_request_id(request["id"])[0]
        return [], {other["id"] for other in others if parse_request_id(other["id"])[0] == stopped}
    return [], set()


def answer_field_labels(request: Request) -> list[str]:
    """What to call each of a question's answers."""
    questions = [*_parse_questions(request)]
    count = len(questions)
    if count <= 1:
        has_options = any(question.options for question in questions)
        return ["Answer, or an option's number" if has_options else "Answer"]
    return [f"Question {n} of {count}" for n in range(1, count + 1)]


def decide_with_answers(request: Request, answers: Sequence[str]) -> Decision:
    """The decision made by these answers, one per question or one for all; an option's number stands for its label.

    Raises `UserError` for an empty answer.
    """
    questions: Sequence[Request] = request.get("questions") or ({},)
    if len(answers) == len(questions):
        offered = [question.options for question in _parse_questions(request)] or [()]
        answers = list(map(_replace_option_number, offered, answers))
    if len(answers) > 1:
        pairs = zip((str(q.get("question", "")) for q in questions), answers, strict=True)
        text = "\n".join(f"{question}\n{answer}" for question, answer in pairs)
    else:
        text = answers[0]
    if not text.strip():
        raise UserError(f"Request {request_number_or_id(request)} asks for an answer, and got an empty one.")
    return Decision(request["id"], "proceed_once", text=text)


def _replace_option_number(options: Sequence[Option], text: str) -> str:
    """Replace an option's number with its label."""
    if text.isdecimal() and 1 <= int(text) <= len(options):
        return options[int(text) - 1].label
    return text


def answer_form_schema(request: Request) -> dict[str, Any]:
    """The JSON Schema of a question's form: one text for each question, with what it may choose."""
    fields = {name: {"type": "string", "title": title} for name, title in _form_field_titles(request).items()}
    for field, question in zip(fields.values(), describe_request(request).questions, strict=False):
        if question.options:
            field["description"] = "\n".join(map(option_line, question.options))
    return {"type": "object", "properties": fields, "required": [*fields]}


def option_line(option: Option) -> str:
    return f"- {option.label}: {option.about}" if option.about else f"- {option.label}"


def decide_from_form(request: Request, content: Mapping[str, Any]) -> Decision | None:
    """The decision that the fields make; None while one of them is empty."""
    texts = [str(content.get(name) or "") for name in _form_field_titles(request)]
    return decide_with_answers(request, texts) if all(text.strip() for text in texts) else None


def _form_field_titles(request: Request) -> dict[str, str]:
    """Field → what it asks."""
    titles = [question.text for question in describe_request(request).questions]
    if len(titles) > 1:
        return {f"answer{number}": title for number, title in enumerate(titles, 1)}
    return {"answer": titles[0] if titles else str(request["preview"] or request["reason"])}
