"""ask_followup_question: ask the user one question with suggested answers."""

import re
from typing import cast

from pydantic import Field, JsonValue, field_validator

from interlock.state.calls import Preview, failure
from interlock.state.tooling import Args, Tool, ToolContext, always

_SUGGEST = re.compile(r'<suggest(?:\s+mode="([^"]*)")?\s*>(.*?)</suggest>', re.DOTALL)


class Suggestion(Args):
    text: str = Field(min_length=1, description="An answer, whole and ready to be given.")
    mode: str | None = Field(
        default=None, description="Slug of the mode to go on in, if this answer needs another."
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
    def _read(cls, value: object) -> object:
        """Accepts Roo Code's `<suggest>` tags, or one answer per line."""
        if isinstance(value, str):
            found = [{"text": text.strip(), "mode": mode or None} for mode, text in _SUGGEST.findall(value)]
            return found or [{"text": line.strip()} for line in value.splitlines() if line.strip()]
        if isinstance(value, list):
            items = cast(list[object], value)
            return [{"text": item} if isinstance(item, str) else item for item in items]
        return value


async def preview(args: AskFollowupQuestionArgs, context: ToolContext) -> Preview:  # noqa: ARG001 - every tool has this shape
    options: list[JsonValue] = [
        {"label": s.text, **({"mode": s.mode, "description": f"then in mode {s.mode}"} if s.mode else {})}
        for s in args.follow_up
    ]
    return Preview(text=args.question, questions=({"question": args.question, "options": options},))


TOOL = Tool(
    name="ask_followup_question",
    description="Asks the user one question and waits for the answer. Use it only for what you can't find out yourself"
    " and what changes what you do next.",
    args=AskFollowupQuestionArgs,
    risk="question",
    summary=lambda args: f"Ask: {args.question}",
    preview=preview,
    run=always(failure("no_answer", "Nobody could be asked; decide by yourself, and say so in the result.")),
)
