"""answer_choices: every way to answer a request: its words, its key, and exactly which later calls it allows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from interlock.state.text import to_one_line

if TYPE_CHECKING:
    from interlock.state.calls import Choice

PLAN_REVIEW = "exit_plan_mode"
CHANGED_TESTS = "changed_tests"
"""In place of a tool's name: whether changed tests count."""
_LONGEST_SCOPE = 120
"""Characters of a scope in a choice; a longer command is called what it is: the one that is shown."""

Request = Mapping[str, Any]


class AnswerChoice(NamedTuple):
    key: str
    """The letter that chooses it; empty: the answer itself is typed or picked."""
    choice: "Choice"
    label: str
    """What it does, as the beginning of a sentence that `covers` ends."""
    takes: Literal["", "reason", "arguments", "text"] = ""
    """What goes with it."""
    text: str = ""
    """What answers an unknown outcome: `redo` or `skip`."""
    covers: str = ""
    """The calls that it allows from now on; empty: this one, or the label says all."""
    is_extra: bool = False
    """Shown only to those who ask for more choices: at most four others stand first."""

    @property
    def label_with_scope(self) -> str:
        """The whole sentence: the label, and the calls that it allows."""
        return f"{self.label} {self.covers}" if self.covers else self.label


EDITS: "Choice" = "proceed_always_edits"
SAVED: "Choice" = "proceed_always_and_save"
ALWAYS: "tuple[Choice, ...]" = (
    EDITS,
    "proceed_always",
    "proceed_always_tool",
    "proceed_always_server",
    SAVED,
)
"""Choices that allow later calls, too, in the order in which they are offered."""
_KEYS: "Mapping[Choice, str]" = {
    "proceed_once": "y",
    "proceed_always": "f",
    "proceed_always_tool": "t",
    "proceed_always_server": "m",
    SAVED: "s",
    "modify": "e",
    "reject": "n",
    "cancel": "c",
}
"""Besides `a`, which is the first choice that lasts."""
_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "Yes",
    "proceed_always": "Yes, and don't ask again in this run for",
    "proceed_always_tool": "Yes, and don't ask again in this run for",
    "proceed_always_server": "Yes, and don't ask again in this run for",
    SAVED: "Yes, and don't ask again in this or later runs for",
    "modify": "Yes, after I change it",
    "reject": "No, and say why",
    "cancel": "No, and stop the run",
}
_PLAN_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "Yes, and ask before each edit",
    "proceed_always": "Yes to all: the plan's edits need no further approval; commands still do",
    "modify": "Yes, after I change the plan",
}
_TEST_LABELS: "Mapping[Choice, str]" = {
    "proceed_once": "Accept the changed tests",
    "reject": "Send it back, and say why",
}


def plan_under_review(request: Request) -> str:
    """The plan's Markdown in a plan review; empty for any other request."""
    return str(request["preview"]) if request["tool_name"] == PLAN_REVIEW else ""


def is_about_changed_tests(request: Request) -> bool:
    """Whether it asks if a check counts that passes only with changed tests."""
    return request["tool_name"] == CHANGED_TESTS and "tests" in request["args"]


def answer_choices(request: Request, edits_last_for: str = "this run") -> tuple[AnswerChoice, ...]:
    """Every way to answer, in the order in which they are offered.

    `edits_last_for`: how long “all edits” lasts; a session keeps it for its later runs.
    """
    choices: Sequence[Choice] = request["choices"]
    if request["kind"] == "question":
        found = [AnswerChoice("", "proceed_once", "Answer", "text")]
        found += [AnswerChoice("", "reject", "Don't answer, and say why", "reason")] * ("reject" in choices)
    elif request["kind"] == "outcome":
        found = [
            AnswerChoice("r", "proceed_once", "Run it again", text="redo"),
            AnswerChoice(
                "s", "reject", "Leave it, and tell the model that the outcome is unknown", text="skip"
            ),
        ]
    else:
        found = _approval_choices(request, edits_last_for)
    if "cancel" in choices:
        key = _KEYS["cancel"] if request["kind"] == "approval" else ""
        found.append(AnswerChoice(key, "cancel", _LABELS["cancel"], is_extra=True))
    return tuple(found)


def _approval_choices(request: Request, edits_last_for: str) -> list[AnswerChoice]:
    choices: Sequence[Choice] = request["choices"]
    lasting: list[Choice] = [c for c in ALWAYS if c in choices]
    labels: dict[Choice, str] = {**_LABELS, EDITS: f"Yes to all edits in {edits_last_for}"}
    if plan_under_review(request):
        labels.update(_PLAN_LABELS)
    if is_about_changed_tests(request):
        labels.update(_TEST_LABELS)
    first = next((c for c in lasting if c != SAVED), None)
    keys = {**_KEYS, **({first: "a"} if first else {})}
    takes: Mapping[Choice, Literal["reason", "arguments"]] = {"modify": "arguments", "reject": "reason"}
    order: list[Choice] = ["proceed_once", *lasting, "modify", "reject"]
    return [
        AnswerChoice(
            keys[choice],
            choice,
            labels[choice],
            takes.get(choice, ""),
            covers=""
            if choice in (EDITS, "reject", "modify", "proceed_once")
            else _choice_scope(request, choice),
            is_extra=choice == "modify" or (choice in lasting and choice != first),
        )
        for choice in order
        if choice in choices
    ]


def _choice_scope(request: Request, choice: "Choice") -> str:
    """The calls that a choice allows from now on, as the policy describes the rule that it stores."""
    if plan_under_review(request):
        return ""
    given: Mapping[str, str] = request.get("always") or {}
    scope = to_one_line(given.get(choice, ""))
    if len(scope) <= _LONGEST_SCOPE or not scope.startswith("exactly ") or "(also " in scope:
        return scope
    where = ", in this folder"
    what = "these commands" if "` and `" in scope else "this command"
    return f"exactly {what}" + where * scope.endswith(where)


def choices_by_key(request: Request) -> dict[str, AnswerChoice]:
    """The choices that have a key."""
    return {way.key: way for way in answer_choices(request) if way.key}


def shared_answer_choices(
    requests: Sequence[Request], edits_last_for: str = "this run"
) -> tuple[AnswerChoice, ...]:
    """How to answer all of these with one decision."""
    shared = set[str].intersection(*({way.choice for way in answer_choices(request)} for request in requests))
    single = ("modify", *(choice for choice in ALWAYS if choice != EDITS))
    return tuple(
        way
        for way in answer_choices(requests[0], edits_last_for)
        if way.choice in shared and way.choice not in single
    )
