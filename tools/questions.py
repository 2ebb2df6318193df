"""questions: what only the user can answer: one to four questions, or one with suggested answers."""

import re
from typing import Literal, cast

from pydantic import Field, JsonValue, field_validator, model_validator

from interlock.state.calls import Preview, error_result
from interlock.state.tooling import Args, Tool, ToolContext, make_run_that_returns


class Option(Args):
    label: str = Field(min_length=1, description="The answer, in a few words.")
    description: str = Field(default="", description="What choosing it means.")


class Question(Args, populate_by_name=True):
    question: str = Field(min_length=1, description="The whole question, with what the user needs to decide.")
    header: str = Field(default="", description="A short label for it, such as 'Database'.")
    type: Literal["choice", "text", "yesno"] = Field(
        default="text",
        description="choice: one of options; text: free words; yesno: yes or no. Default text.",
    )
    options: list[Option] = Field(
        default_factory=list[Option], description="Two to four answers, for type choice."
    )
    multi_select: bool = Field(
        default=False,
        alias="multiSelect",
        description="Whether several options may be chosen. Default false.",
    )
    placeholder: str = Field(default="", description="A hint shown in the empty answer, for type text.")

    @model_validator(mode="after")
    def _require_options(self) -> "Question":
        if self.type == "choice" and not 2 <= len(self.options) <= 4:
            raise ValueError(f"type choice has {len(self.options)} options, expected 2 to 4")
        return self


class AskUserArgs(Args):
    questions: list[Question] = Field(min_length=1, max_length=4, description="One to four questions.")


ASK_USER = Tool(
    name="ask_user",
    description="Asks the user one to four questions and waits for the answers. Use it only for what you can't find out"
    " yourself and what changes what you do next.",
    args=AskUserArgs,
    risk="question",
    summary=lambda args: "Ask: " + " / ".join(question.question for question in args.questions),
    # Only reached if nobody can be asked: normally the graph asks, and answers the call.
    run=make_run_that_returns(
        error_result(
            "no_answer",
            "Nobody could be asked; decide yourself, or say in your answer what you need to know.",
        )
    ),
)


_SUGGEST = re.compile(r'<suggest(?:\s+mode="([^"]*)")?\s*>(.*?)</suggest>', re.DOTALL)


class Suggestion(Args):
    text: str = Field(min_length=1, description="A complete answer, ready to use.")
    mode: str | None = Field(
        default=None, description="Slug of the mode to continue in, if this answer needs another."
    )


class AskFollowupQuestionArgs(Args):
    question: str = Field(min_length=1, description="The whole question, with what the user needs to decide.")
    follow_up: list[Suggestion] = Field(
        default_factory=list[Suggestion],
        max_length=9,
        description="Two to four answers to choose from, without gaps to fill in. The user may say something else.",
    )

    @field_validator("follow_up", mode="before")
    @classmethod
    def _parse_suggestions(cls, value: object) -> object:
        """Return answers from a list, Roo Code's `<suggest>` tags, or one answer per line."""
        if isinstance(value, str):
            found = [{"text": text.strip(), "mode": mode or None} for mode, text in _SUGGEST.findall(value)]
            return found or [{"text": line.strip()} for line in value.splitlines() if line.strip()]
        if isinstance(value, list):
            items = cast(list[object], value)
            return [{"text": item} if isinstance(item, str) else item for item in items]
        return value


async def _preview_question(args: AskFollowupQuestionArgs, context: ToolContext) -> Preview:  # noqa: ARG001 - every tool has this shape
    options: list[JsonValue] = [
        {"label": s.text, **({"mode": s.mode, "description": f"then in mode {s.mode}"} if s.mode else {})}
        for s in args.follow_up
    ]
    return Preview(text=args.question, questions=({"question": args.question, "options": options},))


ASK_FOLLOWUP_QUESTION = Tool(
    name="ask_followup_question",
    description="Asks the user one question and waits for the answer. Use it only for what you can't find out yourself"
    " and what changes what you do next.",
    args=AskFollowupQuestionArgs,
    risk="question",
    summary=lambda args: f"Ask: {args.question}",
    preview=_preview_question,
    run=make_run_that_returns(
        error_result("no_answer", "Nobody could be asked; decide yourself, and say so in the result.")
    ),
)
