"""requests: what a pending request asks, in parts that any medium can draw, and the decisions that answer it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from interlock.engine.options import Decision
from interlock.engine.read import check_edited_arguments
from interlock.engine.store.queries import parse_request_id
from interlock.state.errors import UserError
from interlock.state.text import format_diff_stat, is_diff, make_visible, shorten, to_one_line

if TYPE_CHECKING:
    from interlock.state.calls import Choice

PLAN_REVIEW = "exit_plan_mode"
CHANGED_TESTS = "changed_tests"
"""In place of a tool's name: whether changed tests count."""
HEADLINE = 80
"""Characters of a headline; the preview shows in full what is cut of it."""
_NAME = 60
_TARGETS = ("command", "file_path", "path", "dir_path", "pattern", "url", "prompt", "plan_filename")
"""Arguments that say what a call is about."""

Request = Mapping[str, Any]


class AnswerChoice(NamedTuple):
    key: str
    """The letter that stands for it; empty: a further kind of *always*, for those who name it."""
    choice: "Choice"
    label: str
    takes: Literal["", "reason", "arguments", "text"] = ""
    """What goes with it."""
    text: str = ""
    """What answers an unknown outcome: `redo` or `skip`."""
    covers: str = ""
    """What else goes on without a question after it; only of choices that last."""

    @property
    def label_with_scope(self) -> str:
        """The label, with what else it covers."""
        return f"{self.label}: {self.covers}" if self.covers else self.label


class Option(NamedTuple):
    label: str
    about: str


class Question(NamedTuple):
    text: str
    options: tuple[Option, ...]


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
    """`replace calc.py (+1 −1)`, `run_shell_command: git push`, `question: Which one?`."""
    is_unknown: bool
    """It asks what became of a call that was cut off."""
    note: str
    why: str
    agent: str
    """The sub-agent that asks; empty: the run itself."""
    preview: str
    """What would happen, as it came; empty where the headline says all of it."""
    shows: Literal["diff", "plan", "text"]
    parts: tuple[Part, ...]
    questions: tuple[Question, ...]
    always: tuple[str, ...]
    """What an *always* covers in this run."""
    saved: str
    """What a saved *always* covers, unless that is the same."""
    ways: tuple[AnswerChoice, ...]


SAVED: "Choice" = "proceed_always_and_save"
EDITS: "Choice" = "proceed_always_edits"
ALWAYS: "tuple[Choice, ...]" = (
    EDITS,
    "proceed_always",
    "proceed_always_tool",
    "proceed_always_server",
    SAVED,
)
"""Choices that let the same go on without a question; a key stands for the first that is offered, and for the last."""
_ALL_EDITS = "every change of a file by an editing tool; commands still ask"
_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "yes, once",
    "proceed_always_edits": "yes, and all edits of this session",
    "proceed_always": "always",
    "proceed_always_tool": "always",
    "proceed_always_server": "always",
    "proceed_always_and_save": "always and save it",
    "modify": "edit",
    "reject": "no, and why",
    "cancel": "stop the run",
}
_PLAN_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "yes, and ask before each edit",
    "proceed_always": "yes, and all edits of the plan",
}
_TEST_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "accept the changed tests",
    "reject": "send it back, and why",
}


def describe_request(request: Request) -> RequestView:
    given: Mapping[str, str] = request.get("always") or {}
    always = {choice: to_one_line(what) for choice, what in given.items()}
    saved = always.pop(SAVED, "")
    here = tuple(what for what in dict.fromkeys(always.values()) if what)
    parts: Sequence[Mapping[str, str]] = request.get("parts") or ()
    return RequestView(
        headline=request_headline(request),
        is_unknown=request["kind"] == "outcome",
        note=to_one_line(str(request.get("note") or "")),
        why=to_one_line(request["reason"]),
        agent=str(request.get("agent") or ""),
        preview=_preview_unless_in_headline(request),
        shows="plan" if plan_under_review(request) else "diff" if is_diff(request["preview"]) else "text",
        parts=tuple(_parse_command_part(part) for part in parts) if len(parts) > 1 else (),
        questions=tuple(_parse_questions(request)),
        always=here,
        saved="" if saved in here else saved,
        ways=answer_choices(request),
    )


def request_headline(request: Request) -> str:
    """What is asked, in one line."""
    if request["kind"] == "question":
        questions: Sequence[Request] = request.get("questions") or [{}]
        first = questions[0].get("question") or request["preview"] or request["reason"]
        more = f" (and {len(questions) - 1} more)" if len(questions) > 1 else ""
        return f"question: {to_one_line(f'{first}{more}')}"
    stat = format_diff_stat(request["preview"])
    name = "changed tests:" if is_about_changed_tests(request) else to_one_line(request["tool_name"], _NAME)
    about = f"{name} {summarize_arguments(request['args'])}"
    return about + (f" ({stat})" if stat else "")


def summarize_arguments(args: Mapping[str, Any]) -> str:
    """What a call is about: its file, command or address, else all of its arguments."""
    target = next((args[key] for key in _TARGETS if args.get(key)), None)
    return to_one_line(str(target) if target is not None else json.dumps(args, ensure_ascii=False))


def plan_under_review(request: Request) -> str:
    """The plan's Markdown in a plan review; empty for any other request."""
    return str(request["preview"]) if request["tool_name"] == PLAN_REVIEW else ""


def is_about_changed_tests(request: Request) -> bool:
    """Whether it asks if a check counts that passes only with changed tests."""
    return request["tool_name"] == CHANGED_TESTS and "tests" in request["args"]


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
        options: Sequence[Any] = question.get("options") or ()
        yield Question(make_visible(str(question.get("question", ""))), tuple(map(_parse_option, options)))


def _parse_option(option: Any) -> Option:
    fields: Request = cast("Request", option) if isinstance(option, Mapping) else {"label": option}
    return Option(to_one_line(str(fields.get("label", ""))), to_one_line(str(fields.get("description", ""))))


def answer_choices(request: Request) -> tuple[AnswerChoice, ...]:
    """Every way to answer, in the order in which they are offered."""
    choices: Sequence[Choice] = request["choices"]
    if request["kind"] == "question":
        refusal = [AnswerChoice("", "reject", _LABELS["reject"], "reason")] if "reject" in choices else []
        found = [AnswerChoice("", "proceed_once", "answer", "text"), *refusal]
    elif request["kind"] == "outcome":
        found = [
            AnswerChoice("r", "proceed_once", "redo: run it again", text="redo"),
            AnswerChoice("s", "reject", "skip: leave it", text="skip"),
        ]
    else:
        lasting = [c for c in ALWAYS if c in choices and c != SAVED]
        order = cast("Sequence[Choice]", ("proceed_once", *lasting, SAVED))
        letters = {"proceed_once": "y", SAVED: "s", **dict.fromkeys(lasting[:1], "a")}
        labels = dict(_LABELS)
        labels.update(_PLAN_LABELS if plan_under_review(request) else {})
        labels.update(_TEST_LABELS if is_about_changed_tests(request) else {})
        yes = [
            AnswerChoice(letters.get(c, ""), c, labels[c], covers=describe_choice_scope(request, c))
            for c in order
            if c in choices
        ]
        edit = [AnswerChoice("e", "modify", _LABELS["modify"], "arguments")] if "modify" in choices else []
        no = [AnswerChoice("n", "reject", labels["reject"], "reason")] if "reject" in choices else []
        found = [*yes, *edit, *no]
    if "cancel" in choices:
        found.append(AnswerChoice("c" if request["kind"] == "approval" else "", "cancel", _LABELS["cancel"]))
    return tuple(found)


def describe_choice_scope(request: Request, choice: "Choice") -> str:
    """What else goes on without a question after this choice; empty for one that doesn't last."""
    if choice == EDITS:
        return _ALL_EDITS
    given: Mapping[str, str] = request.get("always") or {}
    return to_one_line(given.get(choice, ""))


def choices_by_key(request: Request) -> dict[str, AnswerChoice]:
    """The ways that a key stands for."""
    return {way.key: way for way in answer_choices(request) if way.key}


def decision_text(request: Request, decision: Decision) -> str:
    if decision.text is not None:
        return decision.text
    if decision.choice == "reject":
        return f"no: {decision.feedback}" if decision.feedback else "no"
    return next(
        (way.label for way in answer_choices(request) if way.choice == decision.choice), decision.choice
    )


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


def shared_answer_choices(requests: Sequence[Request]) -> tuple[AnswerChoice, ...]:
    """How to answer all of these with one decision."""
    shared = set[str].intersection(*({way.choice for way in answer_choices(request)} for request in requests))
    single = ("modify", *(choice for choice in ALWAYS if choice != EDITS))
    return tuple(
        way for way in answer_choices(requests[0]) if way.choice in shared and way.choice not in single
    )


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
        return ["your answer, or an option's number" if has_options else "your answer"]
    return [f"answer {n} of {count}" for n in range(1, count + 1)]


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
