"""_ask: one question to a helper model about an edit."""

from langgraph.runtime import Runtime

from interlock.nodes._ask_json import Answered, Question, T, ask_json
from interlock.nodes.edit._subject import SubjectIn
from interlock.state.deps import Deps
from interlock.state.edit import FIXER_TIMEOUT_S
from interlock.state.messages import Message
from interlock.tools.matcher.edit import excerpt

_MOST_TEXT = 120_000
"""Characters of a file that a helper is shown: about 30,000 tokens."""


async def ask(
    runtime: Runtime[Deps], state: SubjectIn, role: str, kind: type[T], prompt: tuple[str, str]
) -> Answered[T] | None:
    """The answer to `prompt` (system, user); one attempt."""
    system, user = prompt
    question = Question(
        role=role,
        kind=kind,
        messages=[Message(role="system", content=system), Message(role="user", content=user)],
        head=state["message"],
        timeout_s=FIXER_TIMEOUT_S,
        attempts=1,
    )
    return await ask_json(question, runtime)


def shown_text(text: str, old: str) -> str:
    """The whole text, or of a long one what is around the lines that are most like `old`."""
    return text if len(text) <= _MOST_TEXT else excerpt(text, old, _MOST_TEXT)
