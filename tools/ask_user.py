"""ask_user: questions that only the user can answer."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from interlock.state.calls import failure
from interlock.state.tooling import Args, Tool, always


class Option(Args):
    label: str = Field(min_length=1, description="The answer, in a few words.")
    description: str = Field(default="", description="What choosing it means.")


class Question(Args):
    model_config = ConfigDict(populate_by_name=True)
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
    def _has_options(self) -> "Question":
        if self.type == "choice" and not 2 <= len(self.options) <= 4:
            raise ValueError(f"type choice has {len(self.options)} options, expected 2 to 4")
        return self


class AskUserArgs(Args):
    questions: list[Question] = Field(min_length=1, max_length=4, description="One to four questions.")


TOOL = Tool(
    name="ask_user",
    description="Asks the user one to four questions and waits for the answers. Use it only for what you can't find out"
    " yourself and what changes what you do next.",
    args=AskUserArgs,
    risk="question",
    summary=lambda args: "Ask: " + " / ".join(question.question for question in args.questions),
    # Only reached if nobody can be asked: normally the graph asks, and answers the call.
    run=always(
        failure(
            "no_answer",
            "Nobody could be asked; decide by yourself, or say in your answer what you need to know.",
        )
    ),
)
