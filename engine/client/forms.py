"""forms: a question as a form of text fields, for clients that show forms, and what is filled in as the decision."""

from collections.abc import Mapping
from typing import Any

from interlock.engine.client import Decision
from interlock.engine.client.requests import Request, answered, asked


def form(request: Request) -> dict[str, Any]:
    """The JSON Schema of a question's form: one text for each question."""
    fields = {name: {"type": "string", "title": title} for name, title in _fields(request).items()}
    return {"type": "object", "properties": fields, "required": [*fields]}


def filled(request: Request, content: Mapping[str, Any]) -> Decision | None:
    """The decision that the fields make; None while one of them is empty."""
    texts = [str(content.get(name) or "") for name in _fields(request)]
    return answered(request, texts) if all(text.strip() for text in texts) else None


def _fields(request: Request) -> dict[str, str]:
    """Field → what it asks."""
    titles = [question.text for question in asked(request).questions]
    if len(titles) > 1:
        return {f"answer{number}": title for number, title in enumerate(titles, 1)}
    return {"answer": titles[0] if titles else str(request["preview"] or request["reason"])}
