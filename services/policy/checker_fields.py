"""checker_fields: the fields of a `[[safety_checker]]`, as written in a file, and the rule that carries it."""

from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from interlock.services.policy.fields import first_error, to_rule
from interlock.services.policy.rule import Checker, Rule

_TIME_LIMIT_S = 5.0
"""Seconds that an external checker may take (gemini-cli)."""


class _InProcess(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["in-process"]
    name: Literal["allowed-path"]
    config: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    required_context: list[str] = Field(default_factory=list[str])


class _External(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["external"]
    command: str = Field(pattern=r"\S")
    """A line for bash."""
    name: str = ""
    timeout: Annotated[float, Field(gt=0, le=600)] = _TIME_LIMIT_S
    """Seconds."""
    config: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    required_context: list[str] = Field(default_factory=list[str])


class _CheckerFields(BaseModel):
    checker: Annotated[_InProcess | _External, Field(discriminator="type")]


def to_checker(table: dict[str, Any], source: str, tier: int) -> Rule:
    """A rule that never decides by itself. Raises `ValueError` whose text names the field."""
    if "decision" in table:
        raise ValueError("a safety checker has no decision: what it says is the decision")
    given = {**table}
    if not isinstance(given.get("checker"), dict):
        raise ValueError("checker is missing, expected a table [safety_checker.checker] with its type")
    try:
        fields = _CheckerFields.model_validate({"checker": given.pop("checker", None)}).checker
    except ValidationError as error:
        raise ValueError(first_error(error, _CheckerFields)) from None
    rule = to_rule({**given, "decision": "ask"}, source, tier)
    if isinstance(fields, _External):
        checker = Checker(
            fields.name or fields.command.split()[0], fields.config, fields.command, fields.timeout
        )
    else:
        checker = Checker(fields.name, _arguments(fields.config))
    return replace(rule, checker=checker)


def _arguments(config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    known = ("included_args", "excluded_args")
    for key, value in config.items():
        names = cast(list[object], value) if key in known and isinstance(value, list) else [None]
        if not all(isinstance(n, str) for n in names):
            raise ValueError(f"checker.config.{key}: expected {' or '.join(known)}, each a list of names")
    return config
