"""history: checks a request's contents for what the real API refuses."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def texts(content: Json) -> str:
    """A content's visible text."""
    return "\n".join(p["text"] for p in content.get("parts", []) if p.get("text") and not p.get("thought"))


def answers(content: Json) -> list[Json]:
    return [p["functionResponse"] for p in content.get("parts", []) if "functionResponse" in p]


def calls(content: Json) -> list[Json]:
    return [p["functionCall"] for p in content.get("parts", []) if "functionCall" in p]


def refused(contents: Sequence[Json], *, signatures: bool) -> str | None:
    """The message of this history's 400 response, or None."""
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified"
    return _shape(contents) or _pairs(contents) or (_unsigned(contents) if signatures else None)


def _shape(contents: Sequence[Json]) -> str | None:
    """Stricter than the real API, which accepts neighbours of one role: alternating roles are accepted everywhere."""
    before = "model"
    for index, content in enumerate(contents):
        role = content.get("role", "user")
        if role == before:
            return f"fake_gemini: contents[{index}] has role {role!r} again; roles alternate and begin with 'user'."
        if not content.get("parts") or any(not part for part in content["parts"]):
            return f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty."
        before = role
    if before == "model":
        return "Please ensure that single turn requests end with a user role or the role field is empty."
    return None


def _pairs(contents: Sequence[Json]) -> str | None:
    """Every turn of calls is followed by as many answers, with the same names in the same order."""
    open_calls: list[Json] = []
    for content in contents:
        given = answers(content)
        if [a.get("name") for a in given] != [c.get("name") for c in open_calls]:
            return (
                "Please ensure that the number of function response parts is equal to the number of function call "
                f"parts of the function call turn: {[c.get('name') for c in open_calls]} was called, "
                f"{[a.get('name') for a in given]} was answered."
            )
        for answer, call in zip(given, open_calls, strict=True):
            if answer.get("id") != call.get("id"):
                return f"fake_gemini: answer {answer.get('id')!r} doesn't name its call {call.get('id')!r}."
        open_calls = calls(content)
    return None


def _unsigned(contents: Sequence[Json]) -> str | None:
    """Gemini 3: in the current turn, the first call of each step carries a thought signature."""
    asked = [i for i, c in enumerate(contents) if c.get("role") == "user" and texts(c) and not answers(c)]
    start = asked[-1] + 1 if asked else 0
    for index, content in enumerate(contents[start:], start):
        first = next((p for p in content.get("parts", []) if "functionCall" in p), None)
        if first is not None and not first.get("thoughtSignature"):
            name = first["functionCall"].get("name")
            return (
                "Function call is missing a thought_signature in functionCall parts. Additional data, function call "
                f"`default_api:{name}`, position {index + 1}."
            )
    return None
