"""content: converts servers' answers to text, keeping images and other bytes apart, and handles their input requests.

A call can't wait for a person: the run parks and its servers end. So the server's request is declined; if its call then
fails, the person is asked, the call is repeated, and the same request is answered at once.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from interlock.state.forms import FilledForm, Form
from interlock.state.text import clean_json, replace_surrogates

if TYPE_CHECKING:
    from mcp.types import ElicitResult, ErrorData


@dataclass(frozen=True)
class BinaryPart:
    """Bytes in an answer; `place` marks their position in its text."""

    place: str
    kind: Literal["image", "audio", "file"]
    mime_type: str
    data: bytes


@dataclass(frozen=True)
class Content:
    """An answer: its texts in order, with marks where bytes were."""

    text: str
    data: tuple[BinaryPart, ...] = ()
    is_error: bool = False


def tool_result_to_content(result: Any) -> Content:
    """Convert a tool's result. Content that is only structured becomes JSON."""
    parts = [_convert_content_block(block, place) for place, block in enumerate(result.content)]
    made = _join_parts(parts, bool(result.is_error))
    if made.text or result.structured_content is None:
        return made
    text = json.dumps(result.structured_content, ensure_ascii=False, indent=2)
    return Content(replace_surrogates(text), made.data, made.is_error)


def resource_result_to_content(result: Any) -> Content:
    return _join_parts([_convert_resource(c, i) for i, c in enumerate(result.contents)])


def prompt_result_to_content(result: Any) -> Content:
    """Convert a prompt's messages; each is prefixed with its role if roles differ."""
    parts: list[str | BinaryPart] = []
    several = len({m.role for m in result.messages}) > 1
    for place, message in enumerate(result.messages):
        parts += [f"[{message.role}]"] if several else []
        parts.append(_convert_content_block(message.content, place))
    return _join_parts(parts)


def _join_parts(parts: list[str | BinaryPart], is_error: bool = False) -> Content:
    texts = [part if isinstance(part, str) else part.place for part in parts]
    data = tuple(part for part in parts if isinstance(part, BinaryPart))
    return Content(replace_surrogates("\n\n".join(text for text in texts if text)), data, is_error)


def _convert_content_block(block: Any, index: int) -> str | BinaryPart:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _decode_data(block.data, block.type, block.mime_type, index)
        case "resource":
            found = _convert_resource(block.resource, index)
            return f"[resource {block.resource.uri}]\n{found}" if isinstance(found, str) else found
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[resource {block.uri} ({block.mime_type or 'unknown type'}){about}]"
        case other:
            return f"[{other}: of a kind that can't be shown]"


def _convert_resource(contents: Any, index: int) -> str | BinaryPart:
    if hasattr(contents, "text"):
        return contents.text
    mime = contents.mime_type or "application/octet-stream"
    return _decode_data(contents.blob, "image" if mime.startswith("image/") else "file", mime, index)


def _decode_data(
    text: str, kind: Literal["image", "audio", "file"], mime: str, index: int
) -> str | BinaryPart:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} ({mime}): its data can't be read]"
    return BinaryPart(f"[[{kind} {index}]]", kind, mime, data)


_URL_NEEDED = -32042
"""The server requires visiting a page before it executes the call (`URLElicitationRequiredError`)."""
_LATER = "Nobody can be asked while the call is under way. Once a person has answered, it is made again."


class InputWantedError(Exception):
    """The call failed for lack of this input."""

    def __init__(self, form: Form) -> None:
        super().__init__(form.message)
        self.form = form


class CallInput:
    """The input a call asked for, and the input given to it."""

    def __init__(self, filled: Sequence[FilledForm]) -> None:
        self._filled = filled
        self.wanted: Form | None = None

    def values_for(self, form: Form) -> dict[str, Any] | None:
        """Return the values given for exactly this form, the one the person was shown."""
        return next((filled.values for filled in self._filled if filled.form == form), None)


def answer_input_request(calls_in_flight: Sequence[CallInput], params: Any) -> "ElicitResult | ErrorData":
    """Answer a server's request for input, which doesn't say which call it belongs to."""
    from mcp.types import INVALID_REQUEST, ElicitResult, ErrorData

    form = to_input_form(params)
    for call in calls_in_flight:
        if (values := call.values_for(form)) is not None:
            return ElicitResult(action="accept", content=None if form.url else values)
    if calls_in_flight:
        calls_in_flight[-1].wanted = form
    return ErrorData(code=INVALID_REQUEST, message=_LATER)


def to_input_form(params: Any) -> Form:
    if params.mode == "url":
        return Form(message=replace_surrogates(params.message), url=replace_surrogates(params.url))
    schema: Any = clean_json(dict(params.requested_schema))
    fields: dict[str, Any] = {n: f for n, f in schema.get("properties", {}).items() if isinstance(f, dict)}
    needed = tuple(name for name in schema.get("required") or () if name in fields)
    return Form(message=replace_surrogates(params.message), fields=fields, needed=needed)


def requested_page_form(error: Any) -> Form | None:
    """Return the page that an error asks to visit, if any."""
    if error is None or error.code != _URL_NEEDED:
        return None
    from mcp.types import ElicitRequestURLParams
    from pydantic import ValidationError

    try:
        return to_input_form(ElicitRequestURLParams.model_validate(error.data["elicitations"][0]))
    except (KeyError, IndexError, TypeError, ValidationError):
        return None
