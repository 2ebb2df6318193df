"""asking: servers that ask a person for input while they work on a call.

Nobody can be waited for then: a run parks, and its servers end. So the server is told no, and where its call fails for
that, a person is asked; with the answer the call is made once more, and the same question is answered at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.state.calls import FilledForm, Form
from interlock.state.text import clean, clean_json

if TYPE_CHECKING:
    from mcp.types import ElicitResult, ErrorData

_URL_NEEDED = -32042
"""The server wants a page to be visited before it does the call (`URLElicitationRequiredError`)."""
_LATER = "Nobody can be asked while the call is under way. Once a person has answered, it is made again."


class InputWantedError(Exception):
    """The call failed, for want of this."""

    def __init__(self, form: Form) -> None:
        super().__init__(form.message)
        self.form = form


class CallInput:
    """What a call may be asked for, and what was given before."""

    def __init__(self, given: Sequence[FilledForm]) -> None:
        self._given = given
        self.wanted: Form | None = None

    def values(self, form: Form) -> dict[str, Any] | None:
        """An answer counts for the very question that the person was shown."""
        return next((filled.values for filled in self._given if filled.form == form), None)


def answer(under_way: Sequence[CallInput], params: Any) -> "ElicitResult | ErrorData":
    """A server's question; it doesn't say of which call."""
    from mcp.types import INVALID_REQUEST, ElicitResult, ErrorData

    form = form_of(params)
    for call in under_way:
        if (values := call.values(form)) is not None:
            return ElicitResult(action="accept", content=None if form.url else values)
    if under_way:
        under_way[-1].wanted = form
    return ErrorData(code=INVALID_REQUEST, message=_LATER)


def form_of(params: Any) -> Form:
    if params.mode == "url":
        return Form(message=clean(params.message), url=clean(params.url))
    schema: Any = clean_json(dict(params.requested_schema))
    fields: dict[str, Any] = {n: f for n, f in schema.get("properties", {}).items() if isinstance(f, dict)}
    needed = tuple(name for name in schema.get("required") or () if name in fields)
    return Form(message=clean(params.message), fields=fields, needed=needed)


def page_wanted(error: Any) -> Form | None:
    """The page that an error asks for."""
    if error is None or error.code != _URL_NEEDED:
        return None
    from mcp.types import ElicitRequestURLParams
    from pydantic import ValidationError

    try:
        return form_of(ElicitRequestURLParams.model_validate(error.data["elicitations"][0]))
    except (KeyError, IndexError, TypeError, ValidationError):
        return None
