"""forms: what an MCP server asks a person for, and the values that the person gave."""

from pydantic import Field, JsonValue

from interlock.state.messages import Frozen


class Form(Frozen):
    """One request for input from an MCP server."""

    message: str
    """The server's own words; hidden characters are made visible before display."""
    fields: dict[str, dict[str, JsonValue]] = Field(default_factory=dict[str, dict[str, JsonValue]])
    """Name → JSON schema of a single value, as the server sent it; empty: only a yes is requested."""
    needed: tuple[str, ...] = ()
    url: str = ""
    """A page the person should visit."""


class FilledForm(Frozen):
    """A form with the person's value for each field."""

    form: Form
    values: dict[str, JsonValue]
