"""form: what an MCP server asks of a person while it works on a call, and what the person gave."""

from pydantic import Field, JsonValue

from interlock.state.messages import Frozen


class Form(Frozen):
    """One request for input."""

    message: str
    """The server's own words; what is shown of them is made visible."""
    fields: dict[str, dict[str, JsonValue]] = Field(default_factory=dict[str, dict[str, JsonValue]])
    """Name → JSON schema of a single value, as the server gave it; none: only a yes is asked for."""
    needed: tuple[str, ...] = ()
    url: str = ""
    """A page that the person is to visit."""


class FilledForm(Frozen):
    """A form, with what a person gave for each field."""

    form: Form
    values: dict[str, JsonValue]
